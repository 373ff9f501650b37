"""What pstrain needs of a user's model, whatever library it is written with."""

from __future__ import annotations

from typing import Any, Callable, Protocol, Sequence, Tuple

from .buffers import Flat


class Model(Protocol):
    """A model whose parameters and gradients are views of flat buffers."""

    #: Values of the parameters; at first the initial ones.
    parameters: Flat
    #: Values of the gradients.
    gradients: Flat
    #: The parameters as the user's functions receive them.
    params: Any

    def load(self) -> None:
        """Takes over values that have arrived in `parameters`, and forgets the last gradients."""

    def collect(self, gradients: Any) -> None:
        """Writes gradients to the buffer `gradients`; `None` for those that the model keeps."""

    def gradient(self, function: Callable[..., Any], rows: Sequence[int]) -> Tuple[Any, Any]:
        """Calls a user's function. Returns the loss, and the gradients for `collect`."""

    def evaluate(self, function: Callable[..., Any], rows: Any) -> Any:
        """Calls a user's function that evaluates the parameters on rows, or on rows of its own."""

    def numbers(self, rows: Sequence[int]) -> Any:
        """Row numbers as the user's functions receive them."""


def model_of(params: Any) -> Model:
    """The model of a torch module, or of a dictionary of arrays."""
    if hasattr(params, "named_parameters"):
        from .torch_model import TorchModel

        return TorchModel(params)
    from .arrays import ArrayModel

    return ArrayModel(params)
