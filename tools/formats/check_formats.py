"""Draws a picture from every form with the engine, and with diffusers from the values that the form's own tool reads.

    python -m tools.formats.check_formats --engine build/release/qwen-image --work build/formats [--sd PATH/sd-cli]

The two must agree as closely as they do on plain weights (1 level, 60 dB). How far the form's picture is from that of
the unquantized model is reported: docs/formats.md. --reference-only draws diffusers' pictures and leaves the engine out.
"""

import argparse
import inspect
import math
import subprocess
from pathlib import Path
from types import SimpleNamespace

import torch
from diffusers import AutoencoderKLQwenImage

from tools.formats import names, read_forms, write_formats
from tools.formats.model_folder import COMPONENTS, Model, is_optional, read_json, write_json
from tools.reference import engine_check, environment, random_model, random_spec, text_to_image

ROOT = Path(__file__).resolve().parents[2]

# Rows of 256 values for ggml's larger blocks, and every constant that no weight file holds as in the published model.
PUBLISHED = {
    "dtype": "bfloat16",
    "transformer": {"num_attention_heads": 2, "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56]},
    "text_encoder": {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 512},
    "vae": {"num_res_blocks": 2},
}
SETTINGS = {
    "prompt": "a red circle on a blue background",
    "negative_prompt": " ",
    "seed": 7,
    "max_sequence_length": 512,
}
SMALL = {**SETTINGS, "width": 64, "height": 64, "steps": 2, "cfg": 4.0}
COMMITTED = {"tiny": "models/tiny", "micro": "tests/goldens/models/micro"}
# "forms": globs; what a model's dimensions do not allow is left out.
CASES = {
    "tiny": {"settings": {**SETTINGS, "width": 128, "height": 128, "steps": 8, "cfg": 4.0}, "forms": ["*"]},
    "published": {
        "settings": SMALL,
        "forms": ["bf16", "comfy_*", "mflux_*", "mlx_community_q4", "mlx_rs_q4", "mlx_q4_g64", "gguf_*", "sdcpp_*"],
    },
    # Half floats, and rows that no block divides.
    "odd": {
        "settings": SMALL,
        "forms": ["f32", "f16", "comfy_*", "mlx_q8_g32", "mflux_bf16", "gguf_q8_0", "gguf_f16", "sdcpp_q8_0"],
    },
    # The flat config of a text encoder, shards, a VAE of odd channels.
    "micro": {
        "settings": SMALL,
        "forms": ["f32", "comfy_*", "mflux_bf16", "gguf_f16", "gguf_q8_0", "sdcpp_q8_0"],
    },
}


def model_folder(name, work):
    if name in COMMITTED:
        return ROOT / COMMITTED[name]
    folder = work / "models" / name
    if not (folder / "model_index.json").exists():
        spec = random_spec.make("odd") if name == "odd" else random_spec.make("default", PUBLISHED)
        random_model.write_model(folder, spec)
    if name == "published":
        path, config = folder / "vae" / "config.json", read_json(folder / "vae" / "config.json")
        defaults = inspect.signature(AutoencoderKLQwenImage).parameters
        write_json(path, {**config, **{key: list(defaults[key].default) for key in ("latents_mean", "latents_std")}})
        assert Model(folder).has_published_shape()
    return folder


class Reference:
    """diffusers' pipeline in float32, whose weights are replaced by those of a form."""

    def __init__(self, model, settings):
        self._model = model
        self._settings = SimpleNamespace(**settings)
        self._pipe = text_to_image.load(model.folder, torch.float32)

    def draw(self, values, path):
        for component in COMPONENTS:
            tensors = values[component]
            if component == "text_encoder":
                tensors = {
                    names.from_diffusers(name, names.NESTED_TEXT_ENCODER): tensor for name, tensor in tensors.items()
                }
            missing, extra = getattr(self._pipe, component).load_state_dict(tensors, strict=False)
            left = [name for name in missing if not is_optional(names.to_diffusers(name, names.NESTED_TEXT_ENCODER))]
            # A tied head is not a tensor of its own.
            extra = [name for name in extra if not name.startswith("lm_head")]
            if left or extra:
                raise SystemExit(f"{path}: diffusers misses {left[:5]}, does not know {extra[:5]}")
        latents = text_to_image.initial_latents(self._pipe, self._settings)
        text_to_image.call(self._pipe, self._settings, latents=latents).save(path)

    def draw_source(self, path):
        self.draw(
            {component: {n: t.float() for n, t in self._model.tensors[component].items()} for component in COMPONENTS},
            path,
        )

    def draw_form(self, folder, form, path):
        parts = form["parts"]
        self.draw(
            {
                component: read_forms.read_part(folder, component, parts[component], self._model)
                for component in COMPONENTS
            },
            path,
        )


def engine_draw(engine, folder, form, settings, path):
    """None, or what the engine said."""
    path.unlink(missing_ok=True)
    arguments = [argument.replace("{root}", str(folder)) for argument in form["engine"]]
    command = [str(engine), "generate", f"--prompt={settings['prompt']}", f"--output={path}", "--quiet", *arguments]
    command += ["--precision=exact"]  # the reference computes the tool's values in fp32
    command += [f"--negative-prompt={settings['negative_prompt']}", f"--size={settings['width']}x{settings['height']}"]
    command += [f"--{key}={settings[key]}" for key in ("steps", "cfg", "seed")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def wanted(name, patterns):
    return any(Path(name).match(pattern) for pattern in patterns)


def check_form(engine, reference, folder, settings, source_picture):
    form = read_json(folder / "form.json")
    picture = folder / "reference.png"
    stamp = folder / "reference.json"
    if not (stamp.exists() and read_json(stamp) == settings):
        reference.draw_form(folder, form, picture)
        write_json(stamp, settings)
    _, quality = engine_check.compare_pictures(picture, source_picture)
    row = {"form": form["form"], "tool": form["tool"], "quality": quality, "size": size_of(folder, form)}
    if engine:
        row["error"] = engine_draw(engine, folder, form, settings, folder / "engine.png")
        if row["error"] is None:
            row["levels"], row["psnr"] = engine_check.compare_pictures(folder / "engine.png", picture)
            row["passed"] = row["levels"] <= engine_check.LIMIT_LEVELS and row["psnr"] >= engine_check.LIMIT_PSNR
        else:
            row["passed"] = False
    return row


def size_of(folder, form):
    path = folder / form["parts"]["transformer"]["path"]
    files = [path] if path.is_file() else path.glob("*.safetensors")
    return sum(file.stat().st_size for file in files)


def decibels(value):
    return "identical" if math.isinf(value) else f"{value:.1f} dB"


def verdict(row):
    if "passed" not in row:
        return "–"
    if row["error"]:
        return f"**not read**: {row['error'].splitlines()[0][:120]}"
    agreement = "identical" if math.isinf(row["psnr"]) else f"{row['levels']} level, {row['psnr']:.0f} dB"
    return agreement if row["passed"] else f"**FAILED**: {agreement}"


def table(results):
    lines = [
        "# Forms of a model",
        "",
        "Written by `tools/formats/check_formats.py`: each form is made by the tool that users get it from, and drawn "
        "twice, by this engine from the files and by diffusers in fp32 from the values that the form's own tool reads.",
        "",
        "- *engine*: largest difference of the two pictures in 8-bit levels (limit 1), and PSNR (limit 60 dB).",
        "- *against unquantized*: PSNR of the form's picture against the one of the same model before it was put into "
        "that form: what the form itself costs. Only `tiny` is trained; the weights of the others are random, and their "
        "figures say nothing about a trained model.",
        "- *transformer*: size of its file. Most rows of `tiny` have 128 values, which ggml's blocks of 256 (K, IQ4_XS) do "
        "not divide: these forms leave most of its matrices in bfloat16.",
        "",
    ]
    for model, (settings, rows) in results.items():
        size = f"{settings['width']}×{settings['height']}"
        lines += [f"## {model}", "", f"{size}, {settings['steps']} steps, cfg {settings['cfg']:g}", ""]
        lines += ["| form | written by | transformer | engine | against unquantized |", "|---|---|---|---|---|"]
        for row in rows:
            cells = [row["form"], row["tool"], f"{row['size'] / 1e6:.2f} MB", verdict(row), decibels(row["quality"])]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def check_model(name, case, work, engine, chosen, program):
    folder, settings = model_folder(name, work), case["settings"]
    out = work / name
    forms = [
        form
        for form in write_formats.all_forms(program)
        if wanted(form, case["forms"]) and (not chosen or wanted(form, chosen))
    ]
    write_formats.write_all(folder, out, forms, program)
    reference = Reference(Model(folder), settings)
    source = out / "source.png"
    reference.draw_source(source)
    rows = []
    for form in forms:
        if not (out / form / "form.json").exists():
            continue
        row = check_form(engine, reference, out / form, settings, source)
        rows.append(row)
        print(
            f"{name:10} {form:26} engine: {verdict(row):28} against unquantized: {decibels(row['quality'])}", flush=True
        )
    return settings, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, help="the qwen-image program")
    parser.add_argument("--reference-only", action="store_true")
    parser.add_argument("--work", required=True, type=Path, help="folder for the models and their forms")
    parser.add_argument("--model", action="append", default=[], choices=CASES, help="only this model (may be repeated)")
    parser.add_argument("--form", action="append", default=[], help="only forms that match this glob (may be repeated)")
    parser.add_argument("--sd", type=Path, help="stable-diffusion.cpp's program (sd-cli), for its forms")
    args = parser.parse_args()
    if not args.engine and not args.reference_only:
        parser.error("--engine or --reference-only is needed")
    torch.set_num_threads(1)
    environment.silence_progress_bars()
    work, engine = args.work.resolve(), None if args.reference_only else args.engine.resolve()
    results = {name: check_model(name, CASES[name], work, engine, args.form, args.sd) for name in args.model or CASES}
    write_json(work / "results.json", {name: rows for name, (_, rows) in results.items()})
    if engine and not args.model and not args.form:
        (ROOT / "docs" / "formats.md").write_text(table(results), encoding="utf-8")
    failed = [
        f"{name} {row['form']}" for name, (_, rows) in results.items() for row in rows if row.get("passed") is False
    ]
    if failed:
        raise SystemExit(f"{len(failed)} forms failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
