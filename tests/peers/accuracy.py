#!/usr/bin/env python3
"""How accurate pstrain and a plain PyTorch loop become with the same model, data, epochs, batch and rate: a Markdown table.

The data are CIFAR-10 (--cifar10), NSL-KDD (--kdd), and rows that this script draws as tests/processes/own_data.rs does:
a table of numbers and texts, images, and sparse rows of twenty classes.
"""

import argparse
import json
import lzma
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

PEERS = Path(__file__).resolve().parent
PSTRAIN = os.environ.get("PSTRAIN", str(PEERS.parents[1] / "target/dist/pstrain"))
WORKERS, BATCH = 2, 64


def normal(random, shape):
    """The test's numbers that are roughly normal."""
    return random.random((12, *shape)).sum(axis=0) - 6


def one_hot(values, count):
    return np.eye(count)[values]


def table(folder, name, rows, random):
    numbers = normal(random, (rows, 10))
    place, kind = random.integers(4, size=rows), random.integers(3, size=rows)
    weights = np.array([[(at * 7 + of * 5) % 9 / 4 for of in range(3)] for at in range(10)])
    scores = numbers @ weights + 2 * one_hot(place, 4)[:, :3] + one_hot(kind, 3) + 0.7 * normal(random, (rows, 3))
    classes = scores.argmax(axis=1)
    written = 50 + numbers * 10.0 ** (np.arange(10) % 4)
    file = folder / f"{name}.csv"
    with open(file, "w") as out:
        print("place", *(f"x{column}" for column in range(10)), "kind", "state", sep=",", file=out)
        for row in range(rows):
            texts = ["north south east west".split()[place[row]], "pump fan valve".split()[kind[row]]]
            print(texts[0], *written[row], texts[1], f"s{classes[row]}", sep=",", file=out)
    return f"csv:{file}", np.hstack([numbers, one_hot(place, 4), one_hot(kind, 3)]), classes


def images(folder, name, rows, random):
    patterns = np.random.default_rng(1).random((10, 64))
    classes = random.integers(10, size=rows)
    pixels = (np.clip(patterns[classes] + 0.6 * normal(random, (rows, 64)), 0, 1) * 255).astype(np.uint8)
    files = [folder / f"{name}-images", folder / f"{name}-labels"]
    for file, values in zip(files, [pixels.reshape(rows, 8, 8), classes.astype(np.uint8)]):
        header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
        file.write_bytes(header + values.tobytes())
    return f"idx:{files[0]},{files[1]}", pixels / 127.5 - 1, classes


def topics(folder, name, rows, random):
    classes = random.integers(20, size=rows)
    inputs = np.zeros((rows, 80))
    file = folder / name
    with open(file, "w") as out:
        for row, of in enumerate(classes):
            own = random.random(8) < 0.6
            words = np.unique(np.where(own, of * 4 + random.integers(4, size=8), random.integers(80, size=8)))
            inputs[row, words] = 1
            print(of + 1, *(f"{word + 1}:1" for word in words), file=out)
    return f"libsvm:{file}", inputs, classes


def drawn(draw, rows, seed):
    def make(folder):
        random = np.random.default_rng(seed)
        return draw(folder, "train", rows, random), draw(folder, "test", 1000, random)

    return make


def cifar10(source):
    def read(file):
        opener = lzma.open if file.suffix == ".xz" else open
        with opener(file) as opened:
            records = np.frombuffer(opened.read(), np.uint8).reshape(-1, 3073)
        return records[:, 1:] / np.float32(127.5) - np.float32(1), records[:, 0].astype(np.int64)

    def make(_):
        files = [next(source.glob(f"{name}.bin*")) for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]]
        parts = [read(file) for file in files]
        inputs, classes = (np.concatenate([part[at] for part in parts[:5]]) for at in (0, 1))
        return (f"cifar10:{source}", inputs, classes), (f"cifar10:{files[5]}", *parts[5])

    return make


def by_pstrain(data, settings, seed):
    words = [PSTRAIN, "run", "--json", "--quiet", f"--workers={WORKERS}", f"--batch-size={BATCH}", f"--seed={seed}"]
    words += [f"--{name}={value}" for name, value in {**data, **settings}.items()]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)["accuracy"]


