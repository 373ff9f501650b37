#!/usr/bin/env python3
"""Runs a command that prints one JSON object, and watches from outside what memory it takes.

Prints the object with three fields more: `started` and `ended`, the clock around the command (seconds since
1970), and `pss_mib`, the most that it and all processes below it took at a time. PSS counts a page that several
processes share once; null where the kernel does not show it.
"""

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# Watching takes at most this share of one core: a look at Ray's processes costs tens of milliseconds.
SHARE_OF_A_CORE = 0.02
SHORTEST_PAUSE_S = 0.02
PR_SET_CHILD_SUBREAPER = 36


def below():
    """The processes below this one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        parents[int(stat.parent.name)] = int(fields[1])
    found, grown = {os.getpid()}, True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in found} - found
        found |= children
        grown = bool(children)
    return found - {os.getpid()}


def pss_mib(processes):
    kib = 0
    for pid in processes:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except PermissionError:
            return None
        except OSError:
            continue
        kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


def watch(process):
    """The greatest memory until the process ends."""
    greatest = 0.0
    while process.poll() is None:
        began = time.process_time()
        memory = pss_mib(below())
        if greatest is not None:
            greatest = None if memory is None else max(greatest, memory)
        cost = time.process_time() - began
        try:
            process.wait(max(SHORTEST_PAUSE_S, cost / SHARE_OF_A_CORE))
        except subprocess.TimeoutExpired:
            pass
    return greatest


def end_the_rest():
    """Whatever the command left behind, for the next one is to have the machine for itself."""
    for pid in below():
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=600, help="seconds after which the command is ended")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if not args.command:
        parser.error("the command is missing")
    # Orphans come to this process, not to the first of the machine: what daemons take counts too.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"past the limit of {args.limit:g} s"))
    signal.setitimer(signal.ITIMER_REAL, args.limit)
    started = time.time()
    process = subprocess.Popen(args.command, stdout=subprocess.PIPE, text=True)
    try:
        memory = watch(process)
        ended = time.time()
        output = process.stdout.read()
    finally:
        end_the_rest()
    if process.returncode != 0:
        sys.exit(f"{args.command[0]} ended with status {process.returncode}")
    try:
        result = json.loads(output)
    except ValueError:
        sys.exit(f"{args.command[0]} printed no JSON object: {output[:200]!r}")
    print(json.dumps({"started": started, "ended": ended, "pss_mib": memory, "result": result}))


if __name__ == "__main__":
    main()
