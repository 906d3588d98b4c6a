"""The tensors and configs of Qwen-Image-2.1 in the published dimensions."""

from tools.synthetic import layers

DIM, HEAD_DIM, TEXT_DIM, CHANNELS, MLP = 4096, 128, 4096, 64, 12288
VOCABULARY, TEXT_MLP, KEY_VALUE = 151936, 12288, 1024
VISION_DIM, VISION_MLP, VISION_LAYERS, DEEPSTACK = 1152, 4304, 27, (8, 16, 24)
LAYERS, TEXT_LAYERS = 32, 36
BASE_DIM, DECODER_BASE_DIM, MULTIPLIERS = 96, 144, (1, 2, 4, 8, 8)
TEMPORAL = (False, True, True, True)
TURBO_SIGMAS = (1.0, 0.978453, 0.95418, 0.926626, 0.89508, 0.845148, 0.704534, 0.414568)


def linear(name, out, inputs, bias=False):
    return layers.linear(name, out, inputs, bias)


def transformer(count):
    tensors = linear("img_in", DIM, CHANNELS) + [("txt_in.text_norm.weight", (TEXT_DIM,))]
    tensors += linear("txt_in.in_layer", DIM, TEXT_DIM) + linear("txt_in.out_layer", DIM, DIM)
    tensors += linear("time_text_embed.timestep_embedder.linear_1", DIM, 256)
    tensors += linear("time_text_embed.timestep_embedder.linear_2", DIM, DIM) + linear("modulation.1", 4 * DIM, DIM)
    for layer in range(count):
        block = f"transformer_blocks.{layer}"
        for projection in ("to_q", "to_k", "to_v", "to_out.0"):
            tensors += linear(f"{block}.attn.{projection}", DIM, DIM)
        tensors += [(f"{block}.attn.{norm}.weight", (HEAD_DIM,)) for norm in ("norm_q", "norm_k")]
        tensors += linear(f"{block}.img_mlp.proj", MLP, DIM) + linear(f"{block}.img_mlp.gate_layer", MLP, DIM)
        tensors += linear(f"{block}.img_mlp.out", DIM, MLP)
    return tensors + linear("norm_out.linear", DIM, DIM) + linear("proj_out", CHANNELS, DIM)


def layer_norm(name, width):
    return [(f"{name}.weight", (width,)), (f"{name}.bias", (width,))]


def merger(name, norm_width):
    merged = 4 * VISION_DIM
    tensors = layer_norm(f"{name}.norm", norm_width) + linear(f"{name}.linear_fc1", merged, merged, bias=True)
    return tensors + linear(f"{name}.linear_fc2", TEXT_DIM, merged, bias=True)


def vision():
    prefix = "model.visual"
    tensors = [(f"{prefix}.patch_embed.proj.weight", (VISION_DIM, 3, 2, 16, 16)), (f"{prefix}.patch_embed.proj.bias", (VISION_DIM,))]
    tensors.append((f"{prefix}.pos_embed.weight", (48 * 48, VISION_DIM)))
    for layer in range(VISION_LAYERS):
        block = f"{prefix}.blocks.{layer}"
        tensors += layer_norm(f"{block}.norm1", VISION_DIM) + layer_norm(f"{block}.norm2", VISION_DIM)
        tensors += linear(f"{block}.attn.qkv", 3 * VISION_DIM, VISION_DIM, bias=True)
        tensors += linear(f"{block}.attn.proj", VISION_DIM, VISION_DIM, bias=True)
        tensors += linear(f"{block}.mlp.linear_fc1", VISION_MLP, VISION_DIM, bias=True)
        tensors += linear(f"{block}.mlp.linear_fc2", VISION_DIM, VISION_MLP, bias=True)
    tensors += merger(f"{prefix}.merger", VISION_DIM)
    for index in range(len(DEEPSTACK)):
        tensors += merger(f"{prefix}.deepstack_merger_list.{index}", 4 * VISION_DIM)
    return tensors


def text_encoder(count):
    """Without lm_head, which drawing never reads."""
    prefix = "model.language_model"
    tensors = [(f"{prefix}.embed_tokens.weight", (VOCABULARY, TEXT_DIM)), (f"{prefix}.norm.weight", (TEXT_DIM,))]
    for layer in range(count):
        here = f"{prefix}.layers.{layer}"
        tensors += [(f"{here}.{norm}.weight", (TEXT_DIM,)) for norm in ("input_layernorm", "post_attention_layernorm")]
        tensors += [(f"{here}.self_attn.{norm}.weight", (HEAD_DIM,)) for norm in ("q_norm", "k_norm")]
        tensors += linear(f"{here}.self_attn.q_proj", TEXT_DIM, TEXT_DIM)
        tensors += linear(f"{here}.self_attn.k_proj", KEY_VALUE, TEXT_DIM) + linear(f"{here}.self_attn.v_proj", KEY_VALUE, TEXT_DIM)
        tensors += linear(f"{here}.self_attn.o_proj", TEXT_DIM, TEXT_DIM)
        tensors += linear(f"{here}.mlp.gate_proj", TEXT_MLP, TEXT_DIM) + linear(f"{here}.mlp.up_proj", TEXT_MLP, TEXT_DIM)
        tensors += linear(f"{here}.mlp.down_proj", TEXT_DIM, TEXT_MLP)
    return tensors + vision()


