#!/usr/bin/env python3
"""The plain PyTorch training loop, one process: what distribution is compared with. Or several that know nothing of
each other: what the machine has for them at once."""

import argparse
import json
import subprocess
import sys

import torch

import job


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    job.add_options(parser)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch (default 1; more is slower at this size)")
    parser.add_argument("--processes", type=int, default=1, help="of this loop, at once; their rates are added")
    args = parser.parse_args()
    job.check_options(parser, args)
    torch.set_num_threads(args.threads)
    # The last of the same options counts.
    same = [sys.executable, *sys.argv, "--processes=1"]
    others = [subprocess.Popen(same, stdout=subprocess.PIPE) for _ in range(args.processes - 1)]

    inputs, classes = job.load(args.data, "train")
    model = job.network(args.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=job.LEARNING_RATE)
    loss = torch.nn.NLLLoss()
    # Indexing a shuffled permutation, because a DataLoader costs about half of the rate.
    stream = job.batches(inputs, classes, args.batch, args.seed)

    budget = job.Budget(args, len(classes))
    while budget.goes_on():
        batch_inputs, batch_classes = next(stream)
        optimizer.zero_grad()
        loss(model(batch_inputs), batch_classes).backward()
        optimizer.step()
        budget.count(gradients=1)
        if budget.updates == 1:
            budget.first_update_done()
    results = budget.results()

    results["accuracy"] = job.accuracy(model, *job.load(args.data, "test"))
    for other in others:
        its = json.loads(other.communicate()[0])
        for rate in ("samples_per_s", "updates_per_s"):
            results[rate] += its[rate]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
