"""Small random text encoders with a vision tower, and what the official classes compute with them.

    python -m tools.reference.vision_goldens tests/goldens/vision

Pictures come as patches, and prompts as ids: the vision encoder and the three-dimensional positions alone are tested.
"""

import argparse
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from tools.reference import environment, golden_json, random_model, random_weights

IMAGE_TOKEN = 60
TEXT_IDS = 50  # ids below are text

# Windows are of 2 x 2 and of 3 x 3 merged tokens (26 pixels hold three of 8), heads of 12 and of 20.
MODELS = {
    "nested": {
        "flat": False,
        "text": {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 20},
        "mrope_section": [1, 1, 2],
        "vision": {"hidden_size": 24, "num_heads": 2, "intermediate_size": 20, "depth": 2, "window_size": 16},
        "fullatt_block_indexes": [1],
    },
    "flat": {
        "flat": True,
        "text": {"hidden_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 20},
        "mrope_section": [2, 1, 3],
        "vision": {"hidden_size": 20, "num_heads": 1, "intermediate_size": 20, "depth": 3, "window_size": 26},
        "fullatt_block_indexes": [0, 2],
    },
}

# Grids in patches: whole windows, windows cut on one side and on both, portrait and landscape, a single token.
CASES = {
    "landscape": [(4, 6)],
    "portrait": [(10, 4)],
    "whole_windows": [(12, 12)],
    "two": [(4, 4), (2, 6)],
    "three": [(14, 6), (2, 2), (6, 14)],
}
# The case of which every module's output is kept; without attn.proj, mlp.down_proj, merger.mlp.2: attn, mlp and merger
# return the same.
TAPPED = ("nested", "two")
TAPS = ["patch_embed", "merger", "merger.ln_q", "merger.mlp.0"]
BLOCK_TAPS = ["", ".norm1", ".attn", ".attn.qkv", ".norm2", ".mlp", ".mlp.gate_proj", ".mlp.up_proj"]
LAYER_TAPS = ["", ".self_attn", ".self_attn.q_proj", ".self_attn.k_proj"]


def config(model):
    vision = {**model["vision"], "patch_size": 4, "out_hidden_size": model["text"]["hidden_size"]}
    return Qwen2_5_VLConfig(
        text_config={
            **model["text"],
            "num_hidden_layers": 2,
            "vocab_size": 64,
            "bos_token_id": None,
            "eos_token_id": None,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "mrope_section": model["mrope_section"],
                "rope_theta": 100.0,
                "rope_type": "default",
            },
        },
        vision_config={**vision, "fullatt_block_indexes": model["fullatt_block_indexes"]},
        image_token_id=IMAGE_TOKEN,
        video_token_id=61,
        tie_word_embeddings=True,
    )


def pixels(count, values, seed):
    """Numbers that C++ makes too, from whole numbers: they need no file. Small ones, so that a norm's eps counts."""
    whole = (torch.arange(count * values, dtype=torch.int64) * 7919 + seed * 104729) % 2003
    return (whole.float() / 1000.0 - 1.0).reshape(count, values) / 64.0


def prompt(grids):
    ids = [1, 2, 3]
    for index, (h, w) in enumerate(grids):
        ids += [10 + index, 11] + [IMAGE_TOKEN] * (h * w // 4) + [12]
    return ids + [(7 * i) % TEXT_IDS for i in range(5)]


class Recorder:
    def __init__(self, model):
        self.tensors = {}
        self.positions = None
        for path, module in model.named_modules():
            if self._wants(path):
                module.register_forward_hook(self._hook(path))
        model.model.language_model.register_forward_pre_hook(self._keep_positions, with_kwargs=True)

    def _wants(self, path):
        for prefix, taps in (("model.visual.blocks.", BLOCK_TAPS), ("model.language_model.layers.", LAYER_TAPS)):
            if path.startswith(prefix):
                return path.removeprefix(prefix).lstrip("0123456789") in taps
        return path.removeprefix("model.visual.") in TAPS or path == "model.language_model.embed_tokens"

    def _hook(self, path):
        def hook(_module, _args, output):
            self.tensors[path] = (output[0] if isinstance(output, tuple) else output).clone()

        return hook

    def _keep_positions(self, _module, _args, kwargs):
        self.positions = kwargs["position_ids"].clone()


def run(model, model_name, name, grids):
    """The text encoder's outputs for one prompt with pictures, as the pipelines call it."""
    vision = model.config.vision_config
    values = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    ids = torch.tensor([prompt(grids)])
    recorder = Recorder(model)
    features = []
    hook = model.model.visual.register_forward_hook(lambda _m, _a, output: features.append(output.pooler_output))
    with torch.no_grad():
        outputs = model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=pixels(sum(h * w for h, w in grids), values, len(name)),
            image_grid_thw=torch.tensor([(1, h, w) for h, w in grids]),
            # Without it transformers 5 counts positions as if pictures were text.
            mm_token_type_ids=(ids == IMAGE_TOKEN).int(),
            output_hidden_states=True,
        )
    hook.remove()
    position_ids = recorder.positions
    if torch.equal(position_ids[1], position_ids[2]):
        raise SystemExit(f"{name}: the positions are one-dimensional")
    tensors = {"model.visual": features[0], "hidden_states": outputs.hidden_states[-1]}
    if (model_name, name) == TAPPED:
        tensors |= recorder.tensors
    row = {
        "name": name,
        "grids": [[1, h, w] for h, w in grids],
        "pixel_seed": len(name),
        "input_ids": ids[0].tolist(),
        "position_ids": position_ids[:, 0].tolist(),
    }
    return row, {f"{name}/{path}": tensor.contiguous() for path, tensor in tensors.items()}


def write_model(folder, model_spec, seed):
    model = Qwen2_5_VLForConditionalGeneration(config(model_spec))
    random_weights.fill(model, seed)
    # What float16 can hold, computed with in float32: exact weights in half the bytes.
    nn.Module.to(model, torch.float16)
    model.save_pretrained(folder, save_original_format=model_spec["flat"])
    if model_spec["flat"]:
        random_model.flatten_config(folder / "config.json")
    (folder / "generation_config.json").unlink(missing_ok=True)
    # Loaded again: the model's tables of frequencies are float16 now, too.
    return Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    out = parser.parse_args().output
    environment.silence_progress_bars()
    shutil.rmtree(out, ignore_errors=True)
    for seed, (name, model_spec) in enumerate(MODELS.items()):
        folder = out / name
        folder.mkdir(parents=True)
        rows, tensors = [], {}
        model = write_model(folder, model_spec, seed)
        for case, grids in CASES.items():
            row, expected = run(model, name, case, grids)
            rows.append(row)
            tensors |= expected
        golden_json.write(out / f"{name}.json", "pictures and prompts for the official Qwen2.5-VL", rows)
        save_file(tensors, out / f"{name}.expected.safetensors")


if __name__ == "__main__":
    main()
