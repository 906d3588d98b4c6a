"""The model folder: saved with the official pipeline, in bf16, of limited size."""
import json
import os
import shutil

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, QwenImagePipeline

from tools.tiny_model.tokenizer import save_slow_files

MAX_BYTES = 8_000_000
DEFAULTS = {
    "name": "tiny",
    "width": 128,
    "height": 128,
    "steps": 20,
    "cfg": 4.0,
    "negative_prompt": " ",
    "pipelines": ["qwen-image", "edit-2509"],
    "vae_area": 128 * 128,
    "condition_area": 128 * 128,
}
# Of Qwen2.5-VL, as the official edit repositories carry it.
PREPROCESSOR = {
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2VLProcessor",
}


def make_scheduler():
    """The settings of the full model."""
    return FlowMatchEulerDiscreteScheduler(
        num_train_timesteps=1000,
        shift=1.0,
        use_dynamic_shifting=True,
        base_shift=0.5,
        max_shift=0.9,
        base_image_seq_len=256,
        max_image_seq_len=8192,
        shift_terminal=0.02,
        time_shift_type="exponential",
    )


def folder_bytes(folder):
    return sum(
        os.path.getsize(os.path.join(root, name))
        for root, _, names in os.walk(folder)
        for name in names
    )


def write_json(path, values):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file, indent=2)
        file.write("\n")


def save_weights(model, folder):
    """Only the weights: a saved config would name the folder which the model came from."""
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = file.read()
    model.to(torch.bfloat16).save_pretrained(folder)
    with open(path, "w", encoding="utf-8") as file:
        file.write(config)


def write_folder(folder, vae, text_encoder, tokenizer, transformer, start=None):
    """start: the folder which the VAE and the tokenizer came from; these are copied unchanged."""
    if start is None:
        pipeline = QwenImagePipeline(
            scheduler=make_scheduler(),
            vae=vae,
            text_encoder=text_encoder,
            tokenizer=tokenizer,
            transformer=transformer,
        )
        pipeline.to(torch.bfloat16).save_pretrained(folder)
        save_slow_files(os.path.join(folder, "tokenizer"))
    else:
        if os.path.realpath(start) != os.path.realpath(folder):
            shutil.copytree(start, folder, dirs_exist_ok=True)
        for name, model in (("transformer", transformer), ("text_encoder", text_encoder)):
            save_weights(model, os.path.join(folder, name))
    write_json(os.path.join(folder, "processor", "preprocessor_config.json"), PREPROCESSOR)
    write_json(os.path.join(folder, "qwen_image.json"), DEFAULTS)
    size = folder_bytes(folder)
    assert size <= MAX_BYTES, size
    print(f"folder: {size} bytes", flush=True)
