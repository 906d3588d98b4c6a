"""The shared library that lies in the package: its functions with their types, as c_api.h has them, and its errors."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_uint8, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable

from . import _errors

_FILE = Path(__file__).parent / "lib" / "libqwen_image.so"


class Progress(ctypes.Structure):
    _fields_ = [("stage", c_int), ("step", c_int64), ("steps", c_int64), ("fraction", c_double)]


class Alignment(ctypes.Structure):
    _fields_ = [
        (name, c_double) for name in ("shift_x", "shift_y", "scale_x", "scale_y", "confidence", "uncertainty")
    ]


_handle, _handles, _bytes = c_void_p, POINTER(c_void_p), POINTER(c_uint8)

# Name: types of the parameters. They return a status, which becomes an exception.
STATUS_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "options_new": (_handles,),
    "options_set_threads": (_handle, c_int),
    "options_set_precision": (_handle, c_int),
    "options_set_device": (_handle, c_int),
    "options_set_check_memory": (_handle, c_int),
    "options_set_prompt_cache": (_handle, c_char_p),
    "options_set_part": (_handle, c_int, c_char_p),
    "options_set_variant": (_handle, c_char_p),
    "options_add_lora": (_handle, c_char_p, c_double),
    "pipeline_open": (c_char_p, _handle, _handles),
    "pipeline_defaults": (_handle, POINTER(c_int64), POINTER(c_int64), POINTER(c_int64), POINTER(c_double)),
    "request_new": (c_char_p, _handles),
    "request_set_text": (_handle, c_char_p, c_char_p, c_int64),
    "request_set_sigmas": (_handle, POINTER(c_double), c_int64),
    "request_set_outpaint": (_handle, c_int64, c_int64, c_int64, c_int64),
    "request_set_latents": (_handle, POINTER(c_int64), c_int, POINTER(c_float)),
    "request_add_input_pixels": (_handle, c_int64, c_int64, c_int, _bytes),
    "request_set_init_pixels": (_handle, c_int64, c_int64, c_int, _bytes),
    "request_set_mask": (_handle, c_int64, c_int64, _bytes),
    "drawing_start": (_handle, _handle, c_int, _handles),
    "drawing_next": (_handle, c_int, POINTER(c_int)),
    "picture_read_alpha": (c_char_p, _handles),
    "picture_decode_alpha": (c_char_p, c_int64, c_char_p, _handles),
    "picture_read_mask": (c_char_p, _handles),
    "picture_decode_mask": (c_char_p, c_int64, c_char_p, _handles),
    "picture_seconds": (_handle, POINTER(c_double), POINTER(c_double), POINTER(c_double), POINTER(c_double)),
    "remove_resume_state": (c_char_p,),
    "write_png": (c_char_p, c_int64, c_int64, c_int, _bytes, c_char_p),
}

# Name: what they return, types of the parameters. They cannot fail.
PLAIN_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "last_error": (c_char_p, ()),
    "version": (c_char_p, ()),
    "install_truncation_guard": (None, ()),
    "options_free": (None, (_handle,)),
    "pipeline_free": (None, (_handle,)),
    "pipeline_negative_prompt": (c_char_p, (_handle,)),
    "pipeline_lightning": (c_int, (_handle,)),
    "pipeline_variant": (c_char_p, (_handle,)),
    "pipeline_edits": (c_int, (_handle,)),
    "pipeline_channels": (c_int, (_handle,)),
    "pipeline_threads": (c_int, (_handle,)),
    "request_free": (None, (_handle,)),
    "setting_count": (c_int64, ()),
    "setting_name": (c_char_p, (c_int64,)),
    "setting_kind": (c_char_p, (c_int64,)),
    "setting_choices": (c_char_p, (c_int64,)),
    "drawing_progress": (POINTER(Progress), (_handle,)),
    "drawing_picture": (_handle, (_handle,)),
    "drawing_free": (None, (_handle,)),
    "picture_free": (None, (_handle,)),
    "picture_width": (c_int64, (_handle,)),
    "picture_height": (c_int64, (_handle,)),
    "picture_channels": (c_int, (_handle,)),
    "picture_pixels": (_bytes, (_handle,)),
    "picture_seed": (c_uint64, (_handle,)),
    "picture_steps": (c_int64, (_handle,)),
    "picture_cfg": (c_double, (_handle,)),
    "picture_settings": (c_char_p, (_handle,)),
    "picture_note_count": (c_int64, (_handle,)),
    "picture_note": (c_char_p, (_handle, c_int64)),
    "picture_prompt_truncated": (c_int, (_handle,)),
    "picture_alignment": (POINTER(Alignment), (_handle,)),
    "picture_steps_resumed": (c_int64, (_handle,)),
    "picture_resume_file": (c_char_p, (_handle,)),
}

# The numbers of qwen_image_status.
_ERRORS = {
    2: _errors.UsageError,
    3: _errors.BadInputError,
    4: _errors.OutOfMemoryError,
    5: _errors.CannotWriteError,
    130: _errors.Interrupted,
}


def _raise_errors(status: int, function: Any, arguments: Any) -> None:
    if status != 0:
        raise _ERRORS.get(status, _errors.Error)(text(call.last_error()))


class _Functions:
    """`call.version()` is qwen_image_version(). Other threads of Python run during a call."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name, parameters in STATUS_FUNCTIONS.items():
            self._add(library, name, c_int, parameters).errcheck = _raise_errors
        for name, (result, parameters) in PLAIN_FUNCTIONS.items():
            self._add(library, name, result, parameters)

    def _add(self, library: ctypes.CDLL, name: str, result: Any, parameters: tuple[Any, ...]) -> Any:
        function = library[f"qwen_image_{name}"]
        function.restype, function.argtypes = result, parameters
        setattr(self, name, function)
        return function

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"_library.py does not declare qwen_image_{name}")


def _load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(os.fspath(_FILE))
    except OSError as error:
        raise ImportError(f"the library of qwen_image cannot be loaded: {error}; `pip install .` builds it") from error


call: Any = _Functions(_load())


class Handle:
    """Something of the library's that is freed with this object. Functions fill `pointer`."""

    def __init__(self, kind: str) -> None:
        self.pointer = c_void_p()
        self._free = getattr(call, f"{kind}_free")
        self._process = os.getpid()

    def __del__(self, process: Callable[[], int] = os.getpid) -> None:
        # The child of a fork has no threads that could be ended.
        if process() == self._process:
            self._free(self.pointer)

    def free(self) -> None:
        """Already now."""
        pointer, self.pointer = self.pointer, c_void_p()
        self._free(pointer)


def text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
