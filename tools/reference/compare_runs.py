"""Compares two runs: by the engine's `compare` where there is one, else with NumPy in the same words."""

import json
import subprocess
from pathlib import Path

import numpy as np

from checkpoint_choice import CheckpointChoice
from noise_floor import difference


def with_engine(engine, reference, run, only=("*",), tolerance=None):
    """The report of `qwen-image compare` as JSON."""
    report = Path(run) / "compare.json"
    command = [str(engine), "compare", str(reference), str(run), f"--json={report}", "--quiet"]
    command += [f"--only={glob}" for glob in only]
    if tolerance is not None:
        command += [f"--atol={tolerance}", f"--rtol={tolerance}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} failed ({done.returncode}): {done.stderr.strip()}")
    return json.loads(report.read_text(encoding="utf-8"))


def _entries(folder):
    manifest = json.loads((Path(folder) / "manifest.json").read_text(encoding="utf-8"))
    return {entry["name"]: entry for entry in manifest["checkpoints"]}


def _load(folder, entry):
    return np.load(Path(folder) / entry["file"], allow_pickle=False)


def _compare_tensor(name, want, got, tolerance):
    if want.shape != got.shape:
        return {"name": name, "nmse": None, "max_abs": None, "passed": False}
    close = bool(np.allclose(got, want, rtol=tolerance, atol=tolerance))
    return {"name": name, **difference(got, want), "passed": close}


def with_numpy(reference, run, only, tolerance):
    wanted = CheckpointChoice(",".join(only))
    want, got = _entries(reference), _entries(run)
    chosen = [name for name in want if wanted.wants(name, "boundaries")]
    rows = [
        _compare_tensor(name, _load(reference, want[name]), _load(run, got[name]), tolerance)
        for name in chosen
        if name in got
    ]
    missing = [name for name in chosen if name not in got]
    extra = [name for name in got if name not in want]
    passed = bool(rows) and not missing and not extra and all(row["passed"] for row in rows)
    return {"passed": passed, "checkpoints": rows, "missing": missing, "extra": extra}


def first_divergence(report):
    return next((row["name"] for row in report["checkpoints"] if not row["passed"]), None)
