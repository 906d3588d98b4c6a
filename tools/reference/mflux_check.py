"""Compares mflux's Qwen-Image transformer and VAE (MLX) with the official ones on random weights, tensor by tensor.

    python tools/reference/mflux_check.py --work DIR --engine build/release/qwen-image

Twice: as mflux is, where one layer computes in bfloat16 whatever the model's precision, and with that layer in float32.
The first must part from the reference in that layer and nowhere before it, the second nowhere.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import compare_runs
import environment
import random_model
import random_spec
from export import export
from import_run import import_run

HERE = Path(__file__).resolve().parent
# What mflux runs; the rest of the reference is its input.
COMPARED = ("transformer/*", "vae/*")
# The phases of the timestep's embedding reach 1000, and mflux rounds them in another order: 6e-5 there is one unit in
# the last place of a float32.
TOLERANCE = 1e-4
# mflux casts the input of norm_out to ModelConfig.precision, which is bfloat16.
BFLOAT16_LAYER = "transformer/step000/norm_out.linear"
RUNS = (("as it is", [], BFLOAT16_LAYER), ("in float32", ["--precision=float32"], None))


def make_reference(work):
    model, reference = work / "model", work / "ref"
    if not (model / "model_index.json").exists():
        random_model.write_model(model, random_spec.make("mflux"))
    arguments = [f"--model={model}", f"--out={reference}", "--prompt=a red circle", "--cfg=1", "--steps=2"]
    arguments += ["--width=64", "--height=64", "--no-floor", "--overwrite"]
    export([*arguments, f"--checkpoints=boundaries,{','.join(COMPARED)}"])
    return model, reference


def run_mflux(model, reference, folder, options):
    """In a process of its own: it patches mflux's classes."""
    dump = folder / "dump"
    command = [sys.executable, HERE / "mflux_run.py", f"--model={model}", f"--reference={reference}", f"--out={dump}"]
    subprocess.run([*command, *options], check=True)
    run = folder / "mflux"
    arguments = [str(dump), f"--map={HERE / 'maps' / 'mflux.json'}", f"--manifest-from={reference}", f"--out={run}"]
    import_run([*arguments, "--tool=mflux", "--overwrite"])
    return run


def print_findings(title, report):
    rows = report["checkpoints"]
    failed = [row for row in rows if not row["passed"]]
    print(f"mflux {title}: {len(rows)} tensors, {len(rows) - len(failed)} within {TOLERANCE:g}")
    for row in failed:
        print(f"  {row['name']}: max_abs {row['max_abs']:.1e}, NMSE {row['nmse']:.1e}")
    for kind in ("missing", "extra"):
        for name in report[kind]:
            print(f"  {kind}: {name}")


def check(work, engine):
    model, reference = make_reference(work)
    passed = True
    for title, options, expected in RUNS:
        run = run_mflux(model, reference, work / title.replace(" ", "_"), options)
        report = compare_runs.compare(engine, reference, run, COMPARED, TOLERANCE)
        print_findings(title, report)
        found = compare_runs.first_divergence(report)
        if found != expected or report["missing"] or report["extra"]:
            print(f"  FAILED: parts first at {found}, expected {expected}")
            passed = False
        else:
            print(f"  as expected: {'no divergence' if expected is None else 'the first divergence is ' + expected}")
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, type=Path, help="folder for the random model and the runs")
    parser.add_argument("--engine", required=True, type=Path, help="the qwen-image program, which compares")
    args = parser.parse_args()
    environment.silence_progress_bars()
    if not check(args.work, args.engine):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
