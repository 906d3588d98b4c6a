"""Writes what other programs call the tensors of Qwen-Image-2.1, taken from the programs themselves.

    python -m tools.formats.golden_names_21 --out tests/goldens/formats21/names.json

The reference's own names come from modules of diffusers and transformers. Of every other program: {its name: the
reference's}, without those that are equal. Where a program has a table, the pairs are the table's; where it has only
modules (Wan's VAE, mflux's for edits), both are walked in the same order and their shapes compared.
The paragraph "Qwen-Image-2.1" of NAMES.md says which names no program can be asked for.
"""

import argparse
import importlib.util
import json
from pathlib import Path

import gguf
import mlx.core as mx
import torch
from diffusers import AutoencoderKLQwenImage21, QwenImage21Transformer2DModel
from gguf.tensor_mapping import get_tensor_name_map
from mflux.models.qwen21.model.qwen21_text_encoder.text_encoder import (
    QwenImage21TextEncoder,
)
from mflux.models.qwen21.model.qwen21_transformer.qwen_image21_transformer import (
    QwenImage21Transformer,
)
from mflux.models.qwen21.model.qwen21_vae.vae import QwenImage21VAE
from mflux.models.qwen21.qwen21_initializer import Qwen21Initializer
from mflux.models.qwen21.weights.qwen21_weight_mapping import Qwen21WeightMapping
from mflux.models.qwen21.weights.qwen_image21_weight_definition import (
    QwenImage21WeightDefinition,
)
from mlx.utils import tree_flatten
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

LAYERS = 2
DEEPSTACK = [1, 3]  # blocks; the mergers are numbered 0 and 1
DEPTH = 5
VAE = {
    "base_dim": 4,
    "decoder_base_dim": 4,
    "z_dim": 4,
    "dim_mult": [1, 2, 4, 8, 8],
    "num_res_blocks": 2,
    "attn_scales": [],
    "temperal_downsample": [False, True, True, True],
}
TEXT = {
    "hidden_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "intermediate_size": 32,
    "vocab_size": 64,
    "rope_parameters": {
        "rope_type": "default",
        "mrope_section": [8, 4, 4],
        "rope_theta": 1e4,
    },
}
VISION = {
    "depth": DEPTH,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": DEEPSTACK,
}


class Reference:
    """Small models of the reference: their configs, and their tensors by component."""

    def __init__(self):
        transformer = QwenImage21Transformer2DModel(
            num_layers=LAYERS,
            num_attention_heads=1,
            attention_head_dim=128,
            context_in_dim=64,
            mlp_ratio=1,
        )
        vae = AutoencoderKLQwenImage21(**VAE, latents_mean=[0.0] * 4, latents_std=[1.0] * 4)
        text = Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=TEXT, vision_config=VISION))
        self.configs = {
            "transformer": dict(transformer.config),
            "vae": dict(vae.config),
            "text_encoder": text.config.to_dict(),
        }
        # As the published file spells it, which older versions of transformers wrote.
        rope = TEXT["rope_parameters"]
        self.configs["text_encoder"]["text_config"] |= {
            "rope_scaling": rope,
            "rope_theta": rope["rope_theta"],
        }
        self.tensors = {
            "transformer": transformer.state_dict(),
            "vae": vae.state_dict(),
            "text_encoder": text.state_dict(),
        }

    def names(self, component, begin=""):
        return [name for name in self.tensors[component] if name.startswith(begin)]


def changed(pairs):
    """{theirs: ours} without the equal ones; no name of theirs may stand for two."""
    theirs = [pair[0] for pair in pairs]
    assert len(set(theirs)) == len(theirs), "a name is there twice"
    return {a: b for a, b in pairs if a != b}


def mapped_by_mflux(reference, component, targets, left_out):
    """By the table of mflux's text-to-image models."""
    known = set(reference.names(component))
    pairs = [(target.to_pattern, target.from_pattern[0]) for target in targets if target.from_pattern[0] in known]
    missing = known - {ours for _, ours in pairs}
    assert missing == {name for name in known if left_out(name)}, missing
    return changed(pairs)


