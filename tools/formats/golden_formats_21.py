"""Writes small files of Qwen-Image-2.1 as other programs store them, for the tests that run without Python.

    python -m tools.formats.golden_formats_21 --out tests/goldens/formats21

expected.json is as golden_formats.py's: what each tensor is worth to the program that wrote it. Names are diffusers';
gate and up of an MLP, which ComfyUI's files hold as one matrix, are told apart as diffusers' own converter does.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import gguf
import mlx.core as mx
import torch
from comfy_kitchen.tensor import TensorWiseINT8Layout
from comfy_kitchen.tensor.int8_utils import _build_hadamard, _rotate_weight
from diffusers import QwenImage21Transformer2DModel
from diffusers.loaders.single_file_utils import (
    convert_qwen_image21_transformer_checkpoint_to_diffusers,
)
from mflux.models.common.weights.loading.weight_applier import WeightApplier
from mflux.models.common.weights.loading.weight_loader import WeightLoader
from mflux.models.qwen21.model.qwen21_transformer.qwen_image21_transformer import (
    QwenImage21Transformer,
)
from mflux.models.qwen21.qwen21_initializer import Qwen21Initializer
from mflux.models.qwen21.weights.qwen_image21_weight_definition import (
    QwenImage21WeightDefinition,
)
from mlx.utils import tree_flatten, tree_unflatten
from safetensors.torch import save_file

from tools.formats import gguf_forms, mlx_forms, read_forms, safetensors_forms
from tools.formats.golden_formats import Goldens

CONFIG = {
    "num_layers": 1,
    "num_attention_heads": 2,
    "attention_head_dim": 32,
    "in_channels": 4,
    "out_channels": 4,
    "context_in_dim": 64,
    "mlp_ratio": 1,
    "axes_dims_rope": [8, 12, 12],
}
PREFIX = safetensors_forms.PREFIX
ROTATED = {"format": "int8_tensorwise", "convrot": True, "convrot_groupsize": 256}
# A matrix each: rows, what is said of it, and how comfy-kitchen makes it.
COMFY_LAYERS = {
    "transformer_blocks.0.attn.to_q": (
        4,
        ROTATED,
        {"per_channel": True, "convrot": True},
    ),
    "transformer_blocks.0.img_mlp.gate_up": (
        8,
        ROTATED,
        {"per_channel": True, "convrot": True},
    ),
    "transformer_blocks.0.img_mlp.out": (
        4,
        {"format": "int8_tensorwise"},
        {"per_channel": True},
    ),
    "transformer_blocks.1.img_mlp.gate_up": (8, {"format": "int8_tensorwise"}, {}),
}


def random_transformer():
    torch.manual_seed(21)
    model = QwenImage21Transformer2DModel(**CONFIG)
    tensors = {}
    for name, value in model.state_dict().items():
        scale = 0.2 if value.dim() == 1 else 1 / 16
        base = 1.0 if name.endswith(("norm_q.weight", "norm_k.weight")) else 0.0
        tensors[name] = (base + scale * torch.randn_like(value)).to(torch.bfloat16)
    return model, tensors


def fused(tensors):
    """As ComfyUI's file has them: the rows of the gate, then those of up."""
    stored = {}
    for name, value in tensors.items():
        if name.endswith("img_mlp.gate_layer.weight"):
            up = tensors[name.replace("gate_layer", "proj")]
            stored[name.replace("gate_layer", "gate_up")] = torch.cat([value, up])
        elif not name.endswith("img_mlp.proj.weight"):
            stored[name] = value
    return stored


def split(values):
    return convert_qwen_image21_transformer_checkpoint_to_diffusers(dict(values))


def exact_value(quantized, parameters):
    """comfy-kitchen's value, in float64: its own sums of 256 products are rounded to float32 one by one."""
    value = quantized.double() * parameters.scale.double()
    if parameters.convrot:
        rotation = _build_hadamard(parameters.convrot_groupsize, dtype=torch.float64)
        value = _rotate_weight(value, rotation, parameters.convrot_groupsize)
    torch.testing.assert_close(
        value.float(),
        TensorWiseINT8Layout.dequantize(quantized, parameters),
        rtol=1e-5,
        atol=1e-6,
    )
    return value.float()


