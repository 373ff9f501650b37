"""Estimators of scikit-learn."""

import unittest

import support
import pstrain


@support.needs("sklearn")
class TestPartialFit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from sklearn.datasets import load_digits

        cls.X, cls.y = load_digits(return_X_y=True)
        cls.X /= 16

    def estimator(self):
        from sklearn.linear_model import SGDClassifier

        return SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.01, shuffle=False)

    def test_one_worker_equals_partial_fit_in_a_loop(self):
        import numpy as np

        seen = []
        estimator = self.estimator()
        task = pstrain.partial_fit(estimator, self.X, self.y, steps=2)
        inner = task.gradient

        def watched(p, rows):
            seen.append(rows)
            return inner(p, rows)

        task.gradient = watched
        results = pstrain.train(task, workers=1, epochs=3)
        loop = self.estimator()
        for rows in seen[: results.summary["updates"]]:
            for _ in range(2):
                loop.partial_fit(self.X[rows], self.y[rows], classes=range(10))
        # Parameters are float32 between steps here, and float64 in the loop.
        np.testing.assert_allclose(estimator.coef_, loop.coef_, rtol=0, atol=1e-5)
        self.assertEqual(results.summary["accuracy"], estimator.score(self.X, self.y))

    def test_several_workers_average(self):
        estimator = self.estimator()
        results = pstrain.train(pstrain.partial_fit(estimator, self.X, self.y), workers=4, epochs=10)
        self.assertGreater(results.summary["accuracy"], 0.9)
        self.assertEqual(results.settings["learning-rate"], "auto")

    def test_perceptrons_and_regressors(self):
        from sklearn.linear_model import SGDRegressor
        from sklearn.neural_network import MLPClassifier

        task = pstrain.partial_fit(MLPClassifier([16], random_state=1), self.X, self.y, steps=5)
        self.assertGreater(pstrain.train(task, epochs=30).summary["accuracy"], 0.8)
        target = self.X.sum(axis=1)
        task = pstrain.partial_fit(SGDRegressor(), self.X, target)
        results = pstrain.train(task, epochs=10, learning_rate=0.5)
        self.assertLess(results.summary["loss"], results.curve["loss"][0] / 1000)

    def test_averaged_estimators_are_refused(self):
        estimator = self.estimator().set_params(average=True)
        with self.assertRaisesRegex(ValueError, "average"):
            pstrain.partial_fit(estimator, self.X, self.y)


    def test_an_estimator_that_diverges_says_so(self):
        from sklearn.linear_model import SGDRegressor

        estimator = SGDRegressor(learning_rate="constant", eta0=1e30)
        task = pstrain.partial_fit(estimator, self.X, self.y)
        with self.assertRaisesRegex(FloatingPointError, "SGDRegressor has diverged: scale"):
            pstrain.train(task, workers=2, epochs=20)


if __name__ == "__main__":
    unittest.main()
