"""Models of PyTorch."""

from __future__ import annotations

import array
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from .buffers import MOST_WHOLE, Flat, Rules, StateTensor, check_rules, rule_of

#: What `torch.compile` adds to the names of parameters.
_COMPILED = "_orig_mod."


class TorchModel:
    """A module whose parameters, gradients and state are views of flat buffers.

    Parameters that are not contiguous float32 values in the CPU's memory (bfloat16, a GPU) are
    copied at each step instead. Frozen parameters do not take part; tied ones count once. The state
    is in the buffers that `state_dict` has; local buffers are left as they are.
    """

    #: A module has its state within itself.
    state = None

    def __init__(self, module: torch.nn.Module, combine: Optional[Rules] = None) -> None:
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
        self._buffers = _buffers(module, combine)
        state = {name: tensor for name, (_, _, tensor) in self._buffers.items()}
        self.parameters = Flat(shapes, state)
        self.gradients = Flat(shapes, state)
        values = torch.frombuffer(self.parameters.memory, dtype=torch.float32)
        gradients = torch.frombuffer(self.gradients.memory, dtype=torch.float32)
        self._all_gradients = gradients
        #: True once a step has left a gradient.
        self._has_trained = False
        #: Version of the gradients' memory before the step.
        self._zeroed = 0
        self._trained = values[: self.parameters.trained], gradients[: self.parameters.trained]
        #: The parameters of the step, if differences from them are pushed.
        self._received: Optional[torch.Tensor] = None
        #: Name of a parameter, the parameter, its values and gradients, and whether it is a view.
        self._views: List[_View] = []
        #: The module of a buffer, its name there, its values before and after a step.
        self._states: List[Tuple[torch.nn.Module, str, torch.Tensor, torch.Tensor]] = []
        for name, shape, start, end in self.parameters.ranges():
            value, gradient = values[start:end].view(shape), gradients[start:end].view(shape)
            if name in self._buffers:
                owner, key, _ = self._buffers[name]
                value.copy_(getattr(owner, key))
                self._states.append((owner, key, value, gradient))
                continue
            parameter = self._named[name]
            value.copy_(parameter.detach())
            is_view = _can_be_view(parameter)
            if is_view:
                parameter.data = value
            self._views.append(_View(name, parameter, value, gradient, is_view, slice(start, end)))

    def load(self) -> None:
        self._all_gradients.zero_()
        self._zeroed = self._all_gradients._version
        for view in self._views:
            parameter, value = view.parameter, view.value
            if not view.is_view:
                parameter.data.copy_(value)
            elif parameter.data_ptr() != value.data_ptr():
                parameter.data = value  # The script has given it another memory.
            # A `zero_grad()` of the user has replaced the view by None.
            parameter.grad = view.gradient if view.is_view else None
        for owner, key, value, _ in self._states:
            getattr(owner, key).data.copy_(value)
        if self._received is not None:
            self._received.copy_(self._trained[0])
            for view in self._views:
                if not view.is_view:  # Of fewer digits than what arrived.
                    self._received[view.keys].view(view.value.shape).copy_(view.parameter.detach())

    def collect(self, gradients: Any, state: Any = None) -> None:
        if gradients is not None or state is not None:
            raise TypeError("gradients and state are those of the module: leave them out")
        if not self._has_trained:
            self._check_trained()
        for view in self._views:
            found = view.parameter.grad
            if found is None:
                view.gradient.zero_()
            elif found is not view.gradient:
                view.gradient.copy_(found.to_dense() if found.is_sparse else found)
        self._collect_state()

    def _check_trained(self) -> None:
        """Refuses a first step without a gradient: nothing would ever train."""
        for view in self._views:
            found = view.parameter.grad
            # `backward()` counts up the version of a view that it adds to.
            if found is not None and (found is not view.gradient or found._version != self._zeroed):
                self._has_trained = True
                return
        raise ValueError("no parameter has a gradient: call loss.backward() before step.push(loss)")

    def _collect_state(self) -> None:
        for owner, key, _, after in self._states:
            found = getattr(owner, key)
            if found.shape != after.shape:
                raise ValueError(
                    f"buffer {key} has changed its shape from {tuple(after.shape)} to "
                    f"{tuple(found.shape)}: leave it out with combine={{'*{key}': 'local'}}"
                )
            after.copy_(found)

    def expect_differences(self) -> None:
        self._received = torch.empty_like(self._trained[0])

    def differ(self) -> None:
        assert self._received is not None
        # Training may replace a parameter, or its memory.
        named = {
            name.replace(_COMPILED, ""): parameter
            for name, parameter in self.params.named_parameters(remove_duplicate=False)
        }
        with torch.no_grad():
            for view in self._views:
                view.parameter = named[view.name]
                if view.parameter.data_ptr() != view.value.data_ptr():
                    view.value.copy_(view.parameter)
                view.is_view = _can_be_view(view.parameter)
            torch.sub(self._trained[0], self._received, out=self._trained[1])
        self._collect_state()

    def gradient(
        self, function: Callable[..., Any], rows: Sequence[int]
    ) -> Optional[Tuple[Any, ...]]:
        loss = function(self.numbers(rows))
        if loss is None:
            return None
        if self._received is not None:
            return (loss,)
        if not isinstance(loss, torch.Tensor):
            raise TypeError("the function must return the mean loss of the rows, as a tensor")
        loss.backward()  # type: ignore[no-untyped-call]
        return (loss,)

    def evaluate(self, function: Callable[..., Any], rows: Any) -> Any:
        training = [module for module in self.params.modules() if module.training]
        self.params.eval()
        try:
            with torch.no_grad():
                return function(None if rows is None else self.numbers(rows))
        finally:
            # One by one: `train()` would wake submodules that the user has put to `eval()`.
            for module in training:
                module.training = True

    def beside(self) -> Dict[str, Any]:
        """What `state_dict` has besides the values of messages: tied and frozen weights, buffers."""
        flat = self.parameters.tensors.keys() | self.parameters.state.keys()
        found = self.params.state_dict()
        named = {name.replace(_COMPILED, ""): value for name, value in found.items()}
        others = {name: value for name, value in named.items() if name not in flat}
        tensors = {name: value for name, value in others.items() if torch.is_tensor(value)}
        return {name: value.detach().cpu() for name, value in tensors.items()}

    def numbers(self, rows: Any) -> Any:
        # A tensor, since indexing by a list converts that each time.
        if isinstance(rows, torch.Tensor):
            return rows
        if isinstance(rows, array.array):
            # Torch has few operations on numbers without a sign.
            return torch.frombuffer(rows, dtype=torch.int32).to(torch.int64) & 0xFFFF_FFFF
        return torch.frombuffer(array.array("q", rows), dtype=torch.int64)