def comfy_golden(goldens, out):
    generator = torch.Generator().manual_seed(12)
    stored, values = {}, {}
    for layer, (rows, note, options) in COMFY_LAYERS.items():
        matrix = torch.randn(rows, 512, generator=generator) / 16
        matrix[:, 7] *= 20  # what the rotation is for
        stored |= safetensors_forms.comfy_quant({f"{layer}.weight": matrix}, TensorWiseINT8Layout, note, **options)
        values[f"{layer}.weight"] = exact_value(*TensorWiseINT8Layout.quantize(matrix, **options))
    stored["txt_in.text_norm.weight"] = torch.randn(8, generator=generator).to(torch.bfloat16)
    values["txt_in.text_norm.weight"] = stored["txt_in.text_norm.weight"].float()
    path = "comfy_int8_convrot.safetensors"
    safetensors_forms.save(out / path, {PREFIX + name: tensor for name, tensor in stored.items()})
    goldens.note(path, "transformer", "comfy-kitchen", split(values))


def write_bare_gguf(path, tensors, kind):
    """No metadata, a prefix, and vectors quantized like matrices."""
    writer = gguf.GGUFWriter(path, "")
    writer.kv_data[0].clear()
    for name, tensor in tensors.items():
        array = tensor.float().numpy()
        try:
            data, used = gguf.quants.quantize(array, kind), kind
        except gguf.QuantError:
            used = gguf.GGMLQuantizationType.F16
            data = gguf.quants.quantize(array, used)
        writer.add_tensor(PREFIX + name, data, raw_dtype=used)
    gguf_forms.finish(writer)


def gguf_goldens(goldens, out, tensors):
    path = out / "transformer_q8_0.gguf"
    writer = gguf.GGUFWriter(path, "qwen_image21")
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, tensor in fused(tensors).items():
        gguf_forms.add_tensor(writer, name, tensor, gguf.GGMLQuantizationType.Q8_0)
    gguf_forms.finish(writer)
    goldens.note(path.name, "transformer", "gguf", split(read_forms.read_gguf(path)))
    path = out / "transformer_q4_0_bare.gguf"
    write_bare_gguf(path, fused(tensors), gguf.GGMLQuantizationType.Q4_0)
    assert len(gguf.GGUFReader(path).fields) == 3  # version and counts: no key of the file's own
    goldens.note(path.name, "transformer", "gguf", split(read_forms.read_gguf(path)))


def mflux_golden(goldens, out, model, tensors):
    """mflux's own module, quantization, choice of layers and saver."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "transformer"
        source.mkdir()
        save_file(tensors, source / "diffusion_pytorch_model.safetensors", {"format": "pt"})
        (source / "config.json").write_text(json.dumps(dict(model.config)), encoding="utf-8")
        component = next(c for c in QwenImage21WeightDefinition.get_components() if c.name == "transformer")
        module = QwenImage21Transformer(dict(model.config))
        weights = WeightLoader.load_single_local(component, Path(folder))
        supplied = dict(tree_flatten(weights.components["transformer"]))
        supplied = Qwen21Initializer._normalize_transformer_weights(supplied)
        weights.components["transformer"] = tree_unflatten(list(supplied.items()))
        WeightApplier.apply_and_quantize(weights, {"transformer": module}, 4, QwenImage21WeightDefinition)
    parameters = dict(tree_flatten(module.parameters()))
    mlx_forms.save_with_mflux(out / "mflux_q4", "transformer", parameters, 4)
    values = {}
    for name, array in parameters.items():
        layer = name.removesuffix(".weight")
        if f"{layer}.scales" in parameters and name.endswith(".weight"):
            scales, biases = (parameters[f"{layer}.{part}"].astype(mx.float32) for part in ("scales", "biases"))
            array = mx.dequantize(array, scales, biases, group_size=64, bits=4)
        elif not name.endswith(".weight"):
            continue
        official = name.replace("modulation.layers.1.", "modulation.1.")
        values[official] = torch.tensor(array.astype(mx.float32).tolist()).reshape(array.shape)
    goldens.note("mflux_q4/transformer", "transformer", "mflux", values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(args.out / "mflux_q4", ignore_errors=True)
    goldens = Goldens(args.out)
    model, tensors = random_transformer()
    config = {"_class_name": type(model).__name__, **CONFIG}
    (args.out / "config.json").write_text(json.dumps(config) + "\n", encoding="utf-8")
    comfy_golden(goldens, args.out)
    gguf_goldens(goldens, args.out, tensors)
    mflux_golden(goldens, args.out, model, tensors)
    goldens.write()
    for path in sorted(args.out.rglob("*")):
        if path.is_file():
            print(f"{path.stat().st_size:9,}  {path.relative_to(args.out)}")


if __name__ == "__main__":
    main()
