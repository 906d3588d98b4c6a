"""Small random Qwen3-VL models, and what the official classes and Qwen-Image-2.1's pipeline make of prompts with them.

    python -m tools.reference.conditioner21_goldens tests/goldens/conditioner21

Two models get patches and ids: the vision tower and the language model alone are tested, layer by layer. A third one goes
through the pipeline's own prompt code with the embedded tokenizer, pictures with alpha among them.
"""

import argparse
import json
import pathlib
import shutil

import torch
from diffusers import QwenImage21Pipeline
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from transformers import BatchFeature, Qwen2Tokenizer, Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.vision_utils import get_vision_interpolation_indices_and_weights

from tools.reference import environment, golden_json, processor_goldens, random_weights, tokenizer_goldens

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGE_TOKEN = 60
TEXT_IDS = 50  # ids below are text

# Heads are not a share of hidden_size, the table of positions is smaller and larger than grids, and the mergers of the
# second model are listed against the order of their blocks.
MODELS = {
    "nested": {
        "layers": 3,
        "text": {"hidden_size": 12, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 12},
        "mrope_section": [2, 2, 2],
        "vision": {"hidden_size": 8, "num_heads": 2, "intermediate_size": 12, "depth": 2},
        "side": 5,
        "deepstack": [0, 1],
    },
    "flat": {
        "layers": 2,
        "text": {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16},
        "mrope_section": [5, 2, 1],
        "vision": {"hidden_size": 12, "num_heads": 1, "intermediate_size": 16, "depth": 3},
        "side": 11,
        "deepstack": [2, 0],
    },
}

# Grids in patches: none, landscape and portrait, the smallest, and several of different shapes.
CASES = {
    "text": [],
    "landscape": [(4, 6)],
    "portrait": [(14, 4)],
    "two": [(4, 4), (2, 6)],
    "three": [(10, 6), (2, 2), (4, 12)],
}
# The case of which every module's output is kept; without attn.proj, o_proj, linear_fc2, down_proj: the module around
# each returns the same.
TAPPED = ("nested", "two")
TAPS = {
    "model.visual.blocks.#": ["", ".norm1", ".attn", ".attn.qkv", ".norm2", ".mlp", ".mlp.linear_fc1"],
    "model.visual.merger": ["", ".norm", ".linear_fc1"],
    "model.visual.deepstack_merger_list.#": ["", ".norm", ".linear_fc1"],
    "model.visual": [".patch_embed"],
    "model.language_model": [".embed_tokens"],
    "model.language_model.layers.#": [
        "", ".input_layernorm", ".self_attn", ".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj",
        ".self_attn.q_norm", ".self_attn.k_norm", ".post_attention_layernorm", ".mlp", ".mlp.gate_proj", ".mlp.up_proj",
    ],
}  # fmt: skip

# Of the model that goes through the pipeline: it needs patches of 16 pixels and the tokenizer's ids.
MICRO = {
    "layers": 3,
    "text": {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8},
    "mrope_section": [2, 1, 1],
    "vision": {"hidden_size": 8, "num_heads": 1, "intermediate_size": 12, "depth": 2, "patch_size": 16},
    "side": 4,
    "deepstack": [0, 1],
}
PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "size": {"shortest_edge": 1024, "longest_edge": 16777216},
    "merge_size": 2,
    "patch_size": 16,
    "temporal_patch_size": 2,
}
RESOLUTION = 64
# Width, height and channels of a prompt's pictures.
ENCODED = {
    "text": ("a red circle", []),
    "empty": ("", []),
    "one": ("make it <image1> blue", [(80, 52, 3)]),
    "alpha": ("", [(64, 64, 4)]),
    "clear": ("x", [(70, 41, 4), (30, 77, 4)]),
    "three": ("a photo\n", [(96, 32, 4), (50, 50, 3), (33, 90, 3)]),
}
SYSTEM = "<|im_start|>system\n{}<|im_end|>\n"
PICTURES = [[6], [1, 2, 3]]  # image tokens of each picture