@dataclass
class _View:
    """A parameter and its place in the flat buffers."""

    name: str
    parameter: torch.Tensor
    value: torch.Tensor
    gradient: torch.Tensor
    #: True if the parameter's memory is `value`.
    is_view: bool
    keys: slice


def _can_be_view(parameter: torch.Tensor) -> bool:
    is_plain = parameter.dtype == torch.float32 and parameter.device.type == "cpu"
    return is_plain and parameter.is_contiguous()


#: State tensors by name, with the module that has the buffer and its name there.
_Buffers = Dict[str, Tuple[torch.nn.Module, str, StateTensor]]


def _buffers(module: torch.nn.Module, combine: Optional[Rules]) -> _Buffers:
    """The buffers whose states are combined, in the order of the module."""
    found: _Buffers = {}
    for name, owner, key in _persistent(module):
        buffer = getattr(owner, key)
        is_float, is_whole = buffer.is_floating_point(), not buffer.dtype.is_complex
        usual = "mean" if is_float else "first"
        if buffer.dtype == torch.bool or not (is_float or is_whole) or _is_beyond(buffer):
            usual = "local"
        rule = rule_of(combine, name, usual)
        if rule == "local" or buffer.numel() == 0:
            continue
        if usual == "local" or (rule == "mean" and not is_float):
            which = "local" if usual == "local" else "first or local"
            raise ValueError(
                f"buffer {name} ({buffer.dtype}) has no mean, or values that messages do not have: "
                f"use {which}"
            )
        kind = "f32" if is_float else "i64"
        found[name] = (owner, key, StateTensor(tuple(buffer.shape), rule, kind))
    check_rules(combine, [name for name, _, _ in _persistent(module)])
    return found


def _is_beyond(buffer: torch.Tensor) -> bool:
    """True for values that messages do not have: such as -inf in a mask, or large whole numbers."""
    if buffer.dtype.is_complex or buffer.numel() == 0:
        return False
    if buffer.is_floating_point():
        return not bool(buffer.isfinite().all())
    return bool(buffer.abs().max() >= MOST_WHOLE)


def _persistent(module: torch.nn.Module) -> Iterator[Tuple[str, torch.nn.Module, str]]:
    """Name, module and key of each buffer in `state_dict`; shared ones once."""
    names = {name.replace(_COMPILED, "") for name in module.state_dict()}
    for prefix, owner in module.named_modules():
        for key, _ in owner.named_buffers(recurse=False):
            name = (f"{prefix}.{key}" if prefix else key).replace(_COMPILED, "")
            if name in names:
                yield name, owner, key


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
