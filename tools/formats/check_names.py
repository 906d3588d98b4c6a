"""Proves the name tables: every key of real state dicts is mapped both ways, against the programs' own tables.

    python -m tools.formats.check_names

Against diffusers' converter of the Wan VAE, mflux's mapping tables (and its saver's output), and llama.cpp's through the
gguf package. The state dicts are those of models in the published shape, with few and narrow layers.
"""

import gguf
import torch
from diffusers import AutoencoderKLQwenImage, QwenImageTransformer2DModel
from diffusers.loaders.single_file_utils import convert_wan_vae_to_diffusers
from gguf.tensor_mapping import get_tensor_name_map
from mflux.models.qwen.weights.qwen_weight_mapping import QwenWeightMapping
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from tools.formats import names

LAYERS = 3


def transformer_keys():
    model = QwenImageTransformer2DModel(
        num_layers=LAYERS, num_attention_heads=1, attention_head_dim=128, joint_attention_dim=32
    )
    return list(model.state_dict())


def vae_keys(resnets=2):
    return list(AutoencoderKLQwenImage(base_dim=4, num_res_blocks=resnets).state_dict())


def text_encoder_keys(**options):
    text = {"hidden_size": 16, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "num_key_value_heads": 1}
    text |= {"intermediate_size": 16, "vocab_size": 32}
    vision = {"depth": LAYERS, "hidden_size": 8, "intermediate_size": 8, "num_heads": 1, "out_hidden_size": 16}
    model = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision))
    nested = [name for name in model.state_dict() if not name.startswith("lm_head")]
    return [names.to_diffusers(name, names.NESTED_TEXT_ENCODER) for name in nested], nested


def both_ways(keys, rules):
    """{their name: diffusers' name}; fails where two names meet or the way back differs."""
    table = {names.from_diffusers(key, rules): key for key in keys}
    assert len(table) == len(keys), "two tensors got one name"
    for theirs, ours in table.items():
        assert names.to_diffusers(theirs, rules) == ours, (theirs, ours, names.to_diffusers(theirs, rules))
    return table


def expand(targets, numbers):
    """mflux's table with its placeholders filled: {mflux name: diffusers name}."""
    table = {}
    for target in targets:
        for block in range(numbers):
            for inner in range(numbers):
                values = {"block": block, "layer": block, "i": block, "res": inner}
                table[target.to_pattern.format(**values)] = target.from_pattern[0].format(**values)
    return table


def check_mflux(title, keys, rules, targets, dropped=()):
    ours = both_ways(keys, rules)
    theirs = {name: key for name, key in expand(targets, 4).items() if key in keys}
    for name, key in theirs.items():
        assert ours.get(name) == key, (name, key, ours.get(name))
    left = sorted(set(keys) - set(theirs.values()))
    assert left == sorted(dropped), left
    print(
        f"mflux {title}: {len(theirs)} names equal mflux's table; {len(left)} that mflux drops: {', '.join(left) or '–'}"
    )


def check_vae():
    keys = vae_keys()
    rules = names.original_vae(*names.vae_dimensions(keys))
    table = both_ways(keys, rules)
    assert names.original_vae_dimensions(table) == names.vae_dimensions(keys) == (4, 2)
    converted = convert_wan_vae_to_diffusers({name: name for name in table})
    assert converted == {ours: theirs for theirs, ours in table.items()}
    print(f"original VAE: {len(keys)} names equal diffusers' converter of the Wan VAE")
    assert {QwenWeightMapping.vae_key_from_comfy(theirs): theirs for theirs in table} == converted
    print(f"original VAE: {len(keys)} names equal mflux's table of ComfyUI's file")
    for resnets in (1, 3):
        keys = vae_keys(resnets)
        table = both_ways(keys, names.original_vae(*names.vae_dimensions(keys)))
        assert names.original_vae_dimensions(table) == (4, resnets)
        both_ways(keys, names.mflux_vae(4, resnets))
    return vae_keys()


def check_llama(keys):
    """gguf's table knows the text model; the vision model's splits are made by llama.cpp's converter."""
    text = [key for key in keys if key.startswith("model.")]
    table = both_ways(text, names.LLAMA_TEXT_ENCODER)
    known = get_tensor_name_map(gguf.MODEL_ARCH.QWEN2VL, LAYERS)
    for theirs, ours in table.items():
        assert known.get_name(ours, try_suffixes=(".weight", ".bias")) == theirs, (theirs, ours)
    print(f"llama.cpp qwen2vl: {len(table)} names equal the gguf package's")
    split = []
    for key in keys:
        if ".attn.qkv." in key:
            split += [key.replace("qkv", part) for part in "qkv"]
        elif key == "visual.patch_embed.proj.weight":
            split += [key, f"{key}.1"]
        elif key.startswith("visual."):
            split.append(key)
    table = both_ways(split, names.LLAMA_VISION)
    known = get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, LAYERS)
    for theirs, ours in table.items():
        if not theirs.endswith(".weight.1"):
            assert known.get_name(ours, try_suffixes=(".weight", ".bias")) == theirs, (theirs, ours)
    print(f"llama.cpp mmproj: {len(table)} names equal the gguf package's")


def main():
    torch.set_num_threads(1)
    transformer = transformer_keys()
    check_mflux("transformer", transformer, names.MFLUX_TRANSFORMER, QwenWeightMapping.get_transformer_mapping())
    table = both_ways(transformer, names.MLX_COMMUNITY_TRANSFORMER)
    print(f"mlx-community transformer: {len(table)} names there and back")
    for theirs, ours in table.items():
        inner = names.add_inner(theirs)
        assert names.to_diffusers(names.strip_inner(inner), names.MLX_COMMUNITY_TRANSFORMER) == ours
    for key in transformer:
        assert names.strip_prefix([f"model.diffusion_model.{key}"], "model.diffusion_model.") == {
            key: f"model.diffusion_model.{key}"
        }
    vae = check_vae()
    # Never used with a single frame: mflux has no place for it.
    dropped = [key for key in vae if key.startswith("encoder.down_blocks.5.time_conv.")]
    check_mflux("VAE", vae, names.mflux_vae(4, 2), QwenWeightMapping.get_vae_mapping(), dropped)
    flat, _nested = text_encoder_keys()
    check_mflux("text encoder", flat, names.MFLUX_TEXT_ENCODER, QwenWeightMapping.get_text_encoder_mapping())
    check_llama(flat)


if __name__ == "__main__":
    main()
