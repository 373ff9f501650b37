"""The folder of results of a run."""

from __future__ import annotations

import array
import csv
import functools
import importlib.util
import json
import os
import struct
from typing import Any, Callable, Dict, List, Tuple

#: A table by its columns: `pandas.DataFrame` and `polars.DataFrame` take it as it is.
Columns = Dict[str, List[Any]]


class Results:
    """Results of a run: what `--out DIR` holds.

        results = pstrain.Results("results/a")
        pandas.DataFrame(results.curve).plot("time_s", "loss")
    """

    def __init__(self, folder: str) -> None:
        #: The folder.
        self.folder = folder
        #: The final parameters in the structure that `train` or `simulate` was given, else None.
        self.params: Any = None
        #: Arrays of `model` that are not in the folder: tied and frozen weights, local buffers.
        self.beside: Dict[str, Any] = {}
        if not os.path.exists(self._path("summary.json")):
            raise FileNotFoundError(f"{folder} has no summary.json: the run is not complete")

    @functools.cached_property
    def summary(self) -> Dict[str, Any]:
        """The figures of the run, as `--json` prints them."""
        with open(self._path("summary.json"), encoding="utf-8") as file:
            found: Dict[str, Any] = json.load(file)
            return found

    @functools.cached_property
    def settings(self) -> Dict[str, Any]:
        """The settings of the job, by the names of a job file."""
        with open(self._path("job.toml"), encoding="utf-8") as file:
            return dict(_setting(line) for line in file if " = " in line and line[0] != "#")

    @functools.cached_property
    def curve(self) -> Columns:
        """Accuracy and loss against updates, samples, epochs and time."""
        return _columns(self._path("curve.csv"))

    @functools.cached_property
    def timeline(self) -> Columns:
        """A row for each mini-batch that was given out; times are nanoseconds."""
        return _columns(self._path("timeline.csv"))

    @functools.cached_property
    def staleness(self) -> Columns:
        """Histograms of each worker, and of all: staleness, and age of information."""
        return _columns(self._path("staleness.csv"))

    @functools.cached_property
    def events(self) -> List[Dict[str, Any]]:
        """What is rare: who came and went, evaluations, the end."""
        with open(self._path("events.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    @functools.cached_property
    def model(self) -> Dict[str, Any]:
        """The final parameters and state by name: numpy arrays, or memoryviews without numpy.

        Of a torch module that this process has trained, all that `load_state_dict` needs.
        """
        return {**{name: self._array(name) for name in self._tensors[0]}, **self.beside}

    def bytes_of(self, name: str) -> memoryview:
        """The bytes of a tensor of the model."""
        tensors, values = self._tensors
        begin, end = tensors[name]["data_offsets"]
        return memoryview(values)[begin:end]

    def floats_of(self, name: str) -> memoryview:
        """The values of a tensor of the model as bytes of float32."""
        values = self.bytes_of(name)
        if self._tensors[0][name]["dtype"] == "F32":
            return values
        return memoryview(array.array("f", values.cast("q"))).cast("B")

    def _array(self, name: str) -> Any:
        values, about = self.bytes_of(name), self._tensors[0][name]
        kind: Any = {"F32": "f", "I64": "q"}[about["dtype"]]
        if importlib.util.find_spec("numpy") is None:
            whole: memoryview = values.cast(kind, about["shape"])
            return whole
        import numpy

        # A copy, which may be written to.
        return numpy.frombuffer(values, kind).reshape(about["shape"]).copy()

    @functools.cached_property
    def _tensors(self) -> Tuple[Dict[str, Any], bytes]:
        with open(self._path("model.safetensors"), "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            tensors: Dict[str, Any] = json.loads(file.read(size))
            tensors.pop("__metadata__", None)
            return tensors, file.read()

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def __repr__(self) -> str:
        figures = ("ended", "loss", "accuracy", "updates", "time_s")
        known = {key: self.summary[key] for key in figures if self.summary.get(key) is not None}
        return f"Results({self.folder!r}, {', '.join(f'{k}={v!r}' for k, v in known.items())})"


def _setting(line: str) -> Tuple[str, Any]:
    key, value = line.split(" = ", 1)
    # Values of a job file are those of JSON; a comment follows.
    return key, json.JSONDecoder().raw_decode(value)[0]


def _columns(path: str) -> Columns:
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        names = next(rows)
        cells: List[Any] = list(zip(*rows)) or [()] * len(names)
        return {name: _typed(column) for name, column in zip(names, cells)}


def _typed(column: Tuple[str, ...]) -> List[Any]:
    kinds: List[Callable[[str], Any]] = [int, lambda cell: float(cell or "nan")]
    for kind in kinds:
        try:
            return [kind(cell) for cell in column]
        except ValueError:
            pass
    return list(column)
