"""Writes a transformer of the published size (60 blocks × 3072, 20 billion parameters) with random values, for
measurements at scale. Needs numpy only.

    python -m tools.synthetic.write_model --out DIR                    MLX 4-bit in groups of 64, about 11.5 GB
    python -m tools.synthetic.write_model --out DIR --bf16 --sparse    40.9 GB that take no space: all zeros
    python -m tools.synthetic.write_model --out DIR --text-encoder --vae --tokenizer    a whole model, 16 GB
    python -m tools.synthetic.write_model --out DIR --family 2.1 --text-encoder --vae --tokenizer    Qwen-Image-2.1
        (32 blocks × 4096, 7.1 billion parameters), 10 GB; 31 GB with --bf16

The values have the spread of trained weights, but they repeat: one block of random numbers is written again and again.
--sparse leaves holes instead of plain numbers, which read as zeros at the speed of memory.
"""

import argparse
import itertools
import json
import shutil
import sys
from pathlib import Path

import numpy as np

from tools.synthetic import model_21
from tools.synthetic.layers import conv, linear, middle, residual

BLOCK_VALUES = 1 << 22
STD = 0.02
GROUP_SIZE = 64
SHARD_BYTES = 5_000_000_000

DIM, HEAD_DIM, TEXT_DIM, CHANNELS = 3072, 128, 3584, 64
LAYERS, TEXT_LAYERS = 60, 28
VOCABULARY, TEXT_MLP, KEY_VALUE = 152064, 18944, 512
TOKENS = 151643  # that are no control tokens; the vocabulary has room for more


def transformer(layers):
    tensors = linear("img_in", DIM, CHANNELS) + linear("txt_in", DIM, TEXT_DIM) + [("txt_norm.weight", (TEXT_DIM,))]
    tensors += linear("time_text_embed.timestep_embedder.linear_1", DIM, 256)
    tensors += linear("time_text_embed.timestep_embedder.linear_2", DIM, DIM)
    for layer in range(layers):
        block = f"transformer_blocks.{layer}"
        for projection in ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
            tensors += linear(f"{block}.attn.{projection}", DIM, DIM)
        for norm in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            tensors.append((f"{block}.attn.{norm}.weight", (HEAD_DIM,)))
        for stream in ("img", "txt"):
            tensors += linear(f"{block}.{stream}_mod.1", 6 * DIM, DIM)
            tensors += linear(f"{block}.{stream}_mlp.net.0.proj", 4 * DIM, DIM)
            tensors += linear(f"{block}.{stream}_mlp.net.2", DIM, 4 * DIM)
    return tensors + linear("norm_out.linear", 2 * DIM, DIM) + linear("proj_out", CHANNELS, DIM)


def text_encoder(layers=TEXT_LAYERS):
    prefix = "model.language_model"
    tensors = [(f"{prefix}.embed_tokens.weight", (VOCABULARY, TEXT_DIM)), (f"{prefix}.norm.weight", (TEXT_DIM,))]
    for layer in range(layers):
        here = f"{prefix}.layers.{layer}"
        tensors += [(f"{here}.{norm}.weight", (TEXT_DIM,)) for norm in ("input_layernorm", "post_attention_layernorm")]
        tensors += linear(f"{here}.self_attn.q_proj", TEXT_DIM, TEXT_DIM)
        tensors += linear(f"{here}.self_attn.k_proj", KEY_VALUE, TEXT_DIM) + linear(f"{here}.self_attn.v_proj", KEY_VALUE, TEXT_DIM)
        tensors += linear(f"{here}.self_attn.o_proj", TEXT_DIM, TEXT_DIM, bias=False)
        tensors += linear(f"{here}.mlp.gate_proj", TEXT_MLP, TEXT_DIM, bias=False)
        tensors += linear(f"{here}.mlp.up_proj", TEXT_MLP, TEXT_DIM, bias=False)
        tensors += linear(f"{here}.mlp.down_proj", TEXT_DIM, TEXT_MLP, bias=False)
    return tensors


