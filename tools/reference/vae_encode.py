"""Runs the official VAE's encoder on a picture and records its checkpoints."""

import numpy as np
import torch
from diffusers import AutoencoderKLQwenImage

from module_taps import PassRecorder, attach


def read_picture(path):
    """A float32 array [1,3,H,W] in [-1,1]."""
    picture = np.load(path, allow_pickle=False)
    if picture.ndim != 4 or picture.shape[:2] != (1, 3):
        raise SystemExit(f"{path}: shape {picture.shape}, expected (1, 3, H, W)")
    if not np.abs(picture).max() <= 1:
        raise SystemExit(f"{path}: values outside [-1, 1]")
    return torch.from_numpy(picture.astype(np.float32))


@torch.no_grad()
def run(args, dtype, store, choice, tiling):
    def save(name, tensor):
        if choice.wants(name, "boundaries"):
            store.save(name, tensor)

    vae = AutoencoderKLQwenImage.from_pretrained(args.model, subfolder="vae", dtype=dtype)
    picture = read_picture(args.image[0])
    save("vae_encode/input", picture)
    frame = picture.to(dtype)[:, :, None]
    recorder = PassRecorder(store, choice)
    attach("vae_encode", vae, recorder, choice)

    recorder.begin("vae_encode")
    posterior = vae.encode(frame).latent_dist
    recorder.end()
    save("vae_encode/moments", posterior.parameters)
    save("vae_encode/mode", posterior.mode())
    if args.tiled:
        vae.enable_tiling(**tiling)
        posterior = vae.encode(frame).latent_dist
        save("vae_encode/moments_tiled", posterior.parameters)
        save("vae_encode/mode_tiled", posterior.mode())
    return picture.shape[2:]
