"""From calls of modules to named tensors. Knows neither torch nor MLX."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Callable, NamedTuple

from ._choice import Choice, level_of
from ._run_folder import RunFolder
from ._source import Line


class Arrays(NamedTuple):
    """What a framework calls a tensor."""

    is_tensor: Callable[[Any], bool]
    to_numpy: Callable[[Any], Any]
    """A copy of its own in a type that .npy has; None where there are no values, as on torch's device "meta"."""
    dtype: Callable[[Any], str]
    line_of: Callable[[Any], Line | None]
    """Where it was made, if the framework tells."""


@dataclass
class Call:
    component: str
    path: str
    number: int
    is_outermost: bool
    name: str


def file_part(name: Any) -> str:
    """A key as part of a file's name."""
    text = "".join("_" if char in "/\\\0" else char for char in str(name))
    return text if text.strip(".") else "_"


def tensors_in(value: Any, is_tensor: Callable[[Any], bool], key: str = "") -> Iterator[tuple[str, Any]]:
    """Key -> tensor, of nested tuples, lists, dicts and dataclasses, with points between the keys."""
    if is_tensor(value):
        yield key, value
        return
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        items = zip(value._fields, value)
    elif isinstance(value, (tuple, list)):
        items = enumerate(value)
    elif is_dataclass(value) and not isinstance(value, type):
        items = ((field.name, getattr(value, field.name)) for field in fields(value))
    for name, item in items:
        yield from tensors_in(item, is_tensor, f"{key}.{file_part(name)}" if key else file_part(name))


class Recorder:
    """Names: COMPONENT/callNNN/PATH. A call from outside the model has a number, and all that runs inside has the same one.

    A module that is called again inside that call has ":repeatN"; what it reads ":input".
    """

    def __init__(self, run: RunFolder, choice: Choice, arrays: Arrays, inputs: bool) -> None:
        self._run = run
        self._choice = choice
        self._arrays = arrays
        self._inputs = inputs
        self._active: list[Call] = []
        self._outermost: collections.Counter[tuple[str, str]] = collections.Counter()
        self._called: collections.Counter[str] = collections.Counter()
        self._names: set[str] = set()

    def is_inside(self, component: str, path: str) -> bool:
        """This very module is what was entered last."""
        return bool(self._active) and (self._active[-1].component, self._active[-1].path) == (component, path)

    def enter(self, component: str, path: str, inputs: Any, line: Line | None) -> None:
        outer = next((call for call in reversed(self._active) if call.component == component), None)
        if outer:
            number = outer.number
        else:
            number = self._outermost[component, path]
            self._outermost[component, path] += 1
        name = "/".join(part for part in (component, f"call{number:03d}", path and file_part(path)) if part)
        repeats = self._called[name]
        self._called[name] += 1
        if repeats:
            name += f":repeat{repeats}"
        call = Call(component, path, number, outer is None, name)
        self._active.append(call)
        if self._inputs:
            self._save_all(call, f"{name}:input", inputs, ".", line)

    def leave(self, component: str, path: str, outputs: Any, line: Line | None) -> None:
        """OUTPUTS: None after an error."""
        # Others are still there if an error passed them by.
        while self._active:
            call = self._active.pop()
            if (call.component, call.path) == (component, path):
                self._save_all(call, call.name, outputs, ":", line)
                return

    def keep(self, name: str, tensor: Any) -> None:
        """A tensor that no module returns, by a name of the caller's; within the module that is running."""
        if not self._arrays.is_tensor(tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}, no tensor of the model's framework")
        name = file_part(name)
        if self._active:
            name = f"{self._active[-1].name}:{name}"
        if name in self._names:
            raise ValueError(f"{name} is recorded already")
        self._save(name, tensor, "boundaries", Line.of_caller())

    def _save_all(self, call: Call, name: str, value: Any, separator: str, line: Line | None) -> None:
        level = level_of(call.path, call.is_outermost)
        found = list(tensors_in(value, self._arrays.is_tensor))
        for key, tensor in found:
            # A single tensor needs no key: whether it comes in a tuple of one is not the model's arithmetic.
            own = f"{name}{separator}{key}" if key and len(found) > 1 else name
            if self._choice.wants(own, call.path, level):
                self._save(own, tensor, level, line)

    def _save(self, name: str, tensor: Any, level: str, line: Line | None) -> None:
        array = self._arrays.to_numpy(tensor)
        if array is None:
            return
        self._names.add(name)
        made = self._arrays.line_of(tensor) or line
        self._run.save(name, array, self._arrays.dtype(tensor), {"level": level, **(made.facts() if made else {})})
