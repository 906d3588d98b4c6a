"""Bugs around the transformer: prompt and text encoder, schedule, guidance, packing, VAE."""

import torch
from torch import nn

from tools.planted_bugs.planting import BEHIND_A_MATRIX, Bug, Edit
from tools.planted_bugs.transformer_bugs import bug, identity, modules, set_value, weights

PIPELINE = "diffusers.pipelines.qwenimage.pipeline_qwenimage:QwenImagePipeline"
CALL = f"{PIPELINE}.__call__"
PROMPT = f"{PIPELINE}._get_qwen_prompt_embeds"
SCHEDULER = "diffusers.schedulers.scheduling_flow_match_euler_discrete:FlowMatchEulerDiscreteScheduler"
STEP = f"{SCHEDULER}.step"
TEXT = "transformers.models.qwen2_5_vl.modeling_qwen2_5_vl"
VAE = "diffusers.models.autoencoders.autoencoder_kl_qwenimage"
LAYER = "text_encoder/model.language_model.layers.0"
LANGUAGE = "text_encoder.model.language_model"

RESCALED = "noise_pred = comb_pred * (cond_norm / noise_norm)"
COMBINED = "comb_pred = neg_noise_pred + true_cfg_scale * (noise_pred - neg_noise_pred)"
STEPPED = "prev_sample = sample + dt * model_output"


def scheduler(name, value):
    return lambda pipe: pipe.scheduler.register_to_config(**{name: value})


def rope_theta(pipe):
    rotary = pipe.text_encoder.model.language_model.rotary_emb
    count = rotary.inv_freq.numel()
    rotary.inv_freq = 1.0 / (10000 ** (torch.arange(count).float() / count))


def not_causal(pipe):
    for layer in pipe.text_encoder.model.language_model.layers:
        layer.self_attn.is_causal = False


def bilinear(pipe):
    for module in pipe.vae.modules():
        if isinstance(module, nn.Upsample):
            module.mode = "bilinear"


