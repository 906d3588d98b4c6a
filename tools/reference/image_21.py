"""Runs the official 2.1 pipeline, which draws from text and edits pictures, once and records its checkpoints."""

import math

from tools.reference.block_taps_21 import BlockTaps21
from tools.reference.picture_to_image import PictureToImage


class Image21(PictureToImage):
    """The seams are those of an edit; without pictures some of them pass nothing."""

    make_block_taps = BlockTaps21

    def _latents(self, kwargs):
        """The reference pictures stand before the latents."""
        return kwargs["hidden_states"][:, -math.prod(kwargs["img_shapes"][0][-1]) :]

    def _attach_text_encoder(self, recorder):
        super()._attach_text_encoder(recorder)
        self._tap_rope(recorder)
        self._tap_deepstack(recorder)

    def _tap_rope(self, recorder):
        """Which axis of a picture's positions each frequency follows shows nowhere else."""
        path = "model.language_model.rotary_emb"

        def record(_module, _args, output):
            cos, sin = output
            recorder.record(f"{path}:cos", cos)
            recorder.record(f"{path}:sin", sin)

        self._pipe.text_encoder.get_submodule(path).register_forward_hook(record)

    def _tap_deepstack(self, recorder):
        """What the first layers' outputs become: the vision tower's features are added at the pictures' tokens."""
        model = self._pipe.text_encoder.model.language_model
        original = model._deepstack_process
        layers = iter(())

        def begin(_module, _args):
            nonlocal layers
            layers = iter(range(len(model.layers)))

        def process(hidden_states, visual_pos_masks, visual_embeds):
            result = original(hidden_states, visual_pos_masks, visual_embeds)
            recorder.record(f"model.language_model.layers.{next(layers)}:deepstack", result)
            return result

        model.register_forward_pre_hook(begin)
        model._deepstack_process = process

    def _attach_vision(self, recorder):
        """Also the patches with the learned positions, which are resampled to each picture's grid."""
        super()._attach_vision(recorder)
        self._pipe.text_encoder.model.visual.blocks[0].register_forward_pre_hook(
            lambda _module, args: recorder.record("model.visual:positioned", args[0])
        )
