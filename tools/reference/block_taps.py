"""Tensors inside a transformer block that no module returns, recorded without editing the installed package."""

import torch
from diffusers.models.transformers import transformer_qwenimage

import attention_weights
from checkpoint_choice import ON_REQUEST

# The order in which QwenImageTransformerBlock.forward and its attention processor make them.
MODULATED = (("img_modulated1", "img_gate1"), ("txt_modulated1", "txt_gate1"))
MODULATED += (("img_modulated2", "img_gate2"), ("txt_modulated2", "txt_gate2"))
ROTATED = ("img_query_rope", "img_key_rope", "txt_query_rope", "txt_key_rope")


class BlockTaps:
    """Follows the block that is running: rotary embedding is a plain function that knows no block."""

    def __init__(self, transformer, recorder):
        self._recorder = recorder
        self._path = None
        self._modulated = iter(())
        self._rotated = iter(())
        self._img_attention = None
        self._joint = None
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
        block.attn.register_forward_pre_hook(self._enter_attention, with_kwargs=True)
        block.attn.register_forward_hook(self._leave_attention)
        block.attn.to_v.register_forward_hook(self._keep_value("img_value"))
        block.attn.add_v_proj.register_forward_hook(self._keep_value("txt_value"))
        # The second norm reads the stream right after the gated attention residual.
        block.img_norm2.register_forward_pre_hook(record_input("img_attn_residual"))
        block.txt_norm2.register_forward_pre_hook(record_input("txt_attn_residual"))
        # The output projections read the two halves of the joint attention, the image's first.
        block.attn.to_out[0].register_forward_pre_hook(self._keep_img_attention)
        block.attn.to_add_out.register_forward_pre_hook(self._record_attention)

        original = block._modulate

        def modulate(x, mod_params, index=None):
            modulated, gate = original(x, mod_params, index)
            modulated_name, gate_name = next(self._modulated)
            self._record(modulated_name, modulated)
            # One gate for all tokens comes as [1, 1, dim]; where each token has its own, as [1, tokens, dim].
            self._record(gate_name, gate if index is not None else gate.squeeze(1))
            return modulated, gate

        block._modulate = modulate

    def _keep_value(self, name):
        def hook(_module, _args, output):
            if self._joint is not None:
                self._joint[name] = output

        return hook

    def _keep_img_attention(self, _module, args):
        self._img_attention = args[0]

    def _record_attention(self, _module, args):
        # The joint sequence is [text, image].
        joint = torch.cat([args[0], self._img_attention], dim=1)
        self._img_attention = None
        if self._joint is not None:
            weights = attention_weights.compute(self._joint)
            attention_weights.check(weights, self._joint, joint, self._path)
            self._recorder.record(f"{self._path}:attn_weights", weights, ON_REQUEST)
        self._record("attn_output", joint)

    def _enter_attention(self, _module, _args, kwargs):
        requested = self._recorder.wants(f"{self._path}:attn_weights", ON_REQUEST)
        self._joint = {"mask": kwargs["encoder_hidden_states_mask"]} if requested else None

        def rotate(x, freqs_cis, **kwargs):
            rotated = self._rotate(x, freqs_cis, **kwargs)
            name = next(self._rotated)
            self._record(name, rotated)
            if self._joint is not None:
                self._joint[name] = rotated
            return rotated

        transformer_qwenimage.apply_rotary_emb_qwen = rotate

    def _leave_attention(self, _module, _args, _output):
        transformer_qwenimage.apply_rotary_emb_qwen = self._rotate
        self._joint = None