PROMPTS = (
    bug(
        "embeddings-shifted",
        "text_encoder/model.language_model.embed_tokens",
        "off_by_one_sequence",
        change=modules(f"{LANGUAGE}.embed_tokens", lambda m: ShiftedEmbedding(m)),
    ),
    bug("template-off-by-one", "prompt_embeds", "sequence_window", PROMPT, "e[drop_idx:]", "e[drop_idx - 1 :]"),
    bug("template-kept", "prompt_embeds", "sequence_window", PROMPT, "e[drop_idx:]", "e"),
    bug("layer-before-last", "prompt_embeds", "earlier_layer", PROMPT, "hidden_states[-1]", "hidden_states[-2]"),
    bug("text-norm-epsilon", f"{LAYER}.input_layernorm", "norm_epsilon", change=set_value(f"{LANGUAGE}.layers.*.input_layernorm", "variance_epsilon", 1e-2)),
    bug(
        "text-norm-without-weight",
        f"{LAYER}.post_attention_layernorm",
        ("missing_norm_weight", "channel_factor"),
        change=weights(f"{LANGUAGE}.layers.*.post_attention_layernorm", lambda m: m.weight.fill_(1)),
    ),
    bug("text-final-norm-missing", "text_encoder/model.language_model.norm", "missing_norm", change=identity(f"{LANGUAGE}.norm")),
    bug(
        "text-rope-interleaved",
        f"{LAYER}.self_attn.o_proj",
        BEHIND_A_MATRIX,
        f"{TEXT}:rotate_half",
        "x1 = x[..., : x.shape[-1] // 2]",
        "return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)\n    x1 = x",
    ),
    bug("text-rope-theta", f"{LAYER}.self_attn.o_proj", BEHIND_A_MATRIX, change=rope_theta),
    bug("text-rope-forgotten", f"{LAYER}.self_attn.o_proj", BEHIND_A_MATRIX, f"{TEXT}:apply_rotary_pos_emb", "return q_embed, k_embed", "return q, k"),
    bug("text-rope-backwards", f"{LAYER}.self_attn.o_proj", BEHIND_A_MATRIX, f"{TEXT}:rotate_half", "(-x2, x1)", "(x2, -x1)"),
    bug("text-not-causal", f"{LAYER}.self_attn.o_proj", BEHIND_A_MATRIX, f"{TEXT}:Qwen2_5_VLAttention.forward", "dropout=0.0", "is_causal=False, dropout=0.0"),
    bug(
        "text-heads-repeated-in-turns",
        f"{LAYER}.self_attn.o_proj",
        BEHIND_A_MATRIX,
        f"{TEXT}:Qwen2_5_VLAttention.forward",
        "attn_output, attn_weights = attention_interface(",
        "n, self.num_key_value_groups = self.num_heads // self.num_key_value_heads, 1\n"
        "    key_states, value_states = (t.repeat(1, n, 1, 1) for t in (key_states, value_states))\n"
        "    attn_output, attn_weights = attention_interface(",
    ),
    bug("text-scale-missing", f"{LAYER}.self_attn.o_proj", BEHIND_A_MATRIX, change=set_value(f"{LANGUAGE}.layers.*.self_attn", "scaling", 1.0)),
    bug(
        "text-gate-and-up-exchanged",
        f"{LAYER}.mlp.down_proj",
        BEHIND_A_MATRIX,
        f"{TEXT}:Qwen2MLP.forward",
        "self.act_fn(self.gate_proj(x)) * self.up_proj(x)",
        "self.gate_proj(x) * self.act_fn(self.up_proj(x))",
    ),
    bug("text-gelu", f"{LAYER}.mlp.down_proj", BEHIND_A_MATRIX, change=set_value(f"{LANGUAGE}.layers.*.mlp", "act_fn", nn.GELU())),
    bug(
        "text-residual-missing",
        f"{LAYER}",
        ("missing_residual", "carries_other_tensor"),
        f"{TEXT}:Qwen2_5_VLDecoderLayer.forward",
        "hidden_states = self.mlp(hidden_states)\n    hidden_states = residual + hidden_states",
        "hidden_states = self.mlp(hidden_states)",
    ),
    bug("text-bias-forgotten", f"{LAYER}.self_attn.q_proj", "missing_bias", change=weights(f"{LANGUAGE}.layers.*.self_attn.q_proj", lambda m: m.bias.zero_())),
)


