"""Bugs of people who port the transformer, planted in diffusers' own."""

import torch
from torch import nn

from tools.planted_bugs.planting import BEHIND_A_MATRIX, Bug, Edit, replace_module

MODULE = "diffusers.models.transformers.transformer_qwenimage"
BLOCK = f"{MODULE}:QwenImageTransformerBlock.forward"
MODULATE = f"{MODULE}:QwenImageTransformerBlock._modulate"
ATTENTION = f"{MODULE}:QwenDoubleStreamAttnProcessor2_0.__call__"
ROTATE = f"{MODULE}:apply_rotary_emb_qwen"
ROPE = f"{MODULE}:QwenEmbedRope"
MODEL = f"{MODULE}:QwenImageTransformer2DModel.forward"
NORM_OUT = "diffusers.models.normalization:AdaLayerNormContinuous.forward"
PASS = "transformer/step000/"
FIRST = f"{PASS}transformer_blocks.0"

IMG_ATTENTION_ADDED = "hidden_states = hidden_states + img_gate1 * img_attn_output\n    encoder"
IMG_MLP_ADDED = "\n    hidden_states = hidden_states + img_gate2 * img_mlp_output"
TXT_MLP_ADDED = "encoder_hidden_states = encoder_hidden_states + txt_gate2 * txt_mlp_output"
MODULATED = "x * (1 + scale_result) + shift_result"
CHUNKS = "shift, scale, gate = mod_params.chunk(3, dim=-1)"
ROTATED = "x_rotated * freqs_cis).flatten(3)"


class Nothing(nn.Module):
    """As nn.Identity, which is not recorded."""

    def forward(self, x):
        return x


class RmsNorm(nn.Module):
    def __init__(self, norm, flatten=False, epsilon=None):
        super().__init__()
        self.weight = getattr(norm, "weight", None)
        self.epsilon = norm.eps if epsilon is None else epsilon
        self.flatten = flatten

    def forward(self, x):
        axes = (-1, -2) if self.flatten else (-1,)
        x = x * torch.rsqrt(x.pow(2).mean(axes, keepdim=True) + self.epsilon)
        return x if self.weight is None else x * self.weight


