#!/usr/bin/env python3
"""Records a command in a terminal of 80x24 as a .cast file (asciinema, format 2).

    record.py FILE.cast COMMAND [--press SECONDS:KEYS]...

The command runs in the current folder, as if typed at a prompt; --press types KEYS that many
seconds after it began. The exit status is the command's. `asciinema play FILE.cast` plays the
recording, and picture.py makes a picture of a moment of it. Needs the standard library alone.
"""

import argparse
import codecs
import fcntl
import json
import os
import pty
import select
import struct
import sys
import termios
import time

COLUMNS, ROWS = 80, 24
TYPING_S = 0.04
#: The last screen stays for a moment.
REST_S = 2.0


def start(command):
    """Starts the command on a new terminal; returns its process and the terminal's other end."""
    child, terminal = pty.fork()
    if child == 0:
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            os.environ.pop(name, None)
        os.environ["TERM"] = "xterm-256color"
        # The size is there before the command asks for it.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execvp("sh", ["sh", "-c", command])
    return child, terminal


def outputs(terminal, presses):
    """Yields what the command writes, and the seconds since it began; types what is due."""
    began = time.monotonic()
    presses = sorted(presses)
    while True:
        passed = time.monotonic() - began
        while presses and presses[0][0] <= passed:
            os.write(terminal, presses.pop(0)[1].encode())
        wait = presses[0][0] - passed if presses else None
        if not select.select([terminal], [], [], wait)[0]:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:  # Linux reports the end of a terminal so.
            data = b""
        if not data:
            return
        yield time.monotonic() - began, data


def typed(command):
    """The events of a person who types the command."""
    at = 0.5
    yield at, "$ "
    for letter in command:
        at += TYPING_S
        yield at, letter
    yield at + 0.3, "\r\n"


def record(command, presses=()):
    """Runs the command; returns its events and its exit status."""
    events = list(typed(command))
    begins = events[-1][0]
    child, terminal = start(command)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for at, data in outputs(terminal, presses):
        text = decoder.decode(data)
        if text:
            events.append((begins + at, text))
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    events.append((events[-1][0] + REST_S, decoder.decode(b"", final=True)))
    return events, status


def write(path, command, events):
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": command}
    header["env"] = {"TERM": "xterm-256color"}
    with open(path, "w", encoding="utf-8") as file:
        print(json.dumps(header), file=file)
        for at, text in events:
            print(json.dumps([round(at, 3), "o", text], ensure_ascii=False), file=file)


def press(text):
    seconds, _, keys = text.partition(":")
    return float(seconds), keys


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cast", metavar="FILE.cast")
    parser.add_argument("command")
    parser.add_argument("--press", metavar="SECONDS:KEYS", type=press, action="append", default=[])
    arguments = parser.parse_args()
    events, status = record(arguments.command, arguments.press)
    write(arguments.cast, arguments.command, events)
    return status


if __name__ == "__main__":
    sys.exit(main())