class ShiftedEmbedding(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.weight = embedding.weight

    def forward(self, ids):
        return nn.functional.embedding(torch.cat([ids[:, :1], ids[:, :-1]], dim=1), self.weight)


LOOP = (
    bug(
        "packed-otherwise",
        "initial_latents_packed",
        "regrouped_channels",
        f"{PIPELINE}._pack_latents",
        "permute(0, 2, 4, 1, 3, 5)",
        "permute(0, 2, 4, 3, 5, 1)",
    ),
    bug(
        "unpacked-otherwise",
        "vae/pre_decode_latents",
        (
            "unpacked_otherwise",
            "regrouped_channels",
        ),
        f"{PIPELINE}._unpack_latents",
        "latents = latents.view(batch_size, height // 2, width // 2, channels // 4, 2, 2)\n    latents = latents.permute(0, 3, 1, 4, 2, 5)",
        "latents = latents.view(batch_size, height // 2, width // 2, 2, 2, channels // 4)\n    latents = latents.permute(0, 5, 1, 3, 2, 4)",
    ),
    bug("not-denormalized", "vae/pre_decode_latents", "channel_factor_and_offset", CALL, "latents = latents / latents_std + latents_mean", "pass"),
    bug(
        "normalized-again",
        "vae/pre_decode_latents",
        ("channel_factor_and_offset",),
        CALL,
        "latents = latents / latents_std + latents_mean",
        "latents = (latents - latents_mean) * latents_std",
    ),
    bug(
        "mean-forgotten",
        "vae/pre_decode_latents",
        ("missing_bias", "channel_factor_and_offset"),
        CALL,
        "latents = latents / latents_std + latents_mean",
        "latents = latents / latents_std",
    ),
    bug("no-dynamic-shift", "sigmas", "sigmas_not_shifted", change=scheduler("use_dynamic_shifting", False)),
    bug("no-terminal-shift", "sigmas", "sigmas_not_stretched", change=scheduler("shift_terminal", None)),
    Bug(
        "sigmas-without-zero",
        "sigmas",
        ("sequence_window",),
        (
            Edit(f"{SCHEDULER}.set_timesteps", "sigmas = torch.cat([sigmas, torch.zeros(1, device=sigmas.device)])", "pass"),
            Edit(STEP, "self.sigmas[sigma_idx + 1]", "self.sigmas[min(sigma_idx + 1, len(self.sigmas) - 1)]"),
        ),
    ),
    bug(
        "timesteps-rounded",
        "timesteps",
        "time_rounded",
        f"{SCHEDULER}.set_timesteps",
        "timesteps = sigmas * self.config.num_train_timesteps\n\n",
        "timesteps = (sigmas * self.config.num_train_timesteps).round()\n\n",
    ),
    bug("guidance-not-rescaled", "noise_pred_step0", "guidance_not_rescaled", CALL, RESCALED, "noise_pred = comb_pred"),
    bug(
        "guidance-rescaled-as-whole",
        "noise_pred_step0",
        "guidance_rescaled_as_whole",
        CALL,
        RESCALED,
        "noise_pred = comb_pred * (torch.norm(noise_pred) / torch.norm(comb_pred))",
    ),
    bug("guidance-from-prompt", "noise_pred_step0", "guidance_from_prompt", CALL, COMBINED, COMBINED.replace("neg_noise_pred + true", "noise_pred + true")),
    bug(
        "guidance-prompts-exchanged",
        "noise_pred_step0",
        "swapped_prompts",
        CALL,
        COMBINED,
        "comb_pred = noise_pred + true_cfg_scale * (neg_noise_pred - noise_pred)",
    ),
    bug("guidance-missing", "noise_pred_step0", "missing_guidance", CALL, RESCALED, "pass"),
    bug("velocity-sign", "noise_pred_step0", "sign", CALL, RESCALED, "noise_pred = -comb_pred * (cond_norm / noise_norm)"),
    bug("step-backwards", "packed_latents_step1", "wrong_step_sign", STEP, STEPPED, "prev_sample = sample - dt * model_output"),
    bug("step-doubled", "packed_latents_step1", "wrong_step_length", STEP, STEPPED, "prev_sample = sample + 2 * dt * model_output"),
    bug("step-by-sigma", "packed_latents_step1", "wrong_step_length", STEP, STEPPED, "prev_sample = sample - sigma * model_output"),
    bug("latents-not-updated", "packed_latents_step1", "latents_not_updated", STEP, STEPPED, "prev_sample = sample"),
    bug(
        "negative-is-prompt",
        "negative_input_ids",
        "",
        CALL,
        "prompt=negative_prompt,\n            prompt_embeds=",
        "prompt=prompt,\n            prompt_embeds=",
    ),
)

CONV_FORWARD = f"{VAE}:QwenImageCausalConv3d.forward"
DECODER = "vae/decoder"
AUTOENCODER = (
    bug(
        "nhwc-read-as-nchw",
        f"{DECODER}.conv_in",
        ("strided_view",),
        f"{VAE}:QwenImageDecoder3d.forward",
        "## conv1",
        "x = x.permute(0, 2, 3, 4, 1).reshape(x.shape)",
    ),
    bug(
        "decoder-replicate-padding",
        f"{DECODER}.conv_in",
        "wrong_padding",
        CONV_FORWARD,
        "x = F.pad(x, padding)",
        "x = F.pad(F.pad(x, [*padding[:4], 0, 0], mode='replicate'), [0, 0, 0, 0, *padding[4:]])",
    ),
    bug(
        "decoder-not-causal",
        f"{DECODER}.conv_in",
        "only_bias",
        CONV_FORWARD,
        "x = F.pad(x, padding)",
        "x = F.pad(x, [*padding[:4], padding[4] // 2, padding[4] // 2])",
    ),
    bug(
        "kernel-transposed",
        f"{DECODER}.conv_in",
        BEHIND_A_MATRIX,
        change=weights("vae.decoder.conv_in", lambda m: m.weight.copy_(m.weight.transpose(-1, -2).clone())),
    ),
    bug(
        "norm-without-root", f"{DECODER}.mid_block.resnets.0.norm1", "constant_factor", change=set_value("vae.decoder.mid_block.resnets.*.norm1", "scale", 1.0)
    ),
    bug(
        "norm-over-space",
        f"{DECODER}.mid_block.resnets.0.norm1",
        ("wrong_norm", "norm_over_space"),
        f"{VAE}:QwenImageRMS_norm.forward",
        "dim=(1 if self.channel_first else -1)",
        "dim=(3 if self.channel_first else -1)",
    ),
    bug(
        "relu-for-silu",
        f"{DECODER}.mid_block.resnets.0.conv1",
        BEHIND_A_MATRIX,
        f"{VAE}:QwenImageResidualBlock.forward",
        "x = self.norm1(x)\n    x = self.nonlinearity(x)",
        "x = self.norm1(x)\n    x = torch.relu(x)",
    ),
    bug(
        "shortcut-missing",
        f"{DECODER}.mid_block.resnets.0",
        ("missing_residual", "carries_other_tensor"),
        f"{VAE}:QwenImageResidualBlock.forward",
        "return x + h",
        "return x",
    ),
    bug(
        "attention-residual-missing",
        f"{DECODER}.mid_block.attentions.0",
        ("missing_residual", "carries_other_tensor"),
        f"{VAE}:QwenImageAttentionBlock.forward",
        "return x + identity",
        "return x",
    ),
    bug(
        "attention-scale-missing",
        f"{DECODER}.mid_block.attentions.0.proj",
        BEHIND_A_MATRIX,
        f"{VAE}:QwenImageAttentionBlock.forward",
        "(q, k, v)",
        "(q, k, v, scale=1.0)",
    ),
    bug(
        "attention-parts-exchanged",
        f"{DECODER}.mid_block.attentions.0.proj",
        BEHIND_A_MATRIX,
        f"{VAE}:QwenImageAttentionBlock.forward",
        "q, k, v = qkv",
        "q, v, k = qkv",
    ),
    bug("upsampled-bilinear", f"{DECODER}.up_blocks.0.upsamplers.0.resample.1", BEHIND_A_MATRIX, change=bilinear),
    bug(
        "picture-in-zero-to-one",
        "image",
        "factor_and_offset",
        f"{VAE}:AutoencoderKLQwenImage._decode",
        "out = torch.clamp(out, min=-1.0, max=1.0)",
        "out = torch.clamp(out, min=-1.0, max=1.0) / 2 + 0.5",
    ),
    bug(
        "picture-bgr",
        "image",
        "swapped_channels",
        f"{VAE}:AutoencoderKLQwenImage._decode",
        "out = torch.clamp(out, min=-1.0, max=1.0)",
        "out = torch.clamp(out, min=-1.0, max=1.0).flip(1)",
    ),
    bug(
        "picture-mirrored",
        "image",
        "flipped_axis",
        f"{VAE}:AutoencoderKLQwenImage._decode",
        "out = torch.clamp(out, min=-1.0, max=1.0)",
        "out = torch.clamp(out, min=-1.0, max=1.0).flip(3)",
    ),
    bug("last-conv-bias-forgotten", f"{DECODER}.conv_out", "missing_bias", change=weights("vae.decoder.conv_out", lambda m: m.bias.zero_())),
)
BUGS = PROMPTS + LOOP + AUTOENCODER
