"""The tensors of the layers that both families are made of, as (name, shape)."""


def linear(name, out, inputs, bias=True):
    return [(f"{name}.weight", (out, inputs))] + ([(f"{name}.bias", (out,))] if bias else [])


def conv(name, out, inputs, *kernel):
    return [(f"{name}.weight", (out, inputs, *kernel)), (f"{name}.bias", (out,))]


def residual(name, width, out, axes):
    """A resnet of a VAE whose convolutions have AXES axes: with time (3) or without (2)."""
    tensors = [(f"{name}.norm1.gamma", (width, 1, 1, 1)), (f"{name}.norm2.gamma", (out, 1, 1, 1))]
    tensors += conv(f"{name}.conv1", out, width, *[3] * axes) + conv(f"{name}.conv2", out, out, *[3] * axes)
    return tensors + (conv(f"{name}.conv_shortcut", out, width, *[1] * axes) if width != out else [])


def middle(name, width, axes):
    attention = f"{name}.attentions.0"
    tensors = residual(f"{name}.resnets.0", width, width, axes) + residual(f"{name}.resnets.1", width, width, axes)
    tensors += [(f"{attention}.norm.gamma", (width, 1, 1))]
    return tensors + conv(f"{attention}.to_qkv", 3 * width, width, 1, 1) + conv(f"{attention}.proj", width, width, 1, 1)
