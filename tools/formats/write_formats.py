"""Writes a model folder in every form that users hold, with the tools that write those.

    python -m tools.formats.write_formats --model models/tiny --out build/formats/tiny

Each form is a folder of OUT with a form.json: which tool wrote it, where each component is, and how the engine is called.
What is there is kept. Every form is read back with its tool and compared with the source.
"""

import argparse
import importlib.metadata
import shutil
from pathlib import Path

import torch

from tools.formats import gguf_forms, mlx_forms, read_forms, safetensors_forms
from tools.formats.model_folder import COMPONENTS, Model, is_optional, read_json, write_json

PACKAGES = {
    "safetensors": "safetensors",
    "comfy-kitchen": "comfy-kitchen",
    "mlx": "mlx",
    "mflux": "mflux",
    "gguf": "gguf",
}
# The largest relative error (root mean square) that a form's storage explains.
LIMITS = {2: 0.6, 3: 0.3, 4: 0.15, 5: 0.08, 6: 0.04, 8: 0.05, 16: 0.003, 32: 0.0}


def all_forms(program=None):
    return {**safetensors_forms.forms(), **mlx_forms.forms(), **gguf_forms.forms(program)}


def version_of(tool):
    try:
        return f"{tool} {importlib.metadata.version(tool)}"
    except importlib.metadata.PackageNotFoundError:
        return tool


def bits_of(form):
    if form in ("f32", "gguf_f32"):
        return 32
    for bits in (2, 3, 4, 5, 6, 8):
        if f"q{bits}" in form or f"int{bits}" in form or f"fp{bits}" in form:
            return bits
    return 16


def compare_with_source(form, values, source):
    """Every tensor is there, in its shape and place, and worth about what it was."""
    missing = [name for name in source if name not in values and not is_optional(name)]
    extra = [name for name in values if name not in source]
    if missing or extra:
        raise SystemExit(f"{form}: missing {missing[:5]}, extra {extra[:5]}")
    worst = 0.0
    for name, tensor in values.items():
        exact = source[name].float()
        if tensor.shape != exact.shape:
            raise SystemExit(f"{form}: {name} has the shape {list(tensor.shape)}, not {list(exact.shape)}")
        worst = max(worst, float((tensor - exact).norm() / exact.norm().clamp_min(1e-12)))
    if not worst <= LIMITS[bits_of(form)]:
        raise SystemExit(f"{form}: a tensor is off by {worst:.3g} of its norm")
    return worst


def write_form(name, form, model, out):
    """Writes form NAME below OUT and reads it back; returns its worst error, or None if a tool is not installed."""
    tool, write, engine = form
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        parts = write(model, folder)
    except ImportError as error:
        shutil.rmtree(folder)
        print(f"{name:28} left out: {error}")
        return None
    worst = 0.0
    for component in COMPONENTS:
        values = read_forms.read_part(folder, component, parts[component], model)
        worst = max(worst, compare_with_source(f"{name} {component}", values, model.tensors[component]))
    # Written last: a folder without it is unfinished.
    write_json(
        folder / "form.json",
        {"form": name, "tool": version_of(tool), "parts": parts, "engine": engine, "worst_error": worst},
    )
    return worst


def write_all(model_folder, out, chosen=(), program=None):
    model = Model(model_folder)
    table = all_forms(program)
    unknown = sorted(set(chosen) - set(table))
    if unknown:
        raise SystemExit(f"no form {', '.join(unknown)}; there are {', '.join(table)}")
    for name in chosen or table:
        if (out / name / "form.json").exists():
            continue
        worst = write_form(name, table[name], model, out)
        if worst is not None:
            print(f"{name:28} {read_json(out / name / 'form.json')['tool']:24} worst error {worst:.2g}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="folder in diffusers' layout")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--form", action="append", default=[], help="only this form (may be repeated)")
    parser.add_argument("--sd", type=Path, help="stable-diffusion.cpp's program (sd-cli), for its forms")
    args = parser.parse_args()
    torch.set_num_threads(1)
    write_all(args.model, args.out, args.form, args.sd)


if __name__ == "__main__":
    main()
