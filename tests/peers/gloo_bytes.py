#!/usr/bin/env python3
"""Gloo's all-reduce of so many values between two processes: how often a second."""

import argparse
import json
import time

import gloo  # first: it says how many threads PyTorch has
import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    gloo.add_options(parser)
    parser.add_argument("--values", type=int, required=True, help="of 4 bytes, in a vector")
    parser.add_argument("--count", type=int, required=True, help="of all-reduces")
    args = parser.parse_args()
    if args.values < 1 or args.count < 1:
        parser.error("--values and --count must be at least 1")
    others = gloo.join(args, 2)
    # Zeros stay zeros, however often they are added up.
    vector = torch.zeros(args.values)
    dist.all_reduce(vector)  # the first one makes connections and touches the memory
    began = time.perf_counter()
    for _ in range(args.count):
        dist.all_reduce(vector)
    seconds = time.perf_counter() - began
    gloo.leave(args, others)
    if args.rank == 0:
        print(json.dumps({"per_s": args.count / seconds}))


if __name__ == "__main__":
    main()
