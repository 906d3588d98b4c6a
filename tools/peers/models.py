"""The weights that are measured: full-size layers with random values, as many as a measurement needs.

Everything is made from the 4-bit files that tools/synthetic writes. What is there already is used again.
The class is of the older models; models_21.py has what is different in Qwen-Image-2.1.
"""

import argparse
import json
import shutil
from pathlib import Path

from tools.formats import names
from tools.peers import dequantize
from tools.peers.progress import progress
from tools.synthetic import write_model

PROJECT = Path(__file__).resolve().parents[2]

STEM = "diffusion_pytorch_model"
# 18 words that are 18 tokens in the embedded model's tokenizer and in Qwen's own. The template puts 34 before them,
# which are dropped after the text encoder, and 5 after: 57 tokens for the text encoder, 23 for the transformer.
PROMPT = "a red circle and a green star and a black square and a triangle on a blue background"
PROMPT_TOKENS, TEXT_TOKENS, ENCODER_TOKENS = 18, 23, 57
# Enough to make embeddings of the right size where the text encoder is not what is measured.
SHORT_TEXT_LAYERS = 2


def is_done(folder):
    return (folder / "done").exists()


def write_once(folder, text, write):
    """Runs write(folder), unless it was finished earlier."""
    if is_done(folder):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    with progress(text):
        write(folder)
    (folder / "done").touch()
    return folder


class Models:
    """Folders and files by what they are; each is made when it is first asked for."""

    family = write_model  # whose tensors and configs
    short_text_layers = SHORT_TEXT_LAYERS
    narrow_vae = {"base_dim": 8}
    text_tokens = TEXT_TOKENS
    unread: tuple[str, ...] = ()  # how the names of tensors begin that drawing from text does not read
    tokenizer = PROJECT / "models" / "tiny" / "tokenizer"

    def __init__(self, root, synthetic=None):
        self.root = root
        self.synthetic = synthetic
        root.mkdir(parents=True, exist_ok=True)

    def full(self):
        """The whole model of 20 billion parameters, its text encoder and its VAE."""
        if self.synthetic:
            return self.synthetic
        return write_once(self.root / "full_q4", "writing the 20 B model in 4 bits (16 GB)", self.write_components)

    def write_components(self, folder):
        family = self.family
        transformer, text_encoder = family.transformer(family.LAYERS), family.text_encoder(family.TEXT_LAYERS)
        component(folder / "transformer", STEM, transformer, family.transformer_config(family.LAYERS), quantized=True)
        text_config = family.text_encoder_config(family.TEXT_LAYERS)
        component(folder / "text_encoder", "model", text_encoder, text_config, quantized=True)
        component(folder / "vae", STEM, family.vae(), family.VAE_CONFIG, quantized=False)

    def stage_bytes(self):
        """The weights that each stage of drawing from text reads."""
        folder = self.full()
        return {name: weight_bytes(folder / name, self.unread) for name in ("transformer", "text_encoder", "vae")}

    def write_transformer(self, folder, blocks):
        component(folder, STEM, self.family.transformer(blocks), self.family.transformer_config(blocks), quantized=True)

    def transformer(self, blocks):
        write = lambda folder: self.write_transformer(folder, blocks)  # noqa: E731
        return write_once(self.root / f"transformer_q4_{blocks}", f"writing {blocks} blocks in 4 bits", write)

    def transformer_bf16(self, blocks):
        source = self.transformer(blocks)

        def write(folder):
            folder.mkdir(parents=True)
            dequantize.write_bfloat16(source, folder / f"{STEM}.safetensors")
            config = json.dumps(self.family.transformer_config(blocks), indent=2)
            (folder / "config.json").write_text(config + "\n", encoding="utf-8")

        return write_once(self.root / f"transformer_bf16_{blocks}", f"writing {blocks} blocks in bfloat16", write)

    def short_text_encoder(self):
        layers = self.short_text_layers

        def write(folder):
            config = self.family.text_encoder_config(layers)
            component(folder, "model", self.family.text_encoder(layers), config, quantized=True)

        return write_once(self.root / "text_encoder_q4_short", "writing a short text encoder in 4 bits", write)

    def vae(self):
        def write(folder):
            component(folder, STEM, self.family.vae(), self.family.VAE_CONFIG, quantized=False)

        return write_once(self.root / "vae", "writing the VAE", write)

    def small_vae(self):
        """For runs whose decoding is not what is measured."""

        def write(folder):
            config = self.family.VAE_CONFIG | self.narrow_vae
            component(folder, STEM, self.family.vae(**self.narrow_vae), config, quantized=False)

        return write_once(self.root / "vae_small", "writing a narrow VAE", write)

    def picture(self, side=512):
        """A picture to encode."""
        path = self.root / f"picture_{side}.png"
        if not path.exists():
            write_picture(path, side)
        return path

    # stable-diffusion.cpp reads single files: the transformer's names are diffusers', the text encoder's transformers'
    # older ones, the VAE's those of Wan.

    def sd_transformer(self, convert, blocks, kind):
        target = self.root / f"transformer_{blocks}-{kind}.gguf"
        return self.converted(convert, self.transformer_bf16(blocks) / f"{STEM}.safetensors", target, kind)

    def sd_text_encoder(self, convert, kind, short):
        target = self.root / f"text_encoder{'_short' if short else ''}-{kind}.gguf"
        if target.exists():
            return target
        source = self.short_text_encoder() if short else self.full() / "text_encoder"
        plain = target.with_suffix(".safetensors")
        with progress(f"writing {plain.name} in bfloat16 ({'2' if short else '14'} GB)"):
            dequantize.write_bfloat16(source, plain, rename=lambda name: name.replace(".language_model", ""))
        self.converted(convert, plain, target, kind)
        plain.unlink()
        return target

    def sd_vae(self):
        target = self.root / "vae-wan.safetensors"
        if not target.exists():
            rules = names.original_vae(4, 2)
            dequantize.write_bfloat16(self.vae(), target, rename=lambda name: names.from_diffusers(name, rules))
        return target

    @staticmethod
    def converted(convert, source, target, kind):
        if not target.exists():
            unfinished = target.with_suffix(".unfinished.gguf")
            with progress(f"converting to {target.name}"):
                convert(source, unfinished, kind)
            unfinished.rename(target)
        return target


def component(folder, stem, tensors, config, quantized):
    options = argparse.Namespace(shard_bytes=write_model.SHARD_BYTES, sparse=False)
    write_model.write_component(folder, stem, tensors, config, options, quantized)


def write_picture(path, side):
    import numpy as np
    from PIL import Image

    y, x = np.mgrid[0:side, 0:side] / side
    rgb = np.stack([x, y, 0.5 + 0.5 * np.sin(40 * x * y)], axis=-1)
    Image.fromarray((255 * rgb).astype(np.uint8)).save(path)


def class_of(folder):
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))["_class_name"]


def weight_bytes(folder, without):
    """Of a component's tensors, but for those whose names begin so."""
    shards = [dequantize.Shard(path) for path in folder.glob("*.safetensors")]
    return sum(shard.bytes_of(name).size for shard in shards for name in shard.header if not name.startswith(without))
