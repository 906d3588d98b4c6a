"""An int8 file in the form that ComfyUI calls ConvRot: a scale for each row, and rows that were rotated before they
were rounded. Its values are random, and random values that were rotated are random values."""

import json

import numpy as np

from tools.peers import dequantize
from tools.peers.models import write_model, write_once

GROUP = 256
SCALE = 0.02 / 40  # of integers whose standard deviation is 40
NOTE = json.dumps({"format": "int8_tensorwise", "convrot": True, "convrot_groupsize": GROUP}).encode()


def transformer(models, blocks):
    """The file, made once."""

    def write(folder):
        folder.mkdir(parents=True)
        write_file(models.transformer(blocks), folder / "rotated.safetensors")

    name = f"transformer_rotated_{blocks}"
    return write_once(models.root / name, f"writing {blocks} blocks in rotated int8", write) / "rotated.safetensors"


def parts_of(name, shape):
    """(name, dtype, shape) of what stands for a tensor."""
    if not (name.startswith("transformer_blocks.") and name.endswith(".weight") and len(shape) == 2):
        yield name, "BF16", shape
        return
    layer = name.removesuffix(".weight")
    yield name, "I8", shape
    yield f"{layer}.weight_scale", "F32", [shape[0], 1]
    yield f"{layer}.comfy_quant", "U8", [len(NOTE)]


def write_file(source, target):
    shards = [dequantize.Shard(path) for path in sorted(source.glob("*.safetensors"))]
    parts = [part for name, shape in dequantize.tensors_of(shards) for part in parts_of(name, shape)]
    header, offset = {}, 0
    for name, dtype, shape in parts:
        size = int(np.prod(shape)) * {"I8": 1, "U8": 1, "BF16": 2, "F32": 4}[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(0)
    integers = np.rint(40 * random.standard_normal(write_model.BLOCK_VALUES))
    integers = np.clip(integers, -127, 127).astype(np.int8).tobytes()
    with open(target, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for layer, (name, dtype, shape) in enumerate(parts):
            if dtype == "I8":
                write_model.write_repeated(file, integers, int(np.prod(shape)), layer)
            elif dtype == "F32":
                file.write(np.full(shape, SCALE, np.float32).tobytes())
            else:
                file.write(NOTE if dtype == "U8" else dequantize.to_bfloat16(dequantize.read(shards, name)).data)
