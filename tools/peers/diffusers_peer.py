"""diffusers: blocks of the transformer in fp32, in bfloat16 and in 8 bits, and the VAE in fp32. Run as a program it
serves a Worker."""

from pathlib import Path

from tools.peers import block
from tools.peers.models import class_of
from tools.peers.worker import forget_peak, serve, timed

VARIANT, BF16, INT8 = "fp32", "bf16", "int8 weights and activations, torchao, inductor"
VARIANTS = (VARIANT, BF16, INT8)
FRAME = 1  # a picture is a video of one frame

loaded: dict = {}


def load(folder, variant=VARIANT):
    """By the class that its config names."""
    import diffusers
    import torch

    model = getattr(diffusers, class_of(Path(folder)))
    dtype = torch.float32 if variant == VARIANT else torch.bfloat16
    return tuned(model.from_pretrained(folder, torch_dtype=dtype).eval(), variant)


def tuned(module, variant):
    """What is done to a module of the right type."""
    if variant != INT8:
        return module
    import torch
    import torch._inductor.config
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    torch._inductor.config.freezing = True  # weights become constants, which its 8-bit products ask for
    torch._inductor.config.max_autotune = True
    quantize_(module, Int8DynamicActivationInt8WeightConfig())
    return torch.compile(module)


def load_blocks(folder, variant=VARIANT):
    loaded["transformer"] = load(folder, variant)
    loaded["dtype"] = loaded["transformer"].dtype
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
    latents = torch.randn(1, patches * patches, 64, generator=generator).to(loaded["dtype"])
    text = torch.randn(1, text_tokens, 3584, generator=generator).to(loaded["dtype"])
    time = torch.tensor([0.5], dtype=loaded["dtype"])
    shapes = [[(FRAME, patches, patches)]]

    def step():
        loaded["transformer"](latents, text, None, time, shapes, return_dict=False)

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


# One block by itself, for its error


def rotations(image_tokens, text_tokens):
    """Cosines and sines for a square picture and the text before it, as the model makes them."""
    import torch
    from diffusers.models.transformers.transformer_qwenimage import QwenEmbedRope

    patches = int(image_tokens**0.5)
    embed = QwenEmbedRope(theta=10000, axes_dim=[16, 56, 56], scale_rope=True)
    image, text = embed([(FRAME, patches, patches)], device=torch.device("cpu"), max_txt_seq_len=text_tokens)
    return {"image_rotation": torch.view_as_real(image).numpy(), "text_rotation": torch.view_as_real(text).numpy()}


def write_expected(folder, inputs, target):
    """Adds the rotations to a block's inputs, and what fp32 makes of them."""
    import numpy as np
    import torch

    with np.load(inputs) as arrays:
        case = dict(arrays)
    case |= rotations(case["image"].shape[1], case["text"].shape[1])
    text, image = block.load(folder)(*(torch.from_numpy(case[name]) for name in block.INPUTS))
    np.savez(target, **case, expected_image=image.numpy(), expected_text=text.numpy())


def block_error(folder, case, variant):
    import torch

    module = block.load(folder)
    dtype = torch.float32 if variant == VARIANT else torch.bfloat16
    inputs = [torch.from_numpy(value) for value in block.case_inputs(case)]
    # The rotations stay in fp32, as the model has them.
    text, image = tuned(module.to(dtype), variant)(*(value.to(dtype) for value in inputs[:3]), *inputs[3:])
    return {"nmse": block.nmse(case, image.float().numpy(), text.float().numpy())}


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
            "write_expected": write_expected,
            "block_error": block_error,
        }
    )