class LayerNorm(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm.eps

    def forward(self, x):
        return nn.functional.layer_norm(x, x.shape[-1:], self.weight, None, self.epsilon)


def modules(path, make):
    return lambda pipe: replace_module(pipe, path, make)


def identity(path):
    return modules(path, lambda _module: Nothing())


def weights(path, change):
    def edit(module):
        with torch.no_grad():
            change(module)
        return module

    return modules(path, edit)


def set_value(path, name, value):
    def edit(module):
        setattr(module, name, value)
        return module

    return modules(path, edit)


def bug(name, checkpoint, kinds, where=None, old=None, new=None, change=None):
    kinds = ((kinds,) if kinds else ()) if isinstance(kinds, str) else tuple(kinds)
    return Bug(name, checkpoint, kinds, (Edit(where, old, new),) if where else (), change)


def swap_weights(block, a, b):
    def change(pipe):
        attention = pipe.transformer.transformer_blocks[block].attn
        first, second = getattr(attention, a), getattr(attention, b)
        setattr(attention, a, second)
        setattr(attention, b, first)

    return change


def randomize(linear):
    generator = torch.Generator().manual_seed(1)
    linear.weight.copy_(torch.randn(linear.weight.shape, generator=generator) * 0.02)
    linear.bias.zero_()


def swap_halves(linear):
    linear.weight.copy_(torch.cat(linear.weight.chunk(2)[::-1]))
    linear.bias.copy_(torch.cat(linear.bias.chunk(2)[::-1]))


CONDITIONING = (
    bug("time-not-scaled", f"{PASS}time_text_embed.time_proj", "time_not_scaled", change=set_value("transformer.time_text_embed.time_proj", "scale", 1)),
    bug(
        "time-sine-first",
        f"{PASS}time_text_embed.time_proj",
        "swapped_halves",
        change=set_value("transformer.time_text_embed.time_proj", "flip_sin_to_cos", False),
    ),
    bug("txt-norm-missing", f"{PASS}txt_norm", "missing_norm", change=identity("transformer.txt_norm")),
    bug("txt-norm-layer-norm", f"{PASS}txt_norm", "wrong_norm", change=modules("transformer.txt_norm", LayerNorm)),
    bug("txt-norm-epsilon", f"{PASS}txt_norm", "norm_epsilon", change=set_value("transformer.txt_norm", "eps", 1e-2)),
    bug("modulation-without-silu", f"{FIRST}.img_mod.1", BEHIND_A_MATRIX, change=identity("transformer.transformer_blocks.*.img_mod.0")),
    bug("norm-out-halves-swapped", f"{PASS}norm_out.linear", "swapped_scale_shift", change=weights("transformer.norm_out.linear", swap_halves)),
    bug("norm-out-parts-swapped", f"{PASS}norm_out", "swapped_scale_shift", NORM_OUT, "scale, shift = torch", "shift, scale = torch"),
    bug("norm-out-without-one", f"{PASS}norm_out", "missing_one_plus_scale", NORM_OUT, "(1 + scale)", "scale"),
    bug("norm-out-without-silu", f"{PASS}norm_out.linear", BEHIND_A_MATRIX, NORM_OUT, "self.silu(conditioning_embedding)", "conditioning_embedding"),
)

MODULATION = (
    bug("parts-swapped", f"{FIRST}:img_modulated1", "swapped_scale_shift", MODULATE, CHUNKS, CHUNKS.replace("shift, scale", "scale, shift")),
    bug(
        "gate-first",
        f"{FIRST}:img_modulated1",
        "wrong_modulation_parts",
        MODULATE,
        CHUNKS,
        CHUNKS.replace("shift, scale, gate", "gate, shift, scale"),
    ),
    bug("without-one", f"{FIRST}:img_modulated1", "missing_one_plus_scale", MODULATE, MODULATED, "x * scale_result + shift_result"),
    bug("without-shift", f"{FIRST}:img_modulated1", "missing_shift", MODULATE, MODULATED, "x * (1 + scale_result)"),
    bug("halves-swapped", f"{FIRST}:img_modulated1", "wrong_modulation_half", BLOCK, "img_mod1, img_mod2 = img_mod", "img_mod2, img_mod1 = img_mod"),
    bug("txt-halves-swapped", f"{FIRST}:txt_modulated1", "wrong_modulation_half", BLOCK, "txt_mod1, txt_mod2 = txt_mod", "txt_mod2, txt_mod1 = txt_mod"),
    bug("without-norm", f"{FIRST}.img_norm1", "missing_norm", change=identity("transformer.transformer_blocks.*.img_norm1")),
    bug("rms-norm", f"{FIRST}.img_norm2", "wrong_norm", change=modules("transformer.transformer_blocks.*.img_norm2", RmsNorm)),
    bug("layer-norm-epsilon", f"{FIRST}.txt_norm2", "norm_epsilon", change=set_value("transformer.transformer_blocks.*.txt_norm2", "eps", 1e-2)),
    bug("gate-through-tanh", f"{FIRST}:img_attn_residual", "gate_through_tanh", BLOCK, "+ img_gate1 *", "+ torch.tanh(img_gate1) *"),
    bug("one-plus-gate", f"{FIRST}:txt_attn_residual", "one_plus_gate", BLOCK, "+ txt_gate1 *", "+ (1 + txt_gate1) *"),
    bug("missing-gate", f"{FIRST}:img", "missing_gate", BLOCK, "+ img_gate2 * img_mlp_output", "+ img_mlp_output"),
    bug("wrong-gate", f"{FIRST}:img", "wrong_gate", BLOCK, "+ img_gate2 * img_mlp_output", "+ img_gate1 * img_mlp_output"),
    bug("gates-exchanged", f"{FIRST}:img_attn_residual", "wrong_gate", BLOCK, "+ img_gate1 * img_attn", "+ txt_gate1 * img_attn"),
    bug(
        "missing-residual",
        f"{FIRST}:img_attn_residual",
        "missing_residual",
        BLOCK,
        "hidden_states = hidden_states + img_gate1 *",
        "hidden_states = img_gate1 *",
    ),
    bug("missing-txt-residual", f"{FIRST}:txt", "missing_residual", BLOCK, TXT_MLP_ADDED, "encoder_hidden_states = txt_gate2 * txt_mlp_output"),
    bug(
        "residual-of-the-norm",
        f"{FIRST}:img",
        "residual_from_norm",
        BLOCK,
        "hidden_states = hidden_states + img_gate2",
        "hidden_states = img_normed2 + img_gate2",
    ),
    bug("clamped", f"{FIRST}:img", "clamped", BLOCK, "# Clip to prevent overflow for fp16", "hidden_states = hidden_states.clip(-0.5, 0.5)"),
    bug("bf16-stream", f"{FIRST}:img", "bf16_rounding", BLOCK, "# Clip to prevent overflow for fp16", "hidden_states = hidden_states.bfloat16().float()"),
    bug("gelu-by-erf", f"{FIRST}.img_mlp.net.0", "wrong_activation", change=set_value("transformer.transformer_blocks.*.img_mlp.net.0", "approximate", "none")),
    bug(
        "silu-for-gelu",
        f"{FIRST}.txt_mlp.net.0",
        "wrong_activation",
        change=set_value("transformer.transformer_blocks.*.txt_mlp.net.0", "gelu", torch.nn.functional.silu),
    ),
    bug("relu-for-gelu", f"{FIRST}.img_mlp.net.0", "wrong_activation", change=set_value("transformer.transformer_blocks.*.img_mlp.net.0", "gelu", torch.relu)),
    bug(
        "mlp-bias-forgotten",
        f"{FIRST}.img_mlp.net.2",
        "missing_bias",
        change=weights("transformer.transformer_blocks.*.img_mlp.net.2", lambda m: m.bias.zero_()),
    ),
    bug(
        "mlp-zero",
        f"{FIRST}.txt_mlp.net.2",
        "all_zero",
        change=weights("transformer.transformer_blocks.0.txt_mlp.net.2", lambda m: (m.weight.zero_(), m.bias.zero_())),
    ),
    bug("proj-out-sign", f"{PASS}proj_out", "sign", change=weights("transformer.proj_out", lambda m: (m.weight.neg_(), m.bias.neg_()))),
)

JOIN_TEXT_FIRST = "joint_{0} = torch.cat([txt_{0}, img_{0}], dim=1)"
ATTENTION_BUGS = (
    bug("query-is-key", f"{FIRST}.attn.to_q", "carries_other_tensor", change=swap_weights(0, "to_q", "to_k")),
    bug("key-untrained", f"{FIRST}.attn.to_k", "looks_untrained", change=weights("transformer.transformer_blocks.0.attn.to_k", randomize)),
    bug(
        "query-transposed",
        f"{FIRST}.attn.to_q",
        "looks_untrained",
        change=weights("transformer.transformer_blocks.*.attn.to_q", lambda m: m.weight.copy_(m.weight.T.clone())),
    ),
    bug("value-bias-forgotten", f"{FIRST}.attn.to_v", "missing_bias", change=weights("transformer.transformer_blocks.*.attn.to_v", lambda m: m.bias.zero_())),
    bug(
        "heads-innermost",
        f"{FIRST}.attn.norm_q",
        "regrouped_channels",
        ATTENTION,
        "img_query = img_query.unflatten(-1, (-1, head_dim))",
        "img_query = img_query.unflatten(-1, (head_dim, -1)).transpose(-1, -2).contiguous()",
    ),
    bug("query-norm-missing", f"{FIRST}.attn.norm_q", "missing_norm", change=identity("transformer.transformer_blocks.*.attn.norm_q")),
    bug(
        "key-norm-over-heads",
        f"{FIRST}.attn.norm_k",
        "norm_over_all_heads",
        change=modules("transformer.transformer_blocks.*.attn.norm_k", lambda m: RmsNorm(m, flatten=True)),
    ),
    bug(
        "norms-weight-forgotten",
        f"{FIRST}.attn.norm_added_q",
        "missing_norm_weight",
        change=weights("transformer.transformer_blocks.*.attn.norm_added_q", lambda m: m.weight.fill_(1)),
    ),
    bug("norm-epsilon", f"{FIRST}.attn.norm_q", "norm_epsilon", change=set_value("transformer.transformer_blocks.*.attn.norm_q", "eps", 1e-2)),
    Bug(
        "rope-in-halves",
        f"{FIRST}:img_query_rope",
        ("rope_pairing",),
        (
            Edit(ROTATE, "torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))", "torch.complex(*x.float().chunk(2, dim=-1))"),
            Edit(ROTATE, "torch.view_as_real(x_rotated * freqs_cis).flatten(3)", "torch.cat([(x_rotated * freqs_cis).real, (x_rotated * freqs_cis).imag], -1)"),
        ),
    ),
    bug("rope-forgotten", f"{FIRST}:img_query_rope", "rope_not_applied", ROTATE, ROTATED, "x_rotated * 1).flatten(3)"),
    bug(
        "rope-of-text-forgotten",
        f"{FIRST}:txt_query_rope",
        "rope_not_applied",
        ATTENTION,
        "txt_query = apply_rotary_emb_qwen(txt_query, txt_freqs",
        "txt_query = apply_rotary_emb_qwen(txt_query, torch.ones_like(txt_freqs)",
    ),
    bug("rope-backwards", f"{FIRST}:img_query_rope", "rope_direction", ROTATE, ROTATED, "x_rotated * freqs_cis.conj()).flatten(3)"),
    bug(
        "rope-theta",
        f"{FIRST}:img_query_rope",
        "rope_angles",
        change=lambda pipe: pipe.transformer.pos_embed.__init__(1000000, pipe.transformer.pos_embed.axes_dim, True),
    ),
    bug(
        "rope-axes-order",
        f"{FIRST}:img_query_rope",
        "rope_angles",
        f"{ROPE}._compute_video_freqs",
        "[freqs_frame, freqs_height, freqs_width]",
        "[freqs_height, freqs_width, freqs_frame]",
    ),
    bug(
        "rope-rows-and-columns",
        f"{FIRST}:img_query_rope",
        ("rope_angles", "rope_positions"),
        f"{ROPE}._compute_video_freqs",
        "[freqs_frame, freqs_height, freqs_width]",
        "[freqs_frame, freqs_width, freqs_height]",
    ),
    bug("rope-not-centred", f"{FIRST}:img_query_rope", "rope_positions", change=set_value("transformer.pos_embed", "scale_rope", False)),
    bug(
        "rope-text-from-zero",
        f"{FIRST}:txt_query_rope",
        "rope_positions",
        f"{ROPE}.forward",
        "pos_freqs_device[max_vid_index : max_vid_index + max_txt_seq_len_int, ...]",
        "pos_freqs_device[:max_txt_seq_len_int, ...]",
    ),
    bug(
        "rope-frame-one",
        f"{FIRST}:img_query_rope",
        "rope_positions",
        f"{ROPE}.forward",
        "frame, height, width, idx, device)",
        "frame, height, width, idx + 1, device)",
    ),
    bug(
        "rope-rows-from-one",
        f"{FIRST}:img_query_rope",
        ("rope_positions", "rope_angles"),
        f"{ROPE}._compute_video_freqs",
        "freqs_pos[1][: height // 2]",
        "freqs_pos[1][1 : height // 2 + 1]",
    ),
    bug("scale-missing", f"{FIRST}:attn_output", "missing_attention_scale", ATTENTION, "dropout_p=0.0,", "scale=1.0,"),
    bug("scale-of-model", f"{FIRST}:attn_output", "wrong_attention_scale", ATTENTION, "dropout_p=0.0,", "scale=attn.inner_dim ** -0.5,"),
    bug("causal", f"{FIRST}:attn_output", "causal_attention", ATTENTION, "is_causal=False,", "is_causal=True,"),
    Bug(
        "picture-first",
        f"{FIRST}:attn_output",
        ("swapped_text_image",),
        tuple(
            Edit(ATTENTION, JOIN_TEXT_FIRST.format(what), f"joint_{what} = torch.cat([img_{what}, txt_{what}], dim=1)") for what in ("query", "key", "value")
        ),
    ),
    bug(
        "values-picture-first",
        f"{FIRST}:attn_output",
        ("swapped_values",),
        ATTENTION,
        JOIN_TEXT_FIRST.format("value"),
        "joint_value = torch.cat([img_value, txt_value], dim=1)",
    ),
    bug(
        "not-joint",
        f"{FIRST}:attn_output",
        "attention_not_joint",
        ATTENTION,
        "attn_mask=attention_mask,",
        "attn_mask=torch.block_diag(torch.ones(seq_txt, seq_txt), torch.ones(img_query.shape[1], img_query.shape[1])).bool(),",
    ),
    bug(
        "output-picture-first",
        f"{FIRST}.attn.to_out.0",
        BEHIND_A_MATRIX,
        ATTENTION,
        "joint_hidden_states[:, seq_txt:, :]",
        "joint_hidden_states[:, :-seq_txt, :]",
    ),
    bug(
        "output-bias-forgotten",
        f"{FIRST}.attn.to_add_out",
        "missing_bias",
        change=weights("transformer.transformer_blocks.*.attn.to_add_out", lambda m: m.bias.zero_()),
    ),
)
BUGS = CONDITIONING + MODULATION + ATTENTION_BUGS
