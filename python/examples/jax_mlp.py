"""A multi-layer perceptron in JAX.

python3 jax_mlp.py              trains with two workers on this machine
python3 jax_mlp.py HOST:PORT    is a worker of that server
pstrain server --process 'python3 jax_mlp.py -'
"""

import sys

import jax
import jax.numpy as jnp
import pstrain

keys = jax.random.split(jax.random.key(0), 4)
X = jax.random.normal(keys[0], (2000, 20))
y = (X**2 @ jax.random.normal(keys[1], (20, 3))).argmax(axis=1)
params = {
    "hidden": {"w": jax.random.normal(keys[2], (20, 64)) / 5, "b": jnp.zeros(64)},
    "out": {"w": jax.random.normal(keys[3], (64, 3)) / 8, "b": jnp.zeros(3)},
}


def scores(p, x):
    hidden = jax.nn.relu(x @ p["hidden"]["w"] + p["hidden"]["b"])
    return hidden @ p["out"]["w"] + p["out"]["b"]


def loss(p, rows):
    chances = jax.nn.log_softmax(scores(p, X[rows]))
    return -jnp.take_along_axis(chances, y[rows, None], axis=1).mean()


def evaluate(p, rows):
    rows = jnp.arange(len(X)) if rows is None else rows
    return loss(p, rows), (scores(p, X[rows]).argmax(axis=1) == y[rows]).mean()


gradient = jax.jit(jax.value_and_grad(loss))
task = dict(examples=len(X), evaluate=evaluate)

if __name__ == "__main__":
    if sys.argv[1:]:
        pstrain.run(sys.argv[1], gradient, params, **task)
    else:
        print(pstrain.train(gradient, params, epochs=5, optimizer="adam", learning_rate=0.01, **task))
