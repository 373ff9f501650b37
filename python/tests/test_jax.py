"""Models of JAX."""

import unittest

import support
import pstrain


@support.needs("jax")
class TestJax(unittest.TestCase):
    def test_value_and_grad_is_a_gradient_function(self):
        import jax
        import jax.numpy as jnp
        import numpy as np

        X = jax.random.normal(jax.random.key(0), (64, 4))
        y = jnp.sin(X).sum(axis=1)
        keys = jax.random.split(jax.random.key(1), 2)
        params = {"layers": [jax.random.normal(keys[0], (4, 8)), jax.random.normal(keys[1], (8,))]}

        def loss(p, rows):
            first, second = p["layers"]
            return jnp.square(jnp.tanh(X[rows] @ first) @ second - y[rows]).mean()

        gradient = jax.jit(jax.value_and_grad(loss))
        results = pstrain.train(
            gradient, params, examples=64, workers=1, epochs=100, batch_size="all", learning_rate=0.05
        )
        loop = params
        for _ in range(100):
            _, gradients = gradient(loop, jnp.arange(64))
            loop = jax.tree.map(lambda p, g: p - 0.05 * g, loop, gradients)
        for found, wanted in zip(results.params["layers"], loop["layers"]):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)

    def test_state_is_an_argument_and_a_result(self):
        import jax
        import jax.numpy as jnp
        import numpy as np

        X = jax.random.normal(jax.random.key(0), (64, 4)) + 1
        y = X.sum(axis=1)

        def loss(p, state, rows):
            x = X[rows]
            mean, momentum = x.mean(axis=0), 0.9
            new = {
                "norm": {"mean": momentum * state["norm"]["mean"] + (1 - momentum) * mean},
                "steps": state["steps"] + 1,
            }
            return jnp.square((x - mean) @ p["w"] + p["b"] - y[rows]).mean(), new

        def gradient(p, state, rows):
            (value, new), gradients = jax.value_and_grad(loss, has_aux=True)(p, state, rows)
            return value, gradients, new

        state = {"norm": {"mean": jnp.zeros(4)}, "steps": jnp.zeros((), jnp.int32)}
        params = {"w": jnp.zeros(4), "b": jnp.zeros(())}
        results = pstrain.train(
            gradient, params, state=state, examples=64, workers=1, epochs=10, batch_size="all"
        )
        mean = np.array(X.mean(axis=0)) * (1 - 0.9**10)
        np.testing.assert_allclose(results.model["norm.mean"], mean, atol=1e-5)
        self.assertEqual(results.model["steps"], 10)

    def test_bfloat16_is_copied(self):
        import jax.numpy as jnp
        from pstrain.model import model_of

        model = model_of({"a": jnp.ones(3, jnp.bfloat16)})
        self.assertEqual(model.params["a"].dtype, jnp.bfloat16)
        model.collect({"a": jnp.full(3, 2, jnp.bfloat16)})


if __name__ == "__main__":
    unittest.main()
