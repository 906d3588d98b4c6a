"""The softmax weights of a joint attention, which the official kernel never shows: computed beside it, then checked."""

import math

import torch

# How far weights @ values may be from what the official kernel returned (NMSE).
LIMITS = {torch.float32: 1e-10, torch.bfloat16: 1e-4}


def compute(joint):
    """[1, heads, tokens, tokens] over [text, image] tokens; rows are queries.

    JOINT holds queries and keys after RoPE, [1, tokens, heads, head_dim], and the mask of the text tokens or None.
    """
    query = torch.cat([joint["txt_query_rope"], joint["img_query_rope"]], dim=1).transpose(1, 2).float()
    key = torch.cat([joint["txt_key_rope"], joint["img_key_rope"]], dim=1).transpose(1, 2).float()
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if joint["mask"] is not None:
        image = torch.ones_like(joint["mask"][:, :1]).expand(-1, joint["img_key_rope"].shape[1])
        mask = torch.cat([joint["mask"], image], dim=1).bool()
        scores = scores.masked_fill(~mask[:, None, None, :], -math.inf)
    return scores.softmax(dim=-1)


def check(weights, joint, output, path):
    """The weights explain the attention's OUTPUT, [1, tokens, heads * head_dim], or they are not its weights."""
    heads = weights.shape[1]
    value = torch.cat([joint["txt_value"], joint["img_value"]], dim=1).unflatten(-1, (heads, -1))
    explained = (weights @ value.transpose(1, 2).float()).transpose(1, 2).flatten(2)
    expected = output.double()
    nmse = ((explained.double() - expected).square().sum() / expected.square().sum()).item()
    if not nmse <= LIMITS[output.dtype]:
        raise SystemExit(f"{path}: attn_weights @ values has NMSE {nmse:.1e} against attn_output")
