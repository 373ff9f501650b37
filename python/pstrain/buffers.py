"""The flat buffers that parameters and gradients are views of."""

from __future__ import annotations

import math
from typing import Dict, Iterator, Tuple

#: Names and shapes of the tensors of a model, in the order of their values.
Tensors = Dict[str, Tuple[int, ...]]


class Flat:
    """Float32 values of all tensors, one tensor after the other.

    The memory is a bytearray, which sockets, numpy and torch use without a copy.
    """

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self.size = sum(math.prod(shape) for shape in tensors.values())
        self.memory = bytearray(4 * self.size)
        #: All bytes, for reading from and writing to a connection.
        self.bytes = memoryview(self.memory)

    def ranges(self) -> Iterator[Tuple[str, Tuple[int, ...], int, int]]:
        """Yields name, shape, first value and end of each tensor."""
        start = 0
        for name, shape in self.tensors.items():
            end = start + math.prod(shape)
            yield name, shape, start, end
            start = end
