"""Reads a form back with the tool that wrote it: what each tensor is worth, under diffusers' names, in float32."""

from pathlib import Path

import torch
from safetensors import safe_open

from tools.formats import names
from tools.formats.model_folder import read_json

PREFIX = "model.diffusion_model."


def rules_for(component, naming, tensor_names):
    if naming == "diffusers":
        return names.NESTED_TEXT_ENCODER if component == "text_encoder" else []
    if component == "transformer":
        return {"mflux": names.MFLUX_TRANSFORMER, "mlx-community": names.MLX_COMMUNITY_TRANSFORMER}[naming]
    if component == "text_encoder":
        return {"mflux": names.MFLUX_TEXT_ENCODER, "llama": names.LLAMA_TEXT_ENCODER}[naming]
    if naming == "original":
        return names.original_vae(*names.original_vae_dimensions(tensor_names))
    first = [name for name in tensor_names if name.startswith("decoder.up_block0.resnets.")]
    return names.mflux_vae(4, len({name.split(".")[3] for name in first}) - 1)


def files_of(path):
    path = Path(path)
    if path.is_file():
        return [path]
    index = sorted(path.glob("*.safetensors.index.json"))
    if index:
        return [path / file for file in sorted(set(read_json(index[0])["weight_map"].values()))]
    return sorted(path.glob("*.safetensors"))


def read_safetensors(path):
    tensors = {}
    for file in files_of(path):
        with safe_open(file, "pt") as opened:
            tensors |= {name: opened.get_tensor(name) for name in opened.keys()}
    tensors = {short: tensors[name] for short, name in names.strip_prefix(list(tensors), PREFIX).items()}
    tensors.pop("scaled_fp8", None)
    return scaled(tensors)


def scaled(tensors):
    """float8 and int8 weights times their scales, in float32."""
    values = {}
    for name, tensor in tensors.items():
        layer, _, parameter = name.rpartition(".")
        if name.endswith(".weight._data"):
            values[name[: -len("._data")]] = tensor.float() * tensors[f"{layer}._scale"].float()
        elif parameter == "weight" and tensor.dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8):
            values[name] = dequantize_comfy(tensor, tensors, layer)
        elif parameter in ("weight", "bias", "gamma"):
            values[name] = tensor.float()
    return values


def dequantize_comfy(tensor, tensors, layer):
    scale = tensors.get(f"{layer}.scale_weight", tensors.get(f"{layer}.weight_scale"))
    if scale is None:
        return tensor.float()
    from comfy_kitchen.tensor import TensorCoreFP8Layout, TensorWiseINT8Layout

    layout = TensorWiseINT8Layout if tensor.dtype == torch.int8 else TensorCoreFP8Layout
    settings = comfy_settings(tensors, layer)
    options = {key: settings[key] for key in ("convrot", "convrot_groupsize") if key in settings}
    scale = scale.float().reshape(()) if scale.numel() == 1 else scale.float()
    return layout.dequantize(
        tensor, layout.Params(scale=scale, orig_dtype=torch.float32, orig_shape=tuple(tensor.shape), **options)
    )


def comfy_settings(tensors, layer):
    import json

    text = tensors.get(f"{layer}.comfy_quant")
    return json.loads(bytes(text.tolist())) if text is not None else {}


def read_mlx(path, widths):
    """WIDTHS: how many inputs a layer has, which the packed shapes leave open."""
    import mlx.core as mx
    import numpy as np

    tensors = {}
    for file in files_of(path):
        tensors |= mx.load(str(file))
    tensors = {names.strip_inner(name): tensor for name, tensor in tensors.items()}
    values = {}
    for name, tensor in tensors.items():
        layer, _, parameter = name.rpartition(".")
        if parameter in ("scales", "biases"):
            continue
        if parameter == "weight" and f"{layer}.scales" in tensors:
            scales, biases = (tensors[f"{layer}.{part}"].astype(mx.float32) for part in ("scales", "biases"))
            width = widths(layer)
            options = {"group_size": width // scales.shape[-1], "bits": tensor.shape[-1] * 32 // width}
            tensor = mx.dequantize(tensor, scales, biases, **options)
        values[name] = torch.from_numpy(np.array(tensor.astype(mx.float32)))
    return values


def channels_first(name, tensor):
    """mflux's convolutions have their inputs last, and its gammas are vectors."""
    if tensor.dim() in (4, 5):
        return tensor.movedim(-1, 1).contiguous()
    if name.endswith(".gamma"):
        return tensor.reshape(-1, 1, 1) if ".attentions." in name else tensor.reshape(-1, 1, 1, 1)
    return tensor


def read_gguf(path):
    import gguf
    import numpy as np

    values = {}
    for tensor in gguf.GGUFReader(path).tensors:
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        shape = [int(size) for size in reversed(tensor.shape)]
        values[tensor.name] = torch.from_numpy(np.array(value, dtype=np.float32)).reshape(shape)
    return {short: values[name] for short, name in names.strip_prefix(list(values), PREFIX).items()}


def read_part(root, component, part, model):
    """{diffusers name: float32 tensor} of one component of a form."""
    expected = model.tensors[component]
    path = Path(root) / part["path"]
    if part["format"] == "gguf":
        values = read_gguf(path)
    elif part["format"] == "mlx":
        probe = rules_for(component, part["names"], []) if component != "vae" else []
        values = read_mlx(path, lambda layer: expected[names.to_diffusers(f"{layer}.weight", probe)].shape[-1])
    else:
        values = read_safetensors(path)
    rules = rules_for(component, part["names"], list(values))
    values = {names.to_diffusers(name, rules): tensor for name, tensor in values.items()}
    if part["names"] == "mflux" and (component == "vae" or any(".patch_embed." in name for name in values)):
        values = {name: channels_first(name, tensor) for name, tensor in values.items()}
    # Tables that mflux computes and saves.
    values = {name: tensor for name, tensor in values.items() if not name.endswith("inv_freq")}
    # stable-diffusion.cpp folds the first two axes of a convolution of five.
    return {
        name: tensor.reshape(expected[name].shape) if name in expected else tensor for name, tensor in values.items()
    }
