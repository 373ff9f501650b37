#!/usr/bin/env python3
"""torch.nn.parallel.DistributedDataParallel over Gloo: PyTorch's own synchronous data parallelism."""

import argparse
import json

import gloo  # first: it says how many threads PyTorch has
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import job

# How many updates are between two times that the first process says whether the run is over.
UPDATES_BETWEEN = 50


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    job.add_options(parser)
    gloo.add_options(parser)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    job.check_options(parser, args)
    others = gloo.join(args, args.workers)

    # The gradients are parts of the vector that is sent, without a copy.
    model = DistributedDataParallel(job.network(args.seed), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=job.LEARNING_RATE)
    loss = torch.nn.NLLLoss()
    partition = job.load(args.data, "train", slice(args.rank, None, args.workers))
    stream = job.batches(*partition, args.batch, args.seed + args.rank)
    budget = job.Budget(args, job.count_samples(args.data, "train"))
    over = torch.zeros(1)
    while not gloo.is_over(over):
        inputs, classes = next(stream)
        optimizer.zero_grad()
        # The backward pass ends with the mean of all processes' gradients.
        loss(model(inputs), classes).backward()
        optimizer.step()
        budget.count(gradients=args.workers)
        if budget.updates == 1:
            budget.first_update_done()
        if budget.updates % UPDATES_BETWEEN == 0:
            if not budget.goes_on():
                gloo.say_over(over)
            dist.broadcast(over, src=0)
    results = budget.results()
    gloo.leave(args, others)
    if args.rank == 0:
        results["accuracy"] = job.accuracy(model.module, *job.load(args.data, "test"))
        print(json.dumps(results))


if __name__ == "__main__":
    main()
