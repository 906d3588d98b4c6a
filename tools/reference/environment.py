"""Facts about the machine and the weights that a run's manifest keeps, and quiet libraries."""

import hashlib
import platform
from pathlib import Path

import diffusers
import numpy
import torch
import transformers


def silence_progress_bars():
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()


def versions():
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "diffusers": diffusers.__version__,
        "transformers": transformers.__version__,
        "numpy": numpy.__version__,
    }


def cpu_name():
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def weights_sha256(model):
    """File name relative to the model folder -> SHA-256 of its bytes."""
    sums = {}
    for path in sorted(Path(model).rglob("*.safetensors")):
        with path.open("rb") as file:
            sums[path.relative_to(model).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums
