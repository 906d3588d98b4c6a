"""Qwen3VLProcessor's part in QwenImage21Pipeline, without torchvision, which has no build for a CPU's torch."""

import torch
from transformers import AutoTokenizer, BatchFeature
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

IMAGE_PAD = "<|image_pad|>"


def repeat_image_pads(prompts, grids, merge_size):
    """Each placeholder as often as its picture has merged patches."""
    counts = iter((grids.prod(-1) // merge_size**2).tolist())
    expanded = []
    for prompt in prompts:
        first, *rest = prompt.split(IMAGE_PAD)
        expanded.append(first + "".join(IMAGE_PAD * next(counts) + piece for piece in rest))
    return expanded


class Processor21:
    def __init__(self, folder):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self._images = Qwen2VLImageProcessorPil.from_pretrained(folder)

    def apply_chat_template(self, messages, tokenize, return_dict):
        """One system message, which is all that the pipeline asks for: it counts the tokens to drop."""
        (message,) = messages
        (content,) = message["content"]
        if message["role"] != "system" or not tokenize or return_dict:
            raise RuntimeError("the pipeline asks for more than the tokens of a system message")
        return [self.tokenizer.encode(f"<|im_start|>system\n{content['text']}<|im_end|>\n")]

    def __call__(self, text, padding, padding_side, return_tensors, images=None):
        pictures = {}
        if images is not None:
            pictures = self._images(images=images, return_tensors=return_tensors)
            text = repeat_image_pads(text, pictures["image_grid_thw"], self._images.merge_size)
        tokens = self.tokenizer(text, padding=padding, padding_side=padding_side, return_tensors=return_tensors)
        is_image = tokens["input_ids"] == self.tokenizer.convert_tokens_to_ids(IMAGE_PAD)
        return BatchFeature({**tokens, **pictures, "mm_token_type_ids": is_image.to(torch.int32)})
