"""Models and picture files: what the package asks of the library. Callers have checked the arguments."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Callable, Union

import numpy as np

from ._drawing import pixels_of
from ._errors import UsageError
from ._library import Handle, call, text

PathLike = Union[str, "os.PathLike[str]"]

# As c_api.h has them.
MAX_THREADS = 1024
PRECISIONS = {"exact": 0, "fast": 1}
DEVICES = {"auto": 0, "cpu": 1, "gpu": 2, "mlx-cpu": 3}
_PARTS = {"transformer": 0, "text_encoder": 1, "vae": 2, "tokenizer": 3, "vision_encoder": 4}

__version__ = text(call.version())

# A model that is cut while it is in use is an error here, not the end of Python.
call.install_truncation_guard()


@dataclass(frozen=True)
class Defaults:
    width: int
    height: int
    steps: int
    cfg: float
    negative_prompt: str
    lightning: bool
    """Steps, cfg and the noise levels are those of a Lightning LoRA."""


@dataclass(frozen=True)
class Setting:
    kind: str
    choices: list[str]


def _settings() -> dict[str, Setting]:
    return {
        text(call.setting_name(i)): Setting(text(call.setting_kind(i)), text(call.setting_choices(i)).split(", "))
        for i in range(call.setting_count())
    }


SETTINGS = _settings()


def open_pipeline(
    model: PathLike | None,
    parts: Mapping[str, PathLike],
    variant: str,
    loras: Iterable[tuple[PathLike, float]],
    threads: int,
    precision: int,
    device: int,
    check_memory: bool,
    prompt_cache: PathLike | None,
) -> Handle:
    if "\0" in variant:
        raise UsageError("variant holds a NUL character, which no name of a variant does")
    options, pipeline = Handle("options"), Handle("pipeline")
    call.options_new(options.pointer)
    for name, path in parts.items():
        call.options_set_part(options.pointer, _PARTS[name], os.fsencode(path))
    call.options_set_variant(options.pointer, variant.encode())
    for path, scale in loras:
        call.options_add_lora(options.pointer, os.fsencode(path), scale)
    call.options_set_threads(options.pointer, threads)
    call.options_set_precision(options.pointer, precision)
    call.options_set_device(options.pointer, device)
    call.options_set_check_memory(options.pointer, check_memory)
    if prompt_cache is not None:
        call.options_set_prompt_cache(options.pointer, os.fsencode(prompt_cache))
    file = None if model is None else os.fsencode(model)
    call.pipeline_open(file, options.pointer, pipeline.pointer)
    return pipeline


def defaults_of(pipeline: Handle) -> Defaults:
    width, height, steps, cfg = ctypes.c_int64(), ctypes.c_int64(), ctypes.c_int64(), ctypes.c_double()
    call.pipeline_defaults(pipeline.pointer, width, height, steps, cfg)
    negative_prompt = text(call.pipeline_negative_prompt(pipeline.pointer))
    lightning = bool(call.pipeline_lightning(pipeline.pointer))
    return Defaults(width.value, height.value, steps.value, cfg.value, negative_prompt, lightning)


def bytes_of(array: np.ndarray) -> Any:
    """What the library reads; it lies there as long as this object is used."""
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _read(function: Callable[..., None], *arguments: Any) -> np.ndarray:
    picture = Handle("picture")
    function(*arguments, picture.pointer)
    return pixels_of(picture.pointer)


def read_image(path: PathLike) -> np.ndarray:
    return _read(call.picture_read_alpha, os.fsencode(path))


def decode_image(data: bytes, where: str) -> np.ndarray:
    return _read(call.picture_decode_alpha, data, len(data), where.encode())


def read_mask(path: PathLike) -> np.ndarray:
    return _read(call.picture_read_mask, os.fsencode(path))[:, :, 0]


def decode_mask(data: bytes, where: str) -> np.ndarray:
    return _read(call.picture_decode_mask, data, len(data), where.encode())[:, :, 0]


def write_png(path: PathLike, pixels: np.ndarray, record: str) -> None:
    height, width, channels = pixels.shape
    call.write_png(os.fsencode(path), width, height, channels, bytes_of(pixels), record.encode())


def remove_resume_state(resume_file: PathLike) -> None:
    call.remove_resume_state(os.fsencode(resume_file))
