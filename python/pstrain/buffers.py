"""The flat buffers that parameters and gradients are views of."""

from __future__ import annotations

import fnmatch
import math
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, Mapping, Optional, Tuple

#: Names and shapes of the tensors of a model, in the order of their values.
Tensors = Dict[str, Tuple[int, ...]]

#: The whole number at which float32, the type of all values in messages, stops to count.
MOST_WHOLE = 2**24

#: Rules by the names of state tensors, in which `*` stands for any characters.
Rules = Mapping[str, str]


@dataclass(frozen=True)
class StateTensor:
    """State besides the parameters: how the states of several workers become one."""

    shape: Tuple[int, ...]
    #: `mean` or `first`; `local` state is not sent.
    combine: str
    #: The type in files: `f32` or `i64`.
    type: str


def rule_of(rules: Optional[Rules], name: str, usual: str) -> str:
    """The rule of a state tensor."""
    rules = rules or {}
    found = next((rules[key] for key in rules if fnmatch.fnmatchcase(name, key)), usual)
    if found not in ("local", "mean", "first"):
        raise ValueError(f"state {name}: {found!r} is no rule; use local, mean or first")
    return found


def check_rules(rules: Optional[Rules], names: Iterable[str]) -> None:
    """Refuses a rule that no state has."""
    names = list(names)
    for pattern in rules or {}:
        if not fnmatch.filter(names, pattern):
            raise ValueError(f"combine: no state is called {pattern!r}; there is {names[:8]}")


class Flat:
    """Float32 values of all tensors, one tensor after the other: parameters, then state.

    The memory is a bytearray, which sockets, numpy and torch use without a copy.
    """

    def __init__(self, tensors: Tensors, state: Optional[Dict[str, StateTensor]] = None) -> None:
        self.tensors = tensors
        self.state = state or {}
        twice = self.tensors.keys() & self.state.keys()
        if twice:
            raise ValueError(f"{', '.join(sorted(twice))} is both a parameter and state")
        #: Number of values of parameters; those after them are state.
        self.trained = sum(math.prod(shape) for shape in tensors.values())
        self.size = self.trained + sum(math.prod(it.shape) for it in self.state.values())
        self.memory = bytearray(4 * self.size)
        #: All bytes, for reading from and writing to a connection.
        self.bytes = memoryview(self.memory)

    def ranges(self) -> Iterator[Tuple[str, Tuple[int, ...], int, int]]:
        """Yields name, shape, first value and end of each tensor."""
        start = 0
        state = {name: it.shape for name, it in self.state.items()}
        for name, shape in {**self.tensors, **state}.items():
            end = start + math.prod(shape)
            yield name, shape, start, end
            start = end
