"""How other programs name the tensors of these models, and where each belongs in diffusers' folder.

A rule is a pair of module paths, theirs and diffusers'. {} stands for a number. What follows the module (weight, bias,
scales, biases, scale_weight, …) stays as it is, unless a rule ends in a parameter's name. A name that no rule fits is the
same in both programs.
"""

import re

MFLUX_TRANSFORMER = [
    ("transformer_blocks.{}.attn.attn_to_out.0", "transformer_blocks.{}.attn.to_out.0"),
    ("transformer_blocks.{}.img_mod_linear", "transformer_blocks.{}.img_mod.1"),
    ("transformer_blocks.{}.txt_mod_linear", "transformer_blocks.{}.txt_mod.1"),
    ("transformer_blocks.{}.img_ff.mlp_in", "transformer_blocks.{}.img_mlp.net.0.proj"),
    ("transformer_blocks.{}.img_ff.mlp_out", "transformer_blocks.{}.img_mlp.net.2"),
    ("transformer_blocks.{}.txt_ff.mlp_in", "transformer_blocks.{}.txt_mlp.net.0.proj"),
    ("transformer_blocks.{}.txt_ff.mlp_out", "transformer_blocks.{}.txt_mlp.net.2"),
]

# An older module tree, found in files on the Hub: no "timestep_embedder" in the path.
MLX_COMMUNITY_TRANSFORMER = [
    *MFLUX_TRANSFORMER,
    ("time_text_embed.linear_1", "time_text_embed.timestep_embedder.linear_1"),
    ("time_text_embed.linear_2", "time_text_embed.timestep_embedder.linear_2"),
]

# transformers writes "model.layers…" and "visual…", or "model.language_model.layers…" and "model.visual…". The first is
# the form that all rules here lead to.
NESTED_TEXT_ENCODER = [
    ("model.language_model.*", "model.*"),
    ("model.visual.*", "visual.*"),
]

MFLUX_TEXT_ENCODER = [
    ("encoder.visual.merger.mlp_0", "visual.merger.mlp.0"),
    ("encoder.visual.merger.mlp_1", "visual.merger.mlp.2"),
    ("encoder.visual.*", "visual.*"),
    ("encoder.*", "model.*"),
]

