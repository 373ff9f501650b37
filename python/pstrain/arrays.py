"""Models of plain arrays: numpy, JAX, or the standard library alone."""

from __future__ import annotations

import array
from typing import Any, Callable, Dict, Iterable, Iterator, List, Sequence, Tuple

from .buffers import Flat


class ArrayModel:
    """A dictionary of arrays, which may have dictionaries, lists and tuples in it.

    The user's functions receive the same structure, with float32 views of one buffer in the place
    of the arrays. 16-bit arrays are the exception: they are copies of their own type.
    Without numpy an array is a number, a list of numbers or an `array.array`, and its view is a
    `memoryview`.
    """

    def __init__(self, params: Any) -> None:
        leaves = dict(_leaves(params, ""))
        if not leaves:
            raise ValueError("the model has no parameters")
        self._np = _numpy(leaves.values())
        shapes = {name: self._shape(name, leaf) for name, leaf in leaves.items()}
        self.parameters = Flat(shapes)
        self.gradients = Flat(shapes)
        self._views = self._views_of(self.parameters)
        self._targets = self._views_of(self.gradients)
        for name, leaf in leaves.items():
            self._store(name, leaf, self._views[name])
        self._copies = {
            name: leaf.dtype for name, leaf in leaves.items() if _is_short(getattr(leaf, "dtype", None))
        }
        self._structure = params
        self.params = _rebuild(params, "", self._views)
        self.load()

    def load(self) -> None:
        if self._copies:
            copies = {name: self._views[name].astype(kind) for name, kind in self._copies.items()}
            self.params = _rebuild(self._structure, "", {**self._views, **copies})

    def collect(self, gradients: Any) -> None:
        if gradients is None:
            raise TypeError("give the gradients, in the structure of the parameters")
        found = dict(_leaves(gradients, ""))
        if found.keys() != self._targets.keys():
            differs = ", ".join(sorted(found.keys() ^ self._targets.keys()))
            raise ValueError(f"the gradients have other names than the parameters: {differs}")
        for name, leaf in found.items():
            self._store(name, leaf, self._targets[name])

    def gradient(self, function: Callable[..., Any], rows: Sequence[int]) -> Tuple[Any, Any]:
        answer = function(self.params, self.numbers(rows))
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise TypeError("the gradient function must return (loss, gradients)")
        return answer

    def evaluate(self, function: Callable[..., Any], rows: Any) -> Any:
        return function(self.params, None if rows is None else self.numbers(rows))

    def numbers(self, rows: Sequence[int]) -> Any:
        return rows if self._np is None else self._np.asarray(rows, dtype=self._np.int64)

    def _shape(self, name: str, leaf: Any) -> Tuple[int, ...]:
        if self._np is None:
            return () if isinstance(leaf, (int, float)) else (len(leaf),)
        kind = getattr(leaf, "dtype", None)
        if kind is not None and not _is_float(kind):
            raise TypeError(f"parameter {name} is of type {kind}: floating-point numbers can train")
        return tuple(int(size) for size in self._np.shape(leaf))

    def _views_of(self, flat: Flat) -> Dict[str, Any]:
        if self._np is None:
            return {
                name: flat.bytes[4 * start : 4 * end].cast("f", shape) if shape == () else
                flat.bytes[4 * start : 4 * end].cast("f")
                for name, shape, start, end in flat.ranges()
            }
        values = self._np.frombuffer(flat.memory, dtype=self._np.float32)
        return {
            name: values[start:end].reshape(shape) for name, shape, start, end in flat.ranges()
        }

    def _store(self, name: str, leaf: Any, view: Any) -> None:
        shape = tuple(view.shape)
        found = self._shape(name, leaf)
        if found != shape:
            raise ValueError(f"{name} has shape {list(found)} where the parameter has {list(shape)}")
        if self._np is not None:
            self._np.copyto(view, self._np.asarray(leaf), casting="unsafe")
        elif shape == ():
            view[()] = leaf
        else:
            view[:] = array.array("f", leaf)


def _leaves(tree: Any, path: str) -> Iterator[Tuple[str, Any]]:
    """The arrays in a structure, by their names."""
    for key, child in _children(tree):
        name = f"{path}.{key}" if path else str(key)
        if isinstance(child, dict) or _children(child):
            yield from _leaves(child, name)
        else:
            yield name, child


def _children(tree: Any) -> List[Tuple[Any, Any]]:
    """What a structure has in it; nothing if it is an array."""
    if isinstance(tree, dict):
        return list(tree.items())
    is_list = isinstance(tree, (list, tuple))
    if is_list and not all(isinstance(child, (int, float)) for child in tree):
        return list(enumerate(tree))
    return []


def _rebuild(tree: Any, path: str, leaves: Dict[str, Any]) -> Any:
    """The structure of `tree`, with other arrays in it."""

    def child(key: Any, old: Any) -> Any:
        name = f"{path}.{key}" if path else str(key)
        return leaves[name] if name in leaves else _rebuild(old, name, leaves)

    new = [child(key, old) for key, old in _children(tree)]
    if isinstance(tree, dict):
        return dict(zip(tree, new))
    if hasattr(tree, "_fields"):
        return type(tree)(*new)
    return type(tree)(new)


def _numpy(leaves: Iterable[Any]) -> Any:
    """numpy, if any array needs it."""
    if not any(hasattr(leaf, "__array__") for leaf in leaves):
        return None
    import numpy

    return numpy


def _is_float(kind: Any) -> bool:
    return getattr(kind, "kind", "") == "f" or _is_short(kind)


def _is_short(kind: Any) -> bool:
    return str(kind) in ("float16", "bfloat16")
