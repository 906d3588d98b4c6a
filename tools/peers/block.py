"""One block of diffusers' transformer by itself, and the case that its error is measured in."""

from pathlib import Path

import numpy as np

HEADS, HEAD_DIM, WIDTH = 24, 128, 3072
INPUTS = ("image", "text", "temb", "image_rotation", "text_rotation")
EXPECTED = ("expected_image", "expected_text")


def real_rotation(x, rotation, use_real=True, use_real_unbind_dim=-1):
    """diffusers' apply_rotary_emb_qwen without complex numbers, which converters and compilers do not know.

    rotation: [tokens, pairs, 2], cosines and sines.
    """
    import torch

    del use_real, use_real_unbind_dim
    real, imaginary = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cos, sin = rotation[:, None, :, 0], rotation[:, None, :, 1]
    turned = torch.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], dim=-1).flatten(3)
    return turned.to(x.dtype)


def load(folder):
    """The only block whose weights are in the folder, with tensors only for arguments; in fp32."""
    import torch
    from diffusers.models.transformers import transformer_qwenimage as source
    from safetensors.torch import load_file

    tensors = load_file(Path(folder) / "diffusion_pytorch_model.safetensors")
    block = source.QwenImageTransformerBlock(WIDTH, HEADS, HEAD_DIM)
    block.load_state_dict({key.split(".", 2)[2]: value.float() for key, value in tensors.items()})
    source.apply_rotary_emb_qwen = real_rotation

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = block

        def forward(self, image, text, temb, image_rotation, text_rotation):
            return self.block(image, text, None, temb, (image_rotation, text_rotation))

    return Block().float().eval()


def random_inputs(side, text_tokens):
    random = np.random.default_rng(0)
    tokens = (side // 16) ** 2
    rotations = []
    for count in (tokens, text_tokens):
        angles = random.uniform(0, 6, (count, HEAD_DIM // 2))
        rotations.append(np.stack([np.cos(angles), np.sin(angles)], axis=-1))
    values = [random.standard_normal((1, count, WIDTH)) for count in (tokens, text_tokens)]
    values += [random.standard_normal((1, WIDTH)), *rotations]
    return [value.astype(np.float32) for value in values]


def case_inputs(case):
    with np.load(case) as arrays:
        return [arrays[name] for name in INPUTS]


def nmse(case, image, text):
    """Of the stream that is further off; infinite where a value is not finite."""
    with np.load(case) as arrays:
        errors = [relative(arrays[name], value) for name, value in zip(EXPECTED, (image, text), strict=True)]
    return float(max(errors))


def relative(expected, value):
    expected, value = expected.astype(np.float64), np.asarray(value, np.float64).reshape(expected.shape)
    error = np.sum((value - expected) ** 2) / np.sum(expected**2)
    return error if np.isfinite(error) else np.inf
