"""Whole clusters from one process, and their results."""

import math
import os
import tempfile
import unittest

import support
import pstrain
from pstrain.program import flags

TASK = dict(examples=len(support.X), evaluate=support.evaluate)


def train(gradient=support.gradient, **settings):
    return pstrain.train(gradient, support.PARAMS, **{**TASK, **settings})


def simulate(**settings):
    settings = {"links": {"all": "delay=1ms", "2": "delay=100ms"}, "compute": "3ms", **settings}
    return pstrain.simulate(support.gradient, support.PARAMS, **{**TASK, **settings})


class TestTrain(unittest.TestCase):
    def test_one_worker_equals_a_plain_loop(self):
        results = train(workers=1, epochs=100, batch_size="all", learning_rate=0.2)
        w, b = support.loop(100, 0.2)
        for found, wanted in zip([*results.params["w"], results.params["b"][()]], [*w, b]):
            self.assertAlmostEqual(found, wanted, delta=1e-6)

    def test_several_workers_learn(self):
        results = train(workers=3, epochs=60, batch_size=4, consistency="asp")
        self.assertLess(results.summary["loss"], 0.001)
        self.assertEqual(len(results.summary["workers"]), 3)

    def test_every_architecture_trains_and_evaluates_it(self):
        settings = dict(workers=3, epochs=20, batch_size=4)
        wanted = train(**settings).summary["loss"]
        for architecture in ["all-reduce:auto", "in-network"]:
            found = train(architecture=architecture, **settings).summary["loss"]
            self.assertAlmostEqual(found, wanted, delta=1e-4, msg=architecture)
            found = simulate(architecture=architecture, **settings).summary["loss"]
            self.assertAlmostEqual(found, wanted, delta=1e-4, msg=architecture)
        for architecture in ["gossip:d-psgd", "gossip:ad-psgd"]:
            results = train(architecture=architecture, **settings)
            self.assertLess(results.summary["loss"], 0.5, architecture)

    def test_results_may_stay_in_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "results")
            train(epochs=2, out=out)
            with self.assertRaisesRegex(pstrain.ProgramError, "results"):
                train(epochs=2, out=out)
            train(epochs=3, out=out, overwrite=True)
            self.assertEqual(pstrain.Results(out).settings["epochs"], 3)
            self.assertIsNone(pstrain.Results(out).params)

    def test_without_out_the_folder_goes_with_the_object(self):
        results = train(epochs=1)
        folder = results.folder
        self.assertTrue(os.path.exists(folder))
        del results
        self.assertFalse(os.path.exists(folder))

    def test_an_exception_of_the_user_arrives_as_it_is(self):
        def gradient(p, rows):
            raise KeyError("on purpose")

        with self.assertRaisesRegex(KeyError, "on purpose"):
            pstrain.train(gradient, support.PARAMS, examples=10)

        def evaluate(p, rows):
            raise KeyError("in the evaluation")

        with self.assertRaisesRegex(KeyError, "in the evaluation"):
            train(evaluate=evaluate)

    def test_a_wrong_setting_is_said(self):
        with self.assertRaisesRegex(pstrain.ProgramError, "--workerz") as caught:
            train(workerz=3)
        self.assertEqual(caught.exception.code, 2)

    def test_wrong_arguments_are_said(self):
        with self.assertRaisesRegex(TypeError, "examples"):
            pstrain.train(support.gradient, support.PARAMS)
        with self.assertRaisesRegex(ValueError, "examples"):
            pstrain.train(support.gradient, support.PARAMS, examples=0)
        for examples in (100.0, "100"):
            with self.assertRaisesRegex(TypeError, f"examples: {examples!r} is no whole number"):
                pstrain.train(support.gradient, support.PARAMS, examples=examples)
        with self.assertRaisesRegex(TypeError, "loss, gradients"):
            pstrain.train(lambda p, rows: 1.0, support.PARAMS, examples=10)

    def test_quiet_may_be_said(self):
        for quiet in (True, False):
            self.assertEqual(train(epochs=1, quiet=quiet).settings["epochs"], 1)
        self.assertEqual(train(epochs=1, quiet=True, verbose=True).settings["epochs"], 1)

    def test_a_whole_number_of_another_package_is_one(self):
        class Whole:
            """As numpy.int64."""

            def __index__(self):
                return len(support.X)

        self.assertEqual(train(epochs=1, examples=Whole()).settings["epochs"], 1)

    def test_evaluation_may_be_of_rows_that_are_held_out(self):
        seen = []

        def evaluate(p, rows):
            seen.append(rows)
            return support.evaluate(p, rows)

        train(epochs=1, evaluate=evaluate, evaluation_share=0.25)
        self.assertEqual(len(seen[0]), 16)

    def test_without_evaluation_the_curve_has_the_training_loss(self):
        seen = []

        def gradient(p, rows):
            found = support.gradient(p, rows)
            seen.append(found[0])
            return found

        results = pstrain.simulate(
            gradient, support.PARAMS, examples=len(support.X), workers=1, epochs=4,
            batch_size=16, compute="3ms", links={"all": "delay=1ms"},
        )
        # The first gradient is computed before the first point.
        losses = results.curve["loss"]
        parts = [seen[:1], seen[1:4], seen[4:8], seen[8:12], seen[12:]]
        self.assertEqual(len(losses), len(parts))
        for found, part in zip(losses, parts):
            self.assertAlmostEqual(found, sum(part) / len(part), delta=1e-6)

    def test_a_mini_batch_is_skipped_or_left_out_and_its_worker_stays(self):
        calls = []

        def gradient(p, rows):
            calls.append(list(rows))
            loss, found = support.gradient(p, rows)
            if len(calls) % 10 == 3:
                return None
            if 7 in rows:
                found = {**found, "b": math.nan}
            return loss, found

        for settings in [{}, {"on_worker_loss": "reassign"}, {"consistency": "asp"}]:
            calls.clear()
            results = train(gradient=gradient, workers=2, epochs=20, batch_size=4, **settings)
            batches = results.summary["batches"]
            bad = [rows for number, rows in enumerate(calls, 1) if number % 10 == 3 or 7 in rows]
            self.assertGreater(len(bad), 20)
            self.assertLessEqual(abs(batches["left_out"] - len(bad)), 2)  # Some came too late.
            self.assertEqual(results.summary["departures"], [])
            self.assertLess(results.summary["loss"], 0.01)

    def test_the_metrics_of_the_user_are_in_the_curve_and_wrong_ones_are_refused(self):
        results = train(epochs=1, evaluate=lambda p, rows: {"loss": 1, "perplexity": 54.5})
        self.assertEqual(results.curve["perplexity"][-1], 54.5)
        with self.assertRaisesRegex(ValueError, "accuracy 97 is no share"):
            train(epochs=1, evaluate=lambda p, rows: (1.0, 97.0))
        with self.assertRaisesRegex(TypeError, "perplexity: 'much' is no number"):
            train(epochs=1, evaluate=lambda p, rows: {"perplexity": "much"})


