"""Runs the official VAE's encoder on a picture and records its checkpoints."""

import numpy as np
import torch
from diffusers import AutoencoderKLQwenImage, AutoencoderKLQwenImage21

from tools.reference import official_pipelines
from tools.reference.module_taps import PassRecorder, attach


def read_picture(path, channels):
    """A float32 array [1,CHANNELS,H,W] in [-1,1]."""
    picture = np.load(path, allow_pickle=False)
    if picture.ndim != 4 or picture.shape[:2] != (1, channels):
        raise SystemExit(f"{path}: shape {picture.shape}, expected (1, {channels}, H, W)")
    if not np.abs(picture).max() <= 1:
        raise SystemExit(f"{path}: values outside [-1, 1]")
    return torch.from_numpy(picture.astype(np.float32))


@torch.no_grad()
def run(args, dtype, store, choice, tiling):
    def save(name, tensor):
        if choice.wants(name, "boundaries"):
            store.save(name, tensor)

    kind = official_pipelines.KINDS[args.pipeline]
    cls, channels = (AutoencoderKLQwenImage21, 4) if kind.is_21 else (AutoencoderKLQwenImage, 3)
    vae = cls.from_pretrained(args.model, subfolder="vae", dtype=dtype)
    picture = read_picture(args.image[0], channels)
    save("vae_encode/input", picture)
    frame = picture.to(dtype)[:, :, None]
    recorder = PassRecorder(store, choice)
    attach(f"vae_encode{kind.family}", vae, recorder, choice)

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
