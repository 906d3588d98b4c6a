"""The softmax weights of a joint attention, which the official kernel never shows: computed beside it, then checked."""

import math

import torch

# How far weights @ values may be from what the official kernel returned (NMSE).
LIMITS = {torch.float32: 1e-10, torch.bfloat16: 1e-4}


def compute(query, key, mask):
    """[1, heads, tokens, tokens], rows are queries; from what the kernel gets, [1, tokens, heads, head_dim]."""
    query, key = query.transpose(1, 2).float(), key.transpose(1, 2).float()
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask.bool(), -math.inf)
    return scores.softmax(dim=-1)


def check(weights, value, output, path):
    """The weights explain the kernel's OUTPUT, [1, tokens, heads, head_dim], or they are not its weights."""
    explained = (weights @ value.transpose(1, 2).float()).transpose(1, 2).double()
    expected = output.double()
    nmse = ((explained - expected).square().sum() / expected.square().sum()).item()
    if not nmse <= LIMITS[output.dtype]:
        raise SystemExit(f"{path}: attn_weights @ values has NMSE {nmse:.1e} against attn_output")
