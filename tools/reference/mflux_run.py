"""Runs mflux's Qwen-Image classes (MLX) on a reference run's inputs and dumps its tensors under mflux's own names.

    python -m tools.reference.mflux_run --model DIR --reference RUN --out DIR [--precision float32] [--bits 4 --save DIR]

The text encoder is left out: mflux fixes its size. Of the transformer, layers and heads are free (a head has 128 channels);
the VAE must have a base of 96 channels.
"""

import argparse
import contextlib
import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
from mflux.models.common.config import ModelConfig
from mflux.models.common.weights.loading.weight_applier import WeightApplier
from mflux.models.common.weights.loading.weight_loader import WeightLoader
from mflux.models.common.weights.saving.model_saver import ModelSaver
from mflux.models.qwen.latent_creator.qwen_latent_creator import QwenLatentCreator
from mflux.models.qwen.model.qwen_transformer.qwen_attention import QwenAttention
from mflux.models.qwen.model.qwen_transformer.qwen_transformer import QwenTransformer
from mflux.models.qwen.model.qwen_transformer.qwen_transformer_block import QwenTransformerBlock
from mflux.models.qwen.model.qwen_vae.qwen_vae import QwenVAE
from mflux.models.qwen.weights.qwen_weight_definition import QwenWeightDefinition
from mlx.utils import tree_flatten

# Modules whose input is kept too: no module of mflux returns the tensors that these read.
INPUTS_KEPT = ("img_norm2", "txt_norm2", "mlp_out", "post_quant_conv")


class Recorder:
    """Keeps what the modules of a model return. Every class is patched once; a module is known by its identity."""

    def __init__(self):
        self._paths = {}
        self._patched = set()
        self._block = None
        self._calls = {}
        self.prefix = ""
        self.tensors = {}

    def watch(self, model):
        for path, module in model.named_modules():
            if path == "pos_embed":  # returns tables, not activations
                continue
            self._paths[id(module)] = path
            if type(module) not in self._patched:
                self._patched.add(type(module))
                self._patch(type(module))

    def _keep(self, path, value):
        values = value if isinstance(value, tuple) else (value,)
        for index, array in enumerate(values):
            # A copy: MLX may reuse the memory.
            name = f"{self.prefix}{path}" + (f":{index}" if len(values) > 1 else "")
            self.tensors[name] = np.array(array.astype(mx.float32))

    def _patch(self, cls):
        original, recorder = cls.__call__, self

        def call(module, *args, **kwargs):
            path = recorder._paths.get(id(module))
            if isinstance(module, QwenTransformerBlock):
                recorder._block, recorder._calls = path, {}
            if path and path.endswith(INPUTS_KEPT):
                recorder._keep(f"{path}:input", args[0])
            result = original(module, *args, **kwargs)
            if path:
                recorder._keep(path, result)
            return result

        cls.__call__ = call

    def watch_function(self, cls, name):
        """A static function of a class, numbered by its calls within a block."""
        original, recorder = getattr(cls, name), self

        def call(*args, **kwargs):
            result = original(*args, **kwargs)
            count = recorder._calls.get(name, 0)
            recorder._calls[name] = count + 1
            recorder._keep(f"{recorder._block}.{name}.{count}", result)
            return result

        setattr(cls, name, staticmethod(call))

    def watch_method(self, cls, name):
        original, recorder = getattr(cls, name), self

        def call(module, *args, **kwargs):
            result = original(module, *args, **kwargs)
            recorder._keep(f"{recorder._block}.{name}", result)
            return result

        setattr(cls, name, call)


def load_weights(model, name, folder, bits=None):
    """mflux's own loader, mapping and choice of layers to quantize; unlike it, a parameter that is left at its initial value
    is an error."""
    component = next(c for c in QwenWeightDefinition.get_components() if c.name == name)
    loaded = WeightLoader.load_single_local(component, Path(folder))
    weights = loaded.components[name]
    model.update(weights, strict=False)
    left = {key for key, _ in tree_flatten(model.parameters())} - {key for key, _ in tree_flatten(weights)}
    # The rotary tables are computed, not loaded.
    left = sorted(key for key in left if not key.startswith("pos_embed"))
    if left:
        raise SystemExit(f"mflux set no value for {', '.join(left[:5])} ({len(left)} parameters)")
    if bits:
        WeightApplier.apply_and_quantize(loaded, {name: model}, bits, QwenWeightDefinition)


