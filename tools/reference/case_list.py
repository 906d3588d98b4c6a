"""Reads cases.json: which models and runs the parity check and the goldens are made of."""

import json
import os
from pathlib import Path

from tools.reference import official_pipelines, random_model, random_spec

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KEYS = ("name", "model", "pipeline", "prompt", "negative_prompt", "steps", "cfg", "seed", "checkpoints")


class CaseList:
    def __init__(self, path=HERE / "cases.json"):
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        self._models = content["models"]
        self._defaults = content["defaults"]
        self._defaults_21 = {**content["defaults"], **content["defaults-2.1"]}
        self.cases = [self._complete(case) for case in content["cases"]]
        self.goldens = [self._complete(case) for case in content["goldens"]]

    def _complete(self, case):
        if case["model"] not in self._models:
            raise SystemExit(f"case {case['name']}: unknown model {case['model']}")
        case = {**self._defaults_of(case["model"]), **case}
        if "width" not in case and not official_pipelines.KINDS[case["pipeline"]].sees:
            case.update(width=128, height=128)
        # A long prompt is a short one many times over.
        case["prompt"] = case.get("prompt", "") * case.pop("repeat", 1)
        return case

    def _defaults_of(self, model):
        entry = self._models[model]
        is_21 = "preset" in entry and random_spec.is_21(random_spec.make(entry["preset"]))
        return self._defaults_21 if is_21 else self._defaults

    def model_folder(self, name, models):
        """The folder of a model; a random one is written below MODELS unless it is there with the same spec."""
        entry = self._models[name]
        if "path" in entry:
            return ROOT / entry["path"]
        folder = Path(models) / name
        spec = random_spec.make(entry["preset"], entry.get("set"))
        stamp = folder.parent / f"{name}.spec.json"
        if not (stamp.exists() and json.loads(stamp.read_text(encoding="utf-8")) == spec):
            if folder.exists():
                raise SystemExit(f"{folder} was made from another spec (or not finished); remove it to have it remade")
            random_model.write_model(folder, spec)
            if "like" in entry:
                link_equal_files(folder, self.model_folder(entry["like"], models))
            random_model.write_json(stamp, spec)
        return folder


def link_equal_files(folder, other):
    """Models of the same weights are stored once: what is equal in another becomes a link to it."""
    for path in sorted(folder.rglob("*")):
        # At the same place first; a tokenizer's files have another in another family.
        candidates = [other / path.relative_to(folder), *sorted(other.rglob(path.name))]
        twins = (twin for twin in candidates if path.is_file() and twin.is_file() and path.read_bytes() == twin.read_bytes())
        if twin := next(twins, None):
            path.unlink()
            path.symlink_to(os.path.relpath(twin, path.parent))


def export_arguments(case, model, out):
    """The command line of export.py for a case whose pictures are drawn."""
    arguments = [f"--model={model}", f"--out={out}", f"--checkpoints={case['checkpoints']}", "--overwrite"]
    arguments.append("--floor" if case.get("floor") else "--no-floor")
    if "tile_min" in case:
        arguments += ["--tiled", f"--tile-min={case['tile_min']}", f"--tile-stride={case['tile_stride']}"]
    if case.get("component") == "vae-encode":
        return arguments + ["--component=vae-encode", f"--image={case['image']}"]
    arguments += [f"--image={path}" for path in case.get("images", [])]
    # "=" keeps a prompt that starts with a dash, or is empty, from being read as an option.
    keys = ("pipeline", "mask", "strength", "prompt", "width", "height", "steps", "cfg", "seed")
    arguments += [f"--{key}={case[key]}" for key in keys if key in case]
    if "sigmas" in case:
        arguments.append("--sigmas=" + ",".join(str(sigma) for sigma in case["sigmas"]))
    if case.get("kv_cache"):
        arguments.append("--kv-cache")
    if case["negative_prompt"] is not None:
        arguments.append(f"--negative-prompt={case['negative_prompt']}")
    return arguments
