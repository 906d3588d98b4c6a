"""A small random VAE of Qwen-Image-2.1, and what the official class computes with it.

    python -m tools.reference.vae21_goldens tests/goldens/vae21

Pictures and latents follow from a formula (`numbers`), so that the tests can make them too.
"""

import argparse
import pathlib
import re
import shutil

import torch
from diffusers import AutoencoderKLQwenImage21
from safetensors.torch import save_file
from torch import nn

from tools.reference import environment, random_weights

# Every kind of shortcut: the same width and twice the width, with frames and without.
CONFIG = {
    "base_dim": 3,
    "decoder_base_dim": 2,
    "z_dim": 5,
    "dim_mult": [1, 1, 2, 4, 4],
    "num_res_blocks": 1,
    "temperal_downsample": [False, True, True, True],
    "latents_mean": [0.5, -0.25, 1.5, -2.0, 0.125],
    "latents_std": [3.0, 1.25, 0.75, 2.5, 1.1],
}
LATENT = 16  # pixels
TAPPED = (1, 2)  # latents of the picture whose modules are all kept
TILED = (5, 3)
TILE = {"min": 3 * LATENT, "stride": 2 * LATENT}  # tiles of 3 and of 1 latents
KEPT_ROWS = 3  # every third row of the tiled picture
# What the engine has no name for, what another module returns again, and the insides of more of the same.
LEFT_OUT = re.compile(
    r"|encoder|decoder|.*\.(nonlinearity|dropout|resample|resample\.0|time_conv|mid_block|upsampler|downsampler)"
    r"|.*up_blocks\.\d\.resnets\.1\..*"
)


def numbers(shape, step, scale):
    """Numbers that C++ makes too, from whole numbers: they need no file."""
    whole = (torch.arange(torch.Size(shape).numel(), dtype=torch.int64) * step) % 2003
    return ((whole.float() / 1001.0 - 1.0) * scale).reshape(shape)


def picture(height, width):
    return numbers((1, 4, 1, height * LATENT, width * LATENT), 7919, 1.0)


def latents(height, width):
    return numbers((1, CONFIG["z_dim"], 1, height, width), 104729, 3.0)


def write_model(folder):
    model = AutoencoderKLQwenImage21(**CONFIG)
    random_weights.fill(model, 21)
    # What float16 can hold, computed with in float32: exact weights in half the bytes.
    nn.Module.to(model, torch.float16)
    model.save_pretrained(folder)
    return AutoencoderKLQwenImage21.from_pretrained(folder, torch_dtype=torch.float32).eval()


class Recorder:
    """The outputs of all modules that compute something."""

    def __init__(self, model):
        self.tensors = {}
        self._hooks = [
            module.register_forward_hook(self._hook(path))
            for path, module in model.named_modules()
            if not LEFT_OUT.fullmatch(path) and not isinstance(module, (nn.Identity, nn.ModuleList))
        ]

    def _hook(self, path):
        def hook(_module, _args, output):
            self.tensors[path] = output.clone()

        return hook

    def stop(self):
        for hook in self._hooks:
            hook.remove()


@torch.no_grad()
def run(model):
    recorder = Recorder(model)
    model.encode(picture(*TAPPED))
    model.decode(latents(*TAPPED))
    recorder.stop()
    tensors = {"modules/" + path: tensor for path, tensor in recorder.tensors.items()}

    model.enable_tiling(TILE["min"], TILE["min"], TILE["stride"], TILE["stride"])
    tensors["tiled/moments"] = model.encode(picture(*TILED)).latent_dist.parameters
    tensors["tiled/image"] = model.decode(latents(*TILED)).sample
    clamped = (tensors["tiled/image"].abs() == 1).float().mean()
    if not 0.01 < clamped < 0.5:
        raise SystemExit(f"{clamped:.3f} of the tiled picture is clamped: the clamping would not be tested")
    tensors["tiled/image"] = tensors["tiled/image"][..., ::KEPT_ROWS, :]
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    out = parser.parse_args().output
    environment.silence_progress_bars()
    shutil.rmtree(out, ignore_errors=True)
    model = write_model(out / "vae")
    save_file(run(model), out / "expected.safetensors")


if __name__ == "__main__":
    main()