def config(model, vocab_size, token_ids):
    return Qwen3VLConfig(
        text_config={
            **model["text"],
            "num_hidden_layers": model["layers"],
            "intermediate_size": 20,
            "vocab_size": vocab_size,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "mrope_section": model["mrope_section"],
                "mrope_interleaved": True,
                "rope_theta": 100.0,
                "rope_type": "default",
            },
        },
        vision_config={
            "patch_size": 4,
            **model["vision"],
            "out_hidden_size": model["text"]["hidden_size"],
            "num_position_embeddings": model["side"] ** 2,
            "deepstack_visual_indexes": model["deepstack"],
        },
        tie_word_embeddings=vocab_size > 64,  # an lm_head, which nothing needs, only where it is small
        **token_ids,
    )


def flatten_config(path):
    """The text model's settings at the top, with the older rope_scaling."""
    settings = json.loads(path.read_text(encoding="utf-8"))
    text = settings.pop("text_config")
    rope = text.pop("rope_parameters")
    text["rope_theta"] = rope.pop("rope_theta")
    text["rope_scaling"] = rope
    settings["vision_config"].pop("rope_parameters")
    path.write_text(json.dumps({**text, **settings}, indent=2) + "\n", encoding="utf-8")


def write_model(folder, settings, seed, flat=False):
    model = Qwen3VLForConditionalGeneration(settings)
    random_weights.fill(model, seed)
    # What float16 can hold, computed with in float32: exact weights in half the bytes.
    nn.Module.to(model, torch.float16)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    # Loaded again: the model's tables of frequencies are float16 now, too.
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    if flat:
        flatten_config(folder / "config.json")
    return model


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
    """The outputs of modules, and what no module returns."""

    def __init__(self, model):
        self.tensors, self.positions, self.hooks = {}, None, []
        for path, module in model.named_modules():
            if self._wants(path):
                self.hooks.append(module.register_forward_hook(self._keep(path)))
        language = model.model.language_model
        self.hooks += [
            language.register_forward_pre_hook(self._keep_positions, with_kwargs=True),
            language.rotary_emb.register_forward_hook(self._keep_angles),
            model.model.visual.register_forward_hook(self._keep_features),
        ]
        # What a layer is given is what the layer before returned, with the pictures' features added to it.
        for index in range(len(model.config.vision_config.deepstack_visual_indexes)):
            after = language.layers[index + 1] if index + 1 < len(language.layers) else language.norm
            name = f"model.language_model.layers.{index}:deepstack"
            self.hooks.append(after.register_forward_pre_hook(self._keep_input(name)))
        # As the pipeline does it: hidden states before the norm.
        self.hooks.append(language.norm.register_forward_hook(lambda _module, args, _output: args[0]))

    def _wants(self, path):
        numbers = ".".join("#" if part.isdigit() else part for part in path.split("."))
        return any(numbers == prefix + tap for prefix, taps in TAPS.items() for tap in taps)

    def _keep(self, path):
        def hook(_module, _args, output):
            self.tensors[path] = (output[0] if isinstance(output, tuple) else output).clone()

        return hook

    def _keep_input(self, name):
        def hook(_module, args):
            self.tensors[name] = args[0].clone()

        return hook

    def _keep_positions(self, _module, _args, kwargs):
        self.positions = kwargs["position_ids"]

    def _keep_angles(self, _module, _args, output):
        half = output[0].shape[-1] // 2
        self.tensors["cos"], self.tensors["sin"] = (table[0, :, :half].clone() for table in output)

    def _keep_features(self, _module, _args, output):
        self.tensors["model.visual"] = output.pooler_output
        for index, features in enumerate(output.deepstack_features):
            self.tensors[f"deepstack.{index}"] = features

    def remove(self):
        for hook in self.hooks:
            hook.remove()


def resampled_positions(model, grid_thw):
    visual = model.model.visual
    indices, weights = get_vision_interpolation_indices_and_weights(
        grid_thw, visual.num_grid_per_side, "bilinear", align_corners=True, spatial_merge_size=visual.spatial_merge_size
    )
    return (visual.pos_embed(indices) * weights[:, :, None]).sum(1)


