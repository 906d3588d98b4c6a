"""Draws a set of small pictures with two programs and compares their pixels.

    python -m tools.compare_programs.same_pixels OLD NEW [--only TEXT] [--keep FOLDER]

All formats of weights, fast and exact, edits, inpainting, LoRA, other numbers of threads; and whether watching a run
(--debug --checkpoints all) changes it. Needs Python 3 alone. One line a case; exits with 1 if a picture differs.
"""

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.compare_programs import gguf_model, pictures

ROOT = Path(__file__).resolve().parents[2]
TINY, GOLDENS = ROOT / "models" / "tiny", ROOT / "tests" / "goldens"
PROMPT = "a red circle on a blue background"
PRECISIONS = ("fast", "exact")
THREADS = (1, 2, 5)
# What `convert` writes: types, and for one of them the other sizes of a group.
CONVERSIONS: list[tuple[str, ...]] = [(kind,) for kind in ("f32", "f16", "bf16", "q8", "q6", "q5", "q4", "q3", "q2")]
CONVERSIONS += [("q4", "32"), ("q4", "128"), ("q8", "32")]
LORAS = ["peft", "kohya", "comfy_alpha", "transformer_alpha", "old_diffusers"]
WIDE = GOLDENS / "formats" / "configs" / "wide32"
FOREIGN = ["transformer_q8_0.gguf", "transformer_q4_0.gguf", "mlx_q8_g32.safetensors", "comfy_fp8_scaled.safetensors"]


class Case:
    def __init__(self, name, command, *arguments, watched=False):
        self.name, self.command, self.arguments, self.watched = name, command, [str(a) for a in arguments], watched


