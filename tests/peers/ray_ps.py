#!/usr/bin/env python3
"""A Ray parameter server: one actor owns the model, worker actors send it gradients."""

import argparse
import json
import os

# Before the import: a benchmark neither reports home nor lets Ray guess a thread count.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import ray
import torch

import job

# How far the driver of the synchronous loop runs ahead of the actors. Waiting for each round would
# add the driver's round trip to all of them; never waiting would queue the whole run at once.
ROUNDS_AHEAD = 10


@ray.remote
class ParameterServer:
    def __init__(self, seed):
        torch.set_num_threads(1)
        self.model = job.network(seed)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=job.LEARNING_RATE)

    def weights(self):
        return [parameter.detach().numpy() for parameter in self.model.parameters()]

    def apply(self, *gradients):
        """One update with the mean of the given gradients; answers with the new weights."""
        for parameter, parts in zip(self.model.parameters(), zip(*gradients)):
            parameter.grad = torch.from_numpy(sum(parts) / len(parts))
        self.optimizer.step()
        return self.weights()


@ray.remote
class Worker:
    def __init__(self, number, of, data, batch, seed):
        torch.set_num_threads(1)
        self.model = job.network(seed)
        self.loss = torch.nn.NLLLoss()
        partition = job.load(data, "train", slice(number, None, of))
        self.stream = job.batches(*partition, batch, seed + number)

    def ready(self):
        return True

    def gradient(self, weights):
        set_weights(self.model, weights)
        inputs, classes = next(self.stream)
        self.model.zero_grad()
        self.loss(self.model(inputs), classes).backward()
        return [parameter.grad.numpy() for parameter in self.model.parameters()]


def set_weights(model, weights):
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights):
            # Ray hands out read-only arrays; `tensor` copies, which spares its warning about them.
            parameter.copy_(torch.tensor(value))


def train_sync(server, workers, budget):
    weights = server.weights.remote()
    while budget.goes_on():
        weights = server.apply.remote(*[worker.gradient.remote(weights) for worker in workers])
        budget.count(gradients=len(workers))
        if budget.updates == 1 or budget.updates % ROUNDS_AHEAD == 0:
            ray.wait([weights])
            if budget.updates == 1:
                budget.first_update_done()
    return ray.get(weights)


def train_async(server, workers, budget):
    weights = server.weights.remote()
    pending = {worker.gradient.remote(weights): worker for worker in workers}
    while budget.goes_on():
        (gradient,), _ = ray.wait(list(pending), num_returns=1)
        worker = pending.pop(gradient)
        weights = server.apply.remote(gradient)
        pending[worker.gradient.remote(weights)] = worker
        budget.count(gradients=1)
        if budget.updates == 1:
            ray.wait([weights])
            budget.first_update_done()
    return ray.get(weights)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    job.add_options(parser)
    parser.add_argument("--mode", choices=("sync", "async"), default="sync")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    job.check_options(parser, args)

    ray.init(
        address="local",
        # One slot for each actor, whatever the machine has: too few and the actors wait for ever.
        num_cpus=args.workers + 1,
        # Messages of 8 KB need no store of a third of the memory, which is what Ray would reserve.
        object_store_memory=100 * 1024 * 1024,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    server = ParameterServer.remote(args.seed)
    data = os.path.abspath(args.data)
    workers = [Worker.remote(i, args.workers, data, args.batch, args.seed) for i in range(args.workers)]
    ray.get([worker.ready.remote() for worker in workers])
    test_inputs, test_classes = job.load(args.data, "test")

    budget = job.Budget(args, job.count_samples(args.data, "train"))
    weights = (train_sync if args.mode == "sync" else train_async)(server, workers, budget)
    results = budget.results()

    model = job.network(args.seed)
    set_weights(model, weights)
    results["accuracy"] = job.accuracy(model, test_inputs, test_classes)
    ray.shutdown()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