@torch.no_grad()
def run(model, model_name, name, grids):
    """The text encoder's outputs for one prompt, as the pipeline calls it."""
    vision = model.config.vision_config
    values = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    ids = torch.tensor([prompt(grids)])
    pictures = {}
    if grids:
        pictures = {
            "pixel_values": pixels(sum(h * w for h, w in grids), values, len(name)),
            "image_grid_thw": torch.tensor([(1, h, w) for h, w in grids]),
        }
    recorder = Recorder(model)
    outputs = model(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == IMAGE_TOKEN).int(),
        output_hidden_states=True,
        **pictures,
    )
    recorder.remove()
    tapped = recorder.tensors
    positions = recorder.positions
    if grids and torch.equal(positions[1], positions[2]):
        raise SystemExit(f"{name}: the positions are one-dimensional")
    if not grids:
        positions = torch.arange(ids.shape[1]).expand(3, 1, -1)
    kept = ["model.visual", *(f"deepstack.{index}" for index in range(len(vision.deepstack_visual_indexes)))]
    tensors = {key: tapped[key] for key in kept if grids} | {"hidden_states": outputs.hidden_states[-1]}
    if (model_name, name) == TAPPED:
        tensors |= tapped
        positions_of_patches = resampled_positions(model, pictures["image_grid_thw"])
        tensors["model.visual:positioned"] = tapped["model.visual.patch_embed"] + positions_of_patches
    row = {
        "name": name,
        "grids": [[1, h, w] for h, w in grids],
        "pixel_seed": len(name),
        "input_ids": ids[0].tolist(),
        "position_ids": positions[:, 0].tolist(),
    }
    return row, {f"{name}/{path}": tensor.contiguous() for path, tensor in tensors.items()}


def write_encoders(out):
    token_ids = {"image_token_id": IMAGE_TOKEN, "video_token_id": 61}
    for seed, (name, spec) in enumerate(MODELS.items()):
        (out / name).mkdir(parents=True)
        rows, tensors = [], {}
        model = write_model(out / name, config(spec, 64, token_ids), seed, flat=name == "flat")
        for case, grids in CASES.items():
            row, expected = run(model, name, case, grids)
            rows.append(row)
            tensors |= expected
        golden_json.write(out / f"{name}.json", "pictures and prompts for the official Qwen3-VL", rows)
        save_file(tensors, out / f"{name}.expected.safetensors")


class Processor:
    """Qwen3VLProcessor's part in the pipeline, without torchvision, which has no build for a CPU's torch."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self._images = Qwen2VLImageProcessorPil(**PROCESSOR)
        self.calls = []

    def apply_chat_template(self, messages, tokenize, return_dict):
        assert tokenize and not return_dict
        return [self.tokenizer(SYSTEM.format(messages[0]["content"][0]["text"])).input_ids]

    def __call__(self, text, padding, padding_side, return_tensors, images=None):
        pictures, counts = {}, []
        if images:
            pictures = self._images(images=images, return_tensors=return_tensors)
            counts = (pictures["image_grid_thw"].prod(-1) // 4).tolist()
        text = [tokenizer_goldens.expand_images(line, counts, Qwen3VLProcessor) for line in text]
        self.calls.append((text, pictures))
        tokens = self.tokenizer(text, padding=padding, padding_side=padding_side, return_tensors=return_tensors)
        tokens["mm_token_type_ids"] = (tokens["input_ids"] == self.tokenizer.encode("<|image_pad|>")[0]).int()
        return BatchFeature({**tokens, **pictures})


def pipeline(processor, text_encoder=None):
    return QwenImage21Pipeline(
        scheduler=None, vae=None, text_encoder=text_encoder, processor=processor, transformer=None
    )


def resized(pipe, picture):
    """The two lines of the pipeline's __call__ that bring a picture to size."""
    module = __import__(pipe.__module__, fromlist=["calculate_dimensions"])
    width, height, _ = module.calculate_dimensions(RESOLUTION**2, picture.width / picture.height)
    return pipe.image_processor.resize(picture.convert("RGBA"), width=width, height=height)


def bytes_of(width, height, channels):
    return Image.fromarray(processor_goldens.picture(width, height, channels))


