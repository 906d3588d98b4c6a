"""Forms in safetensors: diffusers' folder in three precisions, ComfyUI's files, and the 8-bit layouts in use."""

import json
import shutil
from functools import partial

import torch
from safetensors.torch import save_file

from tools.formats import names
from tools.formats.model_folder import COMPONENTS, STEMS, is_optional

FP8 = torch.float8_e4m3fn
PREFIX = "model.diffusion_model."
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
TRANSFORMER_FILE = "diffusion_models/qwen_image.safetensors"
TEXT_ENCODER_FILE = "text_encoders/qwen_2.5_vl_7b.safetensors"
VAE_FILE = "vae/qwen_image_vae.safetensors"


def save(path, tensors, metadata=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)


def cast(tensors, dtype):
    return {name: tensor.to(dtype) for name, tensor in tensors.items()}


def is_matrix(name, tensor):
    return tensor.dim() == 2 and name.endswith(".weight") and "embed_tokens" not in name


def folder_form(model, out, dtype):
    """diffusers' folder, every component in DTYPE."""
    model.copy_without_weights(out)
    parts = {}
    for component in COMPONENTS:
        save(
            out / component / f"{STEMS[component]}.safetensors", cast(model.tensors[component], dtype), {"format": "pt"}
        )
        parts[component] = {"path": component, "format": "safetensors", "names": "diffusers"}
    return parts


def plain_fp8(tensors):
    """Matrices in float8 as they are, the rest in bfloat16: the plain fp8 file that ComfyUI's users download."""
    return {name: tensor.to(FP8 if is_matrix(name, tensor) else torch.bfloat16) for name, tensor in tensors.items()}


def scaled_fp8(tensors, marker_size=0, with_input_scales=False):
    """ComfyUI's older layout: a scale per layer, one marker for the file."""
    from comfy_kitchen.tensor import TensorCoreFP8Layout

    stored = {"scaled_fp8": torch.zeros(marker_size, dtype=FP8)}
    for name, tensor in tensors.items():
        if not is_matrix(name, tensor):
            stored[name] = tensor.to(torch.bfloat16)
            continue
        layer = name.removesuffix(".weight")
        quantized, parameters = TensorCoreFP8Layout.quantize(tensor.float())
        stored[name] = quantized
        stored[f"{layer}.scale_weight"] = parameters.scale
        if with_input_scales:
            stored[f"{layer}.scale_input"] = torch.ones((), dtype=torch.float32)
    return stored


def comfy_quant(tensors, layout, settings, **options):
    """ComfyUI's newer layout: every layer says in JSON how it is stored."""
    text = torch.tensor(list(json.dumps(settings).encode()), dtype=torch.uint8)
    stored = {}
    for name, tensor in tensors.items():
        if not is_matrix(name, tensor):
            stored[name] = tensor.to(torch.bfloat16)
            continue
        layer = name.removesuffix(".weight")
        quantized, parameters = layout.quantize(tensor.float(), **options)
        stored |= {name: quantized, f"{layer}.weight_scale": parameters.scale, f"{layer}.comfy_quant": text.clone()}
    return stored


def comfy_quant_fp8(tensors):
    from comfy_kitchen.tensor import TensorCoreFP8Layout

    return comfy_quant(tensors, TensorCoreFP8Layout, {"format": "float8_e4m3fn"})


def comfy_quant_int8(tensors, per_row):
    from comfy_kitchen.tensor import TensorWiseINT8Layout

    return comfy_quant(tensors, TensorWiseINT8Layout, {"format": "int8_tensorwise"}, per_channel=per_row)


def comfy_quant_int8_rotated(tensors):
    """ConvRot. The usual groups are of 256 values; where these do not divide the rows, the largest that do."""
    from comfy_kitchen.tensor import TensorWiseINT8Layout

    stored = {}
    for name, tensor in tensors.items():
        group = next((size for size in (256, 64, 16, 4) if tensor.shape[-1] % size == 0), None)
        settings, options = {"format": "int8_tensorwise"}, {"per_channel": True}
        if group and is_matrix(name, tensor):
            settings |= {"convrot": True, "convrot_groupsize": group}
            options |= {"convrot": True, "convrot_groupsize": group}
        stored |= comfy_quant({name: tensor}, TensorWiseINT8Layout, settings, **options)
    return stored


