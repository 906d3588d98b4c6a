"""Turns the synthetic 4-bit weights into the bfloat16 file that every peer starts from, so that all compute with the
same numbers, or into fp32, which holds their exact values. Reads and writes one tensor at a time: the text encoder
alone would be 15 GB."""

import json

import numpy as np

GROUP_SIZE = 64


class Shard:
    """A safetensors file, mapped."""

    def __init__(self, path, writable=False):
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            self.header = json.loads(file.read(size))
        self.header.pop("__metadata__", None)
        self.data = np.memmap(path, dtype=np.uint8, mode="r+" if writable else "r", offset=8 + size)

    def bytes_of(self, name):
        start, end = self.header[name]["data_offsets"]
        return self.data[start:end]


def from_bfloat16(raw):
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(values):
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def unpack(packed, scales, biases):
    """Eight values a word, the first in the lowest bits; w = scale · q + bias in groups of 64."""
    q = np.empty((scales.size, GROUP_SIZE), np.float32)
    pairs = packed.reshape(scales.size, GROUP_SIZE // 2)
    q[:, 0::2] = pairs & 15
    q[:, 1::2] = pairs >> 4
    q *= scales[:, None]
    q += biases[:, None]
    return q


def tensors_of(shards):
    """(name, shape) of every tensor as the model knows it: scales and biases belong to their weight."""
    for shard in shards:
        for name, entry in shard.header.items():
            if name.endswith((".scales", ".biases")):
                continue
            shape = entry["shape"]
            yield name, [shape[0], 8 * shape[1]] if entry["dtype"] == "U32" else shape


def read(shards, name):
    """In fp32."""
    shard = next(shard for shard in shards if name in shard.header)
    if shard.header[name]["dtype"] != "U32":
        return from_bfloat16(shard.bytes_of(name))
    layer = name.removesuffix(".weight")
    # A layer's scales may have come to lie in the next shard.
    parts = [
        next(s for s in shards if part in s.header).bytes_of(part) for part in (f"{layer}.scales", f"{layer}.biases")
    ]
    return unpack(shard.bytes_of(name), *map(from_bfloat16, parts))


def write_bfloat16(folder, target, rename=lambda name: name):
    """One file with the tensors of the component in FOLDER."""
    write(folder, target, "BF16", to_bfloat16, rename=rename)


def write_float32(folder, target, keep):
    """The same in fp32 with the tensors for which keep(name)."""
    write(folder, target, "F32", lambda values: values, keep)


def write(folder, target, dtype, encode, keep=lambda name: True, rename=lambda name: name):
    shards = [Shard(path) for path in sorted(folder.glob("*.safetensors"))]
    wanted = [(name, shape) for name, shape in tensors_of(shards) if keep(name)]
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in wanted:
        size = {"BF16": 2, "F32": 4}[dtype] * int(np.prod(shape))
        header[rename(name)] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    unfinished = target.with_suffix(".unfinished")
    with open(unfinished, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, _ in wanted:
            file.write(encode(read(shards, name)).data)
    unfinished.rename(target)
