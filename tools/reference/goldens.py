"""Writes the small references that are committed for the tests that run without Python."""

import json
import shutil
import sys

import numpy as np
from safetensors.numpy import save_file

from tools.reference import golden_rng, golden_scheduler, input_pictures
from tools.reference.case_list import CaseList, export_arguments
from tools.reference.export import export

MAX_BYTES = 13_000_000  # of all goldens together: they are committed


def picture(case):
    """A smooth [1,3,H,W] picture in [-1,1]: waves of a different direction and phase per channel."""
    random = np.random.default_rng(case["seed"])
    y, x = np.mgrid[0 : case["height"], 0 : case["width"]] / 32.0
    channels = []
    for _ in range(3):
        fx, fy, phase = random.uniform(1, 6), random.uniform(1, 6), random.uniform(0, 6)
        channels.append(0.9 * np.sin(fx * x + fy * y + phase))
    return np.stack(channels)[None].astype(np.float32)


def pack(folder):
    """Moves a run's hundreds of npy files into one file, which the manifest then names for every checkpoint."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    tensors = {entry["name"]: np.load(folder / entry["file"]) for entry in manifest["checkpoints"]}
    for entry in manifest["checkpoints"]:
        (folder / entry["file"]).unlink()
        entry["file"] = "tensors.safetensors"
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    save_file(tensors, folder / "tensors.safetensors")
    # A line per checkpoint: a change shows as a small diff.
    entries = ",\n  ".join(json.dumps(entry) for entry in manifest.pop("checkpoints"))
    text = json.dumps(manifest, ensure_ascii=False, indent=1)
    text = f'{text[:-2]},\n "checkpoints": [\n  {entries}\n ]\n}}\n'
    (folder / "manifest.json").write_text(text, encoding="utf-8")


def write_case(cases, case, out):
    model = cases.model_folder(case["model"], out / "models")
    folder = out / case["name"]
    shutil.rmtree(folder, ignore_errors=True)
    if case.get("component") == "vae-encode":
        # Not inside the run's folder: there it would be an array that the manifest does not name.
        image = out / f"{case['name']}_input.npy"
        np.save(image, picture(case))
        export(export_arguments({**case, "image": image}, model, folder))
        image.unlink()
    else:
        drawn = out / f"{case['name']}_input"
        export(export_arguments(input_pictures.write_inputs(case, drawn), model, folder))
        shutil.rmtree(drawn, ignore_errors=True)
    pack(folder)


def size_of(path):
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.lstat().st_size for file in files), len(files)


def write(out, max_bytes):
    out.mkdir(parents=True, exist_ok=True)
    cases = CaseList()
    for case in cases.goldens:
        write_case(cases, case, out)
    golden_rng.write(out / "rng.json")
    golden_scheduler.write(out / "scheduler.json")
    for path in sorted(out.iterdir()):
        size, count = size_of(path)
        print(f"{size:9,} bytes {count:5} files  {path.name}", file=sys.stderr)
    total, count = size_of(out)
    print(f"{total:9,} bytes {count:5} files  in all", file=sys.stderr)
    if total > max_bytes:
        raise SystemExit(f"the goldens take {total:,} bytes, more than {max_bytes:,}")
