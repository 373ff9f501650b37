"""The protocol, with the test in the place of pstrain."""

import array
import json
import socket
import threading
import unittest

import support
import pstrain
from pstrain.protocol import Connection, ProtocolError
from pstrain.session import Session
from pstrain.task import Task, evaluation
from pstrain.model import model_of


class Pstrain:
    """Asks a session that runs in another thread, and reads its answers."""

    def __init__(self, task):
        self.ours, theirs = socket.socketpair()
        self.session = Session(task, Connection.of_socket(theirs))
        theirs.close()
        self.file = self.ours.makefile("rb")
        self.error = None
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        try:
            while not self.session.ended:
                step = self.session.answer()
                if step is not None:
                    step.push(*support.gradient(step.params, step.rows))
        except Exception as error:
            self.error = error
        self.session.close()

    def ask(self, request, values=(), rows=()):
        line = json.dumps(request).encode() + b"\n"
        after = array.array("f", values).tobytes() + array.array("I", rows).tobytes()
        self.ours.sendall(line + after)
        answer = json.loads(self.file.readline())
        values = array.array("f", self.file.read(4 * answer.get("values", 0)))
        return answer, values.tolist()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ours.shutdown(socket.SHUT_WR)
        self.thread.join()
        self.file.close()
        self.ours.close()


def task(evaluate=support.evaluate):
    return Task(model_of({"w": [1.0, 2.0], "b": 3.0}), 64, evaluate=evaluate)


class TestSession(unittest.TestCase):
    def test_every_request_has_its_answer(self):
        with Pstrain(task()) as pstrain:
            described, _ = pstrain.ask({"do": "hello", "protocol": 1, "worker": 0, "new": [1]})
            tensors = [{"name": "w", "shape": [2]}, {"name": "b", "shape": []}]
            self.assertEqual(described, {"tensors": tensors, "examples": 64, "rows": "after"})
            self.assertEqual(pstrain.ask({"do": "start"}), ({"values": 3}, [1, 2, 3]))
            request = {"do": "gradient", "id": 7, "rows": [1, 1, 5], "values": 3}
            answer, values = pstrain.ask(request, [0.5, 0.25, 0])
            loss, gradient = support.gradient({"w": [0.5, 0.25], "b": 0.0}, [1, 1, 5])
            self.assertEqual(answer["id"], 7)
            self.assertAlmostEqual(answer["loss"], loss, 6)
            for found, wanted in zip(values, [*gradient["w"], gradient["b"]]):
                self.assertAlmostEqual(found, wanted, 6)
            request = {"do": "gradient", "id": 8, "rows_after": 3, "values": 3}
            answer, again = pstrain.ask(request, [0.5, 0.25, 0], [1, 1, 5])
            self.assertEqual(again, values)
            answer, _ = pstrain.ask({"do": "evaluate", "id": 9, "values": 3}, [2, -1, 0.5])
            self.assertEqual(answer, {"id": 9, "examples": 64, "loss": 0.0})
            request = {"do": "evaluate", "id": 10, "rows": [3], "values": 3}
            self.assertEqual(pstrain.ask(request, [2, -1, 0.5])[0]["examples"], 1)
            # The initial parameters are still known.
            self.assertEqual(pstrain.ask({"do": "start"}), ({"values": 3}, [1, 2, 3]))

    def test_without_evaluation_the_answer_is_an_error(self):
        with Pstrain(task(evaluate=None)) as pstrain:
            answer, _ = pstrain.ask({"do": "evaluate", "id": 1, "values": 3}, [0, 0, 0])
            self.assertIn("evaluates", answer["error"])

    def test_another_version_of_the_protocol_is_refused(self):
        with Pstrain(task()) as pstrain:
            self.assertIn("protocol", pstrain.ask({"do": "hello", "protocol": 2})[0]["error"])
        self.assertIsInstance(pstrain.error, ProtocolError)

    def test_what_is_no_request_is_an_error(self):
        for bytes in (b"nonsense\n", b"[1]\n", b'{"do":"dance"}\n', b'{"do":"hello"'):
            with Pstrain(task()) as pstrain:
                pstrain.ours.sendall(bytes)
            self.assertIsInstance(pstrain.error, (ProtocolError, ValueError), bytes)

    def test_an_end_in_the_middle_of_values_is_an_error(self):
        with Pstrain(task()) as pstrain:
            pstrain.ours.sendall(b'{"do":"gradient","id":1,"rows":[0],"values":3}\n1234')
        self.assertIsInstance(pstrain.error, ProtocolError)

    def test_an_evaluation_may_be_a_number_a_pair_or_a_dictionary(self):
        self.assertEqual(evaluation(0.5, 10), {"examples": 10, "loss": 0.5})
        pair = {"examples": 10, "loss": 0.5, "metrics": {"accuracy": 0.75}}
        self.assertEqual(evaluation((0.5, 0.75), 10), pair)
        found = evaluation({"loss": 1, "examples": 3, "recall": [None, 1]}, 10)
        self.assertEqual(found, {"examples": 3, "loss": 1.0, "recall": [None, 1.0]})
        own = {"examples": 10, "metrics": {"perplexity": 54.5, "accuracy": 1.0}}
        self.assertEqual(evaluation({"perplexity": 54.5, "accuracy": 1}, 10), own)
        for accuracy in (97, 1.01, -0.5):
            with self.assertRaisesRegex(ValueError, "is no share of the rows, from 0 to 1"):
                evaluation((0.5, accuracy), 10)
        with self.assertRaisesRegex(TypeError, "perplexity: 'much' is no number"):
            evaluation({"perplexity": "much"}, 10)


