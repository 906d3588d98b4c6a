"""Tensors inside a transformer block that no module returns, recorded without editing the installed package."""

from diffusers.models.transformers import transformer_qwenimage

from tools.reference import attention_weights
from tools.reference.checkpoint_choice import ON_REQUEST

# The order in which QwenImageTransformerBlock.forward and its attention processor make them.
MODULATED = (
    ("img_modulated1", "img_gate1"),
    ("txt_modulated1", "txt_gate1"),
    ("img_modulated2", "img_gate2"),
    ("txt_modulated2", "txt_gate2"),
)
ROTATED = ("img_query_rope", "img_key_rope", "txt_query_rope", "txt_key_rope")


class BlockTaps:
    """Follows the block that is running: rotary embedding and attention are plain functions that know no block."""

    def __init__(self, transformer, recorder):
        self._recorder = recorder
        self._path = None
        self._modulated = iter(())
        self._rotated = iter(())
        self._rotate = transformer_qwenimage.apply_rotary_emb_qwen
        self._attend = transformer_qwenimage.dispatch_attention_fn
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
        block.attn.register_forward_pre_hook(self._enter_attention)
        block.attn.register_forward_hook(self._leave_attention)
        # The second norm reads the stream right after the gated attention residual.
        block.img_norm2.register_forward_pre_hook(record_input("img_attn_residual"))
        block.txt_norm2.register_forward_pre_hook(record_input("txt_attn_residual"))

        original = block._modulate

        def modulate(x, mod_params, index=None):
            modulated, gate = original(x, mod_params, index)
            modulated_name, gate_name = next(self._modulated)
            self._record(modulated_name, modulated)
            # One gate for all tokens comes as [1, 1, dim]; where each token has its own, as [1, tokens, dim].
            self._record(gate_name, gate.squeeze(1) if index is None else gate)
            return modulated, gate

        block._modulate = modulate

    def _rotate_and_record(self, x, freqs_cis, **options):
        rotated = self._rotate(x, freqs_cis, **options)
        self._record(next(self._rotated), rotated)
        return rotated

    def _attend_and_record(self, query, key, value, **options):
        """The joint sequence is [text, image]."""
        output = self._attend(query, key, value, **options)
        name = f"{self._path}:attn_weights"
        if self._recorder.wants(name, ON_REQUEST):
            weights = attention_weights.compute(query, key, options["attn_mask"])
            attention_weights.check(weights, value, output, self._path)
            self._recorder.record(name, weights, ON_REQUEST)
        self._record("attn_output", output.flatten(2, 3))
        return output

    def _enter_attention(self, _module, _args):
        transformer_qwenimage.apply_rotary_emb_qwen = self._rotate_and_record
        transformer_qwenimage.dispatch_attention_fn = self._attend_and_record

    def _leave_attention(self, _module, _args, _output):
        transformer_qwenimage.apply_rotary_emb_qwen = self._rotate
        transformer_qwenimage.dispatch_attention_fn = self._attend
