"""Exports reference tensors from the official Qwen-Image pipeline (diffusers) as named npy files.

    python tools/reference/export.py --model models/tiny --out debug_artifacts/a/ref \
        --prompt "a red circle" --negative-prompt " " --cfg 4 --steps 2 --checkpoints all
"""

import argparse
import sys

import torch

import environment
import text_to_image
import vae_encode
from checkpoint_store import CheckpointStore
from module_taps import LEVELS

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="model folder in diffusers' layout")
    parser.add_argument("--out", required=True, help="folder for the arrays and manifest.json")
    parser.add_argument("--component", choices=("pipeline", "vae-encode"), default="pipeline")
    parser.add_argument("--prompt")
    parser.add_argument("--negative-prompt", help="needed for guidance: without it --cfg above 1 has no effect")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--height", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cfg", type=float, default=4.0, help="true CFG scale; 1 or less: one pass a step")
    parser.add_argument("--checkpoints", choices=LEVELS, default="boundaries")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--max-sequence-length", type=int, default=512)
    parser.add_argument(
        "--reference-special-tokens",
        action="store_true",
        help="let control tokens written in a prompt act as such, as diffusers does",
    )
    parser.add_argument("--image", help="vae-encode: npy file, [1,3,H,W] in [-1,1]")
    parser.add_argument("--tiled", action="store_true", help="also decode (encode) with the VAE's tiling")
    parser.add_argument("--tile-min", type=int, default=256, help="tile side in pixels")
    parser.add_argument("--tile-stride", type=int, default=192, help="pixels from one tile to the next")
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's choice)")
    parser.add_argument("--verify", action="store_true", help="check that recording did not change the picture")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier run in --out")
    args = parser.parse_args(argv)
    if args.component == "pipeline" and args.prompt is None:
        parser.error("--prompt is required")
    if args.component == "vae-encode" and not args.image:
        parser.error("--component vae-encode needs --image")
    return args


def tiling_of(args):
    return {
        "tile_sample_min_height": args.tile_min,
        "tile_sample_min_width": args.tile_min,
        "tile_sample_stride_height": args.tile_stride,
        "tile_sample_stride_width": args.tile_stride,
    }


def common_facts(args):
    return {
        "dtype": args.dtype,
        "checkpoints_level": args.checkpoints,
        **({"tile_min": args.tile_min, "tile_stride": args.tile_stride} if args.tiled else {}),
        "versions": environment.versions(),
        "weights_sha256": environment.weights_sha256(args.model),
        "cpu": environment.cpu_name(),
        "threads": torch.get_num_threads(),
    }


def export_pipeline(args):
    dtype = DTYPES[args.dtype]
    pipe = text_to_image.load(args.model, dtype)
    text_to_image.check_size(pipe, args.width, args.height)
    if not args.reference_special_tokens:
        text_to_image.check_literal(pipe, args.prompt)
        text_to_image.check_literal(pipe, args.negative_prompt or "")
    guided = args.cfg > 1 and args.negative_prompt is not None
    store = CheckpointStore(args.out, args.overwrite)
    taps = text_to_image.TextToImage(pipe, store, args.checkpoints, guided)
    image = taps.run(args)
    if args.tiled:
        taps.decode_tiled(tiling_of(args))
    if args.verify:
        text_to_image.verify_untouched(args, dtype, image)
    store.write_manifest(
        {
            "pipeline": type(pipe).__name__,
            "prompt": args.prompt,
            "negative_prompt": args.negative_prompt,
            "width": args.width,
            "height": args.height,
            "steps": args.steps,
            "cfg": args.cfg,
            "seed": args.seed,
            "max_sequence_length": args.max_sequence_length,
            **common_facts(args),
        }
    )
    return store


def export_vae_encode(args):
    store = CheckpointStore(args.out, args.overwrite)
    height, width = vae_encode.run(args, DTYPES[args.dtype], store, tiling_of(args))
    store.write_manifest({"pipeline": "vae-encode", "width": width, "height": height, **common_facts(args)})
    return store


def export(argv=None):
    args = parse_arguments(argv)
    environment.silence_progress_bars()
    if args.threads:
        torch.set_num_threads(args.threads)
    store = export_pipeline(args) if args.component == "pipeline" else export_vae_encode(args)
    print(f"{len(store.entries)} checkpoints in {store.folder}", file=sys.stderr)


if __name__ == "__main__":
    export()
