"""Forms of MLX: quantized by mlx.core.quantize, in diffusers' names, as mflux saves them, and in two other spellings."""

import contextlib
import io
import shutil
from functools import partial
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import torch
from mflux.models.common.weights.loading.weight_applier import WeightApplier
from mflux.models.common.weights.loading.weight_loader import WeightLoader
from mflux.models.common.weights.mapping.weight_mapper import WeightMapper
from mflux.models.common.weights.saving.model_saver import ModelSaver
from mflux.models.qwen.model.qwen_transformer.qwen_transformer import QwenTransformer
from mflux.models.qwen.weights.qwen_weight_definition import QwenWeightDefinition
from mlx.utils import tree_flatten, tree_unflatten

from tools.formats import names, safetensors_forms
from tools.formats.model_folder import COMPONENTS, STEMS, read_json, write_json

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
MFLUX_BITS = (3, 4, 5, 6, 8)  # what mflux-save offers; always groups of 64


def to_mlx(tensor):
    array = mx.array(tensor.float().numpy())
    return array.astype(
        {torch.bfloat16: mx.bfloat16, torch.float16: mx.float16, torch.float32: mx.float32}[tensor.dtype]
    )


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
    keys = (
        "in_channels",
        "out_channels",
        "num_layers",
        "attention_head_dim",
        "num_attention_heads",
        "joint_attention_dim",
    )
    transformer = QwenTransformer(**{key: config[key] for key in keys})
    weights = WeightLoader.load_single_local(definition("transformer"), model.folder)
    WeightApplier.apply_and_quantize(weights, {"transformer": transformer}, bits, QwenWeightDefinition)
    return transformer


def mflux_text_encoder(model):
    """mflux's module has a fixed size: only its names and its saver are used. Without the vision tower, in bfloat16."""
    tensors = {}
    for name, tensor in model.tensors["text_encoder"].items():
        if not name.startswith(("visual.", "lm_head.")):
            tensors[names.from_diffusers(name, names.MFLUX_TEXT_ENCODER)] = to_mlx(tensor).astype(mx.bfloat16)
    # Tables that mflux computes, and saves with the weights.
    text = model.text_config()
    half = text["hidden_size"] // text["num_attention_heads"] // 2
    table = mx.array(1e6 ** (-np.arange(half) / half), dtype=mx.float32)
    for layer in range(text["num_hidden_layers"]):
        tensors[f"encoder.layers.{layer}.self_attn.rotary_emb.inv_freq"] = table
    return tensors | {"encoder.rotary_emb.inv_freq": table}


def mflux_vae(model):
    """mflux's module has a fixed size here too: its mapping, which also changes layouts."""
    arrays = {name: to_mlx(tensor) for name, tensor in model.tensors["vae"].items()}
    return dict(tree_flatten(WeightMapper.apply_mapping(arrays, definition("vae").mapping_getter())))


def save_with_mflux(out, component, tensors, bits):
    tree = SimpleNamespace(parameters=lambda: tree_unflatten(list(tensors.items())))
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
        ModelSaver._save_weights(str(out), bits, tree, component)


def mflux_form(model, out, bits, rename=dict, naming="mflux"):
    """The folder of mflux-save: numbered shards, an index, no configs. RENAME changes the names of the transformer."""
    transformer = rename(dict(tree_flatten(mflux_transformer(model, bits).parameters())))
    save_with_mflux(out, "transformer", transformer, bits)
    save_with_mflux(out, "text_encoder", mflux_text_encoder(model), bits)
    parts = {component: {"path": component, "format": "mlx", "names": "mflux"} for component in COMPONENTS}
    parts["transformer"]["names"] = naming
    if model.has_published_vae():
        save_with_mflux(out, "vae", mflux_vae(model), bits)
    else:
        safetensors_forms.save(out / "vae" / f"{STEMS['vae']}.safetensors", model.tensors["vae"])
        parts["vae"] = {"path": "vae", "format": "safetensors", "names": "diffusers"}
    for component in COMPONENTS:
        model.copy_config(component, out / component)
    shutil.copytree(model.folder / "tokenizer", out / "tokenizer")
    return parts


def community_names(tensors):
    """The older spelling, from mflux's."""
    plain = {names.to_diffusers(name, names.MFLUX_TRANSFORMER): array for name, array in tensors.items()}
    return {names.from_diffusers(name, names.MLX_COMMUNITY_TRANSFORMER): array for name, array in plain.items()}


def inner_names(tensors):
    """mlx-rs' spelling: its quantized layer holds a plain one, called inner."""
    layers = {name.removesuffix(".scales") for name in tensors if name.endswith(".scales")}
    return {
        names.add_inner(name) if name.rpartition(".")[0] in layers else name: array for name, array in tensors.items()
    }


def inner_community_names(tensors):
    return inner_names(community_names(tensors))


def forms():
    table, engine = {}, ["--model={root}"]
    for bits in BITS:
        for group_size in GROUP_SIZES:
            write = partial(diffusers_form, bits=bits, group_size=group_size)
            table[f"mlx_q{bits}_g{group_size}"] = ("mlx", write, engine)
    for bits in (None, *MFLUX_BITS):
        table["mflux_" + (f"q{bits}" if bits else "bf16")] = ("mflux", partial(mflux_form, bits=bits), engine)
    for name, rename in (("mlx_community_q4", community_names), ("mlx_rs_q4", inner_community_names)):
        table[name] = ("mlx", partial(mflux_form, bits=4, rename=rename, naming="mlx-community"), engine)
    return table
