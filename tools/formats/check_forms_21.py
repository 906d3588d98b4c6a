"""Draws with a model of Qwen-Image-2.1 in every form that other programs store it in.

    python -m tools.formats.check_forms_21 --engine build/release/qwen-image --model FOLDER --work build/forms21

Each form is written with the tool that its users' files come from, and beside it a plain folder with the values that
this tool reads from it. The engine draws a picture from text and one from a picture with both, in exact precision:
they must agree to one level. That the engine draws plain folders as diffusers does is ./run parity's business.
"""

import argparse
import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np
import torch
from comfy_kitchen.tensor import TensorWiseINT8Layout
from mflux.models.qwen21.weights.qwen_image21_weight_definition import QwenImage21WeightDefinition
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from tools.formats import gguf_forms, mlx_forms
from tools.formats.golden_formats_21 import exact_value, fused, split
from tools.formats.golden_names_21 import llama_text, llama_vision
from tools.formats.safetensors_forms import PREFIX, comfy_quant, is_matrix

STEMS = {"transformer": "diffusion_pytorch_model", "text_encoder": "model", "vae": "diffusion_pytorch_model"}
VISION = "model.visual."


class Model:
    def __init__(self, folder):
        self.folder = folder
        self.turbo = "sample_sigmas" in json.loads((folder / "model_index.json").read_text(encoding="utf-8"))
        self.configs, self.tensors = {}, {}
        for component in STEMS:
            path = folder / component
            self.configs[component] = json.loads((path / "config.json").read_text(encoding="utf-8"))
            self.tensors[component] = {}
            for file in sorted(path.glob("*.safetensors")):
                with safe_open(file, "pt") as opened:
                    for name in opened.keys():
                        self.tensors[component][name] = opened.get_tensor(name).to(torch.bfloat16)

    def write_plain(self, out, values):
        """The folder again, with these values in float32."""
        for path in self.folder.rglob("*"):
            # Of the areas in qwen_image.json single files know nothing.
            left_out = ("diffusion_pytorch_model", "model.safetensors", "model-", "qwen_image.json")
            if path.is_file() and not path.name.startswith(left_out):
                (out / path.relative_to(self.folder)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, out / path.relative_to(self.folder))
        for component, tensors in values.items():
            tensors = {name: tensor.float().contiguous() for name, tensor in tensors.items()}
            save_file(tensors, out / component / f"{STEMS[component]}.safetensors", {"format": "pt"})

    def put_config(self, component, folder):
        """No file of the other programs tells what the published sizes tell."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.configs[component]), encoding="utf-8")

    def values(self):
        return {component: dict(tensors) for component, tensors in self.tensors.items()}


def wan_name(name):
    """The VAE's names in ComfyUI's file (the pairs of names.json say the same)."""
    for side, inner in (("encoder.down_blocks", "downsamples"), ("decoder.up_blocks", "upsamples")):
        list_name = f"{side.split('.', maxsplit=1)[0]}.{inner}"
        name = re.sub(rf"{side}\.(\d+)\.resnets\.(\d+)", rf"{list_name}.\1.{inner}.\2", name)
    inside = {"norm1": "residual.0", "conv1": "residual.2", "norm2": "residual.3", "conv2": "residual.6"}
    inside |= {"conv_shortcut": "shortcut"}
    for part, original in inside.items():
        name = name.replace(f".{part}.", f".{original}.")
    for part, original in (("conv_in", "conv1"), ("norm_out", "head.0"), ("conv_out", "head.2")):
        name = name.replace(f"coder.{part}.", f"coder.{original}.")
    for part, place in (("resnets.0", 0), ("attentions.0", 1), ("resnets.1", 2)):
        name = name.replace(f"mid_block.{part}.", f"middle.{place}.")
    return re.sub("^post_quant_conv", "conv2", re.sub("^quant_conv", "conv1", name))


def comfy_vae(tensors):
    resnets = 1 + max(int(name.split(".")[4]) for name in tensors if name.startswith("decoder.up_blocks.0.resnets."))
    stored = {}
    for name, value in tensors.items():
        name = re.sub(r"decoder\.up_blocks\.(\d+)\.upsampler", rf"decoder.upsamples.\1.upsamples.{resnets}", name)
        name = re.sub(
            r"encoder\.down_blocks\.(\d+)\.downsampler", rf"encoder.downsamples.\1.downsamples.{resnets - 1}", name
        )
        plane = value.dim() == 4 and ".resample." not in name and ".attentions." not in name
        stored[wan_name(name)] = value.unsqueeze(2).contiguous() if plane and name.endswith(".weight") else value
    return stored


def comfy_files(model, out, transformer, text_encoder):
    files = {
        "transformer": out / "diffusion_models" / "qwen_image_2.1.safetensors",
        "text_encoder": out / "text_encoders" / "qwen3vl_8b.safetensors",
        "vae": out / "vae" / "qwen_image_2.1_vae.safetensors",
    }
    stored = {"transformer": transformer, "text_encoder": text_encoder, "vae": comfy_vae(model.tensors["vae"])}
    for component, path in files.items():
        model.put_config(component, path.parent)
        save_file({name: tensor.contiguous() for name, tensor in stored[component].items()}, path)
    shutil.copytree(model.folder / "processor", out / "processor")
    return [f"--model={out}", f"--tokenizer={out}/processor"]


def comfy_bf16(model, out):
    transformer = {PREFIX + name: tensor for name, tensor in fused(model.tensors["transformer"]).items()}
    return comfy_files(model, out, transformer, model.tensors["text_encoder"]), model.values()


def rotated(tensors):
    stored, values = {}, {}
    for name, tensor in tensors.items():
        group = next((size for size in (256, 64, 16, 4) if tensor.shape[-1] % size == 0), None)
        options, settings = {"per_channel": True}, {"format": "int8_tensorwise"}
        if group:
            options |= {"convrot": True, "convrot_groupsize": group}
            settings |= {"convrot": True, "convrot_groupsize": group}
        stored |= comfy_quant({name: tensor}, TensorWiseINT8Layout, settings, **options)
        values[name] = tensor.float()
        if is_matrix(name, tensor):
            values[name] = exact_value(*TensorWiseINT8Layout.quantize(tensor.float(), **options))
    return stored, values


def comfy_int8_convrot(model, out):
    transformer, transformer_values = rotated(fused(model.tensors["transformer"]))
    text_encoder, text_values = rotated(model.tensors["text_encoder"])
    values = model.values() | {"transformer": split(transformer_values), "text_encoder": text_values}
    return comfy_files(
        model, out, {PREFIX + name: tensor for name, tensor in transformer.items()}, text_encoder
    ), values


def add_gguf(writer, name, tensor, kind, quantize_vectors=False):
    """Adds a tensor; returns what it is worth."""
    array = tensor.float().numpy()
    if tensor.dim() == 1 and not quantize_vectors:
        kind = gguf.GGMLQuantizationType.F32
    try:
        data = gguf.quants.quantize(array, kind)
    except gguf.QuantError:
        kind = gguf.GGMLQuantizationType.F16
        data = gguf.quants.quantize(array, kind)
    writer.add_tensor(name, data, raw_dtype=kind)
    return torch.from_numpy(gguf.quants.dequantize(data, kind).astype(np.float32)).reshape(tensor.shape)


def gguf_text_encoder(model, path, kind):
    text = model.configs["text_encoder"]["text_config"]
    rope = text.get("rope_parameters") or {**text["rope_scaling"], "rope_theta": text["rope_theta"]}
    tensors = model.tensors["text_encoder"]
    writer = gguf.GGUFWriter(path, "qwen3vl")
    writer.add_block_count(text["num_hidden_layers"])
    writer.add_head_count(text["num_attention_heads"])
    writer.add_head_count_kv(text["num_key_value_heads"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(text["rms_norm_eps"])
    gguf_forms.add_tokenizer(writer, model.folder / "processor", text["vocab_size"])
    values = {}
    for theirs, ours in llama_text(list(tensors), text["num_hidden_layers"]).items():
        values[ours] = add_gguf(writer, theirs, tensors[ours], kind)
    gguf_forms.finish(writer)
    return values


def gguf_vision(model, path):
    vision = model.configs["text_encoder"]["vision_config"]
    tensors = dict(model.tensors["text_encoder"])
    patches = f"{VISION}patch_embed.proj."
    for frame in range(2):
        tensors[f"{patches}{frame}.weight"] = tensors[f"{patches}weight"][:, :, frame].contiguous()
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_string("clip.projector_type", "qwen3vl_merger")
    writer.add_uint32("clip.vision.attention.head_count", vision["num_heads"])
    writer.add_uint32("clip.vision.patch_size", vision["patch_size"])
    values = {}
    names = llama_vision(model.tensors["text_encoder"], vision["depth"], vision["deepstack_visual_indexes"])
    for theirs, ours in names.items():
        values[ours] = add_gguf(writer, theirs, tensors[ours], gguf.GGMLQuantizationType.F16)
    gguf_forms.finish(writer)
    frames = [values.pop(f"{patches}{frame}.weight") for frame in range(2)]
    return values | {f"{patches}weight": torch.stack(frames, 2)}


def gguf_form(model, out, kind, bare):
    """BARE: no metadata, a prefix, and norms quantized like matrices."""
    kind = gguf.GGMLQuantizationType[kind]
    for component in ("transformer", "text_encoder", "vae"):
        model.put_config(component, out / component)
    writer = gguf.GGUFWriter(out / "transformer" / "t.gguf", "qwen_image21")
    if bare:
        writer.kv_data[0].clear()
    transformer = {}
    for name, tensor in fused(model.tensors["transformer"]).items():
        transformer[name] = add_gguf(writer, (PREFIX if bare else "") + name, tensor, kind, bare)
    gguf_forms.finish(writer)
    text = gguf_text_encoder(model, out / "text_encoder" / "e.gguf", kind)
    model.put_config("text_encoder", out / "vision")
    text |= gguf_vision(model, out / "vision" / "mmproj.gguf")
    save_file(comfy_vae(model.tensors["vae"]), out / "vae" / "v.safetensors")
    engine = [f"--transformer={out}/transformer/t.gguf", f"--text-encoder={out}/text_encoder/e.gguf"]
    engine += [f"--vae={out}/vae/v.safetensors", f"--vision-encoder={out}/vision/mmproj.gguf"]
    return engine, model.values() | {"transformer": split(transformer), "text_encoder": text}


def mlx_values(stored):
    values = {}
    for name, array in stored.items():
        layer = name.removesuffix(".weight")
        if name != layer and f"{layer}.scales" in stored:
            scales, biases = (stored[f"{layer}.{part}"].astype(mx.float32) for part in ("scales", "biases"))
            array = mx.dequantize(array, scales, biases, group_size=64, bits=4)
        elif name.endswith((".scales", ".biases")):
            continue
        values[name] = torch.tensor(array.astype(mx.float32).tolist()).reshape(array.shape)
    return values


def mlx_form(model, out, community):
    """As mflux saves a model for edits, or as mlx-community has it; four bits, groups of 64."""
    edit, values = QwenImage21WeightDefinition, {}
    for component in STEMS:
        tensors = model.tensors[component]
        stored = {name: mlx_forms.to_mlx(tensor) for name, tensor in tensors.items()}
        if component != "vae":
            stored = mlx_forms.quantize(tensors, 4, 64)
        values[component] = mlx_values(stored)
        if component == "vae":
            stored = {name: edit.vae_weight(name, array) for name, array in stored.items()}
        elif component == "text_encoder":
            stored = {name: edit.text_weight(name, array) for name, array in stored.items()}
            begin = "language_model.model." if community else "language_model."
            rename = {"model.language_model.": begin, VISION: "vision_tower." if community else "visual."}
            for ours, theirs in rename.items():
                stored = {re.sub(f"^{ours}", theirs, name): array for name, array in stored.items()}
        else:
            theirs = "modulation.0." if community else "modulation.layers.1."
            stored = {name.replace("modulation.1.", theirs): array for name, array in stored.items()}
        mlx_forms.save_with_mflux(out, component, stored, 4)
        model.put_config(component, out / component)
    shutil.copytree(model.folder / "processor", out / "processor")
    return [f"--model={out}"], values


FORMS = {
    "comfy_bf16": comfy_bf16,
    "comfy_int8_convrot": comfy_int8_convrot,
    "gguf_q8_0": lambda model, out: gguf_form(model, out, "Q8_0", bare=False),
    "gguf_q4_0_bare": lambda model, out: gguf_form(model, out, "Q4_0", bare=True),
    "mflux_q4": lambda model, out: mlx_form(model, out, community=False),
    "mlx_community_q4": lambda model, out: mlx_form(model, out, community=True),
}


def draw(engine, arguments, picture, out):
    common = ["--seed=7", "--precision=exact", "--no-prompt-cache"]
    if picture:
        command = [engine, "edit", "make it blue", f"--input-image={picture}", "--size=96x96", *common]
    else:
        command = [engine, "generate", "a red circle", "--size=96x64", *common]
    done = subprocess.run([*command, *arguments, "-o", out], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} {' '.join(arguments)} failed:\n{done.stderr}")
    return np.asarray(Image.open(out)).astype(float)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True, type=Path)
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    work, model = args.work.resolve(), Model(args.model)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    noise = np.random.default_rng(3).integers(0, 256, (96, 96, 4), dtype=np.uint8)
    Image.fromarray(noise).save(work / "picture.png")
    failed = []
    for name, write in FORMS.items():
        out = work / name / "form"
        out.mkdir(parents=True)
        arguments, values = write(model, out)
        arguments += [f"--variant={'2.1-turbo' if model.turbo else '2.1'}"]  # which only a folder's index tells
        model.write_plain(work / name / "plain", values)
        steps = [] if model.turbo else ["--steps=2"]
        for picture in (None, work / "picture.png"):
            what = "edit" if picture else "text"
            drawn = draw(args.engine, arguments + steps, picture, work / name / f"form_{what}.png")
            arguments_of_plain = [f"--model={work}/{name}/plain", *steps]
            plain = draw(args.engine, arguments_of_plain, picture, work / name / f"plain_{what}.png")
            levels = np.abs(drawn - plain).max()
            psnr = 10 * math.log10(255**2 / max(((drawn - plain) ** 2).mean(), 1e-30))
            print(f"{name:20} {what}: {'identical' if levels == 0 else f'{levels:.0f} level, {psnr:.0f} dB'}")
            if levels > 1 or psnr < 60:
                failed.append(name)
    if failed:
        raise SystemExit(f"these differ: {', '.join(failed)}")


if __name__ == "__main__":
    main()
