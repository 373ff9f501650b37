#!/usr/bin/env python3
"""Gloo's all-reduce of so many values among processes: how often a second."""

import argparse
import json

import gloo  # first: it says how many threads PyTorch has
import torch
import torch.distributed as dist

import common


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    gloo.add_options(parser)
    common.add_bytes_options(
        parser, "all-reduces", "write the gradient before each one, and take a step with the sum after it"
    )
    parser.add_argument("--ranks", type=int, default=2, help="how many processes take part")
    args = parser.parse_args()
    common.check_bytes_options(parser, args)
    others = gloo.join(args, args.ranks)
    # Zeros stay zeros, however often they are added up.
    vector, weights = torch.zeros(args.values), torch.zeros(args.values if args.apply else 0)

    def turn():
        if args.apply:
            vector.zero_()
        dist.all_reduce(vector)
        if args.apply:
            weights.sub_(vector, alpha=common.LEARNING_RATE / args.ranks)

    per_s = common.turns_per_s(turn, args.count)
    gloo.leave(args, others)
    if args.rank == 0:
        print(json.dumps({"per_s": per_s}))


if __name__ == "__main__":
    main()
