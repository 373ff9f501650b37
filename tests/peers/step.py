#!/usr/bin/env python3
"""The least time of a training step of 784-200-200-10 on one thread, in numpy and, where it is installed, PyTorch.

A step is gradient and update of one of 16 mini-batches at hand, as in the rows `wide` of

    cargo bench -p pstrain-compute --features std --bench step wide
"""

import os
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np

try:
    import torch
except ImportError:
    torch = None

SIZES = [784, 200, 200, 10]
ROUNDS = 16
RATE = np.float32(0.1)


def in_numpy(inputs, classes, rng):
    weights = [(rng.random(shape, np.float32) - 0.5) / 10 for shape in zip(SIZES, SIZES[1:])]
    biases = [np.zeros(size, np.float32) for size in SIZES[1:]]
    rows = np.arange(len(classes[0]))

    def step(number):
        values = [inputs[number]]
        for weight, bias in zip(weights, biases):
            out = values[-1] @ weight
            out += bias
            if len(values) < len(weights):
                np.maximum(out, 0, out=out)
            values.append(out)
        delta = values.pop()
        delta -= delta.max(1, keepdims=True)
        np.exp(delta, out=delta)
        delta /= delta.sum(1, keepdims=True)
        delta[rows, classes[number]] -= 1
        delta *= np.float32(1 / len(rows))
        for layer in reversed(range(len(weights))):
            value = values[layer]
            before = delta @ weights[layer].T if layer else None
            weights[layer] -= RATE * (value.T @ delta)
            biases[layer] -= RATE * delta.sum(0)
            if layer:
                before *= value > 0
            delta = before

    return step


def in_torch(inputs, classes):
    torch.set_num_threads(1)
    layers = []
    for one, other in zip(SIZES, SIZES[1:]):
        layers += [torch.nn.Linear(one, other), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=float(RATE))
    inputs = [torch.from_numpy(rows) for rows in inputs]
    classes = [torch.from_numpy(rows) for rows in classes]

    def step(number):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs[number]), classes[number]).backward()
        optimizer.step()

    return step


def least(step, count):
    best = float("inf")
    for number in range(count):
        begin = time.perf_counter()
        step(number % ROUNDS)
        best = min(best, time.perf_counter() - begin)
    return 1e6 * best


def main():
    rng = np.random.default_rng(1)
    for batch in (32, 128, 1024):
        inputs = [rng.random((batch, SIZES[0]), np.float32) - np.float32(0.5) for _ in range(ROUNDS)]
        classes = [rng.integers(0, SIZES[-1], batch) for _ in range(ROUNDS)]
        steps = {"numpy": in_numpy(inputs, classes, rng)}
        if torch:
            steps["PyTorch"] = in_torch(inputs, classes)
        for name, step in steps.items():
            print(f"{name}, batch {batch}: {least(step, 400 if batch < 1000 else 100):.0f} us")


if __name__ == "__main__":
    main()
