"""What the tests share: the program, a server, and a model of the standard library alone."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

PYTHON = pathlib.Path(__file__).resolve().parent.parent
ROOT = PYTHON.parent

# The module next to the tests, or with PSTRAIN_INSTALLED the installed one.
if not os.environ.get("PSTRAIN_INSTALLED"):
    sys.path.insert(0, str(PYTHON))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(PYTHON), *filter(None, [os.environ.get("PYTHONPATH")])]
    )


def _built():
    """The program that cargo built last."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    found = [target / profile / "pstrain" for profile in ("debug", "release")]
    found = [path for path in found if path.exists()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


if not os.environ.get("PSTRAIN_INSTALLED") and not os.environ.get("PSTRAIN") and _built():
    os.environ["PSTRAIN"] = str(_built())

import pstrain  # noqa: E402
from pstrain import program  # noqa: E402

#: For every wait; tests share a busy machine.
PATIENCE = 120


def has(library):
    return importlib.util.find_spec(library) is not None


def needs(library):
    """Skips a test where a library is not installed."""
    return unittest.skipUnless(has(library), f"{library} is not installed")


#: Rows of a linear regression: y = 2 x0 - x1 + 0.5.
X = [[(i * 7 % 11) / 11, (i * 5 % 13) / 13] for i in range(64)]
Y = [2 * a - b + 0.5 for a, b in X]
PARAMS = {"w": [0.0, 0.0], "b": 0.0}


def gradient(p, rows):
    """The gradient of the mean squared error, in pure Python."""
    w, b = list(p["w"]), p["b"] if isinstance(p["b"], float) else p["b"][()]
    errors = [w[0] * X[i][0] + w[1] * X[i][1] + b - Y[i] for i in rows]
    of = [sum(2 * e * X[i][k] for e, i in zip(errors, rows)) / len(rows) for k in (0, 1)]
    loss = sum(e * e for e in errors) / len(rows)
    return loss, {"w": of, "b": sum(2 * e for e in errors) / len(rows)}


def evaluate(p, rows):
    return gradient(p, range(len(X)) if rows is None else rows)[0]


def loop(updates, rate):
    """Plain gradient descent on all rows."""
    w, b = [0.0, 0.0], 0.0
    for _ in range(updates):
        _, found = gradient({"w": w, "b": b}, range(len(X)))
        w = [old - rate * new for old, new in zip(w, found["w"])]
        b -= rate * found["b"]
    return w, b


class Server:
    """A `pstrain server` with a compute process, at a Unix socket."""

    def __init__(self, process, *arguments):
        self.folder = tempfile.TemporaryDirectory(prefix="pstrain-")
        self.address = f"unix:{self.folder.name}/server"
        self.out = f"{self.folder.name}/results"
        command = [program.find(), "server", f"--listen={self.address}", f"--process={process}"]
        command += [f"--out={self.out}", *arguments]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        end = time.monotonic() + PATIENCE
        while not os.path.exists(self.address[5:]) and self.child.poll() is None:
            assert time.monotonic() < end, "the server does not listen"
            time.sleep(0.02)

    def results(self):
        said = self.child.communicate(timeout=PATIENCE)[0].decode()
        assert self.child.returncode == 0, said
        return pstrain.Results(self.out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.child.stdout.close()
        self.folder.cleanup()


def start(script, *arguments):
    """Starts a Python script."""
    return subprocess.Popen(
        [sys.executable, str(script), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(child):
    """Waits for a script; returns its exit code and its output."""
    out, error = child.communicate(timeout=PATIENCE)
    return child.returncode, out.decode() + error.decode()