class TestSimulate(unittest.TestCase):
    def test_virtual_time_is_the_same_each_time(self):
        first, second = (simulate(workers=2, epochs=4, batch_size=8) for _ in range(2))
        self.assertEqual(first.timeline, second.timeline)
        self.assertEqual(first.summary["params_sha256"], second.summary["params_sha256"])
        # 16 rounds, of 103 ms each.
        self.assertAlmostEqual(first.summary["time_s"], 16 * 0.103, 3)

    def test_who_does_not_wait_is_faster_and_stale(self):
        bsp = simulate(workers=2, epochs=4, batch_size=8)
        asp = simulate(workers=2, epochs=4, batch_size=8, consistency="asp")
        self.assertLess(asp.summary["time_s"], bsp.summary["time_s"] / 2)
        self.assertGreater(max(asp.timeline["staleness"]), 0)


class TestResults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results = simulate(workers=2, epochs=2, batch_size=8, consistency="asp")

    def test_tables_are_columns(self):
        for columns in (self.results.curve, self.results.timeline, self.results.staleness):
            self.assertEqual(len({len(column) for column in columns.values()}), 1)
        self.assertIsInstance(self.results.curve["version"][0], int)
        self.assertIsInstance(self.results.curve["loss"][0], float)
        self.assertEqual(set(self.results.timeline["worker"]), {1, 2})
        self.assertIn("applied", self.results.timeline["outcome"])
        self.assertIn("staleness_updates", self.results.staleness["measure"])

    def test_settings_and_events(self):
        self.assertEqual(self.results.settings["consistency"], "asp")
        self.assertEqual(self.results.settings["batch-size"], 8)
        self.assertEqual(self.results.settings["link"], "all.delay=1ms 2.delay=100ms")
        self.assertIn("ended", [event["event"] for event in self.results.events])

    def test_the_model_is_by_name(self):
        model = self.results.model
        self.assertEqual(set(model), {"w", "b"})
        self.assertEqual(tuple(model["w"].shape), (2,))
        self.assertEqual(list(model["w"]), list(self.results.params["w"]))

    def test_a_folder_without_results_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(FileNotFoundError, "summary.json"):
                pstrain.Results(folder)

    def test_it_shows_its_figures(self):
        self.assertIn("ended='the budget is used up'", repr(self.results))


class TestFlags(unittest.TestCase):
    def test_settings_are_arguments(self):
        self.assertEqual(flags({"learning_rate": 0.5}), ["--learning-rate=0.5"])
        self.assertEqual(flags({"overwrite": True, "json": False, "tls": None}), ["--overwrite"])
        switch = {"switch": ["asp@10", "bsp@20"]}
        self.assertEqual(flags(switch), ["--switch=asp@10", "--switch=bsp@20"])
        links = {"links": {"2": "delay=100ms", "1": {"delay": "1ms", "rate": "1Mbit"}}}
        wanted = ["--link=2.delay=100ms", "--link=1.delay=1ms", "--link=1.rate=1Mbit"]
        self.assertEqual(flags(links), wanted)


if __name__ == "__main__":
    unittest.main()
