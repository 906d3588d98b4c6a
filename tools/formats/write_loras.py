"""Writes one LoRA in every spelling that trainers use, and what diffusers makes of it.

    python -m tools.formats.write_loras --out tests/goldens/loras [--model models/tiny]

Files of the same layers hold the same factors, so that they must change the model in the same way, but for those that
name an alpha: it is half the rank. expected.json holds the merged weights (in the manner of golden_formats.py),
expected.safetensors the final latents of two steps, for single LoRAs and for several at once. refused_*: what an engine
must not take.
"""

import argparse
import json
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import diffusers
import torch
from diffusers import QwenImagePipeline
from peft import LoraConfig
from safetensors.torch import save_file

from tools.formats.golden_formats import summary
from tools.formats.model_folder import Model
from tools.reference import environment, text_to_image

ROOT = Path(__file__).resolve().parents[2]

RANK = 2
ALPHA = 1.0
STRENGTH = 0.4  # of a delta, relative to the weight it is added to: enough to be seen, too little to break the picture
# One of every kind of layer, in the first block or the last (-1).
ALL_KINDS = [
    *(f"transformer_blocks.0.attn.{name}" for name in ("to_q", "to_out.0", "add_k_proj")),
    *(f"transformer_blocks.0.{name}" for name in ("img_mlp.net.0.proj", "txt_mlp.net.2", "txt_mod.1")),
    *(f"transformer_blocks.-1.attn.{name}" for name in ("to_k", "to_v", "add_q_proj", "add_v_proj", "to_add_out")),
    *(f"transformer_blocks.-1.{name}" for name in ("img_mlp.net.2", "txt_mlp.net.0.proj", "img_mod.1")),
    *("img_in", "txt_in", "proj_out", "norm_out.linear"),
    *(f"time_text_embed.timestep_embedder.linear_{number}" for number in (1, 2)),
]
FEW_KINDS = [
    "transformer_blocks.0.attn.to_q",
    "transformer_blocks.-1.attn.to_out.0",
    "transformer_blocks.-1.img_mlp.net.2",
]
SETTINGS = {
    "prompt": "a red circle",
    "negative_prompt": None,
    "cfg": 1.0,
    "width": 64,
    "height": 64,
    "steps": 2,
    "seed": 3,
}
SETTINGS["max_sequence_length"] = 512


def dotted(prefix, down, up):
    return lambda layer: (f"{prefix}{layer}.{down}.weight", f"{prefix}{layer}.{up}.weight", f"{prefix}{layer}.alpha")


def underscored(layer):
    name = f"lora_unet_{layer.replace('.', '_')}"
    return f"{name}.lora_down.weight", f"{name}.lora_up.weight", f"{name}.alpha"


# In these every kind of layer; a few will do for the rest.
COMPLETE = ("peft", "kohya", "lightning")
# name -> (keys of down, up and alpha; whether the file has alphas; who writes such files)
STYLES = {
    "peft": (dotted("transformer.", "lora_A", "lora_B"), False, "diffusers' save_lora_weights"),
    "comfy": (dotted("diffusion_model.", "lora_A", "lora_B"), False, "ai-toolkit and others, for ComfyUI"),
    "comfy_alpha": (dotted("diffusion_model.", "lora_A", "lora_B"), True, "the same with alpha"),
    "comfy_down_up": (dotted("diffusion_model.", "lora_down", "lora_up"), True, "converted for ComfyUI"),
    "kohya": (underscored, True, "kohya-ss, musubi-tuner"),
    "lightning": (dotted("", "lora_down", "lora_up"), True, "Qwen-Image-Lightning"),
    "bare": (dotted("", "lora_A", "lora_B"), False, "trainers that save the transformer alone"),
    "bare_down_up": (dotted("", "lora_down", "lora_up"), False, "the same, older names"),
    "default": (dotted("", "lora_A.default", "lora_B.default"), False, "DiffSynth-Studio"),
    "old_diffusers": (dotted("transformer.", "lora.down", "lora.up"), False, "older diffusers"),
    "peft_model": (dotted("base_model.model.", "lora_A", "lora_B"), False, "peft's own save_pretrained"),
    "transformer_alpha": (
        dotted("transformer.", "lora_A", "lora_B"),
        True,
        "trainers that add alpha to diffusers' names",
    ),
}


