"""Modules of MLX, which have no hooks: while a recording lasts their classes' calls are replaced."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any, Callable

import mlx.core as mx
import mlx.nn as nn

from ._recorder import Arrays, Recorder
from ._source import Line, folder_of

_LIBRARIES = (folder_of(mx.__file__), folder_of(nn.__file__))


def mlx_components(model: Any) -> dict[str, Any] | None:
    """A module that cannot be called is what it holds. None: it is no module."""
    if not isinstance(model, nn.Module):
        return None
    if callable(model):
        return {"": model}
    return {name: child for name, child in model.children().items() if isinstance(child, nn.Module)}


def _is_tensor(value: Any) -> bool:
    return isinstance(value, mx.array)


def _dtype(array: Any) -> str:
    return str(array.dtype).removeprefix("mlx.core.")


def _to_numpy(array: Any) -> Any:
    import numpy as np

    if array.dtype == mx.bool_:
        array = array.astype(mx.uint8)
    elif array.dtype == mx.complex64:
        array = mx.stack([mx.real(array), mx.imag(array)], axis=-1)
    elif mx.issubdtype(array.dtype, mx.floating):
        array = array.astype(mx.float32)
    else:
        array = array.astype(mx.int64)
    # A copy: MLX may reuse the memory.
    return np.array(array)


class MlxTree:
    framework = "mlx"
    arrays = Arrays(_is_tensor, _to_numpy, _dtype, lambda _array: None)

    def __init__(self, components: dict[str, Any]) -> None:
        self._places: dict[int, tuple[str, str]] = {}
        self._modules: list[Any] = []  # keeps them alive, as they are known by their identity
        for component, root in components.items():
            for path, module in root.named_modules():
                if id(module) not in self._places:
                    self._places[id(module)] = (component, path)
                    self._modules.append(module)
        self._own_calls: dict[type, Any] = {}

    def attach(self, recorder: Recorder) -> None:
        # A compiled function is traced once with arrays that have no values.
        mx.disable_compile()
        classes = {type(module) for module in self._modules if callable(module)}
        # All of them are looked up before one is replaced: a class may have its call from another one.
        calls: dict[type, Callable[..., Any]] = {cls: cls.__call__ for cls in classes}
        for cls, original in calls.items():
            self._own_calls[cls] = cls.__dict__.get("__call__")
            setattr(cls, "__call__", self._recording(recorder, original))  # noqa: B010

    def _recording(self, recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            place = self._places.get(id(module))
            # Inside: a class that calls the one above it.
            if place is None or recorder.is_inside(*place):
                return original(module, *args, **kwargs)
            line = Line.of_caller(*_LIBRARIES)
            given = {**{str(index): value for index, value in enumerate(args)}, **kwargs}
            recorder.enter(*place, given, line)
            result = None
            try:
                result = original(module, *args, **kwargs)
                return result
            finally:
                recorder.leave(*place, result, line)

        return call

    def detach(self) -> None:
        for cls, own in self._own_calls.items():
            if own is None:
                del cls.__call__  # type: ignore[operator]
            else:
                setattr(cls, "__call__", own)  # noqa: B010
        if not os.environ.get("MLX_DISABLE_COMPILE"):
            mx.enable_compile()

    def versions(self) -> dict[str, str]:
        return {"python": platform.python_version(), "mlx": metadata.version("mlx")}
