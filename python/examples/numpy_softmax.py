"""Softmax regression in numpy.

python3 numpy_softmax.py              trains with four workers on this machine
python3 numpy_softmax.py HOST:PORT    is a worker of that server
pstrain server --process 'python3 numpy_softmax.py -'
"""

import sys

import numpy as np
import pstrain

random = np.random.default_rng(0)
X = random.normal(size=(2000, 20))
y = (X @ random.normal(size=(20, 3)) + random.normal(size=(2000, 3))).argmax(axis=1)


def gradient(p, rows):
    scores = X[rows] @ p["w"] + p["b"]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances = odds / odds.sum(axis=1, keepdims=True)
    each = np.arange(len(rows))
    loss = -np.log(chances[each, y[rows]]).mean()
    chances[each, y[rows]] -= 1
    return loss, {"w": X[rows].T @ chances / len(rows), "b": chances.mean(axis=0)}


def evaluate(p, rows):
    rows = np.arange(len(X)) if rows is None else rows
    loss, _ = gradient(p, rows)
    return loss, ((X[rows] @ p["w"] + p["b"]).argmax(axis=1) == y[rows]).mean()


params = {"w": np.zeros((20, 3)), "b": np.zeros(3)}
task = dict(examples=len(X), evaluate=evaluate)

if __name__ == "__main__":
    if sys.argv[1:]:
        pstrain.run(sys.argv[1], gradient, params, **task)
    else:
        print(pstrain.train(gradient, params, workers=4, epochs=5, **task))
