"""Drawing: on a thread of the library's, while this one waits for what happens, so that Ctrl-C and callbacks are Python's."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import numpy as np

from ._errors import Interrupted
from ._library import Handle, call, text

_STAGES = ("encode_prompt", "encode_pictures", "denoise", "decode")  # qwen_image_stage
_PROGRESS, _PREVIEW, _DRAWN = 1, 2, 4  # qwen_image_event
_LOOK = 50  # milliseconds until a signal is seen


@dataclass(frozen=True)
class Progress:
    stage: str
    """ "encode_prompt", "encode_pictures", "denoise" or "decode" """
    step: int
    """Finished steps of "denoise"."""
    steps: int
    """Of "denoise"."""
    fraction: float
    """Of the current step, or of the stage."""


@dataclass(frozen=True)
class Drawn:
    """A picture as the library drew it."""

    array: np.ndarray
    seed: int
    steps: int
    cfg: float
    record: str  # JSON with all settings
    prompt_truncated: bool
    notes: list[str]
    seconds: dict[str, float]
    alignment: dict[str, float] | None
    steps_resumed: int
    resume_file: Path | None


def pixels_of(picture: Any) -> np.ndarray:
    """A copy: [height, width, channels]."""
    shape = (call.picture_height(picture), call.picture_width(picture), call.picture_channels(picture))
    return np.ctypeslib.as_array(call.picture_pixels(picture), shape).copy()


def _drawn(picture: Any) -> Drawn:
    seconds = [ctypes.c_double() for _ in _STAGES]
    call.picture_seconds(picture, *seconds)
    alignment = call.picture_alignment(picture)
    file = call.picture_resume_file(picture)
    return Drawn(
        array=pixels_of(picture),
        seed=call.picture_seed(picture),
        steps=call.picture_steps(picture),
        cfg=call.picture_cfg(picture),
        record=text(call.picture_settings(picture)),
        prompt_truncated=bool(call.picture_prompt_truncated(picture)),
        notes=[text(call.picture_note(picture, i)) for i in range(call.picture_note_count(picture))],
        seconds={stage: value.value for stage, value in zip(_STAGES, seconds)},
        alignment={name: getattr(alignment[0], name) for name, _ in alignment[0]._fields_} if alignment else None,
        steps_resumed=call.picture_steps_resumed(picture),
        resume_file=Path(os.fsdecode(file)) if file else None,
    )


class _Drawings:
    """Those of all threads. When Python ends, those of daemon threads are stopped: none may go on while the process ends."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: weakref.WeakSet[Handle] = weakref.WeakSet()
        self.ending = False

    def begin(self, drawing: Handle) -> None:
        with self._changed:
            self._running.add(drawing)

    def end(self, drawing: Handle) -> None:
        """On a daemon thread it does not come back when Python has ended: nobody wants to read what is raised then."""
        try:
            drawing.free()
        finally:  # whoever is impatient presses Ctrl-C again
            with self._changed:
                self._running.discard(drawing)
                self._changed.notify_all()
                while self.ending and threading.current_thread().daemon:
                    self._changed.wait()

    def stop_all(self) -> None:
        with self._changed:
            self.ending = True
            self._changed.wait_for(lambda: not self._running)


_drawings = _Drawings()
atexit.register(_drawings.stop_all)


def draw(
    pipeline: Handle,
    request: Handle,
    on_progress: Callable[[Progress], object] | None,
    on_preview: Callable[[np.ndarray], object] | None,
) -> Drawn:
    """Other threads run meanwhile. What a callback or a handler of signals raises stops it and comes out unchanged."""
    events = (_PROGRESS if on_progress else 0) | (_PREVIEW if on_preview else 0)
    event = ctypes.c_int()
    drawing = Handle("drawing")
    try:
        _drawings.begin(drawing)
        call.drawing_start(pipeline.pointer, request.pointer, events, drawing.pointer)
        while not _drawings.ending:
            call.drawing_next(drawing.pointer, _LOOK, event)
            if event.value == _PROGRESS and on_progress:
                told = call.drawing_progress(drawing.pointer)[0]
                on_progress(Progress(_STAGES[told.stage], told.step, told.steps, told.fraction))
            elif event.value == _PREVIEW and on_preview:
                on_preview(pixels_of(call.drawing_picture(drawing.pointer)))
            elif event.value == _DRAWN:
                return _drawn(call.drawing_picture(drawing.pointer))
        raise Interrupted("Python ends")
    finally:
        _drawings.end(drawing)
