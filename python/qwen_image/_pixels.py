"""Pictures as people hold them (files, Pillow images, arrays) become arrays as the library wants them."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from . import _models
from ._errors import UsageError

_PNG_MODES = ("1", "L", "LA", "P", "RGBA")


def _hint(array: np.ndarray, channels: bool) -> str:
    if array.dtype.kind == "f":
        return "; values from 0 to 1 become bytes with (array * 255).round().astype(numpy.uint8)"
    if channels and array.ndim == 3 and array.shape[0] in (3, 4):
        return "; the channels go last: numpy.moveaxis(array, 0, -1)"
    if channels and array.ndim == 4:
        return "; give the pictures of a batch one by one"
    return ""


def _checked(array: np.ndarray, name: str, channels: bool) -> np.ndarray:
    expected = "[height, width, 3], or 4 with alpha" if channels else "[height, width]"
    fits = array.ndim == 3 and array.shape[2] in (3, 4) if channels else array.ndim == 2
    if array.dtype != np.uint8 or not fits or 0 in array.shape:
        raise UsageError(
            f"{name} is an array of shape {list(array.shape)} and type {array.dtype}; expected is uint8 {expected}"
            + _hint(array, channels)
        )
    return np.ascontiguousarray(array)


def _wants_reader(image: Image.Image) -> bool:
    """Pillow's own conversion would not give what the reader of files gives."""
    return image.mode in _PNG_MODES or (image.mode == "RGB" and "transparency" in image.info)


def _png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=0)
    return out.getvalue()


def _upright(image: Image.Image) -> Image.Image:
    image = ImageOps.exif_transpose(image) or image
    return _high_bytes(image) if image.mode == "I" or image.mode.startswith("I;16") else image


def _high_bytes(image: Image.Image) -> Image.Image:
    """Greys of 16 bits, which Pillow holds as "I" or "I;16" according to its version."""
    values = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
    grey = Image.fromarray((values >> 8).astype(np.uint8))
    clear = image.info.get("transparency")
    if clear is not None:
        grey.putalpha(Image.fromarray(np.where(values == clear, 0, 255).astype(np.uint8)))
    return grey


def pixels(picture: Any, name: str) -> np.ndarray:
    """uint8 [height, width, 3], or 4 with alpha. Pillow images are taken as the file reader would: the right way up."""
    if isinstance(picture, (str, os.PathLike)):
        return _models.read_image(picture)
    if isinstance(picture, Image.Image):
        image = _upright(picture)
        if _wants_reader(image):
            return _models.decode_image(_png(image), name)
        return np.array(image.convert("RGB"))
    if hasattr(picture, "__array__"):
        return _checked(np.asarray(picture), name, channels=True)
    raise TypeError(f"{name} is a {type(picture).__name__}; expected is a Pillow image, an array or a file's name")


def grey(mask: Any, name: str) -> np.ndarray:
    """uint8 [height, width]; white is redrawn."""
    if isinstance(mask, (str, os.PathLike)):
        return _models.read_mask(mask)
    if isinstance(mask, Image.Image):
        image = _upright(mask)
        if not _wants_reader(image):
            image = image.convert("RGB")
        return _models.decode_mask(_png(image), name)
    if hasattr(mask, "__array__"):
        array = np.asarray(mask)
        if array.dtype == np.bool_:
            array = array.astype(np.uint8) * np.uint8(255)
        return _checked(array, name, channels=False)
    raise TypeError(f"{name} is a {type(mask).__name__}; expected is a Pillow image, an array or a file's name")
