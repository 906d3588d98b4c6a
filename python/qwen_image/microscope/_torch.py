"""Modules of torch: hooks, and a mode that sees each operation."""

from __future__ import annotations

import inspect
import platform
import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from ._recorder import Arrays, Recorder, tensors_in
from ._source import Line, folder_of

# What passes a call on: torch itself, and accelerate, whose hooks stand before a module's forward.
_LIBRARIES = tuple(folder_of(sys.modules[name].__file__) for name in ("torch", "accelerate") if name in sys.modules)


def torch_components(model: Any) -> dict[str, Any] | None:
    """A module that cannot be called is what it holds. None: it is no module."""
    if not isinstance(model, torch.nn.Module):
        return None
    if type(model).forward is torch.nn.Module.forward:
        return dict(model.named_children())
    return {"": model}


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _to_numpy(tensor: Any) -> Any:
    if tensor.is_meta:
        return None
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    tensor = tensor.to_dense() if tensor.layout != torch.strided else tensor
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype == torch.bool:
        tensor = tensor.to(torch.uint8)
    elif tensor.is_floating_point():
        # npy has no bfloat16 and no eight bits.
        tensor = tensor if tensor.dtype == torch.float64 else tensor.to(torch.float32)
    else:
        tensor = tensor.to(torch.int64)
    return tensor.cpu().numpy().copy()


def _inputs(module: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """By the names of the parameters, so that it is all one how the caller gives them."""
    try:
        return dict(inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {**{str(index): value for index, value in enumerate(args)}, **kwargs}


class _Lines(TorchFunctionMode):  # type: ignore[misc]
    """Notes for each tensor which line of the program made it."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = WeakIdKeyDictionary()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        # A cast to the type that a tensor has returns the tensor itself; an operation in place returns a new one.
        in_place = getattr(function, "__name__", "").endswith("_")
        made = [
            tensor for _, tensor in tensors_in(result, _is_tensor) if in_place or not any(tensor is given for given in args)
        ]
        # Whoever only asks for a shape makes no tensor, and needs no search for the line.
        if made:
            line = Line.of_caller(*_LIBRARIES)
            for tensor in made:
                self._lines[tensor] = line
        return result

    def of(self, tensor: Any) -> Line | None:
        line: Line | None = self._lines.get(tensor)
        return line


class TorchTree:
    framework = "torch"

    def __init__(self, components: dict[str, Any]) -> None:
        self._components = components
        self._handles: list[Any] = []
        self._lines = _Lines()
        self.arrays = Arrays(_is_tensor, _to_numpy, _dtype, self._lines.of)

    def attach(self, recorder: Recorder) -> None:
        for component, root in self._components.items():
            for path, module in root.named_modules():
                self._attach_one(recorder, component, path, module)
        self._lines.__enter__()

    def _attach_one(self, recorder: Recorder, component: str, path: str, module: Any) -> None:
        def before(module: Any, args: Any, kwargs: Any) -> None:
            with torch._C.DisableTorchFunction():
                recorder.enter(component, path, _inputs(module, args, kwargs), Line.of_caller(*_LIBRARIES))

        def after(_module: Any, _args: Any, _kwargs: Any, outputs: Any) -> None:
            with torch._C.DisableTorchFunction():
                recorder.leave(component, path, outputs, Line.of_caller(*_LIBRARIES))

        self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        # Also after an error, which the program may catch: the next call does not lie inside this one.
        self._handles.append(module.register_forward_hook(after, with_kwargs=True, always_call=True))

    def detach(self) -> None:
        self._lines.__exit__(None, None, None)
        for handle in self._handles:
            handle.remove()

    def versions(self) -> dict[str, str]:
        names = ("torch", "diffusers", "transformers", "numpy")
        found = {name: sys.modules[name].__version__ for name in names if name in sys.modules}
        return {"python": platform.python_version(), **found}
