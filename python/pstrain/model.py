"""What pstrain needs of a user's model, whatever library it is written with."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Protocol, Sequence, Tuple

from .buffers import Flat, Rules


class Model(Protocol):
    """A model whose parameters and gradients are views of flat buffers."""

    #: Values of the parameters, and of the state after them; at first the initial ones.
    parameters: Flat
    #: Values of the gradients, and of the state after a step.
    gradients: Flat
    #: The parameters as the user's functions receive them.
    params: Any
    #: The state as the user's functions receive it; None if the model has it within itself.
    state: Any

    def load(self) -> None:
        """Takes over values that have arrived in `parameters`, and forgets the last gradients."""

    def collect(self, gradients: Any, state: Any = None) -> None:
        """Writes gradients and the state to the buffer `gradients`; None for what the model keeps."""

    def expect_differences(self) -> None:
        """Keeps the parameters of each step from now on, for the difference from them."""

    def differ(self) -> None:
        """Writes to the buffer `gradients` what the user's training has changed, and the state."""

    def gradient(
        self, function: Callable[..., Any], rows: Sequence[int]
    ) -> Optional[Tuple[Any, ...]]:
        """Calls a user's function. Returns the loss, and the arguments of `collect`; None to skip."""

    def evaluate(self, function: Callable[..., Any], rows: Any) -> Any:
        """Calls a user's function that evaluates the parameters on rows, or on rows of its own."""

    def beside(self) -> Dict[str, Any]:
        """Arrays of the model by name that are neither parameters nor state of messages."""

    def numbers(self, rows: Sequence[int]) -> Any:
        """Row numbers as the user's functions receive them."""


def model_of(params: Any, state: Any = None, combine: Optional[Rules] = None) -> Model:
    """The model of a torch module, or of a dictionary of arrays with its state."""
    if hasattr(params, "named_parameters"):
        if state is not None:
            raise TypeError("the state of a module is in its buffers: leave state out")
        from .torch_model import TorchModel

        return TorchModel(params, combine)
    from .arrays import ArrayModel

    return ArrayModel(params, state, combine)
