"""diffusers in fp32: blocks of the transformer, and the VAE. Run as a program it serves a Worker."""

from pathlib import Path

from models import class_of
from worker import forget_peak, serve, timed

VARIANT = "fp32"
FRAME = 1  # a picture is a video of one frame

loaded = {}


def load(folder):
    """By the class that its config names."""
    import diffusers
    import torch

    model = getattr(diffusers, class_of(Path(folder)))
    return model.from_pretrained(folder, torch_dtype=torch.float32).eval()


def load_blocks(folder):
    loaded["transformer"] = load(folder)
    forget_peak()


def load_vae(folder):
    loaded["vae"] = load(folder)


def set_threads(threads):
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)


def blocks(side, text_tokens):
    """One pass, as a step of the pipeline does it; no mask: every token is a real one, and attention is faster so."""
    import torch

    generator = torch.Generator().manual_seed(0)
    patches = side // 16
    latents = torch.randn(1, patches * patches, 64, generator=generator)
    text = torch.randn(1, text_tokens, 3584, generator=generator)
    shapes = [[(FRAME, patches, patches)]]

    def step():
        loaded["transformer"](latents, text, None, torch.tensor([0.5]), shapes, return_dict=False)

    return {"seconds": timed(step)}


def later_step(side, text_tokens):
    """Qwen-Image-2.1: a pass on the target's tokens alone, as the pipeline's steps behind the first with use_kv_cache.
    The text's keys and values, which no picture has a part in, come from a first step on a small one."""
    import torch
    from diffusers.models.transformers.transformer_qwenimage21 import QwenImage21KVCache

    generator = torch.Generator().manual_seed(0)
    text = torch.randn(1, text_tokens, 4096, generator=generator)
    model = loaded["transformer"]
    cache = QwenImage21KVCache(model.config.num_layers)

    def step(side, mode):
        patches = side // 16
        latents = torch.randn(1, patches * patches, 64, generator=generator)
        slots = torch.tensor([[False] * text_tokens + [True] * (patches * patches // 4)])
        shapes, time = [[(FRAME, patches, patches)]], torch.tensor([0.5])
        model(latents, text, time, shapes, slots, kv_cache=cache, kv_cache_mode=mode, return_dict=False)

    step(64, "extract")
    return {"seconds": timed(lambda: step(side, "cached"))}


def decode(side):
    import torch

    config = loaded["vae"].config
    small = side >> (len(config.dim_mult) - 1)
    latents = torch.randn(1, config.z_dim, FRAME, small, small, generator=torch.Generator().manual_seed(0))
    return {"seconds": timed(lambda: loaded["vae"].decode(latents))}


def encode(side):
    import torch

    picture = 2 * torch.rand(1, 3, FRAME, side, side, generator=torch.Generator().manual_seed(0)) - 1
    return {"seconds": timed(lambda: loaded["vae"].encode(picture))}


if __name__ == "__main__":
    serve(
        {
            "set_threads": set_threads,
            "load_blocks": load_blocks,
            "load_vae": load_vae,
            "blocks": blocks,
            "later_step": later_step,
            "decode": decode,
            "encode": encode,
        }
    )
