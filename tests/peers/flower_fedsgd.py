#!/usr/bin/env python3
"""Flower with one mini-batch a round: clients step, the server takes the mean of their parameters.

With equal batches, plain SGD and everybody on the same parameters that mean is the parameters after a step with the
mean gradient, so a round is a synchronous update. Over gRPC through `start_server` and `start_client`, which Flower
calls deprecated: see README.md for why.
"""

import argparse
import json
import os
import socket
import subprocess
import sys

# Before the imports: a benchmark neither reports home nor tells of each round.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import logging

import flwr
import torch
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays

import job


class Client(flwr.client.NumPyClient):
    def __init__(self, args):
        self.model = job.network(args.seed)
        self.batch = args.batch
        self.loss = torch.nn.NLLLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=job.LEARNING_RATE)
        partition = job.load(args.data, "train", slice(args.client, None, args.workers))
        self.stream = job.batches(*partition, args.batch, args.seed + args.client)

    def fit(self, parameters, config):
        set_weights(self.model, parameters)
        inputs, classes = next(self.stream)
        self.optimizer.zero_grad()
        self.loss(self.model(inputs), classes).backward()
        self.optimizer.step()
        return weights(self.model), self.batch, {}


class Counting(flwr.server.strategy.FedAvg):
    """FedAvg that counts rounds as updates, and asks nobody once the budget is used up."""

    def __init__(self, budget, **settings):
        super().__init__(**settings)
        self.budget = budget
        self.results = None
        self.newest = None

    def configure_fit(self, server_round, parameters, client_manager):
        return super().configure_fit(server_round, parameters, client_manager) if self.results is None else []

    def aggregate_fit(self, server_round, results, failures):
        if failures:
            raise SystemExit(f"round {server_round}: {failures[0]!r}")
        self.newest, metrics = super().aggregate_fit(server_round, results, failures)
        self.budget.count(gradients=len(results))
        if self.budget.updates == 1:
            self.budget.first_update_done()
        if not self.budget.goes_on():
            self.results = self.budget.results()
        return self.newest, metrics


def weights(model):
    return [parameter.detach().numpy() for parameter in model.parameters()]


def set_weights(model, values):
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values):
            parameter.copy_(torch.from_numpy(value))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def serve(args):
    train_samples = job.count_samples(args.data, "train")
    model = job.network(args.seed)
    strategy = Counting(
        job.Budget(args, train_samples),
        fraction_evaluate=0.0,
        min_fit_clients=args.workers,
        min_available_clients=args.workers,
        initial_parameters=ndarrays_to_parameters(weights(model)),
    )
    address = f"127.0.0.1:{free_port()}"
    clients = [
        subprocess.Popen([sys.executable, *sys.argv, "--client", str(client), "--server", address])
        for client in range(args.workers)
    ]
    # Without epochs, more than there is time for: rounds without clients cost next to nothing.
    wanted = 10**5 if args.epochs is None else args.epochs * train_samples / (args.workers * args.batch)
    flwr.server.start_server(
        server_address=address,
        config=flwr.server.ServerConfig(num_rounds=int(wanted) + 1),
        strategy=strategy,
    )
    for client in clients:
        client.wait()
    set_weights(model, parameters_to_ndarrays(strategy.newest))
    results = strategy.results or strategy.budget.results()
    results["accuracy"] = job.accuracy(model, *job.load(args.data, "test"))
    print(json.dumps(results))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    job.add_options(parser)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--client", type=int, help="of a further process; not for use by hand")
    parser.add_argument("--server", help="of a further process; not for use by hand")
    args = parser.parse_args()
    job.check_options(parser, args)
    torch.set_num_threads(1)
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    if args.client is None:
        serve(args)
    else:
        flwr.client.start_client(server_address=args.server, client=Client(args).to_client())


if __name__ == "__main__":
    main()
