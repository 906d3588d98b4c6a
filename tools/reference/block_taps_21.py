"""Tensors inside a block of the 2.1 transformer that no module returns, recorded without editing the installed package."""

import torch
from diffusers.models.transformers import transformer_qwenimage21

from tools.reference import attention_weights
from tools.reference.checkpoint_choice import ON_REQUEST

# The order in which QwenImage21TransformerBlock.forward and its attention processor make them.
MODULATED = (("modulated1", "gate1"), ("modulated2", "gate2"))
ROTATED = ("query_rope", "key_rope")


class BlockTaps21:
    """Follows the block that is running: rotary embedding and attention are plain functions that know no block."""

    def __init__(self, transformer, recorder):
        self._recorder = recorder
        self._path = None
        self._modulated = iter(())
        self._rotated = iter(())
        self._weights = []
        self._rotate = transformer_qwenimage21.apply_rotary_emb_qwen
        self._attend = transformer_qwenimage21.dispatch_attention_fn
        # Text and pictures as one sequence: no module returns it.
        transformer.transformer_blocks[0].register_forward_pre_hook(
            lambda _module, _args, kwargs: recorder.record(":joint", kwargs["hidden_states"]), with_kwargs=True
        )
        for index, block in enumerate(transformer.transformer_blocks):
            self._attach(f"transformer_blocks.{index}", block)

    def _record(self, name, tensor):
        self._recorder.record(f"{self._path}:{name}", tensor)

    def _attach(self, path, block):
        def enter(_module, _args):
            self._path = path
            self._modulated = iter(MODULATED)
            self._rotated = iter(ROTATED)

        block.register_forward_pre_hook(enter)
        # Only while a tapped attention runs: another pipeline in this process must find the package untouched.
        block.attn.register_forward_pre_hook(self._enter_attention)
        block.attn.register_forward_hook(self._leave_attention)
        # The projection reads all segments' outputs together, the second norm the stream after the gated attention.
        block.attn.to_out[0].register_forward_pre_hook(lambda _module, args: self._record("attn_output", args[0]))
        block.img_norm2.register_forward_pre_hook(lambda _module, args: self._record("attn_residual", args[0]))

        original = block._modulate

        def modulate(hidden_states, mod_params, target_token_mask):
            modulated, gate = original(hidden_states, mod_params, target_token_mask)
            modulated_name, gate_name = next(self._modulated)
            self._record(modulated_name, modulated)
            # What the branch is multiplied by: a gate for each row, [1, rows, dim], behind its tanh.
            self._record(gate_name, gate.tanh())
            return modulated, gate

        block._modulate = modulate

    def _rotate_and_record(self, x, freqs_cis, **options):
        rotated = self._rotate(x, freqs_cis, **options)
        self._record(next(self._rotated), rotated)
        return rotated

    def _attend_and_record(self, query, key, value, **options):
        """One call for each segment of the prefix, over the keys up to its end, and one for the target."""
        output = self._attend(query, key, value, **options)
        if self._recorder.wants(f"{self._path}:attn_weights", ON_REQUEST):
            weights = attention_weights.compute(query, key, options["attn_mask"])
            attention_weights.check(weights, value, output, self._path)
            self._weights.append(weights)
        return output

    def _enter_attention(self, _module, _args):
        transformer_qwenimage21.apply_rotary_emb_qwen = self._rotate_and_record
        transformer_qwenimage21.dispatch_attention_fn = self._attend_and_record

    def _leave_attention(self, _module, _args, _output):
        transformer_qwenimage21.apply_rotary_emb_qwen = self._rotate
        transformer_qwenimage21.dispatch_attention_fn = self._attend
        if self._weights:
            # Keys behind a segment's end have no weight.
            keys = self._weights[-1].shape[-1]
            rows = [torch.nn.functional.pad(part, (0, keys - part.shape[-1])) for part in self._weights]
            self._recorder.record(f"{self._path}:attn_weights", torch.cat(rows, dim=2), ON_REQUEST)
            self._weights = []
