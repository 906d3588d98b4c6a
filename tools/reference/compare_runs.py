"""Compares two runs by the engine's `compare`."""

import json
import subprocess
from pathlib import Path


def compare(engine, reference, run, only=("*",), tolerance=None):
    """Its JSON report. Without a tolerance it chooses by precision and floors."""
    report = Path(run) / "compare.json"
    command = [str(engine), "compare", str(reference), str(run), f"--json={report}", "--quiet"]
    command += [f"--only={glob}" for glob in only]
    if tolerance is not None:
        command += [f"--atol={tolerance}", f"--rtol={tolerance}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} failed ({done.returncode}): {done.stderr.strip()}")
    return json.loads(report.read_text(encoding="utf-8"))


def first_divergence(report):
    return next((row["name"] for row in report["checkpoints"] if not row["passed"]), None)
