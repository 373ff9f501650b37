#!/usr/bin/env python3
"""hivemind's averaging of a vector of so many values among processes: how often a second.

Each process ends with the mean of the vectors of all. The processes meet in a distributed hash table and form a group
again for each averaging, since any of them may have left.
"""

import argparse
import json
import os
import signal
import subprocess
import sys

# One thread a process, as in all of these scripts. PyTorch would take one a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hivemind
import torch

import common

LISTEN = ["/ip4/127.0.0.1/tcp/0"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common.add_bytes_options(
        parser, "averagings", "write the gradient before each one, and take a step with the mean after it"
    )
    parser.add_argument("--ranks", type=int, default=2, help="how many processes take part")
    # For the further processes, which this script starts as itself.
    parser.add_argument("--meet", nargs="*", help="addresses of the first process; not for use by hand")
    args = parser.parse_args()
    common.check_bytes_options(parser, args)
    torch.set_num_threads(1)

    dht = hivemind.DHT(host_maddrs=LISTEN, initial_peers=args.meet or [], start=True)
    others = []
    if args.meet is None:
        addresses = [str(address) for address in dht.get_visible_maddrs()]
        command = [sys.executable, *sys.argv, "--meet", *addresses]
        # Each has processes of its own, which end with its session.
        start = lambda: subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        others = [start() for _ in range(1, args.ranks)]
    weights = torch.zeros(args.values if args.apply else 0)
    averager = hivemind.averaging.DecentralizedAverager(
        [torch.zeros(args.values)],
        dht,
        prefix="bytes",
        target_group_size=args.ranks,
        min_group_size=args.ranks,
        start=True,
    )

    def averaged():
        try:
            return averager.step(timeout=30) is not None
        except hivemind.averaging.partition.AllreduceException:
            return False  # the group has fallen apart, and the processes form another one

    def turn():
        if args.apply:
            with averager.get_tensors() as (vector,):
                vector.zero_()
        while not averaged():
            pass
        if args.apply:
            with averager.get_tensors() as (vector,):
                weights.sub_(vector, alpha=common.LEARNING_RATE)

    if args.meet is not None:
        # An averaging may succeed at some processes and fail at others, so the first one counts.
        while True:
            turn()
    per_s = common.turns_per_s(turn, args.count)
    for other in others:
        if other.poll() is not None:
            sys.exit(f"a further process ended with status {other.returncode}")
        os.killpg(other.pid, signal.SIGKILL)
    averager.shutdown()
    dht.shutdown()
    print(json.dumps({"per_s": per_s}))


if __name__ == "__main__":
    main()
