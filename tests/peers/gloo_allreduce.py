#!/usr/bin/env python3
"""Synchronous data parallelism by hand: each process computes a gradient, Gloo sums them up, each takes the same step."""

import argparse
import json

import gloo  # first: it says how many threads PyTorch has
import torch
import torch.distributed as dist

import job


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    job.add_options(parser)
    gloo.add_options(parser)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    job.check_options(parser, args)
    others = gloo.join(args, args.workers)

    flat = gloo.Flat(job.network(args.seed))
    loss = torch.nn.NLLLoss()
    partition = job.load(args.data, "train", slice(args.rank, None, args.workers))
    stream = job.batches(*partition, args.batch, args.seed + args.rank)
    step = job.LEARNING_RATE / args.workers
    budget = job.Budget(args, job.count_samples(args.data, "train"))
    while True:
        flat.compute(loss, *next(stream))
        budget.count(gradients=args.workers)
        if args.rank == 0 and not budget.goes_on():
            gloo.say_over(flat.gradients)
        dist.all_reduce(flat.gradients)
        flat.weights.sub_(flat.gradients, alpha=step)
        if budget.updates == 1:
            budget.first_update_done()
        if gloo.is_over(flat.gradients):
            break
    results = budget.results()
    gloo.leave(args, others)
    if args.rank == 0:
        results["accuracy"] = job.accuracy(flat.model, *job.load(args.data, "test"))
        print(json.dumps(results))


if __name__ == "__main__":
    main()
