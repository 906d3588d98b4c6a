"""The parity check with the official pipeline, and the goldens of the tests that run without Python.

    python -m tools.reference.parity run --engine build/release/qwen-image --work DIR [--case NAME]... [--device mlx-cpu]
        [--update-goldens]
    python -m tools.reference.parity foreign --engine build/release/qwen-image --work DIR [--device NAME]...
    python -m tools.reference.parity export --work DIR [--case NAME]...
    python -m tools.reference.parity goldens --out tests/goldens
"""

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path

from tools.reference import compare_runs, docs_check, engine_check, environment, goldens, input_pictures, mflux_check
from tools.reference.case_list import HERE, KEYS, ROOT, CaseList, export_arguments
from tools.reference.export import export
from tools.reference.random_model import write_json

# The files that decide what a reference holds; a change in any of them makes the references old.
EXPORTER = (
    "attention_weights.py",
    "block_taps.py",
    "block_taps_21.py",
    "checkpoint_choice.py",
    "checkpoint_store.py",
    "export.py",
    "image_21.py",
    "module_taps.py",
    "noise_floor.py",
    "official_pipelines.py",
    "picture_to_image.py",
    "processor_21.py",
    "input_pictures.py",
    "text_to_image.py",
)


def fingerprint(case, model):
    """Changes with everything that a case's reference depends on."""
    tools = {name: hashlib.sha256((HERE / name).read_bytes()).hexdigest() for name in EXPORTER}
    configs = {
        path.relative_to(model).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(model.rglob("*.json"))
    }
    return {
        "case": case,
        "weights": environment.weights_sha256(model),
        "configs": configs,
        "tools": tools,
        "versions": environment.versions(),
    }


def is_current(folder, stamp):
    path = folder / "ref.stamp.json"
    return path.exists() and json.loads(path.read_text(encoding="utf-8")) == stamp


def export_case(cases, case, work):
    model = cases.model_folder(case["model"], work / "models").resolve()
    folder = work / case["name"]
    stamp = fingerprint(case, model)
    if is_current(folder, stamp):
        print(f"{case['name']}: up to date", file=sys.stderr)
        return
    print(f"{case['name']}: exporting", file=sys.stderr)
    (folder / "ref.stamp.json").unlink(missing_ok=True)
    export(export_arguments(input_pictures.write_inputs(case, folder), model, folder / "ref"))
    settings = json.loads((folder / "ref" / "manifest.json").read_text(encoding="utf-8"))
    keys = ("width", "height", "steps", "images", "mask", "strength", "sigmas")
    known = {key: settings[key] for key in keys if key in settings}
    write_json(folder / "case.json", {key: str(model) if key == "model" else case[key] for key in KEYS} | known)
    # Written last: an export that was interrupted is not up to date.
    write_json(folder / "ref.stamp.json", stamp)


def chosen_cases(cases, names):
    chosen = [case for case in cases.cases if not names or case["name"] in names]
    unknown = set(names) - {case["name"] for case in chosen}
    if unknown:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}; see parity.py list")
    return chosen


def export_cases(args):
    cases = CaseList()
    for case in chosen_cases(cases, args.case):
        export_case(cases, case, Path(args.work))


def update_goldens():
    """Everything under tests/goldens that comes from the official code and from Pillow."""
    folder = ROOT / "tests" / "goldens"
    for module, words in (
        ("image_goldens", ["--out", folder / "images"]),
        ("processor_goldens", [folder / "processors"]),
        ("vision_goldens", [folder / "vision"]),
        ("vae21_goldens", [folder / "vae21"]),
        ("conditioner21_goldens", [folder / "conditioner21"]),
    ):
        subprocess.run([sys.executable, "-m", f"tools.reference.{module}", *words], check=True)
    goldens.write(folder, goldens.MAX_BYTES)  # counts them all


