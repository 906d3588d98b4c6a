"""What is given to the library becomes what it takes, or an error that names the argument."""

from __future__ import annotations

import numbers
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ._errors import UsageError


def _wrong(value: Any, name: str, wanted: str) -> TypeError:
    shown = repr(value)
    given = "None" if value is None else f"a {type(value).__name__}: {shown if len(shown) <= 60 else shown[:57] + '...'}"
    return TypeError(f"{name} is {given}; expected is {wanted}")


def text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _wrong(value, name, "a str")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} is no text that can be written as UTF-8: {error.reason}") from None
    return value


def whole(value: Any, name: str, low: int = -(2**63), high: int = 2**63 - 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise _wrong(value, name, "an int") from None
    if not low <= number <= high:
        raise UsageError(f"{name} is {number}; expected is a whole number from {low} to {high}")
    return number


def number(value: Any, name: str) -> float:
    if not isinstance(value, (numbers.Real, np.number)) or isinstance(value, np.complexfloating):
        raise _wrong(value, name, "a number")
    return float(value)


def numbers_of(value: Any, name: str) -> list[float]:
    return [number(entry, f"{name}[{i}]") for i, entry in enumerate(several(value, name, "a list of numbers"))]


def truth(value: Any, name: str) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise _wrong(value, name, "True or False")
    return bool(value)


def one_of(value: Any, name: str, members: Mapping[str, Any]) -> Any:
    if not isinstance(value, str) or value not in members:
        raise UsageError(f"{name} is {value!r}; expected is one of {', '.join(members)}")
    return members[value]


def path(value: Any, name: str) -> str | os.PathLike[str]:
    if not isinstance(value, (str, os.PathLike)):
        raise _wrong(value, name, "a str or a pathlib.Path")
    if "\0" in str(os.fspath(value)):
        raise TypeError(f"{name} holds a NUL character, which no name of a file does")
    return value


def several(value: Any, name: str, wanted: str) -> list[Any]:
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping)):
        raise _wrong(value, name, wanted)
    return list(value)


def margins(value: Any, name: str) -> list[int]:
    sides = several(value, name, "4 margins: left, top, right, bottom")
    if len(sides) != 4:
        raise UsageError(f"{name} has {len(sides)} margins; expected are 4: left, top, right, bottom")
    return [whole(side, f"{name}[{i}]") for i, side in enumerate(sides)]


def _has_scale(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and not isinstance(value[1], (str, os.PathLike, tuple))


def loras(value: Any, name: str) -> Iterable[tuple[str | os.PathLike[str], float]]:
    """Of one file or many, each with its scale or without."""
    if isinstance(value, (str, os.PathLike)) or _has_scale(value):
        value = [value]
    for i, entry in enumerate(several(value, name, "a file's name, (name, scale), or a list of them")):
        file, scale = entry if _has_scale(entry) else (entry, 1.0)
        if not isinstance(file, (str, os.PathLike)):
            raise _wrong(entry, f"{name}[{i}]", "a file's name or (name, scale)")
        yield file, number(scale, f"the scale of {name}[{i}]")


def callback(value: Any, name: str) -> Any:
    if value is not None and not callable(value):
        raise _wrong(value, name, "a function")
    return value
