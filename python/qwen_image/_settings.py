"""What Pipeline.generate is given becomes a request of the library. Which settings there are it says itself."""

from __future__ import annotations

import os
from typing import Any, Mapping

import numpy as np
from PIL import Image

from . import _arguments, _core, _pixels


def _seed(value: Any, name: str) -> int:
    return _arguments.whole(value, name, 0, 2**64 - 1)


def _tiling(value: Any, name: str) -> _core.Tiling:
    return _arguments.one_of(value, name, _core.Tiling.__members__)


def _floats(value: Any, name: str) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} is an array of {array.dtype}; expected are floats")
    return np.ascontiguousarray(array, dtype=np.float32)


def _pictures(value: Any, name: str) -> list[np.ndarray]:
    # A path, a Pillow image, an array or a Picture is one; a list of arrays is several.
    if isinstance(value, (str, os.PathLike, Image.Image, np.ndarray)) or hasattr(value, "__array__"):
        raise TypeError(f"{name} is one picture; expected is a list of pictures")
    several = _arguments.several(value, name, "a list of pictures")
    return [_pixels.pixels(picture, f"{name}[{i}]") for i, picture in enumerate(several)]


# By what _core.SETTINGS calls them.
_CONVERT = {
    "text": _arguments.text,
    "truth": _arguments.truth,
    "whole": _arguments.whole,
    "seed": _seed,
    "number": _arguments.number,
    "numbers_of": _arguments.numbers_of,
    "tiling": _tiling,
    "margins": _arguments.margins,
    "path": _arguments.path,
    "floats": _floats,
    "picture": _pixels.pixels,
    "pictures": _pictures,
    "mask": _pixels.grey,
}


def request(given: Mapping[str, Any]) -> _core.Request:
    """`given` holds every setting by its name."""
    made = _core.Request()
    for name, kind in _core.SETTINGS.items():
        value = given[name]
        if value is None and kind.endswith("?"):
            continue
        setattr(made, name, _CONVERT[kind.rstrip("?")](value, name))
    return made
