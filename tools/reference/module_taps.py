"""Forward hooks that turn the modules of the official models into named checkpoints."""

import re

import torch
from diffusers.models.attention_processor import Attention
from diffusers.models.autoencoders.autoencoder_kl_qwenimage import QwenImageDecoder3d, QwenImageEncoder3d
from diffusers.models.autoencoders.autoencoder_kl_qwenimage21 import QwenImage21Decoder3d, QwenImage21Encoder3d
from diffusers.models.transformers.transformer_qwenimage import (
    QwenEmbedLayer3DRope,
    QwenEmbedRope,
    QwenImageTransformerBlock,
)
from diffusers.models.transformers.transformer_qwenimage21 import QwenImage21Rope
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VLRotaryEmbedding,
    Qwen2_5_VLVisionRotaryEmbedding,
)
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding, Qwen3VLVisionRotaryEmbedding

# What is never a checkpoint: modules without arithmetic of their own, activations (their input and the next
# module's output say enough), rotary tables, and modules whose output is another module's output again.
SKIPPED_TYPES = (
    nn.Dropout,
    nn.SiLU,
    nn.GELU,
    nn.Identity,
    nn.ModuleList,
    nn.Sequential,
    nn.ZeroPad2d,
    nn.Upsample,
    Attention,
    QwenEmbedRope,
    QwenEmbedLayer3DRope,
    Qwen2_5_VLRotaryEmbedding,
    Qwen2_5_VLVisionRotaryEmbedding,
    QwenImageDecoder3d,
    QwenImageEncoder3d,
    QwenImage21Rope,
    Qwen3VLTextRotaryEmbedding,
    Qwen3VLVisionRotaryEmbedding,
    QwenImage21Decoder3d,
    QwenImage21Encoder3d,
)

# component, with its family's suffix -> (module paths at level "blocks", all module paths); both must match fully.
PATHS = {
    "text_encoder": (
        r"model\.language_model\.(embed_tokens|norm|layers\.\d+)",
        r"model\.language_model\.(?!.*\bact_fn$).+",
    ),
    "vision": (
        r"model\.visual(\.(patch_embed|blocks\.\d+|merger))?",
        # The patches' convolution returns what patch_embed does, with three axes of one more.
        r"model\.visual(?!.*\bact_fn$)(?!\.patch_embed\.).*",
    ),
    "transformer": (
        r"img_in|txt_norm|txt_in|time_text_embed|transformer_blocks\.\d+|norm_out|proj_out",
        r".+",
    ),
    "vae_decode": (
        r"post_quant_conv|decoder\.(conv_in|mid_block|up_blocks\.\d+|norm_out|conv_out)",
        r"post_quant_conv|decoder\..+",
    ),
    "vae_encode": (
        r"quant_conv|encoder\.(conv_in|down_blocks\.\d+|mid_block|norm_out|conv_out)",
        r"quant_conv|encoder\..+",
    ),
    "text_encoder-2.1": (
        r"model\.language_model\.(embed_tokens|layers\.\d+)",
        # The pipeline takes what the final norm reads; what it returns is used by nobody.
        r"model\.language_model\.(?!norm$)(?!.*\bact_fn$).+",
    ),
    "vision-2.1": (
        r"model\.visual(\.(patch_embed|blocks\.\d+|merger|deepstack_merger_list\.\d+))?",
        # The table of positions returns four neighbours of each patch, before they are weighed.
        r"model\.visual(?!.*\bact_fn$)(?!\.patch_embed\.)(?!\.pos_embed$).*",
    ),
    "transformer-2.1": (
        r"img_in|txt_in|time_text_embed|modulation\.1|transformer_blocks\.\d+|norm_out|proj_out",
        r".+",
    ),
}
PATHS["vae_decode-2.1"] = PATHS["vae_decode"]
PATHS["vae_encode-2.1"] = PATHS["vae_encode"]


class PassRecorder:
    """Writes the chosen tensors of one pass of one component under the pass's prefix, as they appear."""

    def __init__(self, store, choice):
        self._store = store
        self._choice = choice
        self._prefix = None

    def begin(self, prefix):
        if self._prefix is not None:
            raise RuntimeError(f"pass {prefix} starts inside pass {self._prefix}")
        self._prefix = prefix

    def end(self):
        self._prefix = None

    def wants(self, path, level):
        # Outside a pass (e.g. a tiled decode) the same modules run without being recorded.
        return self._prefix is not None and self._choice.wants(f"{self._prefix}/{path}", level)

    def record(self, path, tensor, level="all"):
        if self.wants(path, level):
            self._store.save(f"{self._prefix}/{path}", tensor)


def _record_output(recorder, path, level):
    def hook(_module, _args, output):
        if isinstance(output, BaseModelOutputWithPooling):
            # The vision tower: what takes the place of the picture's tokens, in their order again.
            output = output.pooler_output
        tensor = output[0] if isinstance(output, tuple) else output
        if not isinstance(tensor, torch.Tensor):
            raise RuntimeError(f"{path} returned {type(output).__name__}, not a tensor")
        recorder.record(path, tensor, level)

    return hook


def _record_block(recorder, path, level):
    """A block of two streams returns (text stream, image stream), in this order."""

    def hook(_module, _args, output):
        txt, img = output
        recorder.record(f"{path}:img", img, level)
        recorder.record(f"{path}:txt", txt, level)

    return hook


def attach(component, module, recorder, choice):
    """Hooks the modules that may be chosen; the hooks only read, so the run's numbers stay as they are."""
    blocks, everything = PATHS[component]
    for path, child in module.named_modules():
        if isinstance(child, SKIPPED_TYPES) or not re.fullmatch(everything, path):
            continue
        level = "blocks" if re.fullmatch(blocks, path) else "all"
        if not choice.needs(level):
            continue
        make_hook = _record_block if isinstance(child, QwenImageTransformerBlock) else _record_output
        child.register_forward_hook(make_hook(recorder, path, level))
