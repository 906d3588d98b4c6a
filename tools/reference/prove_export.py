"""Exports what `./run prove` compares with: a small picture of the official pipeline, with the model that the engine got.

    python -m tools.reference.prove_export --engine build/release/qwen-image --out DIR [the options of qwen-image prove]

Exits with 1 and a line that says why where diffusers cannot run this model: another layout, quantized, too little memory.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

PROMPT = "a red circle on a blue background"
SIDE = 256
STEPS = 2
PLAIN_FORMATS = {"F32", "F16", "BF16"}
MODEL_OPTIONS = ("--model", "--transformer", "--text-encoder", "--vae", "--vision-encoder", "--tokenizer", "--variant")
GIGABYTE = 1_000_000_000
# Of what the weights take: activations, and what loading takes beside them.
HEADROOM, WORKSPACE = 1.1, 2 * GIGABYTE


class NotPossible(Exception):
    pass


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--engine", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("-m", *MODEL_OPTIONS[:1])
    for option in MODEL_OPTIONS[1:]:
        parser.add_argument(option)
    parser.add_argument("--lora", action="append")
    parser.add_argument("-t", "--threads")
    args, _ = parser.parse_known_args(argv)
    return args


def diagnose(args):
    words = [args.engine, "doctor", "--json"]
    for option in MODEL_OPTIONS:
        value = getattr(args, option[2:].replace("-", "_"))
        words += [option, value] if value else []
    return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=False).stdout)


def folder_of(diagnosis):
    """The model's folder, where it is one that diffusers reads."""
    if not diagnosis["usable"]:
        raise NotPossible("the model is not usable; the report says why")
    weights = [part for part in diagnosis["parts"] if part["formats"]]
    folders = {Path(part["path"]).parent for part in diagnosis["parts"]}
    if len(folders) != 1 or not (next(iter(folders)) / "model_index.json").exists():
        raise NotPossible("the model is not one folder in diffusers' layout")
    formats = {name for part in weights for name in part["formats"]}
    if not formats <= PLAIN_FORMATS:
        raise NotPossible(f"diffusers does not read {', '.join(sorted(formats - PLAIN_FORMATS))}")
    return folders.pop()


def dtype_for(diagnosis):
    parameters = sum(part["parameters"] for part in diagnosis["parts"])
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        if HEADROOM * size * parameters + WORKSPACE <= diagnosis["available_memory"]:
            return dtype
    needed = (HEADROOM * 2 * parameters + WORKSPACE) / GIGABYTE
    raise NotPossible(
        f"diffusers would need {needed:.0f} GB of memory, {diagnosis['available_memory'] / GIGABYTE:.0f} GB are available"
    )


def side_for(diagnosis):
    """As qwen-image prove: the model's own size if that is smaller."""
    own = diagnosis["pictures"][0]
    return min(SIDE, own["width"], own["height"]) // 32 * 32


def main(argv=None):
    args = parse_arguments(argv)
    try:
        if args.lora:
            raise NotPossible("LoRAs are not exported")
        diagnosis = diagnose(args)
        folder, dtype, side = folder_of(diagnosis), dtype_for(diagnosis), side_for(diagnosis)
    except NotPossible as reason:
        print(reason, file=sys.stderr)
        return 1
    from tools.reference import export  # takes seconds: torch

    words = ["--model", str(folder), "--prompt", PROMPT, "--cfg", "1", "--steps", str(STEPS)]
    words += ["--width", str(side), "--height", str(side), "--dtype", dtype, "--no-floor", "--out", args.out]
    export.export(words + (["--threads", args.threads] if args.threads else []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