def vae(base_dim=96, multipliers=(1, 2, 4, 4), blocks=2, z_dim=16):
    widths = [base_dim * m for m in multipliers]
    tensors, width, index = conv("encoder.conv_in", base_dim, 3, 3, 3, 3), base_dim, 0
    for level, out in enumerate(widths):
        for _ in range(blocks):
            tensors += residual(f"encoder.down_blocks.{index}", width, out, axes=3)
            width, index = out, index + 1
        if level + 1 < len(widths):
            tensors += conv(f"encoder.down_blocks.{index}.resample.1", width, width, 3, 3)
            if level > 0:
                tensors += conv(f"encoder.down_blocks.{index}.time_conv", width, width, 3, 1, 1)
            index += 1
    tensors += middle("encoder.mid_block", width, axes=3) + [("encoder.norm_out.gamma", (width, 1, 1, 1))]
    tensors += conv("encoder.conv_out", 2 * z_dim, width, 3, 3, 3) + conv("quant_conv", 2 * z_dim, 2 * z_dim, 1, 1, 1)
    tensors += conv("post_quant_conv", z_dim, z_dim, 1, 1, 1)
    tensors += conv("decoder.conv_in", width, z_dim, 3, 3, 3) + middle("decoder.mid_block", width, axes=3)
    for level, out in enumerate(reversed(widths)):
        for block in range(blocks + 1):
            tensors += residual(f"decoder.up_blocks.{level}.resnets.{block}", width, out, axes=3)
            width = out
        if level + 1 < len(widths):
            name = f"decoder.up_blocks.{level}.upsamplers.0"
            tensors += conv(f"{name}.resample.1", width // 2, width, 3, 3)
            if level < 2:
                tensors += conv(f"{name}.time_conv", 2 * width, width, 3, 1, 1)
            width //= 2
    return tensors + [("decoder.norm_out.gamma", (width, 1, 1, 1))] + conv("decoder.conv_out", 3, width, 3, 3, 3)


def bfloat16_bytes(values):
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()


class Values:
    """One block of each kind of bytes, made once."""

    def __init__(self):
        random = np.random.default_rng(0)
        self.bf16 = bfloat16_bytes(STD * random.standard_normal(BLOCK_VALUES))
        self.ones = bfloat16_bytes(1 + STD * random.standard_normal(BLOCK_VALUES))
        # As trained weights are packed: most values lie in the middle of their group, whose ends are 0 and 15.
        q = np.clip(np.rint(8 + 2.6 * random.standard_normal((BLOCK_VALUES // GROUP_SIZE, GROUP_SIZE))), 0, 15).astype(np.uint8)
        q[:, 5], q[:, 41] = 0, 15
        q = q.reshape(-1, 2)
        self.q4 = (q[:, 0] | q[:, 1] << 4).tobytes()
        step = STD / 2.6 * (1 + 0.1 * random.standard_normal(BLOCK_VALUES // GROUP_SIZE))
        self.scales, self.biases = bfloat16_bytes(step), bfloat16_bytes(-8 * step)

    def of(self, name):
        if name.endswith(".scales"):
            return self.scales
        if name.endswith(".biases"):
            return self.biases
        if name == "txt_in.text_norm.weight":
            return self.bf16  # it is stored as its distance from 1
        if "norm" in name and not name.endswith(("linear.weight", ".bias")):
            return self.ones
        return self.bf16


def stored(tensors, quantized):
    """(name, dtype, shape, bytes) as files hold them."""
    for name, shape in tensors:
        count = int(np.prod(shape))
        is_matrix = name.endswith(".weight") and len(shape) == 2 and not name.startswith("model.visual.")
        if quantized and is_matrix and shape[1] % GROUP_SIZE == 0:
            groups, layer = (shape[0], shape[1] // GROUP_SIZE), name.removesuffix(".weight")
            yield name, "U32", (shape[0], shape[1] // 8), count // 2
            for part in ("scales", "biases"):
                yield f"{layer}.{part}", "BF16", groups, 2 * groups[0] * groups[1]
        else:
            yield name, "BF16", shape, 2 * count


def split(tensors, limit):
    shards, size = [[]], 0
    for tensor in tensors:
        if size + tensor[3] > limit and shards[-1]:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += tensor[3]
    return shards


def write_repeated(file, block, size, layer):
    """Every layer starts elsewhere in the block, so that no two are equal; its scales and biases at the same place."""
    start = 64 * (977 * layer % (len(block) // 64))
    size -= file.write(block[start : start + size])
    while size > 0:
        size -= file.write(block[:size] if size < len(block) else block)


def write_shard(path, tensors, values, sparse, layers):
    header, offset = {"__metadata__": {"format": "mlx"}}, 0
    for name, dtype, shape, size in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, dtype, shape, size in tensors:
            layer = layers.setdefault(name.rpartition(".")[0], len(layers))
            if dtype == "U32":
                write_repeated(file, values.q4, size, layer)
            elif sparse and len(shape) > 1:
                file.seek(size, 1)
            else:
                write_repeated(file, values.of(name), size, layer)
        file.truncate(8 + len(text) + offset)


def write_component(folder, stem, tensors, config, args, quantized):
    folder.mkdir(parents=True)
    if quantized:
        config = config | {"quantization": {"group_size": GROUP_SIZE, "bits": 4}}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    shards = split(stored(tensors, quantized), args.shard_bytes)
    values, weight_map, layers = Values(), {}, {}
    for i, shard in enumerate(shards):
        name = f"{stem}.safetensors" if len(shards) == 1 else f"{stem}-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(folder / name, shard, values, args.sparse, layers)
        weight_map |= {tensor[0]: name for tensor in shard}
    if len(shards) > 1:
        total = sum(tensor[3] for shard in shards for tensor in shard)
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def transformer_config(layers):
    return {
        "_class_name": "QwenImageTransformer2DModel",
        "attention_head_dim": HEAD_DIM,
        "axes_dims_rope": [16, 56, 56],
        "in_channels": CHANNELS,
        "joint_attention_dim": TEXT_DIM,
        "num_attention_heads": DIM // HEAD_DIM,
        "num_layers": layers,
        "out_channels": CHANNELS // 4,
        "patch_size": 2,
    }


TEXT_ENCODER_CONFIG = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_act": "silu",
    "hidden_size": TEXT_DIM,
    "intermediate_size": TEXT_MLP,
    "num_attention_heads": TEXT_DIM // 128,
    "num_hidden_layers": TEXT_LAYERS,
    "num_key_value_heads": KEY_VALUE // 128,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "vocab_size": VOCABULARY,
}

VAE_CONFIG = {
    "_class_name": "AutoencoderKLQwenImage",
    "attn_scales": [],
    "base_dim": 96,
    "dim_mult": [1, 2, 4, 4],
    "latents_mean": [0.0] * 16,
    "latents_std": [1.0] * 16,
    "num_res_blocks": 2,
    "temperal_downsample": [False, True, True],
    "z_dim": 16,
}


def text_encoder_config(layers):
    return TEXT_ENCODER_CONFIG | {"num_hidden_layers": layers}


def write_json(path, content):
    path.write_text(json.dumps(content, indent=2) + "\n")


def write_tokenizer(folder, family, turbo=False):
    """The embedded model's tokenizer with merges of rare bytes behind its own, up to the published size: it splits text as the
    small one does, and takes as long to load as the real one. With the scheduler and the index of a whole model."""
    tiny = Path(__file__).resolve().parents[2] / "models" / "tiny"
    tokenizer = json.loads((tiny / "tokenizer" / "tokenizer.json").read_text())
    vocabulary, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    letters = [token for token in vocabulary if len(token) == 1][-60:]  # bytes that hardly any text holds
    pairs = list(itertools.product(letters, repeat=2))
    for left, right in pairs + [(first + second, third) for (first, second) in pairs for third in letters]:
        if len(vocabulary) < TOKENS and left + right not in vocabulary:
            vocabulary[left + right] = len(vocabulary)
            merges.append([left, right])
    for i, added in enumerate(tokenizer["added_tokens"]):
        added["id"] = TOKENS + i
    place = folder / ("processor" if family == "2.1" else "tokenizer")
    shutil.copytree(tiny / "scheduler", folder / "scheduler")
    shutil.copytree(tiny / "tokenizer", place)
    (place / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    if family == "2.1":
        write_json(place / "preprocessor_config.json", model_21.PREPROCESSOR_CONFIG)
        write_json(folder / "model_index.json", model_21.TURBO_INDEX if turbo else model_21.MODEL_INDEX)
        if turbo:
            scheduler = folder / "scheduler" / "scheduler_config.json"
            write_json(scheduler, json.loads(scheduler.read_text()) | model_21.TURBO_SCHEDULER)
    else:
        shutil.copy(tiny / "model_index.json", folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    parser.add_argument("--family", choices=("qwen-image", "2.1"), default="qwen-image")
    parser.add_argument("--layers", type=int, help="of the transformer (default: 60; 2.1: 32)")
    parser.add_argument("--bf16", action="store_true", help="plain bfloat16 instead of 4 bits")
    parser.add_argument("--sparse", action="store_true", help="holes instead of plain matrices")
    parser.add_argument("--text-encoder", action="store_true", help="the text encoder too (7.6 billion parameters; 2.1: 8.1)")
    parser.add_argument("--text-layers", type=int, help="of the text encoder (default: 28; 2.1: 36)")
    parser.add_argument("--vae", action="store_true", help="the VAE too (always bfloat16)")
    parser.add_argument("--tokenizer", action="store_true", help="a tokenizer of the published size, and a scheduler")
    parser.add_argument("--turbo", action="store_true", help="with --tokenizer, 2.1: the index and the scheduler of Turbo")
    parser.add_argument("--shard-bytes", type=int, default=SHARD_BYTES)
    args = parser.parse_args()
    family = model_21 if args.family == "2.1" else sys.modules[__name__]
    layers, text_layers = args.layers or family.LAYERS, args.text_layers or family.TEXT_LAYERS
    stem, quantized = "diffusion_pytorch_model", not args.bf16
    write_component(args.out / "transformer", stem, family.transformer(layers), family.transformer_config(layers), args, quantized)
    if args.text_encoder:
        config = family.text_encoder_config(text_layers)
        write_component(args.out / "text_encoder", "model", family.text_encoder(text_layers), config, args, quantized)
    if args.tokenizer:
        write_tokenizer(args.out, args.family, args.turbo)
    if args.vae:
        write_component(args.out / "vae", stem, family.vae(), family.VAE_CONFIG, args, quantized=False)


if __name__ == "__main__":
    main()