def factors(model, kinds, seed):
    """{layer: (down [rank, in], up [out, rank])} in bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    last, pairs = model.config["transformer"]["num_layers"] - 1, {}
    for kind in kinds:
        layer = kind.replace("-1", str(last))
        weight = model.tensors["transformer"][f"{layer}.weight"].float()
        rows, columns = weight.shape
        down = torch.randn(RANK, columns, generator=generator) / columns**0.5
        up = torch.randn(rows, RANK, generator=generator)
        up *= STRENGTH * weight.norm() / (up @ down).norm()
        pairs[layer] = (down.bfloat16(), up.bfloat16())
    return pairs


def write_style(path, style, pairs):
    keys, has_alpha, _ = STYLES[style]
    tensors = {}
    for layer, (down, up) in pairs.items():
        down_key, up_key, alpha_key = keys(layer)
        tensors |= {down_key: down.clone(), up_key: up.clone()}
        if has_alpha:
            tensors[alpha_key] = torch.tensor(ALPHA)
    save_file(tensors, path)


def write_metadata_style(path, pairs):
    """As diffusers writes today: the alpha is in the file's metadata and nowhere else."""
    layers = {f"{layer}.lora_A.weight": down.clone() for layer, (down, _) in pairs.items()}
    layers |= {f"{layer}.lora_B.weight": up.clone() for layer, (_, up) in pairs.items()}
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=sorted(pairs)).to_dict()
    QwenImagePipeline.save_lora_weights(
        path.parent, layers, weight_name=path.name, transformer_lora_adapter_metadata=config
    )


def write_refused(out, pairs):
    """Files that an engine must refuse: it would leave them without effect, or with another one than meant."""
    layer, (down, up) = next(iter(pairs.items()))
    other = {
        "transformer.single_transformer_blocks.0.attn.to_q.lora_A.weight": down,
        "transformer.single_transformer_blocks.0.attn.to_q.lora_B.weight": up,
    }
    save_file(other, out / "refused_other_model.safetensors")
    save_file(
        {f"diffusion_model.{layer}.lokr_w1": down[:, :2].contiguous(), f"diffusion_model.{layer}.lokr_w2": up},
        out / "refused_lokr.safetensors",
    )
    dora = {f"transformer.{layer}.lora_A.weight": down, f"transformer.{layer}.lora_B.weight": up}
    save_file({**dora, f"transformer.{layer}.dora_scale": torch.ones(up.shape[0], 1)}, out / "refused_dora.safetensors")
    save_file({f"transformer.{layer}.lora_A.weight": down}, out / "refused_half.safetensors")
    wide = {
        f"transformer.{layer}.lora_A.weight": torch.zeros(RANK, down.shape[1] + 1),
        f"transformer.{layer}.lora_B.weight": up,
    }
    save_file(wide, out / "refused_shape.safetensors")


class Reference:
    """diffusers with LoRAs: the merged weights and the final latents."""

    def __init__(self, model):
        self._model = model
        self._settings = SimpleNamespace(**SETTINGS)

    def _pipe(self):
        return text_to_image.load(self._model.folder, torch.float32)

    def latents(self, pipe):
        noise = text_to_image.initial_latents(pipe, self._settings)
        options = {
            "prompt": SETTINGS["prompt"],
            "true_cfg_scale": SETTINGS["cfg"],
            "num_inference_steps": SETTINGS["steps"],
        }
        options |= {"height": SETTINGS["height"], "width": SETTINGS["width"], "output_type": "latent"}
        return pipe(latents=noise, **options).images

    def without(self):
        return self.latents(self._pipe())

    def run(self, loras):
        """LORAS: [(file, scale)]. Returns the weights that changed and the latents, or None and what diffusers said."""
        pipe = self._pipe()
        source = {name: tensor.clone() for name, tensor in pipe.transformer.state_dict().items()}
        adapters = [f"lora{index}" for index in range(len(loras))]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for adapter, (path, _) in zip(adapters, loras):
                    pipe.load_lora_weights(path, adapter_name=adapter)
                pipe.set_adapters(adapters, [scale for _, scale in loras])
        except (ValueError, KeyError, RuntimeError) as error:
            return None, str(error).splitlines()[0][:60]
        latents = self.latents(pipe)
        pipe.fuse_lora(components=["transformer"], adapter_names=adapters)
        pipe.unload_lora_weights()
        changed = {}
        for name, tensor in pipe.transformer.state_dict().items():
            if not torch.equal(tensor, source[name]):
                changed[name] = tensor
        return changed, latents


