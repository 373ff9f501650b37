"""The notebooks of python/examples run from top to bottom, without Jupyter and without matplotlib."""

import contextlib
import io
import json
import os
import unittest

import support

# Where matplotlib is installed, it opens no window.
os.environ["MPLBACKEND"] = "Agg"

NOTEBOOKS = sorted((support.PYTHON / "examples").glob("*.ipynb"))
#: Settings of a tiny sweep, by the name of the notebook.
TINY = {"sweep.ipynb": {"CONSISTENCIES": ["bsp", "asp"], "DELAYS_MS": [1, 100], "EPOCHS": 1}}


def code_cells(path):
    """The code of each cell, and its tags."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"]), cell["metadata"].get("tags", [])


def run(path):
    """Runs all cells with tiny settings; returns what they print and their names."""
    names = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for number, (code, tags) in enumerate(code_cells(path)):
            exec(compile(code, f"{path.name}, code cell {number}", "exec"), names)
            if "parameters" in tags:
                assert TINY[path.name].keys() <= names.keys(), "the settings have other names"
                names.update(TINY[path.name])
    return printed.getvalue(), names


class TestNotebooks(unittest.TestCase):
    def test_every_notebook_has_tiny_settings(self):
        self.assertEqual([path.name for path in NOTEBOOKS], sorted(TINY))

    @support.needs("numpy")
    def test_the_sweep_shows_that_waiting_for_a_slow_link_takes_time(self):
        printed, names = run(support.PYTHON / "examples" / "sweep.ipynb")
        found = {at: summary["time_s"] for at, summary in names["found"].items()}
        self.assertGreater(found["bsp", 100], 5 * found["bsp", 1])
        self.assertGreater(found["bsp", 100], 5 * found["asp", 100])
        table = printed.split("\n\n")[0].splitlines()
        self.assertEqual(table[0].split()[-2:], ["bsp", "asp"])
        for line, delay in zip(table[1:], (1, 100)):
            numbers = [f"{found[c, delay]:.3f}" for c in ("bsp", "asp")]
            self.assertEqual(line.split(), [str(delay), "ms", *numbers])


if __name__ == "__main__":
    unittest.main()
