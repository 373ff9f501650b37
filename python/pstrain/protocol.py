"""Messages between pstrain and a compute process: a line of JSON, then raw values.

docs/compute-process.md describes the protocol.
"""

from __future__ import annotations

import array
import functools
import json
import os
import socket
import stat
import sys
from typing import Any, BinaryIO, Dict, Optional, Tuple, Union, cast

VERSION = 1

#: The encoder of `json.dumps`, without the look at all its settings.
_encode = json.JSONEncoder().encode

#: Messages up to this size travel in one write.
_BUFFER = 128 * 1024

if sys.byteorder != "little":
    raise ImportError("pstrain's Python module needs a little-endian machine")


class ProtocolError(Exception):
    """pstrain closed the connection in the middle of a message, or sent something unexpected."""


@functools.lru_cache(maxsize=None)
def reserve() -> Tuple[int, int]:
    """Reserves standard input and output for the protocol, and returns their new descriptors.

    From now on, prints of this process and its children go to standard error, and what they read
    is empty. Children do not inherit the new descriptors.
    """
    sys.stdout.flush()
    reserved = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return reserved


def is_process() -> bool:
    """True if pstrain has started this process: standard input and output are one socket then."""
    try:
        source, sink = os.fstat(0), os.fstat(1)
    except OSError:  # One of them is closed.
        return False
    return stat.S_ISSOCK(source.st_mode) and os.path.samestat(source, sink)


class Connection:
    """One end of a connection to pstrain."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink

    @classmethod
    def of_socket(cls, stream: socket.socket) -> Connection:
        """Speaks over a connected socket, which it takes over, and closes in the end."""
        # A plain file: reading one calls no Python code, as reading a socket's file does.
        descriptor = stream.detach()
        return cls._of_files(descriptor, os.dup(descriptor))

    @classmethod
    def of_process(cls) -> Connection:
        """Speaks over this process's standard input and output."""
        return cls._of_files(*reserve())

    @classmethod
    def _of_files(cls, source: int, sink: int) -> Connection:
        return cls(os.fdopen(source, "rb", _BUFFER), os.fdopen(sink, "wb", _BUFFER))

    def read_line(self) -> Optional[Dict[str, Any]]:
        """Reads the line of a request; None if pstrain has closed the connection."""
        try:
            line = self._source.readline()
        except ConnectionError:
            return None
        if not line:
            return None
        request = json.loads(line) if line.endswith(b"\n") else None
        if not isinstance(request, dict):
            raise ProtocolError(f"pstrain sent {line[:80]!r}, which is no request")
        return request

    def read_into(self, values: memoryview) -> None:
        """Reads the values after a line into the bytes of `values`."""
        got = cast(Any, self._source).readinto(values)
        while got < len(values):
            more = cast(Any, self._source).readinto(values[got:])
            if not more:
                raise ProtocolError("pstrain closed the connection in the middle of a message")
            got += more

    def read_rows(self, count: int) -> array.array[int]:
        """Reads the row numbers that follow the values, 32-bit numbers without a sign."""
        rows = array.array("I", bytes(4 * count))
        self.read_into(memoryview(rows).cast("B"))
        return rows

    def write(self, answer: Dict[str, Any], values: Union[bytes, memoryview] = b"") -> None:
        """Writes an answer, and the values after it."""
        if values:
            answer = {**answer, "values": len(values) // 4}
        self._sink.write(f"{_encode(answer)}\n".encode())
        self._sink.write(values)
        self._sink.flush()

    def close(self) -> None:
        """Closes both directions."""
        for stream in (self._source, self._sink):
            try:
                stream.close()
            except OSError:  # The other end is gone, with bytes left to write.
                pass