LLAMA_TEXT_ENCODER = [
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    ("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"),
    ("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    ("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    ("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    ("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    ("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    ("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    ("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
]

# A vision tower of its own file ("mmproj"). q, k and v are thirds of qkv; v.patch_embd.weight and v.patch_embd.weight.1
# are the two temporal slices of patch_embed.proj.weight.
LLAMA_VISION = [
    ("v.patch_embd.weight.1", "visual.patch_embed.proj.weight.1"),
    ("v.patch_embd", "visual.patch_embed.proj"),
    ("v.post_ln", "visual.merger.ln_q"),
    ("mm.{}", "visual.merger.mlp.{}"),
    ("v.blk.{}.ln1", "visual.blocks.{}.norm1"),
    ("v.blk.{}.ln2", "visual.blocks.{}.norm2"),
    ("v.blk.{}.attn_q", "visual.blocks.{}.attn.q"),
    ("v.blk.{}.attn_k", "visual.blocks.{}.attn.k"),
    ("v.blk.{}.attn_v", "visual.blocks.{}.attn.v"),
    ("v.blk.{}.attn_out", "visual.blocks.{}.attn.proj"),
    ("v.blk.{}.ffn_gate", "visual.blocks.{}.mlp.gate_proj"),
    ("v.blk.{}.ffn_up", "visual.blocks.{}.mlp.up_proj"),
    ("v.blk.{}.ffn_down", "visual.blocks.{}.mlp.down_proj"),
]

ORIGINAL_RESNET = [
    ("residual.0.gamma", "norm1.gamma"),
    ("residual.2", "conv1"),
    ("residual.3.gamma", "norm2.gamma"),
    ("residual.6", "conv2"),
    ("shortcut", "conv_shortcut"),
]

MFLUX_RESNET = [
    ("norm1.weight", "norm1.gamma"),
    ("norm2.weight", "norm2.gamma"),
    ("conv1.conv3d", "conv1"),
    ("conv2.conv3d", "conv2"),
    ("skip_conv.conv3d", "conv_shortcut"),
]


def original_vae(levels, resnets):
    """The names of the Wan 2.1 VAE, for a VAE of LEVELS levels with RESNETS residual blocks each (published: 4, 2).

    The encoder's list is flat in both programs, the decoder's only here: a level takes RESNETS + 1 residual blocks and,
    but for the last, one upsampler.
    """
    rules = [("conv1", "quant_conv"), ("conv2", "post_quant_conv")]
    for side in ("encoder", "decoder"):
        rules += [
            (f"{side}.conv1", f"{side}.conv_in"),
            (f"{side}.head.0.gamma", f"{side}.norm_out.gamma"),
            (f"{side}.head.2", f"{side}.conv_out"),
            (f"{side}.middle.1.*", f"{side}.mid_block.attentions.0.*"),
        ]
        for block, index in ((0, 0), (2, 1)):
            rules += [
                (f"{side}.middle.{block}.{a}", f"{side}.mid_block.resnets.{index}.{b}") for a, b in ORIGINAL_RESNET
            ]
    rules += [(f"encoder.downsamples.{{}}.{a}", f"encoder.down_blocks.{{}}.{b}") for a, b in ORIGINAL_RESNET]
    rules.append(("encoder.downsamples.*", "encoder.down_blocks.*"))
    for level in range(levels):
        for index in range(resnets + 1):
            place = level * (resnets + 2) + index
            there = f"decoder.up_blocks.{level}.resnets.{index}"
            rules += [(f"decoder.upsamples.{place}.{a}", f"{there}.{b}") for a, b in ORIGINAL_RESNET]
        if level < levels - 1:
            place = level * (resnets + 2) + resnets + 1
            rules.append((f"decoder.upsamples.{place}.*", f"decoder.up_blocks.{level}.upsamplers.0.*"))
    return rules


def mflux_vae(levels, resnets):
    """mflux nests the encoder's list, writes up_block0 for up_blocks.0, and wraps every causal convolution in a conv3d."""
    rules = []
    for name in (
        "quant_conv",
        "post_quant_conv",
        "encoder.conv_in",
        "encoder.conv_out",
        "decoder.conv_in",
        "decoder.conv_out",
    ):
        rules.append((f"{name}.conv3d", name))
    for side in ("encoder", "decoder"):
        rules.append((f"{side}.norm_out.weight", f"{side}.norm_out.gamma"))
        rules.append((f"{side}.mid_block.attentions.0.norm.weight", f"{side}.mid_block.attentions.0.norm.gamma"))
        rules += [(f"{side}.mid_block.resnets.{{}}.{a}", f"{side}.mid_block.resnets.{{}}.{b}") for a, b in MFLUX_RESNET]
    rules += [
        (f"decoder.up_block{{}}.resnets.{{}}.{a}", f"decoder.up_blocks.{{}}.resnets.{{}}.{b}") for a, b in MFLUX_RESNET
    ]
    rules.append(("decoder.up_block{}.upsamplers.0.resample_conv", "decoder.up_blocks.{}.upsamplers.0.resample.1"))
    rules.append(("decoder.up_block{}.upsamplers.0.time_conv.conv3d", "decoder.up_blocks.{}.upsamplers.0.time_conv"))
    for level in range(levels):
        for index in range(resnets):
            there = f"encoder.down_blocks.{level * (resnets + 1) + index}"
            rules += [(f"encoder.down_blocks.{level}.resnets.{index}.{a}", f"{there}.{b}") for a, b in MFLUX_RESNET]
        if level < levels - 1:
            there = f"encoder.down_blocks.{level * (resnets + 1) + resnets}"
            here = f"encoder.down_blocks.{level}.downsamplers.0"
            rules += [
                (f"{here}.resample_conv", f"{there}.resample.1"),
                (f"{here}.time_conv.conv3d", f"{there}.time_conv"),
            ]
    return rules


def vae_dimensions(names):
    """LEVELS and RESNETS of a VAE in diffusers' names."""
    levels = 1 + max(int(name.split(".")[2]) for name in names if name.startswith("decoder.up_blocks."))
    first = {int(name.split(".")[4]) for name in names if name.startswith("decoder.up_blocks.0.resnets.")}
    return levels, len(first) - 1


def original_vae_dimensions(names):
    """The same of a VAE in its original names: the decoder's first upsampler comes after RESNETS + 1 residual blocks."""
    last = max(int(name.split(".")[2]) for name in names if name.startswith("decoder.upsamples."))
    first = min(int(name.split(".")[2]) for name in names if re.match(r"decoder\.upsamples\.\d+\.resample\.", name))
    return (last + 2) // (first + 1), first - 1


def _pattern(path):
    text = re.escape(path).replace(r"\{\}", r"(\d+)").replace(r"\*", "(.+)")
    return re.compile(rf"{text}(?:\.(?P<rest>.+))?")


def _fill(path, groups):
    pieces = re.split(r"\{\}|\*", path)
    return "".join(piece + group for piece, group in zip(pieces, [*groups, ""]))


def _rename(name, pairs):
    for source, target in pairs:
        match = _pattern(source).fullmatch(name)
        if match:
            # The named group is the last one.
            rest = match.group("rest")
            return _fill(target, match.groups()[:-1]) + (f".{rest}" if rest else "")
    return name


def to_diffusers(name, rules):
    return _rename(name, rules)


def from_diffusers(name, rules):
    return _rename(name, [(ours, theirs) for theirs, ours in rules])


def add_inner(name):
    """mlx-rs keeps the packed weight and the layer's bias one level deeper; scales and biases stay."""
    return re.sub(r"\.(weight|bias)$", r".inner.\1", name)


def strip_inner(name):
    return re.sub(r"\.inner\.(weight|bias)$", r".\1", name)


def strip_prefix(names, prefix):
    """A single file may carry the prefix on all its keys, or be a checkpoint of several models of which one has it."""
    if any(name.startswith(prefix) for name in names):
        return {name[len(prefix) :]: name for name in names if name.startswith(prefix)}
    return {name: name for name in names}
