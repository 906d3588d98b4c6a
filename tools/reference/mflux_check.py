"""Compares mflux's Qwen-Image transformer and VAE (MLX) with the official ones on random weights, tensor by tensor, and the
engine with mflux.

    python -m tools.reference.mflux_check --work DIR --engine build/release/qwen-image [--device mlx-cpu]...

mflux twice: as it is, where one layer computes in bfloat16 whatever the model's precision, and with that layer in float32.
The first must part from the reference in that layer and nowhere before it, the second nowhere. Then the engine, on every
device that is asked for, from the same inputs: nowhere, neither with these weights nor with mflux's 4 bits.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tools.reference import compare_runs, engine_check, environment, input_pictures, random_model, random_spec
from tools.reference.export import export
from tools.reference.import_run import import_run

HERE = Path(__file__).resolve().parent
# What mflux runs; the rest of the reference is its input.
COMPARED = ("transformer/*", "vae/*", "vae.image0/quant_conv")
INPUTS = ("prompt_embeds", "packed_latents_step*", "final_latents_packed")
# The phases of the timestep's embedding reach 1000, and mflux rounds them in another order: 6e-5 there is one unit in
# the last place of a float32.
TOLERANCE = 1e-4
# mflux casts the input of norm_out to ModelConfig.precision, which is bfloat16.
BFLOAT16_LAYER = "transformer/step000/norm_out.linear"
FLOAT32 = "--precision=float32"
RUNS: tuple = (("as it is", [], BFLOAT16_LAYER), ("in float32", [FLOAT32], None))
# What passes between the components.
OUTPUTS = {"velocity": "/proj_out", "decoded": "vae/decoder.conv_out", "encoded": "vae.image0/quant_conv"}


def make_reference(work):
    model, reference = work / "model", work / "ref"
    if not (model / "model_index.json").exists():
        random_model.write_model(model, random_spec.make("mflux"))
    picture = work / "input.png"
    input_pictures.picture("64x64", 0).save(picture)
    arguments = [f"--model={model}", f"--out={reference}", "--prompt=a red circle", "--cfg=1", "--steps=2"]
    arguments += ["--pipeline=img2img", f"--image={picture}", "--strength=1", "--width=64", "--height=64"]
    arguments += ["--no-floor", "--overwrite"]
    export([*arguments, f"--checkpoints=boundaries,{','.join(COMPARED)}"])
    return model, reference


def run_mflux(model, reference, folder, options):
    """In a process of its own: it patches mflux's classes."""
    dump = folder / "dump"
    command = [sys.executable, "-m", "tools.reference.mflux_run", f"--model={model}", f"--reference={reference}", f"--out={dump}"]
    subprocess.run([*command, *options], check=True)
    run = folder / "mflux"
    arguments = [str(dump), f"--map={HERE / 'maps' / 'mflux.json'}", f"--manifest-from={reference}", f"--out={run}"]
    import_run([*arguments, "--tool=mflux", "--overwrite"])
    return run


def print_findings(title, report):
    rows = report["checkpoints"]
    failed = [row for row in rows if not row["passed"]]
    print(f"{title}: {len(rows)} tensors, {len(rows) - len(failed)} within {TOLERANCE:g}")
    for row in failed:
        print(f"  {row['name']}: max_abs {row['max_abs']:.1e}, NMSE {row['nmse']:.1e}")
    for kind in ("missing", "extra"):
        for name in report[kind]:
            print(f"  {kind}: {name}")


def check_mflux(work, engine, model, reference):
    """Whether mflux parts from the reference where it is known to. Its last run is the one to compare others with."""
    passed = True
    for title, options, expected in RUNS:
        run = run_mflux(model, reference, work / title.replace(" ", "_"), options)
        report = compare_runs.compare(engine, reference, run, COMPARED, TOLERANCE)
        print_findings(f"mflux {title}", report)
        found = compare_runs.first_divergence(report)
        if found != expected or report["missing"] or report["extra"]:
            print(f"  FAILED: parts first at {found}, expected {expected}")
            passed = False
        else:
            print(f"  as expected: {'no divergence' if expected is None else 'the first divergence is ' + expected}")
    return passed, run


def check_engine(work, engine, model, mflux, device):
    """Whether the engine computes what mflux does."""
    case = {"name": work.name, "checkpoints": ",".join(COMPARED), "pipeline": "img2img"}
    engine_check.run_engine(engine, work.parent, case, model, INPUTS, device)
    return report_engine(device, "float32", compare_runs.compare(engine, mflux, work / "cpp", COMPARED, TOLERANCE))


def check_engine_quantized(work, engine, model, mflux, device, transformer):
    """The same for the transformer alone, from the file that mflux saved."""
    only = ("transformer/*",)
    case = {"name": work.name, "checkpoints": only[0], "pipeline": "img2img", "only": "transformer"}
    engine_check.run_engine(engine, work.parent, case, model, INPUTS, device, [f"--transformer={transformer}"])
    return report_engine(device, "4 bits", compare_runs.compare(engine, mflux, work / "cpp", only, TOLERANCE))


def report_engine(device, title, report):
    print_findings(f"the engine on {device} and mflux, {title}", report)
    for output, name in OUTPUTS.items():
        errors = [row["nmse"] for row in report["checkpoints"] if row["name"].endswith(name)]
        if errors:
            print(f"  {output}: NMSE {max(errors):.1e}")
    return report["passed"]


def check(work, engine, devices=()):
    model, reference = make_reference(work)
    passed, mflux = check_mflux(work, engine, model, reference)
    saved = work / "saved"
    four_bits = run_mflux(model, reference, work / "4_bits", [FLOAT32, "--bits=4", f"--save={saved}"])
    for device in devices or ["cpu"]:
        passed = check_engine(work, engine, model, mflux, device) and passed
        passed = check_engine_quantized(work, engine, model, four_bits, device, saved / "transformer") and passed
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, type=Path, help="folder for the random model and the runs")
    parser.add_argument("--engine", required=True, type=Path, help="the qwen-image program, which compares")
    parser.add_argument("--device", action="append", default=[], help="where the engine computes (may be repeated; default: cpu)")
    args = parser.parse_args()
    environment.silence_progress_bars()
    if not check(args.work.resolve(), args.engine.resolve(), args.device):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