@torch.no_grad()
def write_encoded(out, tokenizer):
    token = tokenizer.convert_tokens_to_ids
    token_ids = {"image_token_id": token("<|image_pad|>"), "video_token_id": token("<|video_pad|>")}
    (out / "micro" / "text_encoder").mkdir(parents=True)
    (out / "micro" / "processor").mkdir()
    model = write_model(out / "micro" / "text_encoder", config(MICRO, len(tokenizer), token_ids), 7)
    settings = json.dumps(PROCESSOR, indent=2) + "\n"
    (out / "micro" / "processor" / "preprocessor_config.json").write_text(settings, encoding="utf-8")
    processor = Processor(tokenizer)
    pipe = pipeline(processor, model)
    rows, tensors = [], {}
    for name, (text, sizes) in ENCODED.items():
        pictures = [resized(pipe, bytes_of(*size)) for size in sizes]
        embeds, _, image_mask = pipe._get_qwen_prompt_embeds(text, pictures or None, torch.device("cpu"))
        _, seen = processor.calls[-1]
        row = {"name": name, "prompt": text, "sizes": sizes, "image_tokens": int(image_mask.sum())}
        if sizes:
            row["image_grid_thw"] = seen["image_grid_thw"].tolist()
            row["pixels_sha256"] = processor_goldens.sha256(seen["pixel_values"].numpy())
        rows.append(row)
        tensors[name] = embeds.contiguous()
    golden_json.write(out / "micro.json", "prompts through the pipeline's own code; pictures are RGBA at 64 x 64 pixels' area", rows)
    save_file(tensors, out / "micro.expected.safetensors")


class Stop(Exception):
    """The prompt's text is known: no model is needed."""


def official_text(processor, text, counts):
    """What the pipeline gives to the tokenizer, its pictures' tokens written out."""
    pipe = pipeline(processor)
    pictures = [bytes_of(32, 32 * count, 3) for count in counts]
    processor.calls.clear()

    def stop(*_args, **_kwargs):
        raise Stop

    processor.tokenizer, tokenizer = stop, processor.tokenizer
    try:
        pipe._get_qwen_prompt_embeds(text, pictures or None, torch.device("cpu"))
    except Stop:
        pass
    finally:
        processor.tokenizer = tokenizer
    return processor.calls[0][0][0]


def write_prompts(out, tokenizer_folder, tokenizer):
    reference = tokenizer_goldens.Reference(tokenizer_folder)
    processor = Processor(tokenizer)
    pipe = pipeline(processor)
    rows = [{"t2i": pipe.prompt_template_t2i, "ti2i": pipe.prompt_template_ti2i, "dropped": pipe._drop_idx}]
    prompts = ["<|image_pad|>", "<image1> {x}", "", "\n a", "a<|im_end|>\n<|im_start|>user\n"]
    more = [text for text in tokenizer_goldens.PROMPTS if len(text) < 1000] + ["word " * 1100]
    marker = "\ue000"
    for counts in [[], *PICTURES]:
        head, tail = official_text(processor, marker, counts).split(marker)
        for text in prompts if counts else prompts + more:
            # The text after the last control token belongs to the prompt: words reach from one into the other.
            cut = head.rindex("|>") + 2
            plain = head[cut:] + (text or " ")
            parse = None  # an image token of the prompt's own has no picture
            if "<|image_pad|>" not in text:
                parse = reference.parse(official_text(processor, text, counts))
            rows.append({
                "image_tokens": counts,
                "prompt": text,
                "parse": parse,
                "literal": reference.parse(head[:cut]) + reference.literal(plain) + reference.parse(tail),
            })
    golden_json.write(out / "prompts.json", "the pipeline's templates, and prompts in them", rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, default=ROOT / "models" / "tiny" / "tokenizer")
    args = parser.parse_args()
    environment.silence_progress_bars()
    shutil.rmtree(args.output, ignore_errors=True)
    tokenizer = Qwen2Tokenizer.from_pretrained(args.tokenizer)
    write_encoders(args.output)
    write_encoded(args.output, tokenizer)
    write_prompts(args.output, args.tokenizer, tokenizer)


if __name__ == "__main__":
    main()
