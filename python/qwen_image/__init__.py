"""Pictures from text, and from pictures and text, with the Qwen-Image models, on plain CPUs.

    import qwen_image

    pipeline = qwen_image.Pipeline()                    # the embedded model; Pipeline("path/to/a/model") for others
    picture = pipeline.generate("a red circle on a blue background", seed=7)
    picture.save("circle.png")
    picture.image                                       # Pillow
    picture.array                                       # NumPy, uint8 [height, width, 3], or 4 with alpha
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Union

import numpy as np
from PIL import Image

from . import _arguments, _drawing, _models, _pixels, _settings
from ._drawing import Progress
from ._errors import BadInputError, CannotWriteError, Error, Interrupted, OutOfMemoryError, UsageError
from ._library import call, text
from ._models import Defaults, __version__

if TYPE_CHECKING:
    from ._models import PathLike

    AnyPicture = Union[PathLike, Image.Image, np.ndarray, "Picture"]

__all__ = [
    "BadInputError",
    "CannotWriteError",
    "Defaults",
    "Error",
    "Interrupted",
    "OutOfMemoryError",
    "Picture",
    "Pipeline",
    "Progress",
    "UsageError",
    "__version__",
]


class Picture:
    """A drawn picture. numpy.asarray(picture) gives its array."""

    def __init__(self, drawn: _drawing.Drawn) -> None:
        record = json.loads(drawn.record)
        self.array: np.ndarray = drawn.array
        """uint8 [height, width, 3]; of a model that draws with alpha [height, width, 4]"""
        self.seed: int = drawn.seed
        self.settings: dict[str, Any] = {
            "prompt": record["prompt"],
            "negative_prompt": record["negative_prompt"],
            "width": drawn.array.shape[1],
            "height": drawn.array.shape[0],
            "steps": drawn.steps,
            "cfg": drawn.cfg,
            "seed": drawn.seed,
            "strength": record.get("strength"),
        }
        """The request with every default filled in."""
        self.prompt_truncated: bool = drawn.prompt_truncated
        """The prompt was longer than what is used of it."""
        self.notes: list[str] = drawn.notes
        """What a user should know though it is no error."""
        self.seconds: dict[str, float] = drawn.seconds
        """What each stage took, by its name as in Progress.stage."""
        self.alignment: dict[str, float] | None = drawn.alignment
        """How it lies over the picture that it was made from: shift_x, shift_y (pixels), scale_x, scale_y (per cent),
        confidence (0 to 1), uncertainty (pixels). None without such a picture, or if it cannot be told."""
        self.steps_resumed: int = drawn.steps_resumed
        """Steps that an earlier run finished (resume_folder)."""
        self._record = drawn.record
        self._resume_file = drawn.resume_file

    @property
    def width(self) -> int:
        return int(self.array.shape[1])

    @property
    def height(self) -> int:
        return int(self.array.shape[0])

    @property
    def image(self) -> Image.Image:
        """RGB, or RGBA of a model that draws with alpha."""
        return Image.fromarray(self.array)

    def save(self, path: PathLike) -> None:
        """Writes a PNG that carries its settings, for `qwen-image generate --from`; never leaves a partial file."""
        if Path(_arguments.path(path, "path")).suffix.lower() not in (".png", ""):
            raise UsageError(f"{os.fspath(path)}: pictures are written as PNG; for others there is picture.image.save()")
        _models.write_png(path, _pixels.pixels(self.array, "array"), self._record)

    def remove_resume_state(self) -> None:
        """When the picture is safe, or not wanted any more: removes its run's state from resume_folder, if there is one."""
        if self._resume_file:
            _models.remove_resume_state(self._resume_file)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.array if dtype is None else self.array.astype(dtype, copy=False)
        if copy is False and array is not self.array:
            raise ValueError(f"a picture is uint8, so it cannot be {array.dtype} without a copy")
        return array.copy() if copy and array is self.array else array

    def __repr__(self) -> str:
        return f"<qwen_image.Picture {self.width}x{self.height}, seed {self.seed}: {self.settings['prompt']!r}>"


def _default_model() -> PathLike:
    return os.environ.get("QWEN_IMAGE_MODEL") or Path(__file__).parent / "models" / "tiny"


