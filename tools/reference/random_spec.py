"""The dimensions of a random model: defaults, presets, and the values a user sets over them."""

import copy
import json
import math

from tools.reference import random_spec_21

DTYPES = ("float32", "float16", "bfloat16")
STYLES = ("nested", "flat")

# Names are those of the official configs; the text width, channel counts and RoPE sections follow from these.
DEFAULT = {
    "seed": 0,
    "dtype": "float32",
    "max_shard_size": None,
    "text_encoder_style": "nested",
    "lightning": False,
    # What model_index.json names; other pipelines that the weights also serve, and the areas of an edit's pictures,
    # stand in qwen_image.json.
    "pipeline": "QwenImagePipeline",
    "pipelines": None,
    "vae_area": None,
    "condition_area": None,
    "transformer": {
        "num_layers": 2,
        "num_attention_heads": 4,
        "attention_head_dim": 32,
        "axes_dims_rope": [8, 12, 12],
        "zero_cond_t": False,
    },
    "text_encoder": {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 256,
        "vocab_size": 1024,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
    },
    "vision": {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "fullatt_block_indexes": None,  # the last one
        "window_size": 112,
    },
    "vae": {
        "base_dim": 8,
        "z_dim": 16,
        "dim_mult": [1, 2, 4, 4],
        "num_res_blocks": 1,
        "attn_scales": [],
        "temperal_downsample": [False, True, True],
    },
}

PRESETS = {
    "default": {},
    # One block of each component in the published model's dimensions; about 1.4 GB on disk.
    "full-size-block": {
        "dtype": "bfloat16",
        "transformer": {
            "num_layers": 1,
            "num_attention_heads": 24,
            "attention_head_dim": 128,
            "axes_dims_rope": [16, 56, 56],
        },
        "text_encoder": {
            "hidden_size": 3584,
            "num_hidden_layers": 1,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "intermediate_size": 18944,
        },
        "vision": {"depth": 2, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16},
        "vae": {"base_dim": 96, "num_res_blocks": 2},
        "pipelines": ["qwen-image", "edit-2509"],
        "vae_area": 64 * 64,
        "condition_area": 160 * 160,
    },
    # What mflux can run: it fixes the size of a head and the channels of the VAE.
    "mflux": {
        "transformer": {
            "num_layers": 3,
            "num_attention_heads": 4,
            "attention_head_dim": 128,
            "axes_dims_rope": [16, 56, 56],
        },
        "vae": {"base_dim": 96, "num_res_blocks": 2},
    },
    # Heads, widths and layer counts that no vector length divides; half floats.
    "odd": {
        "dtype": "float16",
        "transformer": {
            "num_layers": 3,
            "num_attention_heads": 5,
            "attention_head_dim": 24,
            "axes_dims_rope": [4, 10, 10],
        },
        "text_encoder": {
            "hidden_size": 80,
            "num_hidden_layers": 3,
            "num_attention_heads": 5,
            "num_key_value_heads": 1,
            "intermediate_size": 136,
            "vocab_size": 1031,
        },
        "vae": {"base_dim": 20},
    },
    # The other shape of everything on disk (shards, the flat text encoder), the distilled schedule, 8 latent channels,
    # and constants of the text encoder that an engine must read rather than assume.
    "sharded-flat": {
        "max_shard_size": "1MB",
        "text_encoder_style": "flat",
        "lightning": True,
        "transformer": {
            "num_layers": 5,
            "num_attention_heads": 3,
            "attention_head_dim": 20,
            "axes_dims_rope": [4, 8, 8],
        },
        "text_encoder": {
            "hidden_size": 72,
            "num_hidden_layers": 1,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "intermediate_size": 100,
            "rms_norm_eps": 1e-4,
            "rope_theta": 10000.0,
        },
        "vae": {"base_dim": 12, "z_dim": 8, "num_res_blocks": 2},
    },
    # Edits, in sizes that no vector length divides: vision heads of 12, windows of 3 tokens a side, two blocks that
    # attend to everything.
    "edit-odd": {
        "dtype": "float16",
        "pipeline": "QwenImageEditPlusPipeline",
        "vae_area": 112 * 112,
        "condition_area": 176 * 176,
        "transformer": {
            "num_layers": 2,
            "num_attention_heads": 5,
            "attention_head_dim": 24,
            "axes_dims_rope": [4, 10, 10],
        },
        "text_encoder": {
            "hidden_size": 80,
            "num_hidden_layers": 2,
            "num_attention_heads": 5,
            "num_key_value_heads": 1,
            "intermediate_size": 136,
            "vocab_size": 1031,
        },
        "vision": {
            "depth": 5,
            "hidden_size": 36,
            "intermediate_size": 44,
            "num_heads": 3,
            "fullatt_block_indexes": [1, 4],
            "window_size": 84,
        },
        "vae": {"base_dim": 20},
    },
    # Edits, the other shape of everything: shards, the flat text encoder, the distilled schedule, 8 latent channels,
    # the published window.
    "edit-flat": {
        "dtype": "bfloat16",
        "max_shard_size": "1MB",
        "text_encoder_style": "flat",
        "lightning": True,
        "pipeline": "QwenImageEditPlusPipeline",
        "vae_area": 128 * 128,
        "condition_area": 224 * 224,
        "transformer": {
            "num_layers": 3,
            "num_attention_heads": 3,
            "attention_head_dim": 20,
            "axes_dims_rope": [4, 8, 8],
        },
        "text_encoder": {
            "hidden_size": 72,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "intermediate_size": 100,
            "rms_norm_eps": 1e-4,
            "rope_theta": 10000.0,
        },
        "vision": {
            "depth": 3,
            "hidden_size": 80,
            "intermediate_size": 92,
            "num_heads": 4,
            "fullatt_block_indexes": [0, 2],
        },
        "vae": {"base_dim": 12, "z_dim": 8, "num_res_blocks": 2},
    },
    # Edits, small enough to be committed. Windows of 2 tokens a side, so that small pictures have several.
    "edit-micro": {
        "dtype": "float16",
        "pipeline": "QwenImageEditPlusPipeline",
        "vae_area": 32 * 32,
        "condition_area": 64 * 96,
        "transformer": {
            "num_layers": 2,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "axes_dims_rope": [2, 2, 4],
        },
        "text_encoder": {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "intermediate_size": 28,
        },
        "vision": {
            "depth": 2,
            "hidden_size": 8,
            "intermediate_size": 12,
            "num_heads": 2,
            "window_size": 56,
        },
        "vae": {"base_dim": 2, "dim_mult": [1, 2, 2, 2]},
    },
    # Small enough to be committed with its references: under 400 KB of weights. An odd channel count in the VAE
    # makes the halving of its upsamplers round down.
    "micro": {
        "dtype": "float16",
        "max_shard_size": "60KB",
        "text_encoder_style": "flat",
        "transformer": {
            "num_layers": 2,
            "num_attention_heads": 3,
            "attention_head_dim": 8,
            "axes_dims_rope": [2, 2, 4],
        },
        "text_encoder": {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "intermediate_size": 28,
        },
        "vision": {"depth": 1, "hidden_size": 8, "intermediate_size": 12, "num_heads": 1},
        "vae": {"base_dim": 3, "dim_mult": [1, 2, 3, 3]},
    },
    **random_spec_21.PRESETS,
}


