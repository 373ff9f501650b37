"""The program `pstrain`: where it is, how it is started, how it ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from types import TracebackType
from typing import Any, BinaryIO, Iterator, List, Mapping, Optional, Sequence, Type, Union, cast

#: The value of a setting.
Setting = Union[None, bool, int, float, str, Sequence[Any], Mapping[str, Any]]

#: How many of its last messages an error repeats.
_LAST_LINES = 8

#: How long the program may take to end by itself.
_PATIENCE = 5.0


class ProgramError(Exception):
    """`pstrain` ended without reaching its goal. `code` is its exit code, as in its help."""

    def __init__(self, command: str, code: int, said: str) -> None:
        super().__init__(f"pstrain {command} ended with exit code {code}\n{said}".rstrip())
        self.code = code


def find() -> str:
    """The path of the program: `$PSTRAIN`, or as installed with this module, or in the PATH."""
    named = os.environ.get("PSTRAIN")
    if named:
        return named
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    folders.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    found = shutil.which("pstrain", path=os.pathsep.join(folders)) or shutil.which("pstrain")
    if found is None:
        raise FileNotFoundError("the program pstrain is not installed; or name it in $PSTRAIN")
    return found


def flags(settings: Mapping[str, Setting]) -> List[str]:
    """Settings as arguments: `learning_rate=0.1` is `--learning-rate 0.1`; a list repeats its
    setting; `{"2": "delay=100ms"}` is `2.delay=100ms`; None and False leave it out."""
    return [flag for key, value in settings.items() for flag in _flag(key, value)]


def _flag(key: str, value: Setting) -> Iterator[str]:
    # `links` reads better for several.
    name = "--" + ("link" if key == "links" else key.replace("_", "-"))
    if value is None or value is False:
        return
    if value is True:
        yield name
    elif isinstance(value, Mapping):
        yield from (f"{name}={text}" for text in _items(value))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _flag(key, item)
    else:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        # One word, since a value may begin with a dash.
        yield f"{name}={value}"


def _items(of: Mapping[str, Any]) -> Iterator[str]:
    for key, value in of.items():
        if isinstance(value, Mapping):
            yield from (f"{key}.{text}" for text in _items(value))
        else:
            value = str(value)
            yield f"{key}.{value}" if "=" in value else f"{key}={value}"


class Program:
    """A running `pstrain`. It ends with the `with` block."""

    def __init__(self, arguments: List[str], **options: Any) -> None:
        self._command = arguments[0]
        self._last: List[str] = []
        # In a session of its own: Ctrl-C is for the script, which then ends it.
        self._child = subprocess.Popen(
            [find(), *arguments], stderr=subprocess.PIPE, start_new_session=True, **options
        )
        self.messages = cast(BinaryIO, self._child.stderr)

    def forward(self) -> bool:
        """Passes on one message of the program. Returns False once it has closed its end."""
        line = self.messages.readline().decode(errors="replace")
        if line:
            sys.stderr.write(line)
            text = line.rstrip().removeprefix("pstrain: ")
            self._last = [*self._last, *([text] if text else [])][-_LAST_LINES:]
        return bool(line)

    def wait(self) -> None:
        """Waits for the end.

        Raises ProgramError unless it has done its work, or stopped early on request.
        """
        code = self._child.wait()
        if code not in (0, 3):
            raise ProgramError(self._command, code, "\n".join(self._last))

    def stop(self) -> None:
        """Ends the program, if it has not ended: by request, and by force if that takes long."""
        if self._child.poll() is None:
            self._child.terminate()
        try:
            self._child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.stop()
        self.messages.close()