class TestArrays(unittest.TestCase):
    def test_structures_keep_their_form(self):
        params = {"layers": [{"w": [1.0, 2.0]}, {"w": [3.0]}], "scale": (4.0, [5.0])}
        model = model_of(params)
        names = ["layers.0.w", "layers.1.w", "scale.0", "scale.1"]
        self.assertEqual(list(model.parameters.tensors), names)
        self.assertEqual(list(model.params["layers"][0]["w"]), [1.0, 2.0])
        self.assertIsInstance(model.params["scale"], tuple)
        # They are views of the buffer.
        model.parameters.bytes[8:12] = array.array("f", [9.0]).tobytes()
        self.assertEqual(model.params["layers"][1]["w"][0], 9.0)

    def test_gradients_of_another_form_are_refused(self):
        model = model_of(support.PARAMS)
        with self.assertRaisesRegex(ValueError, "b"):
            model.collect({"w": [1.0, 2.0]})
        with self.assertRaisesRegex(ValueError, "shape"):
            model.collect({"w": [1.0], "b": 0.0})
        with self.assertRaisesRegex(TypeError, "gradients"):
            model.collect(None)
        with self.assertRaisesRegex(ValueError, "no parameters"):
            model_of({})


class TestState(unittest.TestCase):
    def test_state_beside_the_parameters_is_combined_and_kept(self):
        calls = []

        def gradient(p, state, rows):
            loss, found = support.gradient(p, rows)
            calls.append([support.X[row][0] for row in rows])
            mean, seen = state["mean"][()], int(state["seen"][()])
            mine = sum(calls[-1]) / len(rows)
            return loss, found, {"mean": mean + (mine - mean) / 4, "seen": seen + len(rows)}

        def evaluate(p, state, rows):
            return state["mean"][()]

        results = pstrain.train(
            gradient,
            support.PARAMS,
            state={"mean": 0.0, "seen": 0},
            examples=len(support.X),
            evaluate=evaluate,
            workers=2,
            epochs=2,
            batch_size=16,
            filters="top-k:0.5",
        )
        mean = 0.0
        for one, other in zip(calls[::2], calls[1::2]):
            found = [mean + (sum(values) / len(values) - mean) / 4 for values in (one, other)]
            mean = sum(found) / 2
        self.assertEqual(results.summary["updates"], 4)
        self.assertAlmostEqual(results.model["mean"][()], mean, places=6)
        self.assertEqual(results.model["seen"][()], 4 * 16)
        self.assertAlmostEqual(results.summary["loss"], mean, places=6)

    def test_state_of_another_form_is_refused(self):
        model = model_of({"w": [1.0]}, {"mean": 0.0})
        for state, words in [(None, "give the state"), ({"men": 0.0}, "other names")]:
            with self.assertRaisesRegex((TypeError, ValueError), words):
                model.collect({"w": [0.0]}, state)
        for state, words in [({"w": 1.0}, "both a parameter and state")]:
            with self.assertRaisesRegex(ValueError, words):
                model_of({"w": [1.0]}, state)


if __name__ == "__main__":
    unittest.main()
