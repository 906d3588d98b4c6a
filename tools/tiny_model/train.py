#!/usr/bin/env python3
"""Train a tiny model of the Qwen-Image architecture from scratch on a CPU.

Writes a folder which diffusers.QwenImagePipeline.from_pretrained loads.  The data are synthetic
pictures of coloured shapes with captions.  The phases are cached in the work folder, so that a
broken run can go on: tokenizer, pictures, VAE, latents, pairs for edits, transformer with text
encoder, folder.

    python -m tools.tiny_model.train --out models/tiny --work DIR
    python -m tools.tiny_model.train --out models/tiny --work DIR --start models/tiny --lr 1e-3
"""
import argparse
import os

import torch
from diffusers import AutoencoderKLQwenImage, QwenImageTransformer2DModel
from transformers import Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer

from tools.tiny_model import wait_policy  # noqa: F401  before torch
from tools.tiny_model.data import make_latents, make_pairs, make_pictures
from tools.tiny_model.folder import write_folder
from tools.tiny_model.models import make_text_encoder, make_transformer
from tools.tiny_model.tasks import Captions, Edits
from tools.tiny_model.tokenizer import build_tokenizer, check_tokenizer
from tools.tiny_model.training import Training, train
from tools.tiny_model.vae import latent_statistics, reconstruction_psnr, single_frame, train_vae


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", required=True, help="the model folder to write")
    add("--work", required=True, help="folder for the cached phases")
    add("--start", help="go on from this model folder: its tokenizer, its VAE and all weights")
    add("--pictures", type=int, default=14000, help="number of pictures with captions")
    add("--other-sizes", action="store_true", help="captions also for sizes beside 128x128")
    add("--edit-scenes", type=int, default=8000, help="number of pictures to edit")
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
    add("--processes", type=int, default=os.cpu_count(), help="each takes its part of a batch")
    add("--port", type=int, default=29500, help="on this machine, for the processes to meet")
    add("--caption-batch", type=int, default=8, help="captions of each step, over all processes")
    add("--edit-batch", type=int, default=20, help="edits of each step, over all processes")
    add("--shift", type=float, default=2.0, help="shift of the training noise levels")
    add("--edit-shift", type=float, default=3.0, help="the same for edits: more noise")
    add("--steps", type=int, default=8000)
    add("--max-minutes", type=float, default=1e9, help="end the transformer phase after this time")
    add("--snapshot", action="store_true", help="only write the folder of the last stored state")
    return parser.parse_args()


def make_vae_folder(args, named, arbitrary):
    """Where the VAE is, trained or taken from --start."""
    folder = os.path.join(args.start or args.work, "vae")
    if not os.path.exists(folder):
        with single_frame():
            vae = train_vae(args, named, arbitrary)
            mean, std = latent_statistics(vae, named)
            for pictures in named:
                height, width = pictures.shape[1:3]
                psnr = reconstruction_psnr(vae, pictures[:32])
                print(f"vae: PSNR {psnr:.2f} dB at {width}x{height}", flush=True)
        vae.register_to_config(
            latents_mean=[round(v, 4) for v in mean.tolist()],
            latents_std=[round(v, 4) for v in std.tolist()],
        )
        vae.save_pretrained(folder)
    return folder


def make_models(args, tokenizer):
    """Transformer and text encoder, new or from --start (there in bf16, trained in fp32)."""
    if args.start:
        return [
            QwenImageTransformer2DModel.from_pretrained(
                args.start, subfolder="transformer", torch_dtype=torch.float32
            ),
            Qwen2_5_VLForConditionalGeneration.from_pretrained(
                args.start, subfolder="text_encoder", dtype=torch.float32
            ),
        ]
    torch.manual_seed(1)
    return [
        make_transformer(args.layers, args.heads, args.text_dim),
        make_text_encoder(args.text_dim, tokenizer),
    ]


def make_tokenizer(args):
    if not args.start:
        return build_tokenizer(os.path.join(args.work, "tokenizer"))
    tokenizer = Qwen2Tokenizer.from_pretrained(args.start, subfolder="tokenizer")
    check_tokenizer(tokenizer)
    return tokenizer


def main():
    args = parse_arguments()
    os.makedirs(args.work, exist_ok=True)
    torch.manual_seed(0)
    tokenizer = make_tokenizer(args)
    models = make_models(args, tokenizer)
    captions, named, arbitrary = make_pictures(args)
    vae_folder = make_vae_folder(args, named, arbitrary)
    if not args.snapshot:
        latents = make_latents(args, vae_folder, named)
        tasks = [Captions(latents, captions), Edits(make_pairs(args, vae_folder))]
        train(args, tokenizer, models, tasks)
    transformer, text_encoder = Training(args, models).averages
    vae = AutoencoderKLQwenImage.from_pretrained(vae_folder, torch_dtype=torch.float32)
    write_folder(args.out, vae, text_encoder, tokenizer, transformer, args.start)


if __name__ == "__main__":
    main()
