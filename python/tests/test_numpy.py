"""Models of numpy."""

import unittest

import support
import pstrain
from pstrain.model import model_of

if support.has("numpy"):
    import numpy as np


def softmax_regression(seed=0, rows=300, features=8, classes=3):
    """Rows, classes, and the gradient function of softmax regression."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features))
    y = (X @ random.normal(size=(features, classes))).argmax(axis=1)

    def gradient(p, rows):
        scores = X[rows] @ p["w"] + p["b"]
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances = odds / odds.sum(axis=1, keepdims=True)
        each = np.arange(len(rows))
        loss = -np.log(chances[each, y[rows]]).mean()
        chances[each, y[rows]] -= 1
        return loss, {"w": X[rows].T @ chances / len(rows), "b": chances.mean(axis=0)}

    return X, y, gradient, {"w": np.zeros((features, classes)), "b": np.zeros(classes)}


@support.needs("numpy")
class TestNumpy(unittest.TestCase):
    def test_softmax_regression_equals_a_plain_loop(self):
        X, y, gradient, params = softmax_regression()
        seen = []

        def watched(p, rows):
            seen.append(rows)
            return gradient(p, rows)

        results = pstrain.train(
            watched, params, examples=len(X), workers=1, epochs=11, batch_size=32, learning_rate=0.5
        )
        self.assertGreaterEqual(len(seen), 100)
        loop = {name: value.copy() for name, value in params.items()}
        for rows in seen[: results.summary["updates"]]:
            _, gradients = gradient(loop, rows)
            for name in loop:
                loop[name] -= 0.5 * gradients[name]
        for name, value in loop.items():
            np.testing.assert_allclose(results.params[name], value, rtol=0, atol=1e-6)
            np.testing.assert_array_equal(results.model[name], results.params[name])

    def test_a_counter_that_messages_cannot_carry_is_refused(self):
        params = {"w": np.zeros(2)}
        for steps in (np.int64(20_000_001), np.array([0, np.iinfo(np.int64).min])):
            with self.assertRaisesRegex(ValueError, "state steps: .* 16,777,216 or more"):
                model_of(params, {"steps": steps})
        model_of(params, {"steps": np.array(2**24 - 1), "mean": np.array(1e30)})

    def test_parameters_are_views_of_one_buffer(self):
        model = model_of({"a": np.ones((2, 3)), "b": [np.zeros(2), np.float32(5)]})
        self.assertEqual(model.params["a"].dtype, np.float32)
        whole = np.frombuffer(model.parameters.memory, np.float32)
        self.assertTrue(np.shares_memory(whole, model.params["a"]))
        self.assertTrue(np.shares_memory(whole, model.params["b"][0]))
        self.assertEqual(whole.tolist(), [1] * 6 + [0, 0, 5])

    def test_half_precision_is_copied(self):
        model = model_of({"a": np.ones(3, np.float16)})
        model.parameters.bytes[:] = np.array([1, 2, 3], np.float32).tobytes()
        model.load()
        self.assertEqual(model.params["a"].dtype, np.float16)
        self.assertEqual(model.params["a"].tolist(), [1, 2, 3])
        model.collect({"a": np.array([4, 5, 6], np.float16)})
        self.assertEqual(np.frombuffer(model.gradients.memory, np.float32).tolist(), [4, 5, 6])

    def test_integers_and_other_shapes_are_refused(self):
        with self.assertRaisesRegex(TypeError, "int64"):
            model_of({"a": np.ones(3, np.int64)})
        model = model_of({"a": np.ones((2, 1))})
        with self.assertRaisesRegex(ValueError, "shape"):
            model.collect({"a": np.ones((2, 2))})


if __name__ == "__main__":
    unittest.main()
