"""A small random transformer in any type of GGUF, with the standard library alone: its matrices are random integers, and their
scales such that the values have the spread of trained weights."""

import json
import random
import struct

DIM, HEAD_DIM, CHANNELS, LAYERS = 256, 32, 64, 1

# type: its number in the format; values and bytes of a block; where its scale (F16) stands, and a scale that makes the largest
# value about 0.15; the same for its offset, if it has one, which puts the middle of the values near zero
BLOCKS = {
    "Q4_0": (2, 32, 18, {0: 0.02}),
    "Q4_1": (3, 32, 20, {0: 0.02, 2: -0.15}),
    "Q5_0": (6, 32, 22, {0: 0.01}),
    "Q5_1": (7, 32, 24, {0: 0.01, 2: -0.155}),
    "Q8_0": (8, 32, 34, {0: 0.0012}),
    "Q2_K": (10, 256, 84, {80: 0.006, 82: 0.009}),
    "Q3_K": (11, 256, 110, {108: 0.0015}),
    "Q4_K": (12, 256, 144, {0: 0.0004, 2: 0.003}),
    "Q5_K": (13, 256, 176, {0: 0.0002, 2: 0.003}),
    "Q6_K": (14, 256, 210, {208: 0.00004}),
    "IQ4_NL": (20, 32, 18, {0: 0.0012}),
    "IQ4_XS": (23, 256, 136, {0: 0.00005}),
}
F32, TEXT = 0, 8  # the numbers of a type of tensor and of a type of metadata


def linear(name, out, inputs):
    return [(f"{name}.weight", (out, inputs)), (f"{name}.bias", (out,))]


def tensors(text_dim):
    yield from linear("img_in", DIM, CHANNELS) + linear("txt_in", DIM, text_dim) + [("txt_norm.weight", (text_dim,))]
    yield from linear("time_text_embed.timestep_embedder.linear_1", DIM, 256)
    yield from linear("time_text_embed.timestep_embedder.linear_2", DIM, DIM)
    for block in (f"transformer_blocks.{layer}" for layer in range(LAYERS)):
        for projection in ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
            yield from linear(f"{block}.attn.{projection}", DIM, DIM)
        for norm in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            yield f"{block}.attn.{norm}.weight", (HEAD_DIM,)
        for stream in ("img", "txt"):
            yield from linear(f"{block}.{stream}_mod.1", 6 * DIM, DIM)
            yield from linear(f"{block}.{stream}_mlp.net.0.proj", 4 * DIM, DIM)
            yield from linear(f"{block}.{stream}_mlp.net.2", DIM, 4 * DIM)
    yield from linear("norm_out.linear", 2 * DIM, DIM) + linear("proj_out", CHANNELS, DIM)


def blocks_of(kind, count, source):
    _, values, size, factors = BLOCKS[kind]
    data = bytearray(source.randbytes(count // values * size))
    for start in range(0, len(data), size):
        for place, factor in factors.items():
            struct.pack_into("<e", data, start + place, factor * source.uniform(0.9, 1.1))
    return bytes(data)


def floats_of(name, count, source):
    middle = 1 if "norm_" in name.rpartition(".weight")[0].rpartition(".")[2] or name == "txt_norm.weight" else 0
    return struct.pack(f"<{count}f", *(source.gauss(middle, 0.05) for _ in range(count)))


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def write(folder, kind, text_dim):
    """model.gguf with its config beside it; matrices whose rows are no whole blocks stay floats."""
    source = random.Random(kind)
    infos, data, count = b"", b"", 0
    for name, shape in tensors(text_dim):
        quantized = len(shape) == 2 and shape[1] % BLOCKS[kind][1] == 0
        size = shape[0] * (shape[1] if len(shape) == 2 else 1)
        data += bytes(-len(data) % 32)
        infos += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        infos += struct.pack("<IQ", BLOCKS[kind][0] if quantized else F32, len(data))
        data += blocks_of(kind, size, source) if quantized else floats_of(name, size, source)
        count += 1
    metadata = text("general.architecture") + struct.pack("<I", TEXT) + text("qwen_image")
    header = b"GGUF" + struct.pack("<IQQ", 3, count, 1) + metadata + infos
    folder.mkdir(parents=True)
    (folder / "model.gguf").write_bytes(header + bytes(-len(header) % 32) + data)
    config = {
        "_class_name": "QwenImageTransformer2DModel",
        "attention_head_dim": HEAD_DIM,
        "axes_dims_rope": [8, 12, 12],
        "in_channels": CHANNELS,
        "joint_attention_dim": text_dim,
        "num_attention_heads": DIM // HEAD_DIM,
        "num_layers": LAYERS,
        "out_channels": CHANNELS // 4,
        "patch_size": 2,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return folder / "model.gguf"
