"""Converts a model with the engine and loads the result with MLX itself: are the values the same?

    python -m tools.formats.mlx_load_check --engine build/release/qwen-image --work build/mlx_check

For every number of bits and group size that MLX has, models/tiny is quantized by `qwen-image convert`, and
  - what is packed must be bit for bit what mlx.core.quantize makes of the same bfloat16 weights;
  - mlx.core.dequantize of the loaded tensors, with their scales as float32, must be bit for bit the values that the
    engine computes with (`qwen-image convert --to f32` of the quantized model writes those out).
mlx.core.dequantize computes in the type of the scales. With bfloat16 scales, as they are stored, it rounds the product
and the sum to bfloat16; that too is checked against the same two roundings of the engine's numbers.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
COMPONENTS = {"transformer": "diffusion_pytorch_model.safetensors", "text_encoder": "model.safetensors"}


def convert(engine, source, out, *arguments):
    subprocess.run([engine, "convert", str(source), "-o", str(out), "--quiet", *arguments], check=True, stdout=subprocess.DEVNULL)


def bits_of(array):
    return np.array(array.astype(mx.float32)).view(np.uint32)


def same(a, b):
    return a.shape == b.shape and bool((bits_of(a) == bits_of(b)).all())


def quantization_of(config, layer):
    settings = config["quantization"]
    chosen = settings.get(layer, settings)
    return {"bits": chosen["bits"], "group_size": chosen["group_size"]}


def nested(name):
    """A text encoder's names have the language model's level, or lack it."""
    if name.startswith("visual."):
        return f"model.{name}"
    inside = name.startswith(("model.language_model.", "model.visual.")) or not name.startswith("model.")
    return name if inside else name.replace("model.", "model.language_model.", 1)


def check_component(component, source, quantized, plain):
    file = COMPONENTS[component]
    original = {nested(name): array for name, array in mx.load(str(source / component / file)).items()}
    packed = mx.load(str(quantized / component / file))
    values = mx.load(str(plain / component / file))
    config = json.loads((quantized / component / "config.json").read_text())
    layers = sorted(name.removesuffix(".scales") for name in packed if name.endswith(".scales"))
    problems = []
    for layer in layers:
        weight, scales, biases = (packed[f"{layer}.{part}"] for part in ("weight", "scales", "biases"))
        how = quantization_of(config, layer)
        engine = values[f"{layer}.weight"]
        exact = mx.dequantize(weight, scales.astype(mx.float32), biases.astype(mx.float32), **how)
        if not same(exact, engine):
            problems.append(f"{layer}: dequantized in float32")
        repeat = how["group_size"]
        q = mx.round((engine - mx.repeat(biases, repeat, 1).astype(mx.float32)) / mx.repeat(scales, repeat, 1).astype(mx.float32))
        product = mx.repeat(scales, repeat, 1) * q.astype(mx.bfloat16)
        if not same(mx.dequantize(weight, scales, biases, **how), product + mx.repeat(biases, repeat, 1)):
            problems.append(f"{layer}: dequantized in bfloat16")
        expected = mx.quantize(original[f"{layer}.weight"], **how)
        if not all(bool(mx.array_equal(a, b)) for a, b in zip((weight, scales, biases), expected)):
            problems.append(f"{layer}: quantized")
    for name, array in packed.items():
        if name.rpartition(".")[0] not in layers and not same(array, original[name]):
            problems.append(f"{name}: not kept")
    return len(layers), problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "tiny", help="in bfloat16, one file a component")
    args = parser.parse_args()
    failed = 0
    for bits in BITS:
        for group_size in GROUP_SIZES:
            folder = args.work / f"q{bits}_g{group_size}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            convert(args.engine, args.model, folder / "quantized", "--to", f"q{bits}", "--group-size", str(group_size))
            convert(args.engine, folder / "quantized", folder / "plain", "--to", "f32")
            count, problems = 0, []
            for component in COMPONENTS:
                layers, found = check_component(component, args.model, folder / "quantized", folder / "plain")
                count += layers
                problems += [f"{component}: {text}" for text in found]
            print(f"q{bits} in groups of {group_size}: {count} matrices, {len(problems)} differ", flush=True)
            for text in problems[:10]:
                print(f"  {text}")
            failed += len(problems)
            shutil.rmtree(folder)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
