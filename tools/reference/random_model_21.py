"""Writes a Qwen-Image-2.1 model folder with random weights, in the published folder's layout."""

import json
import shutil

import diffusers
from diffusers import AutoencoderKLQwenImage21, FlowMatchEulerDiscreteScheduler, QwenImage21Transformer2DModel
from transformers import AutoTokenizer, Qwen3VLConfig, Qwen3VLForConditionalGeneration

from tools.reference import random_spec, random_spec_21
from tools.reference.random_files import latent_scale, save, write_json

COMPONENTS = {
    "processor": ["transformers", "Qwen3VLProcessor"],
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "Qwen3VLForConditionalGeneration"],
    "transformer": ["diffusers", "QwenImage21Transformer2DModel"],
    "vae": ["diffusers", "AutoencoderKLQwenImage21"],
}
PATCH_SIZE = 16


def preprocessor_config(spec):
    return {
        "size": {"longest_edge": 16777216, "shortest_edge": spec["shortest_edge"]},
        "patch_size": PATCH_SIZE,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "processor_class": "Qwen3VLProcessor",
        "image_processor_type": "Qwen2VLImageProcessorFast",
    }


def write_processor(folder, spec, tokenizer_folder):
    """The published folder has no tokenizer/: its files are the processor's."""
    shutil.copytree(tokenizer_folder, folder)
    write_json(folder / "preprocessor_config.json", preprocessor_config(spec))
    return AutoTokenizer.from_pretrained(folder)


def write_transformer(folder, spec):
    channels = spec["vae"]["z_dim"]
    model = QwenImage21Transformer2DModel(
        in_channels=channels,
        out_channels=channels,
        context_in_dim=spec["text_encoder"]["hidden_size"],
        **spec["transformer"],
    )
    save(model, folder, spec, spec["seed"])


def write_vae(folder, spec):
    seed = spec["seed"] + 1
    save(AutoencoderKLQwenImage21(**latent_scale(spec["vae"]["z_dim"], seed), **spec["vae"]), folder, spec, seed)


def text_encoder_config(spec, tokenizer):
    text = dict(spec["text_encoder"])
    rope = {
        "mrope_interleaved": True,
        "mrope_section": random_spec_21.mrope_section(text["head_dim"]),
        "rope_theta": text.pop("rope_theta"),
        "rope_type": "default",
    }
    token = tokenizer.convert_tokens_to_ids
    return Qwen3VLConfig(
        text_config={
            **text,
            "max_position_embeddings": 4096,
            "rope_parameters": rope,
            "bos_token_id": token("<|endoftext|>"),
            "eos_token_id": token("<|im_end|>"),
        },
        vision_config={**spec["vision"], "patch_size": PATCH_SIZE, "out_hidden_size": text["hidden_size"]},
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=False,
    )


def spell_rope_as_published(path):
    """rope_scaling and rope_theta, as transformers 4 saved them."""
    config = json.loads(path.read_text(encoding="utf-8"))
    text = config["text_config"]
    rope = text.pop("rope_parameters")
    text["rope_theta"] = rope.pop("rope_theta")
    text["rope_scaling"] = rope
    config["vision_config"].pop("rope_parameters", None)
    write_json(path, config)


def write_text_encoder(folder, spec, tokenizer):
    model = Qwen3VLForConditionalGeneration(text_encoder_config(spec, tokenizer))
    save(model, folder, spec, spec["seed"] + 2)
    if spec["rope_style"] == "scaling":
        spell_rope_as_published(folder / "config.json")


def scheduler_config(spec):
    config = random_spec.scheduler_config(lightning=False)
    if spec["sample_sigmas"] is not None:
        config.update(use_dynamic_shifting=False, shift_terminal=None)
    return config


def write(out, spec, tokenizer_folder):
    tokenizer = write_processor(out / "processor", spec, tokenizer_folder)
    write_transformer(out / "transformer", spec)
    write_vae(out / "vae", spec)
    write_text_encoder(out / "text_encoder", spec, tokenizer)
    FlowMatchEulerDiscreteScheduler(**scheduler_config(spec)).save_pretrained(out / "scheduler")
    write_json(out / "qwen_image.json", {"vae_area": spec["vae_area"]})
    index = {"_class_name": spec["pipeline"], "_diffusers_version": diffusers.__version__, **COMPONENTS}
    if spec["sample_sigmas"] is not None:
        index["sample_sigmas"] = spec["sample_sigmas"]
    # Written last: a folder without it is an unfinished model.
    write_json(out / "model_index.json", index)
