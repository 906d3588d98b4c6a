import os
from pathlib import Path
from typing import Callable, ClassVar, Optional, Sequence, Union

import numpy as np

_Path = Union[str, os.PathLike[str]]

__version__: str
MAX_THREADS: int
SETTINGS: dict[str, str]

class Device:
    # Also "mlx-cpu", which is no name that Python could write here.
    auto: ClassVar[Device]
    cpu: ClassVar[Device]
    gpu: ClassVar[Device]
    __members__: ClassVar[dict[str, Device]]

class ModelFiles:
    model: _Path
    transformer: _Path
    text_encoder: _Path
    vae: _Path
    tokenizer: _Path
    vision_encoder: _Path
    variant: str
    def __init__(self) -> None: ...
    def add_lora(self, path: _Path, scale: float) -> None: ...

class Precision:
    exact: ClassVar[Precision]
    fast: ClassVar[Precision]
    __members__: ClassVar[dict[str, Precision]]

class Tiling:
    auto: ClassVar[Tiling]
    on: ClassVar[Tiling]
    off: ClassVar[Tiling]
    __members__: ClassVar[dict[str, Tiling]]

class PipelineOptions:
    threads: int
    check_memory: bool
    precision: Precision
    device: Device
    prompt_cache: _Path
    def __init__(self) -> None: ...

class Defaults:
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def cfg(self) -> float: ...
    @property
    def negative_prompt(self) -> str: ...
    @property
    def lightning(self) -> bool: ...

class Request:
    # Settings: written by `./run options`.
    prompt: str
    negative_prompt: Optional[str]
    width: Optional[int]
    height: Optional[int]
    steps: Optional[int]
    sigmas: list[float]
    cfg: Optional[float]
    seed: int
    latents: np.ndarray
    input_images: Sequence[np.ndarray]
    init_image: np.ndarray
    mask: np.ndarray
    outpaint: Sequence[int]
    strength: Optional[float]
    blend: bool
    keep_size: bool
    background: str
    max_sequence_length: int
    reference_special_tokens: bool
    vae_tiling: Tiling
    step_cache: float
    resume_folder: _Path
    # End of the settings.
    def __init__(self) -> None: ...

class Progress:
    @property
    def stage(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def fraction(self) -> float: ...

class Picture:
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def prompt(self) -> str: ...
    @property
    def negative_prompt(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def cfg(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def strength(self) -> Optional[float]: ...
    @property
    def prompt_truncated(self) -> bool: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def seconds(self) -> dict[str, float]: ...
    @property
    def alignment(self) -> Optional[dict[str, float]]: ...
    @property
    def png_text(self) -> dict[str, str]: ...
    @property
    def steps_resumed(self) -> int: ...
    @property
    def resume_file(self) -> Path: ...
    def array(self) -> np.ndarray: ...

class Pipeline:
    def __init__(self, files: ModelFiles, options: PipelineOptions) -> None: ...
    @property
    def defaults(self) -> Defaults: ...
    @property
    def variant(self) -> str: ...
    @property
    def edits(self) -> bool: ...
    @property
    def channels(self) -> int: ...
    @property
    def threads(self) -> int: ...
    def generate(
        self,
        request: Request,
        on_progress: Optional[Callable[[Progress], object]],
        on_preview: Optional[Callable[[np.ndarray], object]],
    ) -> Picture: ...

def remove_resume_state(resume_file: _Path) -> None: ...
def read_image(path: _Path) -> np.ndarray: ...
def decode_image(data: bytes, where: str) -> np.ndarray: ...
def read_mask(path: _Path) -> np.ndarray: ...
def decode_mask(data: bytes, where: str) -> np.ndarray: ...
def write_png(path: _Path, pixels: np.ndarray, text: dict[str, str]) -> None: ...
