#!/usr/bin/env python3
"""Train a tiny model of the Qwen-Image architecture from scratch on a CPU.

Writes a folder which diffusers.QwenImagePipeline.from_pretrained loads.  The data are synthetic
pictures of coloured shapes with captions.  The phases are cached in the work folder, so that a
broken run can go on: tokenizer, pictures, VAE, latents, transformer with text encoder, folder.

    python tools/tiny_model/train.py --out models/tiny --work DIR
"""
import argparse
import os
import time
from multiprocessing import Pool

# Threads which spin while they wait collapse as soon as something else uses the cores; this has
# to be set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("KMP_BLOCKTIME", "0")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from diffusers import AutoencoderKLQwenImage  # noqa: E402

from scenes import SIZES, training_item  # noqa: E402
from tokenizer import build_tokenizer  # noqa: E402
from vae import encode_groups, reconstruction_psnr, single_frame, train_vae  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", required=True, help="the model folder to write")
    add("--work", required=True, help="folder for the cached phases")
    add("--pictures", type=int, default=14000)
    add("--compile", action="store_true", help="torch.compile for the VAE's crops (needs g++)")
    add("--vae-dim", type=int, default=8)
    add("--vae-lr", type=float, default=2.5e-3)
    add("--vae-steps", type=int, default=4000)
    add("--vae-minutes", type=float, default=1e9, help="end the VAE phase after this time")
    add("--kl", type=float, default=5e-3, help="weight of the VAE's KL term")
    add("--layers", type=int, default=4)
    add("--heads", type=int, default=4)
    add("--text-dim", type=int, default=128)
    add("--lr", type=float, default=2e-3)
    add("--batch", type=int, default=32)
    add("--shift", type=float, default=2.0, help="shift of the training noise levels")
    add("--steps", type=int, default=8000)
    add("--max-minutes", type=float, default=1e9, help="end the transformer phase after this time")
    add("--until", default="folder", choices=["pictures", "vae", "folder"])
    return parser.parse_args()


def make_pictures(args):
    """Captions and pictures, grouped by picture size (all pictures of a batch have one size)."""
    path = os.path.join(args.work, "pictures.npz")
    if not os.path.exists(path):
        start, arrays, seed = time.time(), {}, 0
        with Pool() as pool:
            for group, (size, share) in enumerate(SIZES.items()):
                count = int(args.pictures * share)
                jobs = [(seed + i, size) for i in range(count)]
                seed += count
                items = pool.map(training_item, jobs, chunksize=100)
                arrays[f"captions{group}"] = np.array([item[0] for item in items])
                arrays[f"named{group}"] = np.stack([item[1] for item in items])
                # A third of them in arbitrary colours is enough for the VAE.
                arrays[f"arbitrary{group}"] = np.stack([item[2] for item in items[::3]])
        np.savez(path, **arrays)
        print(f"pictures: {seed}, {time.time() - start:.0f}s", flush=True)
    data = np.load(path)
    count = len(SIZES)
    captions = [data[f"captions{i}"].tolist() for i in range(count)]
    named = [data[f"named{i}"] for i in range(count)]
    arbitrary = [data[f"arbitrary{i}"] for i in range(count)]
    return captions, named, arbitrary


def make_latents(args, named, arbitrary):
    """The trained VAE and the normalised latents [n, 16, h, w] of every group."""
    folder = os.path.join(args.work, "vae")
    path = os.path.join(args.work, "latents.pt")
    if not os.path.exists(path):
        with single_frame():
            vae = train_vae(args, named, arbitrary)
            for size, pictures in zip(SIZES, named):
                psnr = reconstruction_psnr(vae, pictures[:32])
                print(f"vae: PSNR {psnr:.2f} dB at {size[0]}x{size[1]}", flush=True)
            start = time.time()
            latents, mean, std = encode_groups(vae, named)
        vae.register_to_config(
            latents_mean=[round(v, 4) for v in mean.tolist()],
            latents_std=[round(v, 4) for v in std.tolist()],
        )
        vae.save_pretrained(folder)
        torch.save(latents, path)
        print(f"latents: {time.time() - start:.0f}s", flush=True)
    vae = AutoencoderKLQwenImage.from_pretrained(folder)
    mean, std = (
        torch.tensor(vae.config[key]).view(1, -1, 1, 1) for key in ("latents_mean", "latents_std")
    )
    latents = [(z - mean) / std for z in torch.load(path)]
    used = latents[0].std((0, 2, 3)).tolist()
    print("latents: share used by channel", [round(v, 2) for v in used], flush=True)
    return vae, latents


def main():
    args = parse_arguments()
    os.makedirs(args.work, exist_ok=True)
    torch.manual_seed(0)
    tokenizer = build_tokenizer(os.path.join(args.work, "tokenizer"))
    captions, named, arbitrary = make_pictures(args)
    if args.until == "pictures":
        return
    vae, latents = make_latents(args, named, arbitrary)
    if args.until == "vae":
        return
    # Not needed before, and the last phases can be worked on while the VAE trains.
    from folder import write_folder
    from transformer import train_transformer

    transformer, text_encoder = train_transformer(args, tokenizer, latents, captions)
    write_folder(args.out, vae, text_encoder, tokenizer, transformer)


if __name__ == "__main__":
    main()
