"""What is trained: a model, a user's functions, and the number of examples."""

from __future__ import annotations

import operator
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, Optional, Union

from .buffers import Rules
from .model import Model, model_of


@dataclass
class Task:
    """A model with the functions that compute on it."""

    model: Model
    #: Number of examples, which pstrain numbers from 0.
    examples: int
    #: Computes loss and gradients of rows; None if the user's loop does.
    gradient: Optional[Callable[..., Any]] = None
    #: Evaluates the parameters.
    evaluate: Optional[Callable[..., Any]] = None
    #: A text that tells datasets apart.
    digest: Optional[str] = None
    #: True if steps are pushed as differences of parameters, and not as gradients.
    differences: bool = False
    #: Takes over the final parameters of `train` and `simulate`.
    finish: Optional[Callable[[], None]] = None

    def __post_init__(self) -> None:
        try:
            # A whole number of numpy is one, too, but JSON does not take it.
            self.examples = operator.index(self.examples)
        except TypeError:
            raise TypeError(
                f"examples: {self.examples!r} is no whole number; give the number of examples of "
                "the dataset, such as len(data)"
            ) from None
        if self.examples < 1:
            raise ValueError("examples: give the number of examples of the dataset")
        if self.differences:
            self.model.expect_differences()
        #: The sum of the losses of rows since the last evaluation, and their number.
        self._losses = (0.0, 0)
        #: Kept, since the process of another worker may ask for them later.
        self.initial = bytes(self.model.parameters.memory)

    def trained(self, loss: float, rows: int) -> None:
        """Notes the mean loss of the rows of a mini-batch."""
        total, count = self._losses
        self._losses = (total + loss * rows, count + rows)

    def training_loss(self) -> Optional[Dict[str, Any]]:
        """The mean loss of the mini-batches since the last call, in place of an evaluation."""
        (total, count), self._losses = self._losses, (0.0, 0)
        return {"examples": count, "loss": total / count} if count else None

    def description(self) -> Dict[str, Any]:
        """The answer to pstrain's first request."""
        tensors = self.model.parameters.tensors
        found: Dict[str, Any] = {
            "tensors": [{"name": name, "shape": shape} for name, shape in tensors.items()],
            "examples": self.examples,
            "rows": "after",
        }
        state = self.model.parameters.state
        if state:
            found["state"] = [{"name": name, **asdict(it)} for name, it in state.items()]
        if self.differences:
            found["answers"] = "difference"
        return found if self.digest is None else {**found, "digest": self.digest}


def task_of(
    gradient: Union[Task, Callable[..., Any]],
    params: Any,
    examples: Optional[int],
    evaluate: Optional[Callable[..., Any]],
    digest: Optional[str],
    state: Any = None,
    combine: Optional[Rules] = None,
    differences: bool = False,
) -> Task:
    """The task that the arguments of `run`, `train` and `simulate` describe."""
    if isinstance(gradient, Task):
        if params is not None or examples is not None or state is not None:
            raise TypeError("this gradient brings its parameters and examples: leave them out")
        gradient.evaluate = evaluate or gradient.evaluate
        gradient.digest = digest or gradient.digest
        return gradient
    if params is None or examples is None:
        raise TypeError("give the initial parameters, and the number of examples")
    model = model_of(params, state, combine)
    return Task(model, examples, gradient, evaluate, digest, differences)


def evaluation(found: Any, examples: int) -> Dict[str, Any]:
    """The message of what a user's evaluation returned: a loss, (loss, accuracy), or a dictionary."""
    if isinstance(found, tuple):
        loss, accuracy = found
        found = {"loss": loss, "accuracy": accuracy}
    elif not isinstance(found, dict):
        found = {"loss": found}
    message: Dict[str, Any] = {"examples": int(found.get("examples", examples))}
    for figure, value in found.items():
        if figure in ("recall", "f1"):
            message[figure] = [None if x is None else float(x) for x in value]
        elif figure == "loss" and value is not None:
            message["loss"] = number(figure, value)
        elif figure not in ("loss", "examples") and value is not None:
            message.setdefault("metrics", {})[str(figure)] = number(figure, value)
    accuracy = message.get("metrics", {}).get("accuracy", 0.0)
    if not 0.0 <= accuracy <= 1.0 and accuracy == accuracy:
        raise ValueError(f"evaluate: accuracy {accuracy:g} is no share of the rows, from 0 to 1")
    return message


def number(figure: Any, value: Any) -> float:
    """A figure that a user's function returned, which may be an array with one element."""
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{figure}: {value!r} is no number") from None
