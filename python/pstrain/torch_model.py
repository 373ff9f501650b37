"""Models of PyTorch."""

from __future__ import annotations

from typing import Any, Callable, Sequence, Tuple

import torch

from .buffers import Flat

#: What `torch.compile` adds to the names of parameters.
_COMPILED = "_orig_mod."


class TorchModel:
    """A module whose parameters and gradients are views of flat buffers.

    Parameters that are not contiguous float32 values in the CPU's memory (bfloat16, a GPU) are
    copied at each step instead. Frozen parameters do not take part; tied ones count once.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        _check(module)
        self.params = module
        self._named = {
            name.replace(_COMPILED, ""): parameter
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        }
        if not self._named:
            raise ValueError("the module has no parameter that requires a gradient")
        shapes = {name: tuple(parameter.shape) for name, parameter in self._named.items()}
        self.parameters = Flat(shapes)
        self.gradients = Flat(shapes)
        values = torch.frombuffer(self.parameters.memory, dtype=torch.float32)
        gradients = torch.frombuffer(self.gradients.memory, dtype=torch.float32)
        self._all_gradients = gradients
        #: Parameter, its values, its gradients, and whether it is a view of them.
        self._views = []
        for name, shape, start, end in self.parameters.ranges():
            parameter = self._named[name]
            value, gradient = values[start:end].view(shape), gradients[start:end].view(shape)
            value.copy_(parameter.detach())
            is_view = (
                parameter.dtype == torch.float32
                and parameter.device.type == "cpu"
                and parameter.is_contiguous()
            )
            if is_view:
                parameter.data = value
            self._views.append((parameter, value, gradient, is_view))

    def load(self) -> None:
        self._all_gradients.zero_()
        for parameter, value, gradient, is_view in self._views:
            if not is_view:
                parameter.data.copy_(value)
            # A `zero_grad()` of the user has replaced the view by None.
            parameter.grad = gradient if is_view else None

    def collect(self, gradients: Any) -> None:
        if gradients is not None:
            raise TypeError("the gradients are those of the module's parameters: leave them out")
        for parameter, _, gradient, _ in self._views:
            found = parameter.grad
            if found is None:
                gradient.zero_()
            elif found is not gradient:
                gradient.copy_(found.to_dense() if found.is_sparse else found)

    def gradient(self, function: Callable[..., Any], rows: Sequence[int]) -> Tuple[Any, Any]:
        loss = function(self.numbers(rows))
        if not isinstance(loss, torch.Tensor):
            raise TypeError("the function must return the mean loss of the rows, as a tensor")
        loss.backward()  # type: ignore[no-untyped-call]
        return loss, None

    def evaluate(self, function: Callable[..., Any], rows: Any) -> Any:
        training = [module for module in self.params.modules() if module.training]
        self.params.eval()
        try:
            with torch.no_grad():
                return function(rows)
        finally:
            # One by one: `train()` would wake submodules that the user has put to `eval()`.
            for module in training:
                module.training = True

    def numbers(self, rows: Sequence[int]) -> Any:
        return rows


def _check(module: torch.nn.Module) -> None:
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        raise TypeError("give the module inside DistributedDataParallel: pstrain does its work")
    for name, parameter in module.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise TypeError(f"{name} has no shape yet: run one mini-batch through the module first")
        if parameter.requires_grad and parameter.is_complex():
            raise TypeError(f"{name} is complex: pstrain trains real numbers")
        if parameter.device.type == "meta":
            raise TypeError(f"{name} has no values: it is on the device meta")