def merge(spec, changes):
    """SPEC with CHANGES over it; a key that SPEC lacks is a mistake."""
    merged = copy.deepcopy(spec)
    for key, value in changes.items():
        if key not in merged:
            raise SystemExit(f"unknown key {key!r} in the model's spec; known: {', '.join(merged)}")
        merged[key] = merge(merged[key], value) if isinstance(merged[key], dict) else value
    return merged


def is_21(spec):
    """Whether it is a Qwen-Image-2.1 model: another architecture, with a spec of its own."""
    return spec["pipeline"] == random_spec_21.PIPELINE


def make(preset="default", changes=None):
    base = random_spec_21.DEFAULT if preset in random_spec_21.PRESETS else DEFAULT
    spec = merge(merge(base, PRESETS[preset]), changes or {})
    check(spec)
    return spec


def from_assignment(text):
    """"vae.z_dim=8" -> {"vae": {"z_dim": 8}}; the value is JSON, or a plain string where it is not."""
    path, _, value = text.partition("=")
    try:
        value = json.loads(value)
    except json.JSONDecodeError:
        pass
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def check(spec):
    transformer, text = spec["transformer"], spec["text_encoder"]
    problems = []
    if sum(transformer["axes_dims_rope"]) != transformer["attention_head_dim"]:
        problems.append("axes_dims_rope must add up to attention_head_dim")
    if any(axis % 2 for axis in transformer["axes_dims_rope"]):
        problems.append("axes_dims_rope must be even")
    if text["num_attention_heads"] % text["num_key_value_heads"]:
        problems.append("the text encoder's heads must be a multiple of its key/value heads")
    if text["vocab_size"] < 1024:
        problems.append("vocab_size must be at least 1024: the tokenizer is the embedded model's")
    if spec["vision"]["hidden_size"] % (4 * spec["vision"]["num_heads"]):
        problems.append("the vision tower's heads must be of a multiple of 4: rows and columns each turn pairs")
    if spec["dtype"] not in DTYPES:
        problems.append(f"dtype must be one of {', '.join(DTYPES)}")
    problems += random_spec_21.problems(spec) if is_21(spec) else first_family_problems(spec)
    if problems:
        raise SystemExit("; ".join(problems))


def first_family_problems(spec):
    problems = []
    if spec["text_encoder"]["hidden_size"] % spec["text_encoder"]["num_attention_heads"]:
        problems.append("the text encoder's hidden_size must be a multiple of its heads")
    if len(spec["vae"]["temperal_downsample"]) != len(spec["vae"]["dim_mult"]) - 1:
        problems.append("temperal_downsample must be one shorter than dim_mult")
    if spec["text_encoder_style"] not in STYLES:
        problems.append(f"text_encoder_style must be one of {', '.join(STYLES)}")
    return problems


def mrope_section(head_dim):
    """Splits the rotary pairs in time, height, width about as 16 : 24 : 24, the published model's ratio."""
    half = head_dim // 2
    time = half // 4
    time += (half - time) % 2
    return [time, (half - time) // 2, (half - time) // 2]


def scheduler_config(lightning):
    """The published schedule, or the distilled (Lightning) one: a fixed shift of 3 and no terminal value."""
    config = {
        "base_image_seq_len": 256,
        "base_shift": 0.5,
        "invert_sigmas": False,
        "max_image_seq_len": 8192,
        "max_shift": 0.9,
        "num_train_timesteps": 1000,
        "shift": 1.0,
        "shift_terminal": 0.02,
        "stochastic_sampling": False,
        "time_shift_type": "exponential",
        "use_beta_sigmas": False,
        "use_dynamic_shifting": True,
        "use_exponential_sigmas": False,
        "use_karras_sigmas": False,
    }
    if lightning:
        config.update(base_shift=math.log(3), max_shift=math.log(3), shift_terminal=None)
    return config
