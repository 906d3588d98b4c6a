"""The model folder: saved with the official pipeline, in bf16, of limited size."""
import json
import os

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, QwenImagePipeline

from tokenizer import save_slow_files

MAX_BYTES = 8_000_000
DEFAULTS = {
    "name": "tiny",
    "width": 128,
    "height": 128,
    "steps": 20,
    "cfg": 4.0,
    "negative_prompt": " ",
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


def write_folder(folder, vae, text_encoder, tokenizer, transformer):
    pipeline = QwenImagePipeline(
        scheduler=make_scheduler(),
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        transformer=transformer,
    )
    pipeline.to(torch.bfloat16).save_pretrained(folder)
    save_slow_files(os.path.join(folder, "tokenizer"))
    with open(os.path.join(folder, "qwen_image.json"), "w", encoding="utf-8") as file:
        json.dump(DEFAULTS, file, indent=2)
        file.write("\n")
    size = folder_bytes(folder)
    assert size <= MAX_BYTES, size
    print(f"folder: {size} bytes", flush=True)
