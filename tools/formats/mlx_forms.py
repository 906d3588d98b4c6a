"""Forms of MLX: quantized by mlx.core.quantize, in diffusers' names, as mflux saves them, and in two other spellings."""

import contextlib
import io
import shutil
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import torch
from mlx.utils import tree_flatten, tree_unflatten
from mflux.models.common.weights.loading.weight_applier import WeightApplier
from mflux.models.common.weights.loading.weight_loader import WeightLoader
from mflux.models.common.weights.mapping.weight_mapper import WeightMapper
from mflux.models.common.weights.saving.model_saver import ModelSaver
from mflux.models.qwen.model.qwen_transformer.qwen_transformer import QwenTransformer
from mflux.models.qwen.weights.qwen_weight_definition import QwenWeightDefinition

import names
from model_folder import COMPONENTS, STEMS, read_json, write_json

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
MFLUX_BITS = (3, 4, 5, 6, 8)  # what mflux-save offers; always groups of 64


def to_mlx(tensor):
    array = mx.array(tensor.float().numpy())
    return array.astype({torch.bfloat16: mx.bfloat16, torch.float16: mx.float16, torch.float32: mx.float32}[tensor.dtype])


def quantize(tensors, bits, group_size):
    """Every matrix whose rows the group divides, embeddings too."""
    stored = {}
    for name, tensor in tensors.items():
        array = to_mlx(tensor)
        if tensor.dim() == 2 and tensor.shape[1] % group_size == 0:
            layer = name.removesuffix(".weight")
            packed, scales, biases = mx.quantize(array, group_size=group_size, bits=bits)
            stored |= {name: packed, f"{layer}.scales": scales, f"{layer}.biases": biases}
        else:
            stored[name] = array
    return stored


def diffusers_form(model, out, bits, group_size):
    """diffusers' folder and names; transformer and text encoder quantized, the settings in their configs."""
    model.copy_without_weights(out, ("transformer", "text_encoder"))
    parts = {"vae": {"path": "vae", "format": "safetensors", "names": "diffusers"}}
    for component in ("transformer", "text_encoder"):
        config = read_json(out / component / "config.json")
        config["quantization"] = {"group_size": group_size, "bits": bits}
        write_json(out / component / "config.json", config)
        stored = quantize(model.tensors[component], bits, group_size)
        mx.save_safetensors(str(out / component / f"{STEMS[component]}.safetensors"), stored, {"format": "mlx"})
        parts[component] = {"path": component, "format": "mlx", "names": "diffusers"}
    return parts


def definition(component):
    return next(entry for entry in QwenWeightDefinition.get_components() if entry.name == component)


def mflux_transformer(model, bits):
    """mflux's own module, weights, quantization and choice of layers."""
    config = model.config["transformer"]
    keys = ("in_channels", "out_channels", "num_layers", "attention_head_dim", "num_attention_heads", "joint_attention_dim")
    transformer = QwenTransformer(**{key: config[key] for key in keys})
    weights = WeightLoader.load_single_local(definition("transformer"), model.folder)
    WeightApplier.apply_and_quantize(weights, {"transformer": transformer}, bits, QwenWeightDefinition)
    return transformer


def mflux_tree(model, component):
    """mflux's modules for these two have fixed sizes, so only its mapping and its saver are used. For a VAE with another
    number of residual blocks than the published one there is no mapping but ours."""
    arrays = {name: to_mlx(tensor) for name, tensor in model.tensors[component].items()}
    if component == "text_encoder":
        arrays = {name: array.astype(mx.bfloat16) for name, array in arrays.items() if not name.startswith(("visual.", "lm_head."))}
        # Tables that mflux computes, and saves with the weights.
        text = model.text_config()
        half = text["hidden_size"] // text["num_attention_heads"] // 2
        table = mx.array(1e6 ** (-np.arange(half) / half), dtype=mx.float32)
        extra = {f"encoder.layers.{layer}.self_attn.rotary_emb.inv_freq": table for layer in range(text["num_hidden_layers"])}
        extra["encoder.rotary_emb.inv_freq"] = table
        renamed = {names.from_diffusers(name, names.MFLUX_TEXT_ENCODER): array for name, array in arrays.items()}
        return renamed | extra
    levels, resnets = names.vae_dimensions(list(arrays))
    if (levels, resnets) == (4, 2):
        return dict(tree_flatten(WeightMapper.apply_mapping(arrays, definition("vae").mapping_getter())))
    rules = names.mflux_vae(levels, resnets)
    renamed = {}
    for name, array in arrays.items():
        if array.ndim >= 4 and not name.endswith(".gamma"):
            array = array.transpose(0, *range(2, array.ndim), 1)
        renamed[names.from_diffusers(name, rules)] = array.reshape(-1) if name.endswith(".gamma") else array
    return renamed


def save_with_mflux(out, component, tensors, bits):
    """TENSORS: a module, or a dict of arrays."""
    module = tensors if hasattr(tensors, "parameters") else SimpleNamespace(parameters=lambda: tree_unflatten(list(tensors.items())))
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
        ModelSaver._save_weights(str(out), bits, module, component)


def mflux_form(model, out, bits, rename=None, naming="mflux"):
    """The folder of mflux-save: numbered shards, an index, no configs. RENAME changes the names of the transformer's tensors."""
    transformer = mflux_transformer(model, bits)
    if rename:
        transformer = rename(dict(tree_flatten(transformer.parameters())))
    save_with_mflux(out, "transformer", transformer, bits)
    for component in ("text_encoder", "vae"):
        save_with_mflux(out, component, mflux_tree(model, component), bits)
    for component in COMPONENTS:
        model.copy_config(component, out / component)
    shutil.copytree(model.folder / "tokenizer", out / "tokenizer")
    parts = {component: {"path": component, "format": "mlx", "names": "mflux"} for component in COMPONENTS}
    parts["transformer"]["names"] = naming
    return parts


def community_names(tensors):
    """The older spelling, from mflux's."""
    plain = {names.to_diffusers(name, names.MFLUX_TRANSFORMER): array for name, array in tensors.items()}
    return {names.from_diffusers(name, names.MLX_COMMUNITY_TRANSFORMER): array for name, array in plain.items()}


def inner_names(tensors):
    """mlx-rs' spelling: its quantized layer holds a plain one, called inner."""
    layers = {name.removesuffix(".scales") for name in tensors if name.endswith(".scales")}
    return {names.add_inner(name) if name.rpartition(".")[0] in layers else name: array for name, array in tensors.items()}


def forms():
    table = {}
    for bits in BITS:
        for group_size in GROUP_SIZES:
            write = lambda model, out, b=bits, g=group_size: diffusers_form(model, out, b, g)
            table[f"mlx_q{bits}_g{group_size}"] = ("mlx", write, ["--model={root}"])
    for bits in (None, *MFLUX_BITS):
        write = lambda model, out, b=bits: mflux_form(model, out, b)
        table["mflux_" + (f"q{bits}" if bits else "bf16")] = ("mflux", write, ["--model={root}"])
    for name, rename in (("community", community_names), ("rs", lambda tensors: inner_names(community_names(tensors)))):
        write = lambda model, out, rename=rename: mflux_form(model, out, 4, rename, "mlx-community")
        table[f"mlx_{name}_q4"] = ("mlx", write, ["--model={root}"])
    return table
