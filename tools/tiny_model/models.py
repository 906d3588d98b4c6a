"""Transformer and text encoder: official classes, small configurations."""
import torch
from diffusers import QwenImageTransformer2DModel
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from tools.tiny_model.tokenizer import VOCABULARY


def make_text_encoder(text_dim, tokenizer):
    def token_id(token):
        return tokenizer.convert_tokens_to_ids(token)

    text_config = dict(
        vocab_size=VOCABULARY,
        hidden_size=text_dim,
        intermediate_size=2 * text_dim,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        rope_theta=1000000.0,
        tie_word_embeddings=True,
        use_sliding_window=False,
        rope_scaling={"type": "mrope", "rope_type": "default", "mrope_section": [4, 6, 6]},
        bos_token_id=token_id("<|endoftext|>"),
        eos_token_id=token_id("<|im_end|>"),
    )
    vision_config = dict(
        depth=2,
        hidden_size=64,
        intermediate_size=64,
        num_heads=2,
        out_hidden_size=text_dim,
        patch_size=14,
        spatial_merge_size=2,
        temporal_patch_size=2,
        window_size=112,
        fullatt_block_indexes=[1],
        tokens_per_second=2,
        in_channels=3,
    )
    config = Qwen2_5_VLConfig(
        text_config=text_config,
        vision_config=vision_config,
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    text_encoder = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():
        text_encoder.model.language_model.embed_tokens.weight.normal_(0, 0.5)
    return text_encoder


def make_transformer(layers, heads, text_dim):
    transformer = QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=64,
        out_channels=16,
        num_layers=layers,
        attention_head_dim=32,
        num_attention_heads=heads,
        joint_attention_dim=text_dim,
        axes_dims_rope=(8, 12, 12),
    )
    # adaLN-zero start: every block begins as the identity.
    modulations = [transformer.proj_out, transformer.norm_out.linear]
    for block in transformer.transformer_blocks:
        modulations += [block.img_mod[1], block.txt_mod[1]]
    for linear in modulations:
        torch.nn.init.zeros_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
    return transformer