def conv(name, out, inputs, side):
    return layers.conv(name, out, inputs, side, side)


def vae(blocks=2, base_dim=BASE_DIM, decoder_base_dim=DECODER_BASE_DIM):
    encoder_widths = [base_dim * multiplier for multiplier in MULTIPLIERS]
    decoder_widths = [decoder_base_dim * multiplier for multiplier in reversed(MULTIPLIERS)]
    width = encoder_widths[0]
    tensors = conv("encoder.conv_in", width, 4, 3)
    for level, out in enumerate(encoder_widths):
        here = f"encoder.down_blocks.{level}"
        for block in range(blocks):
            tensors += layers.residual(f"{here}.resnets.{block}", width, out, axes=2)
            width = out
        if level < len(TEMPORAL):
            tensors += conv(f"{here}.downsampler.resample.1", width, width, 3)
            tensors += conv(f"{here}.downsampler.time_conv", width, width, 1) if TEMPORAL[level] else []
    tensors += layers.middle("encoder.mid_block", width, axes=2) + [("encoder.norm_out.gamma", (width, 1, 1, 1))]
    tensors += conv("encoder.conv_out", 2 * CHANNELS, width, 3) + conv("quant_conv", 2 * CHANNELS, 2 * CHANNELS, 1)
    width = decoder_widths[0]
    tensors += conv("post_quant_conv", CHANNELS, CHANNELS, 1)
    tensors += conv("decoder.conv_in", width, CHANNELS, 3) + layers.middle("decoder.mid_block", width, axes=2)
    for level, out in enumerate(decoder_widths):
        here = f"decoder.up_blocks.{level}"
        for block in range(blocks + 1):
            tensors += layers.residual(f"{here}.resnets.{block}", width, out, axes=2)
            width = out
        if level < len(TEMPORAL):
            tensors += conv(f"{here}.upsampler.resample.1", width, width, 3)
            tensors += conv(f"{here}.upsampler.time_conv", 2 * width, width, 1) if TEMPORAL[-1 - level] else []
    return tensors + [("decoder.norm_out.gamma", (width, 1, 1, 1))] + conv("decoder.conv_out", 4, width, 3)


def transformer_config(count):
    return {
        "_class_name": "QwenImage21Transformer2DModel",
        "attention_head_dim": HEAD_DIM,
        "axes_dims_rope": [16, 56, 56],
        "causal_condition": True,
        "context_in_dim": TEXT_DIM,
        "eps": 1e-06,
        "in_channels": CHANNELS,
        "mlp_ratio": MLP // DIM,
        "num_attention_heads": DIM // HEAD_DIM,
        "num_layers": count,
        "out_channels": CHANNELS,
        "patch_size": 1,
    }


def text_encoder_config(count):
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "image_token_id": 151655,
        "vision_start_token_id": 151652,
        "vision_end_token_id": 151653,
        "tie_word_embeddings": False,
        "text_config": {
            "attention_bias": False,
            "head_dim": HEAD_DIM,
            "hidden_act": "silu",
            "hidden_size": TEXT_DIM,
            "intermediate_size": TEXT_MLP,
            "max_position_embeddings": 262144,
            "model_type": "qwen3_vl_text",
            "num_attention_heads": TEXT_DIM // HEAD_DIM,
            "num_hidden_layers": count,
            "num_key_value_heads": KEY_VALUE // HEAD_DIM,
            "rms_norm_eps": 1e-06,
            "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
            "rope_theta": 5000000.0,
            "vocab_size": VOCABULARY,
        },
        "vision_config": {
            "deepstack_visual_indexes": list(DEEPSTACK),
            "depth": VISION_LAYERS,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": VISION_DIM,
            "in_channels": 3,
            "intermediate_size": VISION_MLP,
            "model_type": "qwen3_vl_vision",
            "num_heads": 16,
            "num_position_embeddings": 48 * 48,
            "out_hidden_size": TEXT_DIM,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
    }


VAE_CONFIG = {
    "_class_name": "AutoencoderKLQwenImage21",
    "attn_scales": [],
    "base_dim": BASE_DIM,
    "decoder_base_dim": DECODER_BASE_DIM,
    "dim_mult": list(MULTIPLIERS),
    "in_channels": 4,
    "is_residual": True,
    "latents_mean": [0.0] * CHANNELS,
    "latents_std": [1.0] * CHANNELS,
    "num_res_blocks": 2,
    "out_channels": 4,
    "patch_size": None,
    "scale_factor_spatial": 16,
    "scale_factor_temporal": 8,
    "temperal_downsample": list(TEMPORAL),
    "z_dim": CHANNELS,
}

MODEL_INDEX = {
    "_class_name": "QwenImage21Pipeline",
    "processor": ["transformers", "Qwen3VLProcessor"],
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "Qwen3VLForConditionalGeneration"],
    "transformer": ["diffusers", "QwenImage21Transformer2DModel"],
    "vae": ["diffusers", "AutoencoderKLQwenImage21"],
}

TURBO_INDEX = MODEL_INDEX | {"sample_sigmas": list(TURBO_SIGMAS)}
# Turbo's noise levels are taken as they are.
TURBO_SCHEDULER = {"use_dynamic_shifting": False, "shift_terminal": None}

PREPROCESSOR_CONFIG = {
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast",
}
