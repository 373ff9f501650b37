#!/usr/bin/env python3
"""A parameter server by send and receive over Gloo: the first process has the model, the others send it gradients."""

import argparse
import json

import gloo  # first: it says how many threads PyTorch has
import torch
import torch.distributed as dist

import job


def serve_sync(flat, workers, budget):
    gradients = [torch.zeros_like(flat.weights) for _ in range(workers)]
    step = job.LEARNING_RATE / workers
    while not gloo.is_over(flat.weights):
        # All receives at once: whoever is first need not wait for whoever is asked first.
        for waiting in [dist.irecv(gradients[i], src=i + 1) for i in range(workers)]:
            waiting.wait()
        for gradient in gradients:
            flat.weights.sub_(gradient, alpha=step)
        budget.count(gradients=workers)
        if not budget.goes_on():
            gloo.say_over(flat.weights)
        for waiting in [dist.isend(flat.weights, dst=i + 1) for i in range(workers)]:
            waiting.wait()
        if budget.updates == 1:
            budget.first_update_done()


def serve_async(flat, workers, budget):
    gradient = torch.zeros_like(flat.weights)
    while not gloo.is_over(flat.weights):
        worker = dist.recv(gradient)
        flat.weights.sub_(gradient, alpha=job.LEARNING_RATE)
        budget.count(gradients=1)
        if not budget.goes_on():
            gloo.say_over(flat.weights)
        dist.send(flat.weights, dst=worker)
        if budget.updates == 1:
            budget.first_update_done()
    # The others have one gradient each on the way, which comes too late.
    for _ in range(workers - 1):
        dist.send(flat.weights, dst=dist.recv(gradient))


def work(flat, args):
    loss = torch.nn.NLLLoss()
    number = args.rank - 1
    partition = job.load(args.data, "train", slice(number, None, args.workers))
    stream = job.batches(*partition, args.batch, args.seed + number)
    while not gloo.is_over(flat.weights):
        flat.compute(loss, *next(stream))
        dist.send(flat.gradients, dst=0)
        # Straight into the parameters, which are parts of this vector.
        dist.recv(flat.weights, src=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    job.add_options(parser)
    gloo.add_options(parser)
    parser.add_argument("--mode", choices=("sync", "async"), default="sync")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    job.check_options(parser, args)
    others = gloo.join(args, args.workers + 1)

    # The same seed everywhere: all begin with the same parameters.
    flat = gloo.Flat(job.network(args.seed))
    if args.rank > 0:
        work(flat, args)
        gloo.leave(args, others)
        return
    budget = job.Budget(args, job.count_samples(args.data, "train"))
    (serve_sync if args.mode == "sync" else serve_async)(flat, args.workers, budget)
    results = budget.results()
    gloo.leave(args, others)
    results["accuracy"] = job.accuracy(flat.model, *job.load(args.data, "test"))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