def quanto_int8(tensors):
    """optimum-quanto's state dict: a scale per row, and activation scales that are never used."""
    from optimum.quanto import freeze, qint8, quantize

    stored = {}
    for name, tensor in tensors.items():
        if not is_matrix(name, tensor):
            stored[name] = tensor.to(torch.bfloat16)
            continue
        layer = torch.nn.Linear(tensor.shape[1], tensor.shape[0], bias=False, dtype=torch.bfloat16)
        layer.weight = torch.nn.Parameter(tensor.to(torch.bfloat16))
        module = torch.nn.ModuleDict({"layer": layer})
        quantize(module, weights=qint8)
        freeze(module)
        path = name.removesuffix(".weight")
        stored |= {key.replace("layer", path, 1): value for key, value in module.state_dict().items()}
    return stored


def write_vae_file(model, out):
    """The VAE's file of ComfyUI: original names, bfloat16. No program has these names for a VAE of another shape."""
    tensors, naming = model.tensors["vae"], "diffusers"
    if model.has_published_vae():
        rules, naming = names.original_vae(4, 2), "original"
        tensors = {names.from_diffusers(name, rules): tensor for name, tensor in tensors.items()}
    save(out / VAE_FILE, cast(tensors, torch.bfloat16))
    model.copy_config("vae", (out / VAE_FILE).parent)
    return {"path": VAE_FILE, "format": "safetensors", "names": naming}


def in_bf16(tensors):
    return cast(tensors, torch.bfloat16)


def comfy_form(model, out, transformer, text_encoder=in_bf16, prefix=""):
    """ComfyUI's three files; TRANSFORMER and TEXT_ENCODER say how their tensors are stored."""
    stored = transformer(model.tensors["transformer"])
    save(out / TRANSFORMER_FILE, {prefix + name: tensor for name, tensor in stored.items()})
    save(out / TEXT_ENCODER_FILE, text_encoder(model.tensors["text_encoder"]))
    shutil.copytree(model.folder / "tokenizer", out / "tokenizer")
    parts = {"vae": write_vae_file(model, out)}
    for component, file in (("transformer", TRANSFORMER_FILE), ("text_encoder", TEXT_ENCODER_FILE)):
        model.copy_config(component, (out / file).parent)
        parts[component] = {"path": file, "format": "safetensors", "names": "diffusers"}
    return parts


def text_model_only(tensors):
    """Some text encoders come without the vision tower."""
    return {name: tensor for name, tensor in in_bf16(tensors).items() if not is_optional(name)}


def forms():
    """name -> (tool, writer(model, out) -> parts, engine arguments)"""
    split = [f"--transformer={{root}}/{TRANSFORMER_FILE}", f"--text-encoder={{root}}/{TEXT_ENCODER_FILE}"]
    split += [f"--vae={{root}}/{VAE_FILE}", "--tokenizer={root}/tokenizer"]
    table = {}
    for name, dtype in DTYPES.items():
        table[name] = ("safetensors", partial(folder_form, dtype=dtype), ["--model={root}"])
    full_precision = partial(scaled_fp8, marker_size=2, with_input_scales=True)
    int8, int8_row = (partial(comfy_quant_int8, per_row=per_row) for per_row in (False, True))
    comfy = {
        "comfy_bf16": ("safetensors", in_bf16, {}),
        "comfy_bf16_prefix": ("safetensors", in_bf16, {"prefix": PREFIX, "text_encoder": text_model_only}),
        "comfy_fp8": ("torch", plain_fp8, {}),
        "comfy_fp8_scaled": ("comfy-kitchen", scaled_fp8, {"text_encoder": scaled_fp8}),
        "comfy_fp8_scaled_prefix": ("comfy-kitchen", full_precision, {"prefix": PREFIX}),
        "comfy_quant_fp8": ("comfy-kitchen", comfy_quant_fp8, {"text_encoder": comfy_quant_fp8}),
        "comfy_quant_int8": ("comfy-kitchen", int8, {}),
        "comfy_quant_int8_row": ("comfy-kitchen", int8_row, {"prefix": PREFIX}),
        "comfy_quant_int8_convrot": (
            "comfy-kitchen",
            comfy_quant_int8_rotated,
            {"text_encoder": comfy_quant_int8_rotated},
        ),
        "quanto_int8": ("optimum-quanto", quanto_int8, {}),
    }
    for name, (tool, transformer, options) in comfy.items():
        table[name] = (tool, partial(comfy_form, transformer=transformer, **options), split)
    return table
