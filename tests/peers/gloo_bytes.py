#!/usr/bin/env python3
"""Gloo's all-reduce of so many values between two processes: how often a second."""

import argparse
import json
import time

import gloo  # first: it says how many threads PyTorch has
import torch
import torch.distributed as dist

import job


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    gloo.add_options(parser)
    parser.add_argument("--values", type=int, required=True, help="of 4 bytes, in a vector")
    parser.add_argument("--count", type=int, required=True, help="of all-reduces")
    parser.add_argument(
        "--apply",
        action="store_true",
        help="write the gradient before each one, and take a step with the sum after it",
    )
    args = parser.parse_args()
    if args.values < 1 or args.count < 1:
        parser.error("--values and --count must be at least 1")
    others = gloo.join(args, 2)
    # Zeros stay zeros, however often they are added up.
    vector, weights = torch.zeros(args.values), torch.zeros(args.values if args.apply else 0)

    def turn():
        if args.apply:
            vector.zero_()
        dist.all_reduce(vector)
        if args.apply:
            weights.sub_(vector, alpha=job.LEARNING_RATE / 2)

    turn()  # the first one makes connections and touches the memory
    began = time.perf_counter()
    for _ in range(args.count):
        turn()
    seconds = time.perf_counter() - began
    gloo.leave(args, others)
    if args.rank == 0:
        print(json.dumps({"per_s": args.count / seconds}))


if __name__ == "__main__":
    main()