def run(program, arguments, folder):
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
    return subprocess.run([program, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True)


def must_run(program, arguments, folder):
    result = run(program, arguments, folder)
    if result.returncode != 0:
        sys.exit(f"{program} {' '.join(map(str, arguments))}\n{result.stderr}")


def scene(x, y):
    inside = (x - 60) ** 2 + (y - 50) ** 2 < 900
    return (220, 40 + x % 64, 30) if inside else (20 + (3 * x + 5 * y) % 90, 60, 160 + y % 80)


def write_inputs(folder):
    pictures.write(folder / "wide.png", 150, 100, scene)
    pictures.write(folder / "tall.png", 97, 133, scene)
    pictures.write(folder / "square.png", 128, 128, scene)
    pictures.write(folder / "mask.png", 128, 128, lambda x, y: (255,) * 3 if 30 < x < 90 and 20 < y < 100 else (0,) * 3)


def part(folder, component, file):
    """A file of another tool, with the config that its size needs beside it."""
    target = folder / f"{component}-{file}"
    if not target.exists():
        target.mkdir()
        shutil.copy(WIDE / component / "config.json", target)
        shutil.copy(GOLDENS / "formats" / file, target)
    return target / file


def draw(*more, size="64x64"):
    return (PROMPT, "--steps", 2, "--size", size, *more)


def format_cases(old, folder):
    """Every format, fast and exact."""
    for kind, *group in CONVERSIONS:
        model = folder / "-".join((kind, *group))
        options = ["--to", kind, *(["--group-size", *group] if group else [])]
        must_run(old, ["convert", TINY, "-o", model, "--overwrite", "-q", *options], folder)
        for precision in PRECISIONS:
            options = ["-m", model, "--precision", precision]
            yield Case(f"tiny as {model.name}, {precision}", "generate", *draw(*options), watched=True)
    for kind, precision in itertools.product(gguf_model.BLOCKS, PRECISIONS):
        file = folder / kind / "model.gguf"
        if not file.exists():
            gguf_model.write(file.parent, kind, text_dim=128)
        options = ["-m", TINY, "--transformer", file, "--precision", precision]
        yield Case(f"random GGUF {kind}, {precision}", "generate", *draw(*options), watched=True)
    for file, precision in itertools.product(FOREIGN, PRECISIONS):
        options = ["--transformer", part(folder, "transformer", file), "--precision", precision, "--cfg", 1]
        options += ["--text-encoder", part(folder, "text_encoder", "text_encoder_q8_0.gguf")]
        options += ["--vae", part(folder, "vae", "comfy_vae.safetensors")]
        yield Case(f"random {file}, {precision}", "generate", *draw(*options), watched=True)


def models_in(folder):
    """The weights as they are and in 4 bits: three ways to take a product."""
    q4 = ["-m", folder / "q4", "--precision"]
    return {"tiny": ["-m", TINY], "tiny as q4, fast": [*q4, "fast"], "tiny as q4, exact": [*q4, "exact"]}


def picture_cases(folder):
    models = models_in(folder)
    init = ["--init-image", folder / "square.png", "--size", "128x128"]
    ways = {
        "no guidance": draw("--cfg", 1, size="96x64"),
        "a negative prompt": draw("--negative-prompt", "blurry, 模糊", "--seed", 7, size="64x96"),
        "an init image": (PROMPT, "--steps", 5, *init, "--strength", 0.6),
        "inpainting": (PROMPT, "--steps", 4, *init, "--mask", folder / "mask.png", "--strength", 0.8),
        "inpainting, not blended": (PROMPT, "--steps", 4, *init, "--mask", folder / "mask.png", "--no-blend"),
        "outpainting": (PROMPT, "--steps", 3, "--init-image", folder / "square.png", "--outpaint", "32,16,0,48"),
        "tiles": draw("--vae-tiling", "on", size="320x288"),
        "a step cache": (PROMPT, "--steps", 8, "--size", "64x64", "--step-cache", 0.3),
    }
    edits = {
        "an edit": (PROMPT, "--steps", 2, "-i", folder / "wide.png"),
        "an edit of two": (PROMPT, "--steps", 2, "-i", folder / "wide.png", "-i", folder / "tall.png"),
        "an edit of its own size": (PROMPT, "--steps", 2, "-i", folder / "tall.png", "--keep-size"),
        "an edit with a mask": (PROMPT, "--steps", 4, "-i", folder / "square.png", "--mask", folder / "mask.png"),
    }
    for model, options in models.items():
        for way, arguments in ways.items():
            yield Case(f"{model}: {way}", "generate", *arguments, *options, watched=way != "a step cache")
        for way, arguments in edits.items():
            yield Case(f"{model}: {way}", "edit", *arguments, *options, watched=True)
    for name in LORAS:
        lora = ["--lora", f"{GOLDENS / 'loras' / name}.safetensors:0.8"]
        for model, options in models.items():
            yield Case(f"{model}: LoRA {name}", "generate", *draw(*options, *lora), watched=True)
    two = ["--lora", f"{GOLDENS / 'loras' / 'kohya'}.safetensors:0.7", "--lora", f"{GOLDENS / 'loras' / 'second'}.safetensors:-0.5"]
    for model, options in models.items():
        edit = (PROMPT, "--steps", 2, "-i", folder / "wide.png", *options, *two)
        yield Case(f"{model}: an edit with two LoRAs", "edit", *edit, watched=True)


def micro_cases(folder):
    """The smallest random models, and what only they have: one picture to edit, references that are modulated apart."""
    yield Case("micro", "generate", *draw("-m", GOLDENS / "models" / "micro", size="48x32"), watched=True)
    for model in ("edit-micro", "edit-micro-2511", "edit-micro-one"):
        model_options = ["-m", GOLDENS / "models" / model, "--steps", 2]
        yield Case(model, "edit", "make it green", "-i", folder / "wide.png", *model_options, "--size", "64x48", watched=True)
    two = ["-i", folder / "wide.png", "-i", folder / "tall.png", "--steps", 2, "--size", "48x64"]
    for model in ("edit-micro", "edit-micro-2511"):
        yield Case(f"{model}, two pictures", "edit", "swap them", "-m", GOLDENS / "models" / model, *two, watched=True)


def thread_cases(folder):
    for (model, options), threads in itertools.product(models_in(folder).items(), THREADS):
        yield Case(f"{model}, 128x128 on {threads} threads", "generate", *draw(*options, "-t", threads, size="128x128"))
        edit = (PROMPT, "--steps", 2, "-i", folder / "wide.png", *options, "-t", threads)
        yield Case(f"{model}, an edit on {threads} threads", "edit", *edit)


def picture_of(program, case, folder, before=()):
    """What one program draws, or what it says if it does not."""
    folder.mkdir(exist_ok=True)
    output = folder / "out.png"
    result = run(program, [*before, case.command, *case.arguments, "--no-prompt-cache", "-q", "-o", output], folder)
    if result.returncode != 0:
        return None, f"exit code {result.returncode}: {result.stderr.partition(chr(10))[0]}"
    picture = pictures.read(output)
    output.unlink()
    return picture, None


def judge(old, new, case, folder):
    """A few words for every difference."""
    old_picture, old_error = picture_of(old, case, folder / "old")
    new_picture, new_error = picture_of(new, case, folder / "new")
    if old_error or new_error:
        return [f"OLD {old_error or 'draws'}; NEW {new_error or 'draws'}"]
    findings = []
    if len(set(old_picture[2])) < 16:
        findings.append("the picture is all but empty, so that it says nothing")
    difference = pictures.differences(old_picture, new_picture)
    findings += [difference] if difference else []
    if case.watched:
        artifacts = folder / "artifacts"
        watch = ["--debug=run", "--checkpoints", "all", "--artifacts", artifacts]
        watched, error = picture_of(new, case, folder / "new", watch)
        shutil.rmtree(artifacts, ignore_errors=True)
        difference = error or pictures.differences(new_picture, watched)
        findings += [f"watched: {difference}"] if difference else []
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave models and inputs there")
    options = parser.parse_args()
    old, new = options.old.resolve(strict=True), options.new.resolve(strict=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.keep or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        write_inputs(folder)
        cases = [*format_cases(old, folder), *picture_cases(folder), *micro_cases(folder), *thread_cases(folder)]
        cases = [case for case in cases if options.only in case.name]
        different = 0
        for case in cases:
            findings = judge(old, new, case, folder)
            different += bool(findings)
            print("  ".join(["DIFFERENT" if findings else "same", case.name, "; ".join(findings)]).rstrip(), flush=True)
    print(f"{len(cases) - different} of {len(cases)} cases are the same, {different} are not")
    return 1 if different or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
