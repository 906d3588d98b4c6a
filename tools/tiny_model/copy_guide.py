"""A second loss which teaches some heads to look at the same place of the reference picture.

An edit keeps most of the picture, so a noisy token must find the reference's token at its own place.
Left alone the heads need thousands of steps to find that sharp look, and shapes stay blobs until then;
told where to look they need some hundred.  The guide only fades in and out: no weight is fixed.
"""
import torch
from diffusers.models.transformers import transformer_qwenimage

# (block, heads): two heads of 32 carry the 64 values of a token.
GUIDED_HEADS = {1: (0, 3), 2: (0, 3)}
WEIGHT = 0.03  # of the guide against the flow loss
FADE_OUT = 0.7  # share of the training after which the guide is silent


class CopyGuide:
    """Records queries and keys while it is entered; loss() reads them."""

    def __enter__(self):
        self.recorded = []
        self.dispatch = transformer_qwenimage.dispatch_attention_fn

        def record(query, key, value, **options):
            self.recorded.append((query, key, options.get("attn_mask")))
            return self.dispatch(query, key, value, **options)

        transformer_qwenimage.dispatch_attention_fn = record
        return self

    def __exit__(self, *_):
        transformer_qwenimage.dispatch_attention_fn = self.dispatch

    def loss(self, tokens):
        """tokens: of the noisy picture and of the reference, each; they end the sequence."""
        losses = []
        for block, heads in GUIDED_HEADS.items():
            query, key, mask = self.recorded[block]
            query = query[:, -2 * tokens : -tokens, heads]
            logits = torch.einsum("nqhd,nkhd->nhqk", query, key[:, :, heads])
            logits = logits * query.shape[-1] ** -0.5
            if mask is not None:
                logits = logits.masked_fill(~mask, float("-inf"))
            same_place = torch.arange(logits.shape[-1] - tokens, logits.shape[-1])
            look = logits.log_softmax(-1)[..., torch.arange(tokens), same_place]
            losses.append(-look.mean())
        return torch.stack(losses).mean()
