"""diffusers in fp32: blocks of the transformer, and the VAE. Run as a program it serves a Worker."""

from worker import forget_peak, serve, timed

VARIANT = "fp32"
FRAME = 1  # a picture is a video of one frame

loaded = {}


def load_blocks(folder):
    import torch
    from diffusers import QwenImageTransformer2DModel

    loaded["transformer"] = QwenImageTransformer2DModel.from_pretrained(folder, torch_dtype=torch.float32).eval()
    forget_peak()


def load_vae(folder):
    import torch
    from diffusers import AutoencoderKLQwenImage

    loaded["vae"] = AutoencoderKLQwenImage.from_pretrained(folder, torch_dtype=torch.float32).eval()


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


def decode(side):
    import torch

    latents = torch.randn(1, 16, FRAME, side // 8, side // 8, generator=torch.Generator().manual_seed(0))
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
            "decode": decode,
            "encode": encode,
        }
    )
