"""Models of PyTorch."""

import copy
import json
import pathlib
import runpy
import subprocess
import sys
import tempfile
import unittest
import warnings

import support
import pstrain
from pstrain.model import model_of

if support.has("torch"):
    import torch
    import torch.nn.functional as F
    from torch import nn


def problem():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 3))
    return torch.randn(256, 10), torch.randint(0, 3, (256,)), net


def one_step(model, loss):
    """Gradients by name, as they would be pushed."""
    model.load()
    loss().backward()
    model.collect(None)
    values = torch.frombuffer(model.gradients.memory, dtype=torch.float32)
    return {
        name: values[start:end].view(shape).clone()
        for name, shape, start, end in model.gradients.ranges()
    }


@support.needs("torch")
class TestTraining(unittest.TestCase):
    def test_one_worker_equals_a_plain_loop(self):
        optimizers = {
            "sgd": lambda of: torch.optim.SGD(of, lr=0.01),
            "momentum:0.9": lambda of: torch.optim.SGD(of, lr=0.01, momentum=0.9),
            "nesterov:0.9": lambda of: torch.optim.SGD(of, lr=0.01, momentum=0.9, nesterov=True),
            "adam:0.9,0.999,1e-8": lambda of: torch.optim.Adam(of, lr=0.01),
        }
        for name, optimizer_of in optimizers.items():
            X, y, net = problem()
            twin, seen = copy.deepcopy(net), []

            def loss(rows):
                seen.append(rows)
                return F.cross_entropy(net(X[rows]), y[rows])

            results = pstrain.train(
                loss,
                net,
                examples=len(X),
                workers=1,
                epochs=13,
                batch_size=32,
                optimizer=name,
                learning_rate=0.01,
            )
            updates = results.summary["updates"]
            self.assertGreaterEqual(updates, 100)
            optimizer = optimizer_of(twin.parameters())
            for rows in seen[:updates]:
                optimizer.zero_grad()
                F.cross_entropy(twin(X[rows]), y[rows]).backward()
                optimizer.step()
            for found, wanted in zip(net.parameters(), twin.parameters()):
                torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6, msg=name)

    def test_two_workers_with_batch_norm_equal_a_reference(self):
        torch.manual_seed(1)
        X, y = torch.randn(512, 6) * 3 + 1, torch.randint(0, 3, (512,))
        net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        twin, seen = copy.deepcopy(net), []

        def loss(rows):
            seen.append(rows)
            return F.cross_entropy(net(X[rows]), y[rows])

        results = pstrain.train(
            loss,
            net,
            examples=len(X),
            workers=2,
            epochs=4,
            batch_size=32,
            learning_rate=0.05,
            groups="*.bias:rate=2 1.*:weight-decay=0",
            weight_decay=0.01,
        )
        updates = results.summary["updates"]
        self.assertEqual(updates, 32)
        # Parameter groups of PyTorch; the first that fits counts here.
        biases = [p for n, p in twin.named_parameters() if n.endswith("bias")]
        optimizer = torch.optim.SGD(
            [
                {"params": biases, "lr": 0.1},
                {"params": [twin[1].weight], "weight_decay": 0},
                {"params": [twin[0].weight, twin[3].weight]},
            ],
            lr=0.05,
            weight_decay=0.01,
        )
        for update in range(updates):
            optimizer.zero_grad()
            states = []
            for rows in seen[2 * update : 2 * update + 2]:
                replica = copy.deepcopy(twin)
                F.cross_entropy(replica(X[rows]), y[rows]).backward()
                for own, other in zip(twin.parameters(), replica.parameters()):
                    own.grad = other.grad / 2 if own.grad is None else own.grad + other.grad / 2
                states.append(dict(replica.named_buffers()))
            optimizer.step()
            for name, buffer in twin.named_buffers():
                one, other = (state[name] for state in states)
                buffer.copy_((one + other) / 2 if buffer.is_floating_point() else one)
        for found, wanted in zip(net.state_dict().items(), twin.state_dict().items()):
            torch.testing.assert_close(found[1], wanted[1], rtol=0, atol=1e-5, msg=found[0])
        self.assertEqual(net[1].num_batches_tracked, updates)
        # The model file is a whole state_dict, evaluation uses the common state.
        model = {name: torch.tensor(value) for name, value in results.model.items()}
        nn.Sequential(*net).load_state_dict(model, strict=True)

    def test_differences_are_federated_averaging(self):
        X, y, net = problem()
        twin, seen = copy.deepcopy(net), []

        def local(module, rows):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            for part in range(0, len(rows), 8):
                chosen = rows[part : part + 8]
                optimizer.zero_grad()
                loss = F.cross_entropy(module(X[chosen]), y[chosen])
                loss.backward()
                optimizer.step()
            return loss

        def train(rows):
            seen.append(rows)
            return local(net, rows)

        results = pstrain.train(
            train, net, examples=len(X), workers=2, epochs=3, batch_size=32, differences=True
        )
        updates = results.summary["updates"]
        for update in range(updates):
            replicas = [copy.deepcopy(twin) for _ in range(2)]
            for replica, rows in zip(replicas, seen[2 * update :]):
                local(replica, rows)
            with torch.no_grad():
                pairs = zip(*(replica.parameters() for replica in replicas))
                for own, (one, other) in zip(twin.parameters(), pairs):
                    own.copy_((one + other) / 2)
        for found, wanted in zip(net.parameters(), twin.parameters()):
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)

    def test_differences_of_replaced_parameters_and_of_few_digits(self):
        def replaced(net):
            net.weight = nn.Parameter(net.weight.detach() - 1)

        def new_memory(net):
            net.weight.data = net.weight.data - 1

        for train in (replaced, new_memory):
            net = nn.Linear(2, 1)
            before = net.weight.detach().clone()

            def step(rows):
                train(net)
                return 0.0

            pstrain.train(step, net, examples=8, workers=1, batch_size=8, epochs=3, differences=True)
            torch.testing.assert_close(net.weight.detach(), before - 3)
        short = nn.Linear(20, 1).to(torch.bfloat16)
        model = model_of(short)
        model.expect_differences()
        values = torch.frombuffer(model.parameters.memory, dtype=torch.float32)
        values.copy_(torch.randn(21))
        model.load()
        model.differ()
        found = torch.frombuffer(model.gradients.memory, dtype=torch.float32)
        self.assertEqual(found.abs().max(), 0)

    def test_an_evaluation_leaves_the_modes_as_they_are(self):
        net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2))
        net[2].eval()
        modes = []

        def evaluate(rows):
            modes.append([module.training for module in net.modules()])
            return net(torch.ones(2, 2)).sum(), torch.tensor(0.5)

        X = torch.randn(32, 2)
        results = pstrain.train(
            lambda rows: net(X[rows]).square().mean(), net, examples=32, evaluate=evaluate, epochs=1
        )
        self.assertEqual(modes[0], [False] * 4)
        self.assertEqual([module.training for module in net.modules()], [True, True, True, False])
        self.assertEqual(results.summary["accuracy"], 0.5)