def build_transformer(folder, bits):
    config = json.loads((folder / "transformer" / "config.json").read_text(encoding="utf-8"))
    keys = ("in_channels", "out_channels", "num_layers", "attention_head_dim", "num_attention_heads", "joint_attention_dim")
    model = QwenTransformer(**{key: config[key] for key in keys})
    load_weights(model, "transformer", folder, bits)
    return model


def build_vae(folder):
    config = json.loads((folder / "vae" / "config.json").read_text(encoding="utf-8"))
    model = QwenVAE()
    model.LATENTS_MEAN = np.array(config["latents_mean"], dtype=np.float32)
    model.LATENTS_STD = np.array(config["latents_std"], dtype=np.float32)
    load_weights(model, "vae", folder)
    return model


class Reference:
    def __init__(self, folder):
        self._folder = Path(folder)
        self.manifest = json.loads((self._folder / "manifest.json").read_text(encoding="utf-8"))

    def read(self, name):
        return mx.array(np.load(self._folder / f"{name}.npy", allow_pickle=False))


def run_transformer(model, reference, recorder):
    """Every step from the reference's latents: an error of one step is not carried into the next."""
    manifest = reference.manifest
    scheduler = SimpleNamespace(sigmas=reference.read("sigmas"), timesteps=reference.read("timesteps"))
    config = SimpleNamespace(height=manifest["height"], width=manifest["width"], scheduler=scheduler)
    for step in range(manifest["steps"]):
        recorder.prefix = f"step{step:03d}/"
        model(
            t=step,
            config=config,
            hidden_states=reference.read(f"packed_latents_step{step}"),
            encoder_hidden_states=reference.read("prompt_embeds"),
            encoder_hidden_states_mask=reference.read("prompt_embeds_mask"),
        )


def run_vae(model, reference, recorder):
    recorder.prefix = ""
    manifest = reference.manifest
    packed = reference.read("final_latents_packed")
    model.decode(QwenLatentCreator.unpack_latents(packed, manifest["height"], manifest["width"]))


def run_vae_encoder(model, reference, recorder):
    """Only what comes out: mflux's encoder calls the modules of its last stage by parts."""
    model.encode(reference.read("vae_image0"))
    moments = recorder.tensors["quant_conv"]
    recorder.tensors.clear()
    recorder.tensors["quant_conv"] = moments


def dump(tensors, path):
    np.savez(path, **tensors)
    tensors.clear()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="folder in diffusers' layout")
    parser.add_argument("--reference", required=True, help="run of export.py with this model, without guidance")
    parser.add_argument("--out", required=True, type=Path, help="folder for transformer.npz, vae.npz and vae.image0.npz")
    parser.add_argument("--precision", choices=("float32",), help="of what mflux computes in bfloat16 by itself")
    parser.add_argument("--bits", type=int, help="quantize the transformer, and run it alone")
    parser.add_argument("--save", type=Path, help="then write it here, as mflux-save does, with the model's config")
    args = parser.parse_args()
    if args.precision:
        ModelConfig.precision = getattr(mx, args.precision)
    args.out.mkdir(parents=True, exist_ok=True)
    reference, recorder = Reference(args.reference), Recorder()

    transformer = build_transformer(args.model, args.bits)
    if args.save:
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
            ModelSaver._save_weights(str(args.save), args.bits, transformer, "transformer")
        shutil.copy(args.model / "transformer" / "config.json", args.save / "transformer")
    recorder.watch(transformer)
    recorder.watch_function(QwenTransformerBlock, "_modulate")
    recorder.watch_function(QwenAttention, "_apply_rope_qwen")
    recorder.watch_method(QwenAttention, "_compute_attention_qwen")
    run_transformer(transformer, reference, recorder)
    dump(recorder.tensors, args.out / "transformer.npz")

    if args.bits:
        return
    vae = build_vae(args.model)
    recorder.watch(vae)
    run_vae(vae, reference, recorder)
    dump(recorder.tensors, args.out / "vae.npz")
    run_vae_encoder(vae, reference, recorder)
    dump(recorder.tensors, args.out / "vae.image0.npz")


if __name__ == "__main__":
    main()