def run_cases(args):
    """Exports what is missing, runs the engine, prints a line per case; all cases together, on the CPU, rewrite docs/parity.md."""
    if args.update_goldens:
        update_goldens()
    cases, work, rows = CaseList(), Path(args.work).resolve(), []
    engine = Path(args.engine).resolve()
    for case in chosen_cases(cases, args.case):
        export_case(cases, case, work)
        model = cases.model_folder(case["model"], work / "models").resolve()
        row = engine_check.check_case(engine, work, case, model, args.device)
        if case.get("floor"):
            check_precisions(engine, work, case, model, row)
        rows.append(row)
        verdict = "passed" if row["passed"] else "FAILED: " + (", ".join(row["failures"][:3]) or "the pictures differ")
        alone = max((value for value in row["isolated"].values() if value is not None), default=None)
        print(
            f"{case['name']:28} {row['tensors']:5} tensors, alone {engine_check.figure(alone)}, latents {engine_check.figure(row['latents'])}, "
            f"picture within {row['levels']} level, {row['psnr']:.1f} dB: {verdict}"
        )
    if not args.case and not args.device:  # docs/parity.md is about the CPU
        print(f"{docs_check.check(work / 'docs', engine)} command of docs/debugging.md and of the skills works")
        table = engine_check.table(rows, environment.versions())
        (ROOT / "docs" / "parity.md").write_text(table, encoding="utf-8")
    failed = [row["case"]["name"] for row in rows if not row["passed"]]
    print(f"{len(rows) - len(failed)} passed, {len(failed)} failed")
    if failed:
        raise SystemExit(1)


def check_precisions(engine, work, case, model, row):
    """`compare` must accept the official bfloat16 run by its floors, and the engine's float32 run."""
    folder = work / case["name"]
    drawn = input_pictures.write_inputs({**case, "floor": False}, folder)
    export([*export_arguments(drawn, model, folder / "bf16"), "--dtype=bfloat16"])
    for run in ("bf16", "cpp"):
        report = compare_runs.compare(engine, folder / "ref", folder / run)
        if not report["passed"]:
            found = compare_runs.first_divergence(report) or "missing or extra tensors"
            row["failures"].append(f"compare {run}: {found}")
    row["passed"] = row["passed"] and not row["failures"]


def check_foreign(args):
    if not mflux_check.check(Path(args.work).resolve() / "mflux", Path(args.engine).resolve(), args.device):
        raise SystemExit(1)
    arguments = ["--engine", args.engine, "--work", Path(args.work) / "mlx"]
    subprocess.run([sys.executable, "-m", "tools.formats.mlx_load_check", *arguments], check=True)


def list_cases(_args):
    for case in CaseList().cases:
        size = f"{case['width']}x{case['height']}" if "width" in case else "–"
        print(
            f"{case['name']:28} {case['model']:18} {case['pipeline']:14} {size:8} {case['steps']:3} steps  {case['checkpoints']}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run", help="compare the engine with the references")
    command.add_argument("--engine", required=True, help="the qwen-image program")
    command.add_argument("--work", required=True, help="folder for the random models and the runs")
    command.add_argument("--case", action="append", default=[], help="only this case (may be repeated)")
    command.add_argument("--device", help="where the engine computes, with --precision exact: mlx-cpu or gpu, of a build with MLX")
    command.add_argument("--update-goldens", action="store_true", help="first write tests/goldens anew")
    command.set_defaults(run=run_cases)
    command = commands.add_parser("foreign", help="compare mflux with the official pipeline, and quantized weights with MLX (needs mflux and mlx)")
    command.add_argument("--engine", required=True, help="the qwen-image program")
    command.add_argument("--work", required=True, help="folder for the random model and the runs")
    command.add_argument("--device", action="append", default=[], help="where the engine computes (may be repeated; default: cpu)")
    command.set_defaults(run=check_foreign)
    command = commands.add_parser("export", help="export the references that are missing or out of date")
    command.add_argument("--work", required=True, help="folder for the random models and the runs")
    command.add_argument("--case", action="append", default=[], help="only this case (may be repeated)")
    command.set_defaults(run=export_cases)
    command = commands.add_parser("list", help="show the cases")
    command.set_defaults(run=list_cases)
    command = commands.add_parser("goldens", help="export the small references that are committed")
    command.add_argument("--out", required=True)
    command.add_argument("--max-bytes", type=int, default=goldens.MAX_BYTES, help="fail if the goldens are larger")
    command.set_defaults(run=lambda args: goldens.write(Path(args.out), args.max_bytes))
    args = parser.parse_args()
    environment.silence_progress_bars()
    args.run(args)


if __name__ == "__main__":
    main()
