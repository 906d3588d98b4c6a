"""Writes a model folder of any dimensions with random weights, which the official pipeline loads.

    python -m tools.reference.random_model --out DIR --preset odd --set transformer.num_layers=7
"""

import argparse
import json
import shutil
from pathlib import Path

from diffusers import AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler, QwenImageTransformer2DModel
from transformers import AutoTokenizer, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from tools.reference import environment, random_model_21, random_spec
from tools.reference.random_files import latent_scale, save, write_json

TOKENIZER = Path(__file__).resolve().parents[2] / "models" / "tiny" / "tokenizer"
COMPONENTS = {
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
    "tokenizer": ["transformers", "Qwen2Tokenizer"],
    "transformer": ["diffusers", "QwenImageTransformer2DModel"],
    "vae": ["diffusers", "AutoencoderKLQwenImage"],
}
# What the published edit models have beside it.
PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2VLProcessor",
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "merge_size": 2,
    "patch_size": 14,
    "temporal_patch_size": 2,
}


def write_transformer(folder, spec):
    channels = spec["vae"]["z_dim"]
    model = QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=4 * channels,
        out_channels=channels,
        joint_attention_dim=spec["text_encoder"]["hidden_size"],
        **spec["transformer"],
    )
    save(model, folder, spec, spec["seed"])


def write_vae(folder, spec):
    seed = spec["seed"] + 1
    save(AutoencoderKLQwenImage(**latent_scale(spec["vae"]["z_dim"], seed), **spec["vae"]), folder, spec, seed)


def text_encoder_config(spec, tokenizer):
    text, vision = dict(spec["text_encoder"]), spec["vision"]
    rope_theta = text.pop("rope_theta")
    head_dim = text["hidden_size"] // text["num_attention_heads"]
    flat = spec["text_encoder_style"] == "flat"
    token = tokenizer.convert_tokens_to_ids
    return Qwen2_5_VLConfig(
        text_config={
            **text,
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "mrope_section": random_spec.mrope_section(head_dim),
                "rope_theta": rope_theta,
                "rope_type": "default",
            },
            "bos_token_id": token("<|endoftext|>"),
            "eos_token_id": token("<|im_end|>"),
        },
        vision_config={
            **vision,
            "out_hidden_size": text["hidden_size"],
            "fullatt_block_indexes": vision["fullatt_block_indexes"] or [vision["depth"] - 1],
        },
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        # The published (flat) folder holds an lm_head of its own.
        tie_word_embeddings=not flat,
    )


def flatten_config(path):
    """The text model's settings at the top, with the older rope_scaling, as the published folder has them."""
    config = json.loads(path.read_text(encoding="utf-8"))
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    for key in ("model_type", "layer_types", "dtype"):
        text.pop(key, None)
    text["rope_scaling"] = {"mrope_section": rope["mrope_section"], "rope_type": "default", "type": "default"}
    text["rope_theta"] = rope["rope_theta"]
    config["torch_dtype"] = config.pop("dtype")
    config["vision_config"].pop("rope_parameters", None)
    write_json(path, {**text, **config})


def write_text_encoder(folder, spec, tokenizer):
    flat = spec["text_encoder_style"] == "flat"
    model = Qwen2_5_VLForConditionalGeneration(text_encoder_config(spec, tokenizer))
    # "Original" keys are model.layers… and visual…, otherwise model.language_model… and model.visual….
    save(model, folder, spec, spec["seed"] + 2, save_original_format=flat)
    if flat:
        flatten_config(folder / "config.json")


def write_model(out, spec, tokenizer_folder=TOKENIZER):
    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise SystemExit(f"{out} is not empty")
    out.mkdir(parents=True, exist_ok=True)
    if random_spec.is_21(spec):
        random_model_21.write(out, spec, tokenizer_folder)
    else:
        write_first_family(out, spec, tokenizer_folder)


def write_first_family(out, spec, tokenizer_folder):
    shutil.copytree(tokenizer_folder, out / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(out / "tokenizer")
    write_transformer(out / "transformer", spec)
    write_vae(out / "vae", spec)
    write_text_encoder(out / "text_encoder", spec, tokenizer)
    scheduler = FlowMatchEulerDiscreteScheduler(**random_spec.scheduler_config(spec["lightning"]))
    scheduler.save_pretrained(out / "scheduler")
    settings = {key: spec[key] for key in ("pipelines", "vae_area", "condition_area") if spec[key] is not None}
    if settings:
        write_json(out / "qwen_image.json", settings)
    components = dict(COMPONENTS)
    if spec["pipeline"] != "QwenImagePipeline":
        (out / "processor").mkdir()
        write_json(out / "processor" / "preprocessor_config.json", PROCESSOR)
        components["processor"] = ["transformers", "Qwen2VLProcessor"]
    # Written last: a folder without it is an unfinished model.
    write_json(out / "model_index.json", {"_class_name": spec["pipeline"], **components})


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="model folder to write")
    parser.add_argument("--preset", choices=random_spec.PRESETS, default="default")
    parser.add_argument("--spec", help="JSON file with values over the preset's")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="e.g. vae.z_dim=8")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--dtype", choices=random_spec.DTYPES)
    parser.add_argument("--shards", metavar="SIZE", help="largest size of a weight file, e.g. 300KB")
    parser.add_argument("--text-encoder-style", choices=random_spec.STYLES)
    parser.add_argument("--lightning", action="store_true", default=None, help="the distilled models' schedule")
    parser.add_argument("--tokenizer", default=TOKENIZER, help="tokenizer folder to copy")
    return parser.parse_args()


def main():
    args = parse_arguments()
    environment.silence_progress_bars()
    spec = random_spec.make(args.preset)
    if args.spec:
        spec = random_spec.merge(spec, json.loads(Path(args.spec).read_text(encoding="utf-8")))
    for text in args.set:
        spec = random_spec.merge(spec, random_spec.from_assignment(text))
    options = {
        "seed": args.seed,
        "dtype": args.dtype,
        "max_shard_size": args.shards,
        "text_encoder_style": args.text_encoder_style,
        "lightning": args.lightning,
    }
    spec = random_spec.merge(spec, {key: value for key, value in options.items() if value is not None})
    random_spec.check(spec)
    write_model(args.out, spec, Path(args.tokenizer))


if __name__ == "__main__":
    main()
