#!/usr/bin/env python3
"""hivemind's averaging of so many values among processes: how often a second.

Each process ends with the mean of the vectors of all. The processes find each other again for each averaging, since
any of them may be gone.
"""

import argparse
import json
import os
import subprocess
import sys

# One thread a process, as everywhere here; PyTorch would take one a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hivemind
import torch

import common

LISTEN = ["/ip4/127.0.0.1/tcp/0"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, required=True, help="of 4 bytes, in a vector")
    parser.add_argument("--count", type=int, required=True, help="of averagings")
    parser.add_argument("--ranks", type=int, default=2, help="how many processes take part")
    parser.add_argument(
        "--matchmaking", type=float, default=5.0, help="seconds in which a group waits for others (hivemind's default: 5)"
    )
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
        others = [subprocess.Popen(command) for _ in range(1, args.ranks)]
    averager = hivemind.averaging.DecentralizedAverager(
        [torch.zeros(args.values)],
        dht,
        prefix="bytes",
        target_group_size=args.ranks,
        min_group_size=args.ranks,
        min_matchmaking_time=args.matchmaking,
        start=True,
    )

    def turn():
        # A group that falls apart is formed again.
        while averager.step(timeout=120) is None:
            pass

    per_s = common.turns_per_s(turn, args.count)
    averager.shutdown()
    for other in others:
        if other.wait() != 0:
            sys.exit(f"a further process ended with status {other.returncode}")
    dht.shutdown()
    if args.meet is None:
        print(json.dumps({"per_s": per_s}))


if __name__ == "__main__":
    main()
