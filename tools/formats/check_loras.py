"""Draws with the engine and each LoRA of tests/goldens/loras, and with diffusers from the weights that it amounts to.

    python -m tools.formats.check_loras --engine build/release/qwen-image --work build/formats

The pictures must agree as closely as they do without a LoRA; the files that are to be refused must be refused.
"""

import argparse
import subprocess
from pathlib import Path

import torch
from safetensors.torch import load_file

from tools.formats.check_formats import ROOT, Reference, engine_check, engine_draw, environment, read_json
from tools.formats.model_folder import Model
from tools.formats.write_loras import RANK, STYLES

LORAS = ROOT / "tests" / "goldens" / "loras"
SETTINGS = {
    "prompt": "a red circle on a blue background",
    "negative_prompt": " ",
    "seed": 7,
    "max_sequence_length": 512,
}
SETTINGS |= {"width": 128, "height": 128, "steps": 8, "cfg": 4.0}


def deltas(file):
    """{weight: up @ down · alpha / rank} of one file, by the keys of its style."""
    tensors = load_file(LORAS / file)
    style = {"second": "kohya", "peft_metadata": "peft"}.get(Path(file).stem, Path(file).stem)
    keys, has_alpha, _ = STYLES[style]
    factor = 1 / RANK if has_alpha or Path(file).stem == "peft_metadata" else 1.0
    found = {}
    for name in sorted({name for weights in read_json(LORAS / "expected.json")["weights"] for name in weights}):
        down, up, _ = keys(name.removesuffix(".weight"))
        if down in tensors:
            found[name] = factor * (tensors[up].double() @ tensors[down].double())
    return found


def check_run(run, model, reference, engine, work):
    values = {
        component: {name: tensor.float() for name, tensor in tensors.items()}
        for component, tensors in model.tensors.items()
    }
    for lora in run["loras"]:
        for name, delta in deltas(lora["file"]).items():
            values["transformer"][name] = (values["transformer"][name].double() + lora["scale"] * delta).float()
    reference.draw(values, work / f"{run['name']}_reference.png")
    arguments = [f"--lora={LORAS / lora['file']}:{lora['scale']}" for lora in run["loras"]]
    form = {"engine": [f"--model={model.folder}", *arguments]}
    error = engine_draw(engine, model.folder, form, SETTINGS, work / f"{run['name']}.png")
    if error:
        return False, error.splitlines()[0]
    levels, psnr = engine_check.compare_pictures(work / f"{run['name']}.png", work / f"{run['name']}_reference.png")
    return levels <= engine_check.LIMIT_LEVELS and psnr >= engine_check.LIMIT_PSNR, f"{levels} level, {psnr:.1f} dB"


def check_refused(path, model, engine, work):
    command = [
        str(engine),
        "generate",
        "x",
        f"--model={model.folder}",
        f"--lora={path}",
        f"--output={work / 'refused.png'}",
        "--steps=1",
        "--quiet",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode in (2, 3), done.stderr.strip().replace("\n", " ") or "was taken"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True, type=Path, help="the qwen-image program")
    parser.add_argument("--work", required=True, type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    environment.silence_progress_bars()
    model, work = Model(ROOT / "models" / "tiny"), args.work.resolve() / "loras"
    work.mkdir(parents=True, exist_ok=True)
    reference, failed = Reference(model, SETTINGS), []
    results = {
        run["name"]: check_run(run, model, reference, args.engine.resolve(), work)
        for run in read_json(LORAS / "expected.json")["runs"]
    }
    results |= {
        path.stem: check_refused(path, model, args.engine.resolve(), work) for path in sorted(LORAS.glob("refused_*"))
    }
    for name, (passed, text) in results.items():
        print(f"{name:20} {'passed' if passed else 'FAILED'}: {text[:150]}")
        failed += [] if passed else [name]
    if failed:
        raise SystemExit(f"{len(failed)} failed")


if __name__ == "__main__":
    main()
