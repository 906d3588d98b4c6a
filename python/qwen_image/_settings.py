"""What Pipeline.generate is given becomes a request of the library. Which settings there are it says itself."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Container, Mapping
from typing import Any, Callable

import numpy as np
from PIL import Image

from . import _arguments, _models, _pixels
from ._library import Handle, call


def _seed(value: Any, name: str) -> int:
    return _arguments.whole(value, name, 0, 2**64 - 1)


def _choice(value: Any, name: str) -> str:
    return str(_arguments.one_of(value, name, {choice: choice for choice in _models.SETTINGS[name].choices}))


def _path(value: Any, name: str) -> bytes:
    return os.fsencode(_arguments.path(value, name))


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


# By what the library calls their kinds.
_CONVERT: dict[str, Callable[[Any, str], Any]] = {
    "text": _arguments.text,
    "truth": _arguments.truth,
    "whole": _arguments.whole,
    "seed": _seed,
    "number": _arguments.number,
    "numbers": _arguments.numbers_of,
    "choice": _choice,
    "margins": _arguments.margins,
    "path": _path,
    "latents": _floats,
    "picture": _pixels.pixels,
    "pictures": _pictures,
    "mask": _pixels.grey,
}


def _set_sigmas(request: Any, sigmas: list[float]) -> None:
    call.request_set_sigmas(request, (ctypes.c_double * len(sigmas))(*sigmas), len(sigmas))


def _set_outpaint(request: Any, margins: list[int]) -> None:
    call.request_set_outpaint(request, *margins)


def _set_latents(request: Any, array: np.ndarray) -> None:
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    call.request_set_latents(request, shape, array.ndim, array.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))


def _set_init_image(request: Any, array: np.ndarray) -> None:
    height, width, channels = array.shape
    call.request_set_init_pixels(request, width, height, channels, _models.bytes_of(array))


def _set_input_images(request: Any, arrays: list[np.ndarray]) -> None:
    for array in arrays:
        height, width, channels = array.shape
        call.request_add_input_pixels(request, width, height, channels, _models.bytes_of(array))


def _set_mask(request: Any, array: np.ndarray) -> None:
    height, width = array.shape
    call.request_set_mask(request, width, height, _models.bytes_of(array))


# The library has functions of their own for these; all others are given to it as text.
_SET: dict[str, Callable[[Any, Any], None]] = {
    "sigmas": _set_sigmas,
    "outpaint": _set_outpaint,
    "latents": _set_latents,
    "input_images": _set_input_images,
    "init_image": _set_init_image,
    "mask": _set_mask,
}


def _written(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else str(value).lower().encode()  # "true", "2.5"


def request(given: Mapping[str, Any], optional: Container[str]) -> Handle:
    """`given` holds every setting by its name. For the `optional` ones None stands for what the library has."""
    made = Handle("request")
    call.request_new(b"", made.pointer)
    for name, setting in _models.SETTINGS.items():
        if given[name] is None and name in optional:
            continue
        value = _CONVERT[setting.kind](given[name], name)
        if name in _SET:
            _SET[name](made.pointer, value)
        else:
            written = _written(value)
            call.request_set_text(made.pointer, name.encode(), written, len(written))
    return made
