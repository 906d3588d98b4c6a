"""Exports reference tensors from the official Qwen-Image pipeline (diffusers) as named npy files.

    python -m tools.reference.export --prompt "a red circle" --height 128 --width 128 --seed 42 --steps 4

writes debug_artifacts/run/ref; `qwen-image --debug=run generate -o out.png` then repeats the run and compares.

    python -m tools.reference.export --pipeline edit-plus --image a.png --image b.png --prompt "put a beside b"
    python -m tools.reference.export --model a-2.1-model --image a.png --prompt "make it night"
"""

import argparse
import gc
import shlex
import shutil
import sys
from pathlib import Path

import torch

from tools.reference import engine_command, environment, official_pipelines, text_to_image, vae_encode
from tools.reference.checkpoint_choice import CheckpointChoice
from tools.reference.checkpoint_store import CheckpointStore
from tools.reference.image_21 import Image21
from tools.reference.noise_floor import FloorMeter
from tools.reference.picture_to_image import PictureToImage

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
EMBEDDED_MODEL = Path(__file__).resolve().parents[2] / "models" / "tiny"
# The engine's default depth and folder, so that its command stays short.
CHECKPOINTS = "blocks"
ARTIFACTS = Path("debug_artifacts")


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt")
    parser.add_argument("--negative-prompt", default=" ", help='what to steer away from, with --cfg above 1 (default: " ")')
    parser.add_argument(
        "--pipeline", choices=official_pipelines.KINDS, help="default: text-to-image, or 2.1 with a model of that family"
    )
    parser.add_argument(
        "--image", action="append", default=[], help="input picture (edit-plus, 2.1: may be repeated); vae-encode: see README"
    )
    parser.add_argument("--mask", help="inpaint, edit-inpaint: white is painted anew")
    parser.add_argument("--strength", type=float, help="img2img, inpaint, edit-inpaint: 1 keeps nothing (default: 0.6)")
    parser.add_argument("--width", type=int, help="default: 128, or what an edit calculates from its last picture")
    parser.add_argument("--height", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--sigmas", type=lambda text: [float(word) for word in text.split(",")], metavar="A,B,…", help="2.1: noise levels of the steps"
    )
    parser.add_argument(
        "--kv-cache",
        action="store_true",
        help="2.1: with the prefix cache, as the pipeline is called by default; from step 1 only the target's rows are recorded",
    )
    parser.add_argument(
        "--cfg", type=float, help="true CFG scale; 1 or less: one pass a step (default: 4; 2.1: 1)"
    )
    parser.add_argument("--model", default=EMBEDDED_MODEL, help="folder in diffusers' layout (default: models/tiny)")
    parser.add_argument("--run-id", default="run", help="write to debug_artifacts/RUN_ID/ref (default: run)")
    parser.add_argument("--out", help="write to this folder instead")
    parser.add_argument(
        "--checkpoints",
        default=CHECKPOINTS,
        help="boundaries, blocks (default), all, or globs of names, with commas between; '*:attn_weights' only so",
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument(
        "--floor",
        action=argparse.BooleanOptionalAction,
        help="run once more in bfloat16 and note how far each tensor moves (default: with --dtype float32)",
    )
    parser.add_argument("--component", choices=("pipeline", "vae-encode"), default="pipeline")
    parser.add_argument("--max-sequence-length", type=int, default=512)
    parser.add_argument(
        "--reference-special-tokens",
        action="store_true",
        help="let control tokens written in a prompt act as such, as diffusers does",
    )
    parser.add_argument("--tiled", action="store_true", help="also decode (encode) with the VAE's tiling")
    parser.add_argument("--tile-min", type=int, default=256, help="tile side in pixels")
    parser.add_argument("--tile-stride", type=int, default=192, help="pixels from one tile to the next")
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's choice)")
    parser.add_argument("--verify", action="store_true", help="check that recording did not change the picture")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier run in the folder")
    args = parser.parse_args(argv)
    check_arguments(parser, args)
    args.pipeline = args.pipeline or official_pipelines.kind_of(args.model)
    if args.cfg is None:
        args.cfg = 1.0 if official_pipelines.KINDS[args.pipeline].is_21 else 4.0
    complete_arguments(parser, args, official_pipelines.KINDS[args.pipeline])
    args.out = Path(args.out) if args.out else ARTIFACTS / args.run_id / "ref"
    # What is not used must not be in the manifest: the engine reads a negative prompt there as guidance.
    args.negative_prompt = args.negative_prompt if args.cfg > 1 else None
    if args.floor is None:
        args.floor = args.dtype == "float32"
    return args


def check_arguments(parser, args):
    if args.component == "pipeline" and args.prompt is None:
        parser.error("--prompt is required")
    if args.component == "vae-encode" and len(args.image) != 1:
        parser.error("--component vae-encode needs one --image")
    if args.floor and args.dtype != "float32":
        parser.error("--floor measures the distance of a bfloat16 run from a float32 one: it needs --dtype float32")
    if not (Path(args.model) / "model_index.json").exists():
        parser.error(f"--model {args.model}: not a model folder in diffusers' layout (it has no model_index.json)")
    if not args.run_id or args.run_id.startswith(".") or "/" in args.run_id:
        parser.error("--run-id must be a plain folder name")


def complete_arguments(parser, args, kind):
    """What the pipeline does not read is refused, and what it needs is there."""
    if args.component != "pipeline":
        return
    if kind.is_21 != (official_pipelines.kind_of(args.model) == "2.1"):
        parser.error(f"--pipeline {args.pipeline} is of another family than --model {args.model}")
    if not kind.min_images <= len(args.image) <= kind.max_images:
        wanted = {0: "no", 1: "one"}.get(kind.max_images, f"one to {kind.max_images}")
        parser.error(f"--pipeline {args.pipeline} reads {wanted} --image, not {len(args.image)}")
    if kind.mask != (args.mask is not None):
        parser.error(f"--pipeline {args.pipeline} {'needs a' if kind.mask else 'reads no'} --mask")
    if args.strength is not None and not kind.strength:
        parser.error(f"--pipeline {args.pipeline} reads no --strength")
    if kind.strength and args.strength is None:
        args.strength = 0.6
    if (args.width is None) != (args.height is None):
        parser.error("give both of --width and --height, or none")
    if kind.fixed_size and args.width is not None:
        parser.error(f"--pipeline {args.pipeline} calculates the size from its picture")
    if not kind.is_21 and (args.sigmas is not None or args.kv_cache):
        parser.error("--sigmas and --kv-cache are the 2.1 pipeline's")
    # Turbo's folder says the noise levels itself.
    sigmas = args.sigmas or official_pipelines.index_of(args.model).get("sample_sigmas")
    args.steps = len(sigmas) if sigmas else args.steps
    if args.width is None and not kind.sees:
        args.width, args.height = 128, 128


def tiling_of(args):
    return {
        "tile_sample_min_height": args.tile_min,
        "tile_sample_min_width": args.tile_min,
        "tile_sample_stride_height": args.tile_stride,
        "tile_sample_stride_width": args.tile_stride,
    }


def kept_inputs(args):
    """The input pictures' names beside the manifest: a reference is all that a repetition needs."""
    images = [f"input{index}{Path(path).suffix}" for index, path in enumerate(args.image)]
    return {
        **({"images": images} if images else {}),
        **({"mask": f"mask{Path(args.mask).suffix}"} if args.mask else {}),
        **({"strength": args.strength} if args.strength is not None else {}),
        **({"sigmas": args.sigmas} if args.sigmas is not None else {}),
    }


def keep_inputs(args, folder):
    kept = kept_inputs(args)
    for path, name in zip(args.image, kept.get("images", []), strict=True):
        shutil.copyfile(path, folder / name)
    if args.mask:
        shutil.copyfile(args.mask, folder / kept["mask"])


def pipeline_facts(args, image):
    kind = official_pipelines.KINDS[args.pipeline]
    # The 2.1 pipeline takes prompts of any length.
    own = {"kv_cache": args.kv_cache} if kind.is_21 else {"max_sequence_length": args.max_sequence_length}
    return {
        "pipeline": kind.class_name,
        "prompt": args.prompt,
        "negative_prompt": args.negative_prompt,
        **kept_inputs(args),
        "width": image.width,
        "height": image.height,
        "steps": args.steps,
        "cfg": args.cfg,
        "seed": args.seed,
        **own,
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


def load_pipeline(args, dtype):
    pipe = official_pipelines.load(official_pipelines.KINDS[args.pipeline], args.model, dtype)
    if args.width is not None:
        text_to_image.check_size(pipe, args.width, args.height)
    if not args.reference_special_tokens:
        text_to_image.check_literal(pipe, args.prompt)
        text_to_image.check_literal(pipe, args.negative_prompt or "")
    return pipe


def taps_of(kind):
    if kind.is_21:
        return Image21
    return PictureToImage if kind.max_images else text_to_image.TextToImage


def run_pipeline(args, pipe, store, choice):
    """One run of the official pipeline, whose tensors go to STORE; returns the picture."""
    kind = official_pipelines.KINDS[args.pipeline]
    taps = taps_of(kind)(kind, pipe, store, choice, args.negative_prompt is not None)
    image = taps.run(args)
    if args.tiled:
        taps.decode_tiled(tiling_of(args))
    return image


def export_pipeline(args, choice):
    dtype = DTYPES[args.dtype]
    pipe = load_pipeline(args, dtype)
    with CheckpointStore(args.out, args.overwrite) as store:
        image = run_pipeline(args, pipe, store, choice)
        choice.check_all_used()
        # Hooks and modules hold each other; the next model must find the memory free.
        del pipe
        gc.collect()
        if args.verify:
            official_pipelines.verify_untouched(official_pipelines.KINDS[args.pipeline], args, dtype, image)
        if args.floor:
            run_pipeline(args, load_pipeline(args, torch.bfloat16), FloorMeter(store), choice)
        image.save(store.folder / "image.png")
        keep_inputs(args, store.folder)
        store.write_manifest({**pipeline_facts(args, image), **common_facts(args)})
    return store


def export_vae_encode(args, choice):
    with CheckpointStore(args.out, args.overwrite) as store:
        height, width = vae_encode.run(args, DTYPES[args.dtype], store, choice, tiling_of(args))
        choice.check_all_used()
        if args.floor:
            vae_encode.run(args, torch.bfloat16, FloorMeter(store), choice, tiling_of(args))
        store.write_manifest({"pipeline": "vae-encode", "width": width, "height": height, **common_facts(args)})
    return store


def next_command(args):
    """What to type to repeat the run with the engine; its manifest supplies the settings."""
    words = ["qwen-image", f"--debug={args.out.parent.name}"]
    if args.out.parent.parent != ARTIFACTS:
        words.append(f"--artifacts={args.out.parent.parent}")
    if args.checkpoints != CHECKPOINTS:
        words.append(f"--checkpoints={args.checkpoints}")
    words += engine_command.words(args.pipeline, args.out, kept_inputs(args)) + ["-o", "out.png"]
    if Path(args.model).resolve() != EMBEDDED_MODEL:
        words.append(f"--model={args.model}")
    return shlex.join(words)


def export(argv=None):
    args = parse_arguments(argv)
    environment.silence_progress_bars()
    if args.threads:
        torch.set_num_threads(args.threads)
    choice = CheckpointChoice(args.checkpoints)
    store = export_pipeline(args, choice) if args.component == "pipeline" else export_vae_encode(args, choice)
    print(f"{len(store.entries)} checkpoints in {store.folder}", file=sys.stderr)
    if args.component == "pipeline" and args.out.name == "ref":
        print(f"next: {next_command(args)}", file=sys.stderr)


if __name__ == "__main__":
    export()