@support.needs("torch")
class TestModules(unittest.TestCase):
    def test_parameters_and_gradients_are_views(self):
        X, y, net = problem()
        model = model_of(net)
        whole = torch.frombuffer(model.parameters.memory, dtype=torch.float32)
        self.assertEqual(net[0].weight.data_ptr(), whole.data_ptr())
        self.assertEqual(list(model.parameters.tensors), ["0.weight", "0.bias", "2.weight", "2.bias"])
        one_step(model, lambda: F.cross_entropy(net(X), y))
        gradients = torch.frombuffer(model.gradients.memory, dtype=torch.float32)
        self.assertEqual(net[0].weight.grad.data_ptr(), gradients.data_ptr())

    def test_buffers_have_rules(self):
        net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
        net.register_buffer("mask", torch.ones(2, dtype=torch.bool))
        net.register_buffer("positions", torch.arange(3.0))
        net.register_buffer("scratch", torch.zeros(4), persistent=False)
        rules = lambda **more: {  # noqa: E731
            name: (it.combine, it.type)
            for name, it in model_of(net, **more).parameters.state.items()
        }
        mean, first = ("mean", "f32"), ("first", "i64")
        norm = {"0.running_mean": mean, "0.running_var": mean, "0.num_batches_tracked": first}
        self.assertEqual(rules(), {"positions": mean, **norm})
        self.assertEqual(rules(combine={"positions": "local"}), norm)
        self.assertEqual(rules(combine={"*": "local"}), {})
        self.assertEqual(rules(combine={"0.running*": "first"})["0.running_var"], ("first", "f32"))
        for wrong, words in [
            ({"mask": "mean"}, "use local"),
            ({"*num*": "mean"}, "use first or local"),
            ({"*var": "sum"}, "is no rule"),
            ({"typo": "local"}, "no state is called 'typo'"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                model_of(net, combine=wrong)

    def test_every_way_to_forget_gradients_gives_the_same(self):
        X, y, net = problem()
        twin = copy.deepcopy(net)
        F.cross_entropy(twin(X), y).backward()
        model = model_of(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        ways = {
            "none": lambda: None,
            "to None": lambda: optimizer.zero_grad(set_to_none=True),
            "to 0": lambda: net.zero_grad(set_to_none=False),
        }
        for name, way in ways.items():
            for _ in range(2):

                def loss():
                    way()
                    return F.cross_entropy(net(X), y)

                found = one_step(model, loss)
                for key, parameter in twin.named_parameters():
                    torch.testing.assert_close(found[key], parameter.grad, msg=name)

    def test_a_first_step_without_backward_is_refused(self):
        X, y, net = problem()
        model = model_of(net)
        model.load()
        F.cross_entropy(net(X), y)
        with self.assertRaisesRegex(ValueError, "call loss.backward"):
            model.collect(None)
        net.zero_grad()
        with self.assertRaisesRegex(ValueError, "call loss.backward"):
            model.collect(None)
        F.cross_entropy(net(X), y).backward()
        model.collect(None)

    def test_rows_are_a_tensor(self):
        _, _, net = problem()
        rows = model_of(net).numbers([3, 70_000, 3])
        self.assertTrue(torch.equal(rows, torch.tensor([3, 70_000, 3])))

    def test_a_buffer_that_changes_its_shape_is_named(self):
        net = nn.Linear(3, 1)
        net.register_buffer("seen", torch.zeros(1))
        model = model_of(net)
        model.load()
        net(torch.ones(2, 3)).sum().backward()
        net.seen = torch.zeros(2)
        with self.assertRaisesRegex(ValueError, r"buffer seen .* from \(1,\) to \(2,\)"):
            model.collect(None)

    def test_gradients_that_are_missing_are_0(self):
        net = nn.ModuleDict({"used": nn.Linear(2, 1), "unused": nn.Linear(2, 1)})
        model = model_of(net)

        def loss():
            net.zero_grad()
            return net["used"](torch.ones(1, 2)).sum()

        model.gradients.bytes[:] = b"\x01" * len(model.gradients.bytes)
        found = one_step(model, loss)
        self.assertEqual(found["unused.weight"].tolist(), [[0, 0]])
        self.assertEqual(found["used.weight"].tolist(), [[1, 1]])

    def test_gradients_may_accumulate_over_parts(self):
        X, y, net = problem()
        model = model_of(net)
        whole = one_step(model, lambda: F.cross_entropy(net(X), y))
        model.load()
        for part in (slice(0, 128), slice(128, 256)):
            (F.cross_entropy(net(X[part]), y[part]) / 2).backward()
        model.collect(None)
        gradients = torch.frombuffer(model.gradients.memory, dtype=torch.float32)
        torch.testing.assert_close(gradients[:160].view(16, 10), whole["0.weight"])

    def test_frozen_parameters_stay_out(self):
        _, _, net = problem()
        net[0].requires_grad_(False)
        before = net[0].weight.clone()
        model = model_of(net)
        self.assertEqual(list(model.parameters.tensors), ["2.weight", "2.bias"])
        model.parameters.memory[:] = bytes(len(model.parameters.memory))
        self.assertTrue(torch.equal(net[0].weight, before))
        net.requires_grad_(False)
        with self.assertRaisesRegex(ValueError, "requires a gradient"):
            model_of(net)

    def test_tied_parameters_count_once(self):
        net = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False), "b": nn.Linear(3, 3, bias=False)})
        net["b"].weight = net["a"].weight
        model = model_of(net)
        self.assertEqual(list(model.parameters.tensors), ["a.weight"])
        x = torch.ones(1, 3)
        found = one_step(model, lambda: net["b"](net["a"](x)).sum())
        net["a"].weight.data = net["a"].weight.data.clone()
        net.zero_grad()
        net["b"](net["a"](x)).sum().backward()
        torch.testing.assert_close(found["a.weight"], net["a"].weight.grad)
        self.assertIs(net["a"].weight, net["b"].weight)

    def test_a_causal_mask_stays_local_and_the_results_load_strictly(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.frozen = torch.nn.Linear(3, 3)
                self.frozen.requires_grad_(False)
                self.inner = torch.nn.Linear(3, 3, bias=False)
                self.tied = torch.nn.Linear(3, 3, bias=False)
                self.tied.weight = self.inner.weight
                self.out = torch.nn.Linear(3, 1)
                mask = torch.triu(torch.full((3, 3), -torch.inf), 1)
                self.register_buffer("mask", mask)

            def forward(self, x):
                return self.out(self.tied(torch.relu(self.inner(self.frozen(x)))))

        torch.manual_seed(0)
        net, other = Net(), Net()
        X, y = torch.randn(40, 3), torch.randn(40, 1)
        loss = lambda rows: torch.nn.functional.mse_loss(net(X[rows]), y[rows])
        results = pstrain.train(loss, net, examples=40, workers=2, epochs=2, batch_size=5)
        model = {name: torch.as_tensor(value) for name, value in results.model.items()}
        other.load_state_dict(model, strict=True)
        for name, value in net.state_dict().items():
            self.assertTrue(torch.equal(value, other.state_dict()[name]), name)

    def test_bfloat16_is_copied(self):
        X, y, net = problem()
        net = net.to(torch.bfloat16)
        model = model_of(net)
        model.parameters.bytes[:4] = torch.tensor([0.75]).numpy().tobytes()
        found = one_step(model, lambda: F.cross_entropy(net(X.to(torch.bfloat16)), y))
        self.assertEqual(net[0].weight.dtype, torch.bfloat16)
        self.assertEqual(net[0].weight.data[0, 0].item(), 0.75)
        torch.testing.assert_close(found["2.bias"], net[2].bias.grad.float())

    def test_memory_of_another_order_is_copied(self):
        net = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        model = model_of(net)
        before = net.weight.clone()
        x = torch.randn(2, 3, 8, 8)
        found = one_step(model, lambda: net(x).square().mean())
        self.assertTrue(torch.equal(net.weight, before))
        torch.testing.assert_close(found["weight"], net.weight.grad.contiguous())

    def test_sparse_gradients_become_dense(self):
        net = nn.Embedding(5, 2, sparse=True)
        model = model_of(net)

        def loss():
            net.zero_grad()
            return net(torch.tensor([1, 1])).sum()

        self.assertEqual(one_step(model, loss)["weight"].sum().item(), 4)

    def test_compiled_modules(self):
        X, y, net = problem()
        names = [name for name, _ in net.named_parameters()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = torch.compile(net, backend="aot_eager")
            model = model_of(compiled)
            self.assertEqual(list(model.parameters.tensors), names)
            first = one_step(model, lambda: F.cross_entropy(compiled(X), y))
            # Parameters that arrive count, without another compilation.
            model.parameters.memory[:] = bytes(len(model.parameters.memory))
            second = one_step(model, lambda: F.cross_entropy(compiled(X), y))
        twin = problem()[2]
        F.cross_entropy(twin(X), y).backward()
        torch.testing.assert_close(first["0.weight"], twin[0].weight.grad)
        self.assertEqual(second["0.weight"].abs().max().item(), 0)

    def test_what_cannot_train_is_refused_with_a_reason(self):
        with self.assertRaisesRegex(TypeError, "no shape yet"):
            model_of(nn.LazyLinear(3))
        with self.assertRaisesRegex(TypeError, "meta"):
            model_of(nn.Linear(2, 2, device="meta"))
        with self.assertRaisesRegex(TypeError, "complex"):
            model_of(nn.Linear(2, 2, dtype=torch.complex64))
        model = model_of(nn.Linear(2, 2))
        with self.assertRaisesRegex(TypeError, "leave them out"):
            model.collect({"weight": 1})
        with self.assertRaisesRegex(TypeError, "as a tensor"):
            model.gradient(lambda rows: 1.0, [0])

    def test_a_network_of_layers_is_the_sequential_of_the_same_items(self):
        layers = "conv4x3,bn,relu,pool2,conv5x3s2p1,bn,tanh,linear7,relu"
        net = nn.Sequential(
            *(nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Conv2d(4, 5, 3, 2, 1, bias=False), nn.BatchNorm2d(5), nn.Tanh()),
            *(nn.Flatten(), nn.Linear(20, 7), nn.ReLU(), nn.Linear(7, 3)),
        )
        torch.manual_seed(2)
        pictures, labels = torch.rand(90, 8, 8, 2), torch.arange(90) % 3
        pictures[torch.arange(90), labels, labels] += 2
        rows = torch.cat([pictures.flatten(1), labels[:, None]], 1)
        about = {"columns": 128, "classes": ["a", "b", "c"], "picture": [8, 8, 2]}
        about["standardise"] = False
        with tempfile.TemporaryDirectory() as folder:
            data, out = f"{folder}/pictures", f"{folder}/out"
            with open(data, "wb") as file:
                file.write(json.dumps(about).encode() + b"\n" + rows.numpy().tobytes())
            job = ["--data", f"raw:{data}", "--model", f"net:{layers}", "--json", "--quiet"]
            run_program("run", *job, "--epochs", "4", "--batch-size", "9", "--out", out)
            results = pstrain.Results(out)
            state = {name: torch.tensor(value) for name, value in results.model.items()}
            net.load_state_dict(state, strict=True)
            net.eval()
            with torch.no_grad():
                scores = net(pictures.permute(0, 3, 1, 2))
            whole = ["--data", f"raw:{data}", "--json"]
            found = run_program("eval", "--model", out, *whole)
            self.assertAlmostEqual(found["loss"], F.cross_entropy(scores, labels).item(), places=5)
            # The same weights, written by PyTorch, begin a run of no update.
            write(f"{folder}/begin", net.state_dict())
            again = ["--init", f"{folder}/begin", "--epochs", "1", "--learning-rate", "1e-30"]
            begun = run_program("run", *job, *again, "--evaluation-data", f"raw:{data}")
            self.assertAlmostEqual(begun["accuracy"], found["accuracy"], places=1)


@support.needs("torch")
class TestResnet18(unittest.TestCase):
    """Tests of python/examples/torch_resnet18.py."""

    def setUp(self):
        self.path = support.PYTHON / "examples" / "torch_resnet18.py"
        self.example = runpy.run_path(str(self.path))

    def test_the_full_size_is_the_one_of_the_network_of_layers(self):
        net = self.example["resnet18"](64)
        self.assertEqual(sum(parameter.numel() for parameter in net.parameters()), 11_173_962)

    def test_pictures_are_moved_and_mirrored_as_seed_rows_and_count_say(self):
        changed, pictures = self.example["changed"], torch.randint(256, (40, 3, 32, 32)).byte()
        net, rows = self.example["resnet18"](1), torch.arange(10, 40)
        changed.__globals__.update(net=net, images=pictures)
        found = changed(rows, 1)
        places = set()
        for row, picture in zip(rows, found):
            padded = F.pad(pictures[row] / 127.5 - 1, (4, 4, 4, 4))
            ways = {
                (down, right, mirrored): part.flip(2) if mirrored else part
                for down in range(9)
                for right in range(9)
                for part in [padded[:, down : down + 32, right : right + 32]]
                for mirrored in (False, True)
            }
            (place,) = [place for place, way in ways.items() if torch.equal(way, picture)]
            places.add(place)
        self.assertEqual([len({place[axis] for place in places}) for axis in range(3)], [9, 9, 2])
        self.assertTrue(torch.equal(changed(rows, 1), found))
        self.assertFalse(torch.equal(changed(rows, 2), found))
        net(found)  # A mini-batch more is counted.
        self.assertFalse(torch.equal(changed(rows, 1), found))

    def test_a_replay_of_a_run_on_cifar10_files_ends_at_the_same_bits(self):
        with tempfile.TemporaryDirectory(prefix="pstrain-") as folder:
            torch.manual_seed(0)
            for name in ("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"):
                rows = torch.randint(256, (20, 3073)).byte()
                rows[:, 0] %= 10
                pathlib.Path(folder, name).write_bytes(bytes(rows.flatten().tolist()))
            process = f"--process={sys.executable} {self.path} --data {folder} --width 1 -"
            out, setting = f"{folder}/out", ["--batch-size=10", "--epochs=2", "--consistency=asp"]
            found = run_program("run", process, f"--out={out}", "--json", *setting)
            self.assertEqual(found["updates"], 8)
            again = run_program("replay", out, process, "--json")
            self.assertTrue(again["identical"])
            self.assertEqual(again["evaluation"]["rows"], 20)


def run_program(*arguments):
    """Runs pstrain; returns what it says in JSON."""
    done = subprocess.run(
        [support.program.find(), *arguments], capture_output=True, timeout=support.PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write(path, state):
    """A file in the format of safetensors."""
    header, values, end = {}, b"", 0
    for name, tensor in state.items():
        kind = "I64" if tensor.dtype == torch.int64 else "F32"
        data = tensor.contiguous().numpy().tobytes()
        begin, end = end, end + len(data)
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [begin, end]}
        values += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + values)


if __name__ == "__main__":
    unittest.main()
