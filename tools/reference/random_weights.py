"""Random weights under which activations neither die nor explode, so that every term of a forward pass counts."""

import math

import torch
from diffusers.models.transformers.transformer_qwenimage21 import QwenImage21ZeroCenterRMSNorm
from torch import nn

# The last layer of the VAE's decoder paints pixels in [-1, 1]; a unit gain would clamp most of them.
GAINS = {"decoder.conv_out": 0.6}
# Without a bias, scales and gates come from the time embedding alone, whose activation leaves it small.
GAINS_WITHOUT_BIAS = {"modulation.1": 3.0, "norm_out.linear": 2.0}
# A residual branch adds to a stream; a smaller gain keeps the sum of many in range.
BRANCH_GAIN = 0.7
BRANCHES = (
    ".conv2",
    ".attentions.0.proj",
    ".attn.proj",
    ".mlp.linear_fc2",
    ".o_proj",
    ".down_proj",
    ".to_out.0",
    ".to_add_out",
    ".net.2",
    ".img_mlp.out",
)
# Gates, shifts and scales must be far from zero, or the branches they steer would not show in the output.
BIAS_STD = 0.1
MODULATION_BIAS_STD = 0.3


def _fan_in(module):
    weight = module.weight
    if weight.dim() == 5:
        # One frame follows two frames of causal padding, so only the last temporal tap of a convolution meets data.
        # The other taps get the same spread: an engine that does not drop them correctly must be seen to fail.
        return weight.shape[1] * weight.shape[3] * weight.shape[4]
    return math.prod(weight.shape[1:])


def _gain(path, module):
    if path in GAINS:
        return GAINS[path]
    if path in GAINS_WITHOUT_BIAS and module.bias is None:
        return GAINS_WITHOUT_BIAS[path]
    if path.endswith(BRANCHES):
        return BRANCH_GAIN
    return 1.0


def _normal(parameter, mean, std, generator):
    parameter.copy_(mean + std * torch.randn(parameter.shape, generator=generator))


@torch.no_grad()
def fill(model, seed):
    """Overwrites every parameter of MODEL; a kind of module that is not known here is an error."""
    generator = torch.Generator().manual_seed(seed)
    filled = set()
    for path, module in model.named_modules():
        parameters = dict(module.named_parameters(recurse=False))
        # A tied lm_head is the embedding, which comes first and keeps its own spread.
        if all(id(parameter) in filled for parameter in parameters.values()):
            continue
        if isinstance(module, nn.Embedding):
            _normal(module.weight, 0.0, 1.0, generator)
        elif isinstance(module, (nn.Linear, nn.Conv2d, nn.Conv3d)):
            _normal(module.weight, 0.0, _gain(path, module) / math.sqrt(_fan_in(module)), generator)
            if module.bias is not None:
                is_modulation = path.endswith(("img_mod.1", "txt_mod.1", "norm_out.linear"))
                _normal(module.bias, 0.0, MODULATION_BIAS_STD if is_modulation else BIAS_STD, generator)
        elif "norm" in type(module).__name__.lower():
            # A weight that is stored as its distance from 1 lies around 0.
            mean = 0.0 if isinstance(module, QwenImage21ZeroCenterRMSNorm) else 1.0
            for name, parameter in parameters.items():
                _normal(parameter, 0.0 if name == "bias" else mean, 0.2, generator)
        else:
            raise RuntimeError(f"no rule for {path}, a {type(module).__name__}")
        filled.update(id(parameter) for parameter in parameters.values())
    left = [name for name, parameter in model.named_parameters() if id(parameter) not in filled]
    if left:
        raise RuntimeError(f"parameters without a value: {left}")
