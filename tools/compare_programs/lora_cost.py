"""Measures what a LoRA costs: alternating runs without and with one of rank 64 on every attention and MLP layer.

    python -m tools.compare_programs.lora_cost PROGRAM [--pairs 11] [--core 0] [--rank 64] [--model FOLDER]

On synthetic weights of full width, 4 blocks in 4 bits at 512x512, one thread. Prints the median of the ratios of a step's
time and its spread; exits with 1 above 1.2. The machine should have nothing else to do. Needs Python 3, taskset and numpy.
"""

import argparse
import json
import statistics
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np

from tools.compare_programs.same_speed import BENCH, BLOCKS, seconds_of, write_model

MOST = 1.2
WIDTH = 3072
ATTENTION = ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")


def layers():
    """(name, outputs, inputs) of every layer that the LoRA changes."""
    for block in range(BLOCKS):
        for name in ATTENTION:
            yield f"transformer_blocks.{block}.attn.{name}", WIDTH, WIDTH
        for stream in ("img", "txt"):
            yield f"transformer_blocks.{block}.{stream}_mlp.net.0.proj", 4 * WIDTH, WIDTH
            yield f"transformer_blocks.{block}.{stream}_mlp.net.2", WIDTH, 4 * WIDTH


def write_lora(path, rank):
    random = np.random.default_rng(1)
    header, parts, size = {}, [], 0
    for name, outputs, inputs in layers():
        for part, shape in (("lora_A", (rank, inputs)), ("lora_B", (outputs, rank))):
            values = (random.standard_normal(shape) * 0.01).astype(np.float32)
            data = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
            offsets = [size, size + len(data)]
            header[f"transformer.{name}.{part}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": offsets}
            parts.append(data)
            size += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--core", type=int, default=0, help="all runs are pinned to this one")
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--model", type=Path, help="where the weights are, or are to be written (default: a temporary folder)")
    options = parser.parse_args()
    program = options.program.resolve(strict=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = options.model.resolve() if options.model else folder / "model"
        write_model(model)
        lora = folder / "lora.safetensors"
        write_lora(lora, options.rank)
        plain = (*BENCH, "--sizes", "512x512", "--precision", "fast")

        def step(arguments):
            return seconds_of(program, arguments, model, options.core, folder)["per_step"]

        step(plain)  # brings the weights into memory
        pairs = [(step(plain), step((*plain, "--lora", lora))) for _ in range(options.pairs)]
    ratios = sorted(with_lora / without for without, with_lora in pairs)
    without, with_lora = (statistics.median(seconds) for seconds in zip(*pairs))
    median = statistics.median(ratios)
    print(f"a step without {without:.3f} s, with a LoRA of rank {options.rank} {with_lora:.3f} s: {median:.3f} x"
          f" ({ratios[0]:.3f} … {ratios[-1]:.3f}, {options.pairs} pairs)")
    return 1 if median > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