def saved_by_mflux_edit(reference, component, module, rename):
    """By the modules of mflux's edit models, whose parameters it saves as they are called."""
    theirs = {name: array.shape for name, array in tree_flatten(module.parameters())}
    theirs = {name: shape for name, shape in theirs.items() if not name.endswith(".inv_freq")}  # tables
    pairs = {rename(name): name for name in reference.names(component)}
    missing = set(theirs) ^ set(pairs)
    assert not missing, sorted(missing)
    for name, shape in theirs.items():
        ours = reference.tensors[component][pairs[name]].shape
        assert sorted(side for side in shape if side > 1) == sorted(side for side in ours if side > 1), (name, shape)
    return changed(list(pairs.items()))


def older_mflux_vae(reference):
    """Older saves wrap convolutions and call every gamma a weight; mflux still brings such names to its own."""

    def older(name):
        name = name.replace("sampler.resample.1.", "sampler.conv.").replace(".gamma", ".weight")
        module, _, parameter = name.rpartition(".")
        is_conv = module.rpartition(".")[2] in (
            "conv1",
            "conv2",
            "conv_in",
            "conv_out",
            "conv_shortcut",
        )
        is_conv = is_conv or module in ("quant_conv", "post_quant_conv")
        return f"{module}.conv.{parameter}" if is_conv else name

    names = [name for name in reference.names("vae") if ".time_conv." not in name]
    for name in names:
        assert list(Qwen21Initializer._normalize_vae_weights({older(name): mx.zeros(1)})) == [name], older(name)
    return changed([(older(name), name) for name in names])


def wan_modules():
    """Wan 2.2's VAE, whose structure this one has: DiffSynth's module, without the package's own imports."""
    folder = Path(importlib.util.find_spec("diffsynth").submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location("wan_video_vae", folder / "models" / "wan_video_vae.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    options = {
        key: VAE[key]
        for key in (
            "z_dim",
            "dim_mult",
            "num_res_blocks",
            "attn_scales",
            "temperal_downsample",
        )
    }
    return module.VideoVAE38_(dim=VAE["base_dim"], dec_dim=VAE["decoder_base_dim"], **options).state_dict()


def original_vae(reference):
    """Both state dicts in the order in which the picture meets the modules; channels must agree all along."""

    def order(name):
        # diffusers registers the attention of a middle block before its residual blocks, and Wan's in between.
        place = {
            "mid_block.resnets.0": 0,
            "mid_block.attentions.0": 1,
            "mid_block.resnets.1": 2,
        }
        return next((number for part, number in place.items() if part in name), None)

    ours = []
    for name in reference.names("vae"):
        at = len(ours)
        while order(name) is not None and at and (order(ours[at - 1]) or 0) > order(name):
            at -= 1
        ours.insert(at, name)
    blocks = {
        "encoder": "encoder.",
        "quant": "quant_conv",
        "post": "post_quant_conv",
        "decoder": "decoder.",
    }
    ours = [name for begin in blocks.values() for name in ours if name.startswith(begin)]
    wan = wan_modules()
    assert len(wan) == len(ours), (len(wan), len(ours))
    ends = (
        "encoder.conv_in.",
        "decoder.conv_out.",
    )  # which read and write patches in Wan 2.2
    for theirs, name in zip(wan, ours):
        channels = [
            list(shape[:2]) if len(shape) > 3 else list(shape[:1])
            for shape in (wan[theirs].shape, reference.tensors["vae"][name].shape)
        ]
        assert name.startswith(ends) or channels[0] == channels[1], (
            theirs,
            name,
            channels,
        )
    return changed(list(zip(wan, ours)))


def llama_text(names, layers):
    table = get_tensor_name_map(gguf.MODEL_ARCH.QWEN3VL, layers)
    pairs = []
    for name in names:
        if name.startswith("model.visual."):
            continue
        theirs = table.get_name(name.replace("model.language_model.", "model."), try_suffixes=(".weight", ".bias"))
        assert theirs, name
        pairs.append((theirs, name))
    return changed(pairs)


def llama_vision(names, depth, deepstack):
    """What llama.cpp's converter does beside the table: two frames, the mergers' numbers, the last merger's names."""
    table = get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, depth)
    constant = {key.name: text for key, text in gguf.TENSOR_NAMES.items()}
    merger = {
        "merger.norm": constant["V_POST_NORM"],
        "merger.linear_fc1": constant["V_MMPROJ"].format(bid=0),
        "merger.linear_fc2": constant["V_MMPROJ"].format(bid=2),
    }
    pairs = []
    for name in names:
        short = name.removeprefix("model.visual.")
        if short == name:
            continue
        module, _, parameter = short.rpartition(".")
        if module in merger:
            pairs.append((f"{merger[module]}.{parameter}", name))
        elif short == "patch_embed.proj.weight":
            theirs = table.get_name(f"visual.{short}", try_suffixes=(".weight",))
            stem = name.removesuffix("weight")
            pairs += [(theirs, f"{stem}0.weight"), (f"{theirs}.1", f"{stem}1.weight")]
        else:
            theirs = table.get_name(f"visual.{short}", try_suffixes=(".weight", ".bias"))
            theirs = theirs or table.get_name(name, try_suffixes=(".weight", ".bias"))
            assert theirs, name
            for place, block in enumerate(deepstack):
                if theirs.startswith(f"v.deepstack.{place}."):
                    theirs = theirs.replace(f".{place}.", f".{block}.", 1)
                    break
            pairs.append((theirs, name))
    return changed(pairs)


