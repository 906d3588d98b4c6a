"""Tensors inside a transformer block that no module returns, recorded without editing the installed package."""

import torch
from diffusers.models.transformers import transformer_qwenimage

# The order in which QwenImageTransformerBlock.forward and its attention processor make them.
MODULATED = ("img_modulated1", "txt_modulated1", "img_modulated2", "txt_modulated2")
ROTATED = ("img_query_rope", "img_key_rope", "txt_query_rope", "txt_key_rope")


class BlockTaps:
    """Follows the block that is running: rotary embedding is a plain function that knows no block."""

    def __init__(self, transformer, recorder):
        self._recorder = recorder
        self._path = None
        self._modulated = iter(())
        self._rotated = iter(())
        self._img_attention = None
        self._rotate = transformer_qwenimage.apply_rotary_emb_qwen
        for index, block in enumerate(transformer.transformer_blocks):
            self._attach(f"transformer_blocks.{index}", block)

    def _record(self, name, tensor):
        self._recorder.record(f"{self._path}:{name}", tensor)

    def _attach(self, path, block):
        def enter(_module, _args):
            self._path = path
            self._modulated = iter(MODULATED)
            self._rotated = iter(ROTATED)

        def record_input(name):
            return lambda _module, args: self._record(name, args[0])

        block.register_forward_pre_hook(enter)
        # Only while a tapped attention runs: another pipeline in this process must find the package untouched.
        block.attn.register_forward_pre_hook(self._wrap_rotary)
        block.attn.register_forward_hook(self._unwrap_rotary)
        # The second norm reads the stream right after the gated attention residual.
        block.img_norm2.register_forward_pre_hook(record_input("img_attn_residual"))
        block.txt_norm2.register_forward_pre_hook(record_input("txt_attn_residual"))
        # The output projections read the two halves of the joint attention, the image's first.
        block.attn.to_out[0].register_forward_pre_hook(self._keep_img_attention)
        block.attn.to_add_out.register_forward_pre_hook(self._record_attention)

        original = block._modulate

        def modulate(x, mod_params, index=None):
            modulated, gate = original(x, mod_params, index)
            self._record(next(self._modulated), modulated)
            return modulated, gate

        block._modulate = modulate

    def _keep_img_attention(self, _module, args):
        self._img_attention = args[0]

    def _record_attention(self, _module, args):
        # The joint sequence is [text, image].
        joint = torch.cat([args[0], self._img_attention], dim=1)
        self._img_attention = None
        self._record("attn_output", joint)

    def _wrap_rotary(self, _module, _args):
        def rotate(x, freqs_cis, **kwargs):
            rotated = self._rotate(x, freqs_cis, **kwargs)
            self._record(next(self._rotated), rotated)
            return rotated

        transformer_qwenimage.apply_rotary_emb_qwen = rotate

    def _unwrap_rotary(self, _module, _args, _output):
        transformer_qwenimage.apply_rotary_emb_qwen = self._rotate