class Pipeline:
    """A loaded model. Any thread may use it, but it draws one picture at a time: others wait."""

    def __init__(
        self,
        path: PathLike | None = None,
        threads: int = 0,
        precision: str = "fast",
        *,
        transformer: PathLike | None = None,
        text_encoder: PathLike | None = None,
        vae: PathLike | None = None,
        tokenizer: PathLike | None = None,
        vision_encoder: PathLike | None = None,
        variant: str | None = None,
        loras: PathLike | tuple[PathLike, float] | Iterable[PathLike | tuple[PathLike, float]] = (),
        check_memory: bool = True,
        prompt_cache: PathLike | None = None,
        device: str = "auto",
    ) -> None:
        """Opens a folder or file. Without one, $QWEN_IMAGE_MODEL or the embedded model, unless parts are named.

        threads: 0 for all processors. precision: "fast" or "exact". loras: a file, (file, scale), or a list of them.
        prompt_cache: a folder where embeddings of prompts are kept for later processes. device: "cpu", or with MLX
        "gpu" or "mlx-cpu"; "auto" is a GPU where there is one, else the CPU.
        """
        if path is None and not (transformer or text_encoder or vae):
            path = _default_model()
        parts = {
            "transformer": transformer,
            "text_encoder": text_encoder,
            "vae": vae,
            "tokenizer": tokenizer,
            "vision_encoder": vision_encoder,
        }
        self._pipeline = _models.open_pipeline(
            model=None if path is None else _arguments.path(path, "path"),
            parts={name: _arguments.path(part, name) for name, part in parts.items() if part is not None},
            variant="" if variant is None else _arguments.text(variant, "variant"),
            loras=list(_arguments.loras(loras, "loras")),
            threads=_arguments.whole(threads, "threads", 0, _models.MAX_THREADS),
            precision=_arguments.one_of(precision, "precision", _models.PRECISIONS),
            device=_arguments.one_of(device, "device", _models.DEVICES),
            check_memory=_arguments.truth(check_memory, "check_memory"),
            prompt_cache=None if prompt_cache is None else _arguments.path(prompt_cache, "prompt_cache"),
        )

    @property
    def defaults(self) -> Defaults:
        """What is drawn where generate is not told."""
        return _models.defaults_of(self._pipeline)

    @property
    def variant(self) -> str:
        """ "qwen-image", "edit", "edit-2509", "edit-2511", "2.1", "2.1-turbo"; empty where the files do not tell."""
        return text(call.pipeline_variant(self._pipeline.pointer))

    @property
    def edits(self) -> bool:
        """It can edit pictures (input_images)."""
        return bool(call.pipeline_edits(self._pipeline.pointer))

    @property
    def channels(self) -> int:
        """Of the pictures that it draws: 3, RGB, or 4, RGBA (unless a background is asked for)."""
        return int(call.pipeline_channels(self._pipeline.pointer))

    @property
    def threads(self) -> int:
        return int(call.pipeline_threads(self._pipeline.pointer))

    def generate(
        self,
        # Settings: written by `./run options`.
        prompt: str,
        negative_prompt: str | None = None,
        width: int | None = None,
        height: int | None = None,
        steps: int | None = None,
        cfg: float | None = None,
        seed: int = 0,
        *,
        sigmas: Sequence[float] | None = None,
        latents: np.ndarray | None = None,
        input_images: Sequence[AnyPicture] = (),
        init_image: AnyPicture | None = None,
        mask: AnyPicture | None = None,
        outpaint: tuple[int, int, int, int] | None = None,
        strength: float | None = None,
        blend: bool = True,
        keep_size: bool = False,
        background: str | None = None,
        max_sequence_length: int = 512,
        reference_special_tokens: bool = False,
        vae_tiling: str = "auto",
        step_cache: float = 0.0,
        resume_folder: PathLike | None = None,
        # End of the settings.
        progress: Callable[[Progress], object] | None = None,
        preview: Callable[[np.ndarray], object] | None = None,
    ) -> Picture:
        """Draws. What is None comes from the model's defaults.

        input_images: the pictures that the prompt speaks of, for models that can edit. init_image: a picture to begin
        with. mask: white is redrawn. outpaint: margins (left, top, right, bottom) to add. Pictures are Pillow
        images, uint8 arrays, other Pictures or names of files, with alpha or without: models without it lay
        transparent parts on white.

        background: a colour to lay the picture on, "#rrggbb" or a name ("white"); "transparent" keeps it as it is
        drawn, as does None, and is refused by models without alpha. sigmas: the noise levels to draw with instead of the
        model's own, falling from at most 1, without the last 0; their number is the number of steps. latents: noise to
        begin with, float32, instead of the seed's. resume_folder: where the state after every step is kept, so that the
        same call goes on after the process was killed; see Picture.remove_resume_state. docs/options.md has all of them.

        progress is called several times a step with a Progress, at the very end with the fraction 1 of "decode"; preview
        after every step but the last with a small uint8 array like the picture's. What they raise stops the drawing and
        comes out of generate unchanged.
        """
        given = dict(locals())
        request = _settings.request(given, _OPTIONAL)
        on_progress, on_preview = _arguments.callback(progress, "progress"), _arguments.callback(preview, "preview")
        return Picture(_drawing.draw(self._pipeline, request, on_progress, on_preview))

    def __repr__(self) -> str:
        return f"<qwen_image.Pipeline {self.variant or 'of unknown kind'}, {self.threads} threads>"


# Settings for which None stands for what the model or the library has.
_OPTIONAL = {name for name, it in inspect.signature(Pipeline.generate).parameters.items() if it.default is None}