def all_names():
    reference = Reference()
    mapping, edit = Qwen21WeightMapping, QwenImage21WeightDefinition
    configs = reference.configs
    entries = [
        (
            "mflux",
            "transformer",
            mapped_by_mflux(
                reference,
                "transformer",
                mapping.get_transformer_mapping(),
                lambda name: False,
            ),
        ),
        (
            "mflux",
            "text_encoder",
            mapped_by_mflux(
                reference,
                "text_encoder",
                mapping.get_text_encoder_mapping(),
                lambda name: name.startswith(("model.visual.", "lm_head.")),
            ),
        ),
        (
            "mflux",
            "vae",
            mapped_by_mflux(
                reference,
                "vae",
                mapping.get_vae_mapping(),
                lambda name: ".time_conv." in name,
            ),
        ),
        ("mflux, older", "vae", older_mflux_vae(reference)),
        (
            "mflux for edits",
            "transformer",
            saved_by_mflux_edit(
                reference,
                "transformer",
                QwenImage21Transformer(configs["transformer"]),
                lambda name: name.replace("modulation.1.", "modulation.layers.1."),
            ),
        ),
        (
            "mflux for edits",
            "text_encoder",
            saved_by_mflux_edit(
                reference,
                "text_encoder",
                QwenImage21TextEncoder(configs["text_encoder"]),
                edit.text_key,
            ),
        ),
        (
            "mflux for edits",
            "vae",
            saved_by_mflux_edit(reference, "vae", QwenImage21VAE(configs["vae"]), lambda name: name),
        ),
        ("Wan", "vae", original_vae(reference)),
        ("llama.cpp", "text_encoder", llama_text(reference.names("text_encoder"), LAYERS)),
        ("llama.cpp", "vision_encoder", llama_vision(reference.names("text_encoder"), DEPTH, DEEPSTACK)),
    ]
    official = {component: reference.names(component) for component in ("transformer", "text_encoder", "vae")}
    return official, entries


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    official, entries = all_names()
    lines = [f'"official": {json.dumps(official, indent=0)}']
    tools = []
    for tool, component, names in entries:
        print(f"{tool}, {component}: {len(names)} names of {len(official.get(component, names))} differ")
        head = f'"tool": {json.dumps(tool)}, "component": {json.dumps(component)}'
        tools.append(f'{{{head}, "names": {json.dumps(names, indent=0)}}}')
    lines.append('"tools": [\n' + ",\n".join(tools) + "\n]")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{args.out}: {args.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