def merged(model, pairs_and_scales):
    """The formula: weight + scale · alpha / rank · up @ down."""
    result = {}
    for pairs, scale in pairs_and_scales:
        for layer, (down, up) in pairs.items():
            name = f"{layer}.weight"
            weight = result.get(name, model.tensors["transformer"][name].double())
            result[name] = weight + scale * up.double() @ down.double()
    return result


def check_merged(style, found, expected):
    assert set(found) == set(expected), (style, sorted(set(found) ^ set(expected))[:5])
    for name, tensor in expected.items():
        error = float((found[name].double() - tensor).norm() / tensor.norm())
        # diffusers bakes alpha / rank into bfloat16 factors; here it is a power of two, so nothing is lost.
        assert error < 1e-6, (style, name, error)


def write(out, folder):
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    model = Model(folder)
    complete, few, others = factors(model, ALL_KINDS, 21), factors(model, FEW_KINDS, 22), factors(model, FEW_KINDS, 23)
    for style in STYLES:
        write_style(out / f"{style}.safetensors", style, complete if style in COMPLETE else few)
    write_metadata_style(out / "peft_metadata.safetensors", few)
    write_style(out / "second.safetensors", "kohya", others)
    write_refused(out, few)
    half = ALPHA / RANK
    scales = {style: half if has_alpha else 1.0 for style, (_, has_alpha, _) in STYLES.items()} | {
        "peft_metadata": half
    }
    reference, runs, tensors = Reference(model), [], {}

    def run(name, files, formula):
        """FILES: [(style, scale)]; FORMULA: the factors with the scales that these files amount to."""
        found, latents = reference.run([(out / f"{style}.safetensors", scale) for style, scale in files])
        expected = merged(model, formula)
        if found:
            check_merged(name, found, expected)
            status = "diffusers"
        else:
            # found is None (an error) or empty (nothing changed): the same formula through a file that diffusers reads.
            status = f"formula; diffusers: {latents if found is None else 'loads it without effect'}"
            known = [("comfy", formula[0][1])]
            latents = reference.run([(out / f"{style}.safetensors", scale) for style, scale in known])[1]
        tensors[name] = latents.float().contiguous()
        entry = {
            "name": name,
            "loras": [{"file": f"{style}.safetensors", "scale": scale} for style, scale in files],
            "reference": status,
        }
        runs.append({**entry, "weights": {key: summary(value.float()) for key, value in expected.items()}})
        print(f"{name:20} {status}")

    for style, scale in scales.items():
        run(style, [(style, 1.0)], [(complete if style in COMPLETE else few, scale)])
    run("scaled", [("peft", -0.75)], [(complete, -0.75)])
    run("two", [("kohya", 0.5), ("second", 1.5)], [(complete, 0.5 * half), (others, 1.5 * half)])
    run("two_signs", [("kohya", 0.7), ("second", -0.5)], [(complete, 0.7 * half), (others, -0.5 * half)])
    run("twice", [("comfy", 0.5), ("comfy_alpha", 0.5)], [(few, 0.5), (few, 0.5 * half)])
    tensors["without"] = reference.without().float().contiguous()
    save_file(tensors, out / "expected.safetensors")
    write_expected(out / "expected.json", runs)
    total = sum(path.stat().st_size for path in out.iterdir())
    print(f"{total:,} bytes in all")


def write_expected(path, runs):
    """The merged weights depend only on the scales: one list for each set of them."""
    lists, entries = {}, []
    for run in runs:
        weights = run.pop("weights")
        text = ",\n   ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(weights.items()))
        index = lists.setdefault(text, len(lists))
        entries.append(json.dumps({**run, "weights": index}))
    settings = json.dumps({**SETTINGS, "model": "models/tiny", "rank": RANK, "alpha": ALPHA})
    bodies = ",\n  ".join(f"{{\n   {text}}}" for text in lists)
    joined = ",\n  ".join(entries)
    path.write_text(
        f'{{"settings": {settings},\n "runs": [\n  {joined}],\n "weights": [\n  {bodies}]}}\n', encoding="utf-8"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "tiny")
    args = parser.parse_args()
    torch.set_num_threads(1)
    environment.silence_progress_bars()
    diffusers.utils.logging.set_verbosity(
        diffusers.utils.logging.CRITICAL
    )  # that it ignores a file is in expected.json
    write(args.out, args.model)


if __name__ == "__main__":
    main()