def by_loop(train, test, settings, batch, seed):
    """A loop with batches of that many rows; `cosine:STEPS` counts updates of WORKERS x BATCH rows."""
    torch.manual_seed(seed)
    inputs, classes = (torch.from_numpy(np.ascontiguousarray(of)) for of in train[1:])
    inputs = inputs.float()
    sizes = [inputs.shape[1], *map(int, settings["model"].partition(":")[2].split(",")), int(classes.max()) + 1] \
        if ":" in settings["model"] else [inputs.shape[1], int(classes.max()) + 1]
    layers = [torch.nn.Linear(sizes[0], sizes[1])]
    for before, after in zip(sizes[1:], sizes[2:]):
        layers += [torch.nn.ReLU(), torch.nn.Linear(before, after)]
    model = torch.nn.Sequential(*layers)
    rate = settings.get("learning-rate", 0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9 if "optimizer" in settings else 0)
    loss_of = torch.nn.CrossEntropyLoss()
    seen = 0
    for _ in range(settings["epochs"]):
        for chosen in torch.randperm(len(classes)).split(batch):
            if "schedule" in settings:
                of = seen / (WORKERS * BATCH) / int(settings["schedule"].split(":")[1])
                optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * min(of, 1))) / 2
            optimizer.zero_grad()
            loss_of(model(inputs[chosen]), classes[chosen]).backward()
            optimizer.step()
            seen += len(chosen)
    test_inputs, test_classes = (torch.from_numpy(np.ascontiguousarray(of)) for of in test[1:])
    with torch.no_grad():
        return (model(test_inputs.float()).argmax(dim=1) == test_classes).float().mean().item()


def range_of(values):
    return f"{statistics.mean(values):.4f} ({min(values):.4f} - {max(values):.4f})"


def own_data(args):
    print(f"| data | model | pstrain, {WORKERS} x {BATCH} | PyTorch loop, {WORKERS * BATCH} | PyTorch loop, {BATCH} |")
    print("|---" * 5 + "|")
    short = {"epochs": 20, "optimizer": "momentum", "schedule": "cosine:800"}
    jobs = [
        ("CSV", drawn(table, 3000, 3), short, ["softmax", "mlp:32", "mlp:32,16"]),
        ("IDX", drawn(images, 3000, 4), short, ["softmax", "mlp:32", "mlp:32,16"]),
        ("LIBSVM", drawn(topics, 2500, 5), short, ["softmax", "mlp:32", "mlp:32,16"]),
    ]
    if args.cifar10:
        # The command of docs/data.md.
        shown = {"epochs": 3, "learning-rate": 0.02, "optimizer": "momentum"}
        jobs.append(("CIFAR-10", cifar10(args.cifar10), shown, ["mlp:256"]))
    for name, make, settings, models in jobs:
        with tempfile.TemporaryDirectory() as folder:
            train, test = make(Path(folder))
            data = {"data": train[0], "evaluation-data": test[0]}
            for model in models:
                its = {**settings, "model": model}
                seeds = range(1, args.seeds + 1)
                ours = [by_pstrain(data, its, seed) for seed in seeds]
                loops = [
                    [by_loop(train, test, its, batch, seed) for seed in seeds] for batch in (WORKERS * BATCH, BATCH)
                ]
                print(f"| {name} | {model} | {' | '.join(map(range_of, [ours, *loops]))} |", flush=True)


def nsl_kdd(args):
    """The reference MLP by the model inside pstrain, by a PyTorch module through pstrain, and by the loop."""
    print(f"\n| data | batch, epochs | pstrain, its own model | pstrain, PyTorch module | PyTorch loop |")
    print("|---" * 5 + "|")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.csv"
        opener = lzma.open if args.kdd.suffix == ".xz" else open
        with opener(args.kdd) as records:
            file.write_bytes(records.read())
        npz = f"{folder}/data.npz"
        subprocess.run([sys.executable, PEERS / "prepare.py", file, npz], check=True, stderr=subprocess.DEVNULL)
        for batch in (32, 128):
            settings = {"epochs": args.epochs, "batch-size": batch, "consistency": "bsp"}
            theirs = ["--data", npz, f"--batch={batch}", f"--epochs={args.epochs}"]
            scripts = {"pstrain_pytorch.py": ["--mode=sync"], "pytorch_loop.py": []}
            found = [[by_pstrain({"data": file}, settings, seed) for seed in range(1, args.seeds + 1)]]
            for script, options in scripts.items():
                words = [sys.executable, PEERS / script, *theirs, *options]
                runs = [
                    subprocess.run([*words, f"--seed={seed}"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                    for seed in range(1, args.seeds + 1)
                ]
                found.append([json.loads(run.stdout)["accuracy"] for run in runs])
            print(f"| NSL-KDD | {WORKERS} x {batch}, {args.epochs} | {' | '.join(map(range_of, found))} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar10", type=Path, help="the folder of the binary version, plain or .xz")
    parser.add_argument("--kdd", type=Path, help="KDDTrain+.txt, plain or .xz")
    parser.add_argument("--seeds", type=int, default=3, help="of each; the mean and the range are printed")
    parser.add_argument("--epochs", type=int, default=10, help="of NSL-KDD")
    args = parser.parse_args()
    os.environ["PSTRAIN"] = PSTRAIN
    torch.set_num_threads(1)
    own_data(args)
    if args.kdd:
        nsl_kdd(args)


if __name__ == "__main__":
    main()
