"""Writes the small files of other programs that are committed for the tests that run without Python.

    python -m tools.formats.golden_formats --out tests/goldens/formats --sd PATH/sd-cli

expected.json says of every file what each of its tensors is worth, under diffusers' names, as the program that wrote it
reads it: the shape; of the float32 values, in float64, the sum, the sum of squares and the sum of value[i] · (i mod 97),
which a wrong order changes; and a few values by their place i in the flat tensor.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import mlx.core as mx
import torch
from mlx.utils import tree_flatten

from tools.formats import gguf_forms, mlx_forms, names, read_forms, safetensors_forms
from tools.formats.model_folder import Model
from tools.formats.write_formats import version_of
from tools.reference import environment, random_model, random_spec

MAX_BYTES = 1_500_000
PROBES = 4
PERIOD = 97
VAE = {"base_dim": 2, "dim_mult": [1, 2, 2, 2], "num_res_blocks": 2}
TEXT_ENCODER = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 64}
# MLX' usual groups are of 64 values, so rows cannot be shorter; for the rest 32 will do.
SPECS = {
    "wide64": {
        "dtype": "bfloat16",
        "transformer": {"num_layers": 1, "num_attention_heads": 2},
        "text_encoder": {**TEXT_ENCODER, "hidden_size": 64},
        "vision": {"depth": 1},
        "vae": VAE,
    },
    "wide32": {
        "dtype": "bfloat16",
        "transformer": {"num_layers": 1, "num_attention_heads": 1},
        "text_encoder": {**TEXT_ENCODER, "hidden_size": 32},
        "vision": {"depth": 1},
        "vae": VAE,
    },
}
# ggml's blocks of 256: one matrix of each type, in the names of a transformer's block.
SD_LAYERS = {
    "attn.to_q": "q2_K",
    "attn.to_k": "q3_K",
    "attn.to_v": "q4_K",
    "attn.to_out.0": "q5_K",
    "attn.add_q_proj": "q6_K",
    "attn.add_k_proj": "iq4_nl",
    "attn.add_v_proj": "iq4_xs",
    "attn.to_add_out": "q8_0",
    "img_mlp.net.2": "q4_0",
    "txt_mlp.net.2": "q4_1",
    "img_mod.1": "q5_0",
    "txt_mod.1": "q5_1",
}
# ComfyUI's newer layouts, a matrix each.
COMFY_LAYERS = {
    "attn.to_q": ("fp8", {"format": "float8_e4m3fn"}, {}),
    "attn.to_k": ("int8", {"format": "int8_tensorwise"}, {}),
    "attn.to_v": ("int8", {"format": "int8_tensorwise"}, {"per_channel": True}),
    "attn.to_out.0": (
        "int8",
        {"format": "int8_tensorwise", "convrot": True, "convrot_groupsize": 256},
        {"per_channel": True, "convrot": True},
    ),
}


def some_matrices(layers, rows, columns=256):
    generator = torch.Generator().manual_seed(11)
    tensors = {
        f"transformer_blocks.0.{layer}.weight": torch.randn(rows, columns, generator=generator) / 16 for layer in layers
    }
    # What stable-diffusion.cpp quantizes too: vectors.
    return tensors | {"txt_norm.weight": 1 + 0.2 * torch.randn(columns, generator=generator)}


def summary(value):
    """What a test can compare a float32 tensor with."""
    flat = value.double().flatten()
    places = sorted({round(step * (len(flat) - 1) / (PROBES - 1)) for step in range(PROBES)})
    return {
        "shape": list(value.shape),
        "sum": float(flat.sum()),
        "sum_squares": float((flat * flat).sum()),
        "ordered_sum": float((flat * (torch.arange(len(flat)) % PERIOD)).sum()),
        "probes": [[place, float(flat[place])] for place in places],
    }


class Goldens:
    def __init__(self, out):
        self._out = out
        self._entries = []

    def note(self, path, component, tool, values):
        tensors = {name: summary(value) for name, value in sorted(values.items())}
        self._entries.append({"path": path, "component": component, "tool": version_of(tool), "tensors": tensors})

    def part(self, model, path, component, tool, part):
        self.note(path, component, tool, read_forms.read_part(self._out, component, {"path": path, **part}, model))

    def write(self):
        """A line per tensor: a change shows as a small diff."""
        texts = []
        for entry in self._entries:
            lines = ",\n   ".join(
                f"{json.dumps(name)}: {json.dumps(value)}" for name, value in entry.pop("tensors").items()
            )
            texts.append(f'{json.dumps(entry)[:-1]}, "tensors": {{\n   {lines}}}}}')
        (self._out / "expected.json").write_text('{"files": [\n ' + ",\n ".join(texts) + "\n]}\n", encoding="utf-8")


def mlx_goldens(goldens, out, models):
    wide = models["wide64"]
    transformer = dict(tree_flatten(mlx_forms.mflux_transformer(wide, 4).parameters()))
    mlx_forms.save_with_mflux(out / "mflux_q4", "transformer", transformer, 4)
    mlx_forms.save_with_mflux(out / "mflux_q4", "vae", mlx_forms.mflux_vae(wide), 4)
    for component in ("transformer", "vae"):
        goldens.part(wide, f"mflux_q4/{component}", component, "mflux", {"format": "mlx", "names": "mflux"})
    community = mlx_forms.community_names(transformer)
    for name, tensors in (("mlx_community_q4", community), ("mlx_rs_q4", mlx_forms.inner_names(community))):
        mx.save_safetensors(str(out / f"{name}.safetensors"), tensors, {"quantization_level": "4"})
        goldens.part(wide, f"{name}.safetensors", "transformer", "mlx", {"format": "mlx", "names": "mlx-community"})
    narrow = models["wide32"]
    stored = mlx_forms.quantize(narrow.tensors["transformer"], 8, 32)
    stored = {names.from_diffusers(name, names.MFLUX_TRANSFORMER): array for name, array in stored.items()}
    mx.save_safetensors(str(out / "mlx_q8_g32.safetensors"), stored)
    goldens.part(narrow, "mlx_q8_g32.safetensors", "transformer", "mlx", {"format": "mlx", "names": "mflux"})


def comfy_goldens(goldens, out, models):
    from comfy_kitchen.tensor import TensorCoreFP8Layout, TensorWiseINT8Layout

    model = models["wide32"]
    stored = safetensors_forms.scaled_fp8(model.tensors["transformer"], 2, True)
    stored = {safetensors_forms.PREFIX + name: tensor for name, tensor in stored.items()}
    safetensors_forms.save(out / "comfy_fp8_scaled.safetensors", stored)
    goldens.part(
        model,
        "comfy_fp8_scaled.safetensors",
        "transformer",
        "comfy-kitchen",
        {"format": "safetensors", "names": "diffusers"},
    )
    vae = model.tensors["vae"]
    rules = names.original_vae(4, 2)
    safetensors_forms.save(
        out / "comfy_vae.safetensors", {names.from_diffusers(name, rules): tensor for name, tensor in vae.items()}
    )
    goldens.part(model, "comfy_vae.safetensors", "vae", "safetensors", {"format": "safetensors", "names": "original"})
    layouts = {"fp8": TensorCoreFP8Layout, "int8": TensorWiseINT8Layout}
    matrices, stored = some_matrices(COMFY_LAYERS, 8), {}
    for layer, (layout, settings, options) in COMFY_LAYERS.items():
        name = f"transformer_blocks.0.{layer}.weight"
        stored |= safetensors_forms.comfy_quant({name: matrices[name]}, layouts[layout], settings, **options)
    safetensors_forms.save(out / "comfy_quant.safetensors", stored)
    goldens.note(
        "comfy_quant.safetensors",
        "transformer",
        "comfy-kitchen",
        read_forms.read_safetensors(out / "comfy_quant.safetensors"),
    )


def gguf_goldens(goldens, out, models):
    model = models["wide32"]
    for kind in ("Q8_0", "Q4_0"):
        path = f"transformer_{kind.lower()}.gguf"
        gguf_forms.write_transformer(out / path, model.tensors["transformer"], kind)
        goldens.part(model, path, "transformer", "gguf", {"format": "gguf", "names": "diffusers"})
    gguf_forms.write_text_encoder(out / "text_encoder_q8_0.gguf", model, "Q8_0")
    goldens.part(model, "text_encoder_q8_0.gguf", "text_encoder", "gguf", {"format": "gguf", "names": "llama"})


def sd_goldens(goldens, out, program):
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "matrices.safetensors", out / "sdcpp_types.gguf"
        safetensors_forms.save(source, some_matrices(SD_LAYERS, 4))
        rules = ",".join(rf"{layer.replace('.', chr(92) + '.')}\.weight={kind}" for layer, kind in SD_LAYERS.items())
        command = [
            str(program),
            "-M",
            "convert",
            "-m",
            str(source),
            "-o",
            str(target),
            "--type",
            "q4_0",
            "--tensor-type-rules",
            rules,
        ]
        subprocess.run(command, check=True, capture_output=True)
    goldens.note(target.name, "transformer", "stable-diffusion.cpp", read_forms.read_gguf(target))


def write(out, program):
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    goldens, models = Goldens(out), {}
    with tempfile.TemporaryDirectory() as folder:
        for name, changes in SPECS.items():
            random_model.write_model(Path(folder) / name, random_spec.make("default", changes))
            models[name] = Model(Path(folder) / name)
            for component in ("transformer", "vae", "text_encoder"):
                (out / "configs" / name / component).mkdir(parents=True)
                shutil.copyfile(
                    Path(folder) / name / component / "config.json", out / "configs" / name / component / "config.json"
                )
        mlx_goldens(goldens, out, models)
        comfy_goldens(goldens, out, models)
        gguf_goldens(goldens, out, models)
    sd_goldens(goldens, out, program)
    goldens.write()
    sizes = {path: path.stat().st_size for path in sorted(out.rglob("*")) if path.is_file()}
    for path, size in sizes.items():
        print(f"{size:9,}  {path.relative_to(out)}")
    if sum(sizes.values()) > MAX_BYTES:
        raise SystemExit(f"the goldens take {sum(sizes.values()):,} bytes, more than {MAX_BYTES:,}")
    print(f"{sum(sizes.values()):9,}  in all")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--sd", required=True, type=Path, help="stable-diffusion.cpp's program (sd-cli)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    environment.silence_progress_bars()
    write(args.out, args.sd)


if __name__ == "__main__":
    main()
