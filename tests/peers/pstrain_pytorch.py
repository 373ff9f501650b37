#!/usr/bin/env python3
"""pstrain with the user's own PyTorch module and loop: a server, and workers that are this script."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

# One thread a process, as everywhere here; PyTorch would take one a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The module of this repository, next to the program that PSTRAIN names.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import pstrain
import torch
from pstrain import program

import job

CONSISTENCY = {"sync": "bsp", "async": "asp"}
# pstrain ended early because it was asked to.
STOPPED = 3


def work(args):
    """A worker; or, for the address -, the process that the server asks to evaluate."""
    torch.set_num_threads(1)
    inputs, classes = job.load(args.data, "train")
    model = job.network(args.seed)
    loss_of = torch.nn.NLLLoss()
    with pstrain.Worker(args.server, model=model, examples=len(classes)) as worker:

        if args.server == "-":
            test_inputs, test_classes = job.load(args.data, "test")

        @worker.evaluate
        def evaluate(_):
            scores = model(test_inputs)
            right = scores.argmax(dim=1) == test_classes
            return loss_of(scores, test_classes), right.float().mean()

        steps = 0
        for step in worker:
            loss = loss_of(model(inputs[step.rows]), classes[step.rows])
            loss.backward()
            step.push(loss)
            last_at = job.now()
            steps += 1
            if steps == 1:
                say(first_at=last_at)
    if args.server != "-":
        say(last_at=last_at, steps=steps)


def say(**figures):
    print(json.dumps(figures), flush=True)


def start(args):
    """Starts the server, and waits until it listens. Returns it and its address."""
    process = shlex.join(command(args, "-"))
    settings = {
        "process": process,
        "workers": args.workers,
        "consistency": CONSISTENCY[args.mode],
        "batch-size": args.batch,
        "learning-rate": job.LEARNING_RATE,
        "epochs": 10**6 if args.epochs is None else round(args.epochs),
        "seed": args.seed,
    }
    words = [program.find(), "server", "--listen=127.0.0.1:0", "--json", "--quiet", "--log=json"]
    words += [f"--{name}={value}" for name, value in settings.items()] + args.settings
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        said = json.loads(line) if line.startswith("{") else {}
        if "listening on " in said.get("message", ""):
            return server, said["message"].split("listening on ")[1].split()[0].rstrip(",;")
        sys.stderr.write(line)
    sys.exit(f"the server ended with status {server.wait()}")


def command(args, server):
    """This script as a further process."""
    same = [f"--data={args.data}", f"--batch={args.batch}", f"--seed={args.seed}", "--epochs=1"]
    return [sys.executable, os.path.abspath(__file__), *same, "--server", server]


def train(args):
    server, address = start(args)
    workers = [
        subprocess.Popen(command(args, address), stdout=subprocess.PIPE, text=True)
        for _ in range(args.workers)
    ]
    first_at = [json.loads(worker.stdout.readline())["first_at"] for worker in workers]
    started = job.process_started()
    if args.seconds is not None:
        try:
            server.wait(max(0, max(first_at) + args.seconds - job.now()))
        except subprocess.TimeoutExpired:
            server.terminate()
    ends = [json.loads(worker.stdout.readline()) for worker in workers]
    output, messages = server.communicate()
    if server.returncode not in (0, STOPPED) or any(worker.wait() != 0 for worker in workers):
        sys.exit(f"the server ended with status {server.returncode}\n{messages}")
    rates = [(end["steps"] - 1) / (end["last_at"] - first) for first, end in zip(first_at, ends)]
    # A synchronous update takes a gradient of each worker.
    gradients = args.workers if args.mode == "sync" else 1
    summary = json.loads(output)
    say(
        samples_per_s=sum(rates) * args.batch,
        updates_per_s=sum(rates) / gradients,
        updates=summary["updates"],
        epochs=summary["epochs"],
        time_s=max(end["last_at"] for end in ends) - min(first_at),
        start_s=max(first_at) - started,
        accuracy=summary["accuracy"],
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    job.add_options(parser)
    parser.add_argument("--mode", choices=CONSISTENCY, default="sync")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--server", help="of a further process; not for use by hand")
    parser.add_argument("settings", nargs="*", metavar="--SETTING=VALUE", help="of pstrain, after --")
    args = parser.parse_args()
    job.check_options(parser, args)
    if args.server is None:
        train(args)
    else:
        work(args)


if __name__ == "__main__":
    main()
