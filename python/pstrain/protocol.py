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
from typing import Any, BinaryIO, Dict, List, Optional, Union, cast

VERSION = 1

#: Messages up to this size travel in one write.
_BUFFER = 128 * 1024

if sys.byteorder != "little":
    raise ImportError("pstrain's Python module needs a little-endian machine")


class ProtocolError(Exception):
    """pstrain closed the connection in the middle of a message, or sent something unexpected."""


@functools.lru_cache(maxsize=None)
def reserve_output() -> int:
    """Reserves standard output for the protocol: from now on, prints go to standard error."""
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    return output


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
        """Speaks over a connected socket, which it closes in the end."""
        with stream:  # The socket itself stays open for these two.
            source = cast(BinaryIO, stream.makefile("rb", _BUFFER))
            return cls(source, cast(BinaryIO, stream.makefile("wb", _BUFFER)))

    @classmethod
    def of_process(cls) -> Connection:
        """Speaks over this process's standard input and output."""
        return cls(os.fdopen(os.dup(0), "rb", _BUFFER), os.fdopen(reserve_output(), "wb", _BUFFER))

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
        got = 0
        while got < len(values):
            more = cast(Any, self._source).readinto(values[got:])
            if not more:
                raise ProtocolError("pstrain closed the connection in the middle of a message")
            got += more

    def read_rows(self, count: int) -> List[int]:
        """Reads the row numbers that follow the values."""
        rows = array.array("I", bytes(4 * count))
        self.read_into(memoryview(rows).cast("B"))
        return rows.tolist()

    def write(self, answer: Dict[str, Any], values: Union[bytes, memoryview] = b"") -> None:
        """Writes an answer, and the values after it."""
        if values:
            answer = {**answer, "values": len(values) // 4}
        self._sink.write(json.dumps(answer).encode() + b"\n")
        self._sink.write(values)
        self._sink.flush()

    def close(self) -> None:
        """Closes both directions."""
        for stream in (self._source, self._sink):
            try:
                stream.close()
            except OSError:  # The other end is gone, with bytes left to write.
                pass
