"""The dimensions of a random Qwen-Image-2.1 model: defaults, presets, and what must hold between them."""

import math

PIPELINE = "QwenImage21Pipeline"
# How the text encoder's config spells its rotary settings: as the published file does, or as transformers 5 saves them.
ROPE_STYLES = ("scaling", "parameters")

# Names are those of the official configs; the text width, channel counts and RoPE sections follow from these.
DEFAULT = {
    "seed": 0,
    "dtype": "float32",
    "max_shard_size": None,
    "rope_style": "scaling",
    "pipeline": PIPELINE,
    # Turbo: the steps' noise levels stand in model_index.json, and the schedule does not shift them.
    "sample_sigmas": None,
    # The pipeline's output_resolution squared; it stands in qwen_image.json.
    "vae_area": 96 * 96,
    # The published 65536 would enlarge the small pictures of these models.
    "shortest_edge": 1024,
    "transformer": {
        "num_layers": 2,
        "num_attention_heads": 4,
        "attention_head_dim": 32,
        "axes_dims_rope": [8, 12, 12],
        "mlp_ratio": 3,
        "eps": 1e-6,
    },
    "text_encoder": {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 256,
        "vocab_size": 1024,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5000000.0,
    },
    "vision": {
        "depth": 4,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1, 2],
    },
    "vae": {
        "base_dim": 8,
        "decoder_base_dim": 12,
        "z_dim": 16,
        "dim_mult": [1, 2, 4, 8, 8],
        "num_res_blocks": 1,
        "attn_scales": [],
        "temperal_downsample": [False, True, True, True],
    },
}

PRESETS = {
    "21": {},
    # Heads, widths and layer counts that no vector length divides, a text encoder whose heads do not add up to its
    # width, constants that an engine must read rather than assume; half floats.
    "21-odd": {
        "dtype": "float16",
        "rope_style": "parameters",
        "vae_area": 112 * 112,
        "transformer": {
            "num_layers": 3,
            "num_attention_heads": 5,
            "attention_head_dim": 24,
            "axes_dims_rope": [4, 10, 10],
            "mlp_ratio": 2,
            "eps": 1e-5,
        },
        "text_encoder": {
            "hidden_size": 76,
            "num_hidden_layers": 3,
            "num_attention_heads": 5,
            "num_key_value_heads": 1,
            "head_dim": 20,
            "intermediate_size": 136,
            "vocab_size": 1031,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
        },
        "vision": {
            "depth": 3,
            "hidden_size": 36,
            "intermediate_size": 44,
            "num_heads": 3,
            "num_position_embeddings": 49,
            "deepstack_visual_indexes": [0, 2],
        },
        "vae": {"base_dim": 5, "decoder_base_dim": 7, "z_dim": 12},
    },
    # Everything in several files; a VAE whose third step down keeps the width, with two resnets a block.
    "21-sharded": {
        "dtype": "bfloat16",
        "max_shard_size": "500KB",
        "vae_area": 64 * 64,
        "transformer": {
            "num_layers": 5,
            "num_attention_heads": 3,
            "attention_head_dim": 40,
            "axes_dims_rope": [8, 16, 16],
        },
        "text_encoder": {
            "hidden_size": 72,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "head_dim": 16,
            "intermediate_size": 100,
        },
        "vision": {
            "depth": 5,
            "hidden_size": 80,
            "intermediate_size": 92,
            "num_heads": 4,
            "deepstack_visual_indexes": [0, 2, 4],
        },
        "vae": {"base_dim": 12, "decoder_base_dim": 16, "z_dim": 8, "dim_mult": [1, 2, 4, 4, 4], "num_res_blocks": 2},
    },
    "21-turbo": {
        "dtype": "bfloat16",
        "sample_sigmas": [1.0, 0.978453, 0.95418, 0.926626, 0.89508, 0.845148, 0.704534, 0.414568],
    },
    # One block of each component in the published model's dimensions; about 2 GB on disk.
    "21-full-size-block": {
        "dtype": "bfloat16",
        "vae_area": 64 * 64,
        "transformer": {
            "num_layers": 1,
            "num_attention_heads": 32,
            "attention_head_dim": 128,
            "axes_dims_rope": [16, 56, 56],
        },
        "text_encoder": {
            "hidden_size": 4096,
            "num_hidden_layers": 1,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 12288,
        },
        "vision": {
            "depth": 2,
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_heads": 16,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": [0],
        },
        "vae": {"base_dim": 96, "decoder_base_dim": 144, "z_dim": 64, "num_res_blocks": 2},
    },
    # Small enough to be committed with its references.
    "21-micro": {
        "dtype": "float16",
        "vae_area": 64 * 64,
        "transformer": {
            "num_layers": 2,
            "num_attention_heads": 3,
            "attention_head_dim": 8,
            "axes_dims_rope": [2, 2, 4],
        },
        "text_encoder": {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 12,
            "intermediate_size": 28,
        },
        "vision": {
            "depth": 2,
            "hidden_size": 8,
            "intermediate_size": 12,
            "num_heads": 2,
            "num_position_embeddings": 9,
            "deepstack_visual_indexes": [0, 1],
        },
        "vae": {"base_dim": 3, "decoder_base_dim": 2, "z_dim": 4},
    },
}


def _vae_problems(vae):
    """The shortcuts around the VAE's blocks take means of whole groups of channels, and repeat whole channels."""
    problems = []
    if len(vae["dim_mult"]) != 5 or len(vae["temperal_downsample"]) != 4:
        problems.append("the pipeline draws 16 pixels for a latent: dim_mult has 5 values, temperal_downsample 4")
        return problems
    widths = [1, *vae["dim_mult"]]
    for index, temporal in enumerate(vae["temperal_downsample"]):
        factor = 8 if temporal else 4
        if vae["base_dim"] * widths[index] * factor % (vae["base_dim"] * widths[index + 1]):
            problems.append(f"the encoder's block {index} cannot share its {factor}-fold channels out evenly")
    widths = [vae["dim_mult"][-1], *reversed(vae["dim_mult"])]
    for index, temporal in enumerate(reversed(vae["temperal_downsample"])):
        factor = 8 if temporal else 4
        if widths[index + 1] * factor % widths[index]:
            problems.append(f"the decoder's block {index} cannot repeat its channels evenly")
    return problems


def problems(spec):
    transformer, text, vision = spec["transformer"], spec["text_encoder"], spec["vision"]
    found = _vae_problems(spec["vae"])
    if text["head_dim"] % 2:
        found.append("the text encoder's head_dim must be even")
    if math.isqrt(vision["num_position_embeddings"]) ** 2 != vision["num_position_embeddings"]:
        found.append("num_position_embeddings must be a square")
    if any(index >= vision["depth"] for index in vision["deepstack_visual_indexes"]):
        found.append("deepstack_visual_indexes must be blocks of the vision tower")
    if len(vision["deepstack_visual_indexes"]) > text["num_hidden_layers"]:
        found.append("the text encoder must have a layer for each of deepstack_visual_indexes")
    if math.isqrt(spec["vae_area"]) ** 2 != spec["vae_area"]:
        found.append("vae_area must be a square: the pipeline takes its side")
    if transformer["mlp_ratio"] < 1:
        found.append("mlp_ratio must be at least 1")
    if spec["rope_style"] not in ROPE_STYLES:
        found.append(f"rope_style must be one of {', '.join(ROPE_STYLES)}")
    return found


def mrope_section(head_dim):
    """Splits the rotary pairs in time, height, width about as 24 : 20 : 20, the published model's ratio."""
    half = head_dim // 2
    side = half * 20 // 64
    return [half - 2 * side, side, side]
