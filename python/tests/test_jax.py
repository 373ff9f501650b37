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

    def test_bfloat16_is_copied(self):
        import jax.numpy as jnp
        from pstrain.model import model_of

        model = model_of({"a": jnp.ones(3, jnp.bfloat16)})
        self.assertEqual(model.params["a"].dtype, jnp.bfloat16)
        model.collect({"a": jnp.full(3, 2, jnp.bfloat16)})


if __name__ == "__main__":
    unittest.main()
