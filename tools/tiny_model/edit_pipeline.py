"""The official Edit-2509 pipeline on a tiny model folder.

Three things differ from a plain from_pretrained: the picture areas, which are literals of the
official code; the processor, which would need torchvision; and the positions of picture tokens,
which transformers 5 only makes three-dimensional when it is told where these tokens are.
"""
import json
import os

import torch
from diffusers import QwenImageEditPlusPipeline
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as official
from transformers import BatchFeature, Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil


class Processor:
    """What Qwen2VLProcessor does with texts and pictures."""

    def __init__(self, folder, tokenizer):
        self.image_processor = Qwen2VLImageProcessorPil.from_pretrained(folder)
        self.tokenizer = tokenizer

    def __call__(self, text, images, padding, return_tensors):
        pixels = self.image_processor(images=images, return_tensors=return_tensors)
        merge = self.image_processor.merge_size**2
        pad, expanded = "<|image_pad|>", []
        for prompt in text:
            head, *tails = prompt.split(pad)
            for grid, tail in zip(pixels["image_grid_thw"], tails, strict=True):
                head += pad * int(grid.prod() // merge) + tail
            expanded.append(head)
        tokens = self.tokenizer(expanded, padding=padding, return_tensors=return_tensors)
        return BatchFeature({**tokens, **pixels})


def tell_picture_tokens(text_encoder):
    """Let every call of the text encoder pass mm_token_type_ids."""
    plain = text_encoder.forward

    def forward(input_ids, **kwargs):
        is_image = (input_ids == text_encoder.config.image_token_id).int()
        return plain(input_ids=input_ids, mm_token_type_ids=is_image, **kwargs)

    text_encoder.forward = forward


def load_edit_pipeline(folder):
    """The pipeline in float32, and a function (picture) -> (width, height) of its output."""
    with open(os.path.join(folder, "qwen_image.json"), encoding="utf-8") as file:
        settings = json.load(file)
    official.VAE_IMAGE_SIZE = settings["vae_area"]
    official.CONDITION_IMAGE_SIZE = settings["condition_area"]
    tokenizer = Qwen2Tokenizer.from_pretrained(folder, subfolder="tokenizer")
    text_encoder = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        folder, subfolder="text_encoder", dtype=torch.float32
    )
    tell_picture_tokens(text_encoder)
    pipeline = QwenImageEditPlusPipeline.from_pretrained(
        folder,
        tokenizer=tokenizer,
        text_encoder=text_encoder,
        processor=Processor(os.path.join(folder, "processor"), tokenizer),
        torch_dtype=torch.float32,
    )
    pipeline.set_progress_bar_config(disable=True)

    def output_size(picture):
        return official.calculate_dimensions(settings["vae_area"], picture.width / picture.height)

    return pipeline, output_size
