"""How a random model's parts are written."""

import json

import torch
from torch import nn

from tools.reference import random_weights

# Diffusers' and transformers' own defaults, larger than any model made here: one file.
NO_SHARDS = "10GB"


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def save(model, folder, spec, seed, **options):
    random_weights.fill(model, seed)
    # The plain cast: the models' own to() warns about layers to keep in float32, of which these have none.
    nn.Module.to(model, getattr(torch, spec["dtype"]))
    model.save_pretrained(folder, max_shard_size=spec["max_shard_size"] or NO_SHARDS, **options)


def latent_scale(z_dim, seed):
    """What the VAE's config says of its latents: a mean and a spread for each channel."""
    generator = torch.Generator().manual_seed(seed)
    mean = 0.3 * torch.randn(z_dim, generator=generator)
    std = 0.5 + torch.rand(z_dim, generator=generator)
    return {
        "latents_mean": [round(value, 4) for value in mean.tolist()],
        "latents_std": [round(value, 4) for value in std.tolist()],
    }
