"""Models of plain arrays: numpy, JAX, or the standard library alone."""

from __future__ import annotations

import array
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

from .buffers import MOST_WHOLE, Flat, Rules, StateTensor, check_rules, rule_of


class ArrayModel:
    """A dictionary of arrays, which may have dictionaries, lists and tuples in it.

    The user's functions receive the same structure, with float32 views of one buffer in the place
    of the arrays. 16-bit arrays are the exception: they are copies of their own type.
    Without numpy an array is a number, a list of numbers or an `array.array`, and its view is a
    `memoryview`.
    """

    def __init__(self, params: Any, state: Any = None, combine: Optional[Rules] = None) -> None:
        leaves = dict(_leaves(params, ""))
        if not leaves:
            raise ValueError("the model has no parameters")
        beside = {} if state is None else dict(_leaves(state, ""))
        self._np = _numpy([*leaves.values(), *beside.values()])
        shapes = {name: self._shape(name, leaf) for name, leaf in leaves.items()}
        tensors = {name: self._state_tensor(name, leaf, combine) for name, leaf in beside.items()}
        check_rules(combine, beside)
        self.parameters = Flat(shapes, tensors)
        self.gradients = Flat(shapes, tensors)
        self._views = self._views_of(self.parameters)
        self._targets = self._views_of(self.gradients)
        for name, leaf in {**leaves, **beside}.items():
            self._store(name, leaf, self._views[name])
        self._copies = {
            name: leaf.dtype for name, leaf in leaves.items() if _is_short(getattr(leaf, "dtype", None))
        }
        self._structure = params
        self.params = _rebuild(params, "", self._views)
        self.state = None if state is None else _rebuild(state, "", self._views)
        self.load()

    def load(self) -> None:
        if self._copies:
            copies = {name: self._views[name].astype(kind) for name, kind in self._copies.items()}
            self.params = _rebuild(self._structure, "", {**self._views, **copies})

    def collect(self, gradients: Any, state: Any = None) -> None:
        self._collect("gradients", gradients, "parameters", self.parameters.tensors)
        if self.parameters.state or state is not None:
            self._collect("state", state, "initial state", self.parameters.state)

    def _collect(self, what: str, given: Any, of: str, tensors: Mapping[str, Any]) -> None:
        if given is None:
            raise TypeError(f"give the {what}, in the structure of the {of}")
        found = dict(_leaves(given, ""))
        if found.keys() != tensors.keys():
            differs = ", ".join(sorted(found.keys() ^ tensors.keys()))
            raise ValueError(f"the {what} have other names than the {of}: {differs}")
        for name, leaf in found.items():
            self._store(name, leaf, self._targets[name])

    def expect_differences(self) -> None:
        pass  # The user's function returns them.

    def differ(self) -> None:
        raise TypeError("give the difference, in the structure of the parameters")

    def gradient(
        self, function: Callable[..., Any], rows: Sequence[int]
    ) -> Optional[Tuple[Any, ...]]:
        answer = function(*self._arguments(), self.numbers(rows))
        if answer is None:
            return None
        wanted = "(loss, gradients)" if self.state is None else "(loss, gradients, state)"
        if not isinstance(answer, tuple) or len(answer) != len(wanted.split(",")):
            raise TypeError(f"the gradient function must return {wanted}")
        return answer

    def evaluate(self, function: Callable[..., Any], rows: Any) -> Any:
        return function(*self._arguments(), None if rows is None else self.numbers(rows))

    def _arguments(self) -> List[Any]:
        return [self.params] if self.state is None else [self.params, self.state]

    def beside(self) -> Dict[str, Any]:
        return {}

    def numbers(self, rows: Sequence[int]) -> Any:
        if self._np is None:
            return rows.tolist() if isinstance(rows, array.array) else rows
        return self._np.asarray(rows, dtype=self._np.int64)

    def _state_tensor(self, name: str, leaf: Any, combine: Optional[Rules]) -> StateTensor:
        kind = getattr(getattr(leaf, "dtype", None), "kind", None)
        is_whole = isinstance(leaf, int) or kind in ("i", "u")
        if self._np is not None:
            shape = tuple(int(size) for size in self._np.shape(leaf))
        else:
            shape = self._shape(name, leaf)
        rule = rule_of(combine, name, "first" if is_whole else "mean")
        if rule == "local":
            raise ValueError(f"state {name}: keep local state of arrays in your function")
        if is_whole and self._most(leaf) >= MOST_WHOLE:
            raise ValueError(
                f"state {name}: has whole numbers of {MOST_WHOLE:,} or more, where messages stop "
                "to count; keep it in your function, or count in larger units"
            )
        return StateTensor(shape, rule, "i64" if is_whole else "f32")

    def _most(self, leaf: Any) -> int:
        """The largest magnitude in an array of whole numbers."""
        if self._np is None:
            return max(map(abs, [leaf] if isinstance(leaf, int) else leaf), default=0)
        # As floating-point numbers, since the magnitude of the smallest int64 is none.
        return int(self._np.abs(self._np.asarray(leaf, dtype=float)).max(initial=0))

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
        found = self._shape(name, leaf) if self._np is None else tuple(self._np.shape(leaf))
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
