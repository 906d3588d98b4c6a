"""Writes the goldens of quantized weights with MLX itself (packages mlx and mlx-cpu, or mlx on a Mac).

    python -m tools.reference.mlx_goldens --out tests/goldens/mlx

all_modes.safetensors    every number of bits and group size: packed weight, scales, biases, and what mlx.core.dequantize
                         makes of them
float.safetensors        a small model in bfloat16 …
quantized.safetensors    … and quantized, with bits and group sizes whose shapes look alike
quantize.safetensors     ordinary and extreme values, and what mlx.core.quantize makes of them in every mode
"""

import argparse
from pathlib import Path

import mlx.core as mx

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
# bits × group size is 256 for all of them: shapes alone do not tell them apart.
LAYERS = {"layers.0.proj": (4, 64), "layers.1.proj": (8, 32), "layers.2.proj": (2, 128)}


def quantized(name, weight, bits, group_size):
    packed, scales, biases = mx.quantize(weight, group_size=group_size, bits=bits)
    return {f"{name}.weight": packed, f"{name}.scales": scales, f"{name}.biases": biases}


def all_modes():
    tensors = {}
    for bits in BITS:
        for group_size in GROUP_SIZES:
            name = f"bits{bits}_group{group_size}"
            triple = quantized(name, mx.random.normal((2, 128)), bits, group_size)
            tensors |= triple
            tensors[f"{name}.expected"] = mx.dequantize(
                triple[f"{name}.weight"],
                triple[f"{name}.scales"],
                triple[f"{name}.biases"],
                group_size=group_size,
                bits=bits,
            )
    return tensors


def models():
    original, packed = {}, {}
    for name, (bits, group_size) in LAYERS.items():
        rows = group_size // 4  # 32 groups, enough for the reader to tell the three apart
        weight = (0.05 * mx.random.normal((rows, 128))).astype(mx.bfloat16)
        bias = (0.1 * mx.random.normal((rows,))).astype(mx.bfloat16)
        original |= {f"{name}.weight": weight, f"{name}.bias": bias}
        packed |= quantized(name, weight, bits, group_size) | {f"{name}.bias": bias}
    return original, packed


def extreme_values():
    rows = 0.05 * mx.random.normal((12, 128))
    factors = mx.ones((12, 1))
    factors[1:5] = mx.array([[0.0], [1e-9], [1e-5], [1e4]])
    rows = rows * factors
    rows[5], rows[6], rows[7], rows[8] = 0.5, -3.0, mx.abs(rows[7]), -mx.abs(rows[8])
    rows[9] = mx.round(rows[9] * 20) / 2  # halves: where rounding decides
    rows[10, ::32] = 1.0  # one outlier in every group
    rows[11] = 1.0 + 1e-3 * rows[11]  # far from zero
    return rows


def quantize_modes():
    tensors = {}
    for dtype in (mx.float32, mx.bfloat16):
        kind = str(dtype).rpartition(".")[2]
        values = extreme_values().astype(dtype)
        tensors[f"{kind}.values"] = values
        for bits in BITS:
            for group_size in GROUP_SIZES:
                tensors |= quantized(f"{kind}.bits{bits}_group{group_size}", values, bits, group_size)
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    mx.random.seed(7)
    mx.save_safetensors(str(out / "all_modes.safetensors"), all_modes())
    original, packed = models()
    mx.save_safetensors(str(out / "float.safetensors"), original)
    mx.save_safetensors(str(out / "quantized.safetensors"), packed)
    mx.save_safetensors(str(out / "quantize.safetensors"), quantize_modes())


if __name__ == "__main__":
    main()
