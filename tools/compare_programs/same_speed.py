"""Measures two programs against each other: alternating pairs of runs on one core, on synthetic weights of full width.

    python -m tools.compare_programs.same_speed OLD NEW [--pairs 11] [--core 0] [--only TEXT] [--model FOLDER]

For every line the speed of NEW as a multiple of OLD's: the median over all pairs and its spread. Exits with 1 if a median is
below 0.97. The machine should have nothing else to do. Needs Python 3, taskset, and numpy to
write the weights (2 GB).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.compare_programs import pictures

ROOT = Path(__file__).resolve().parents[2]
BLOCKS, TEXT_LAYERS = 4, 2
SLOWEST = 0.97

BENCH = ("bench", "--steps", "2", "-t", "1", "--json", "-q")
# A run, and what it measures: the name of a line, and where the seconds stand in what the program prints.
RUNS = [
    (
        (*BENCH, "--sizes", "512x512", "--precision", "fast"),
        {
            f"{BLOCKS} blocks, 512x512, fast": "per_step",
            "text encoder, fast": "encode_prompt",
            "VAE decode, 512x512": "decode",
        },
    ),
    (
        (*BENCH, "--sizes", "512x512", "--precision", "exact"),
        {f"{BLOCKS} blocks, 512x512, exact": "per_step", "text encoder, exact": "encode_prompt"},
    ),
    ((*BENCH, "--sizes", "1024x1024", "--precision", "fast"), {f"{BLOCKS} blocks, 1024x1024, fast": "per_step"}),
    (
        ("generate", "a cat", "--init-image", "init.png", "--size", "512x512", "--steps", "1", "--strength", "1")
        + ("--cfg", "1", "-t", "1", "--json", "-q", "--no-prompt-cache", "-o", "out.png"),
        {"VAE encode, 512x512": "encode_pictures"},
    ),
]


def write_model(folder):
    if folder.exists():
        return
    parts = ["--text-encoder", "--vae", "--tokenizer", "--layers", str(BLOCKS), "--text-layers", str(TEXT_LAYERS)]
    subprocess.run([sys.executable, "-m", "tools.synthetic.write_model", "--out", folder, *parts], check=True)


def seconds_of(program, arguments, model, core, folder):
    environment = {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    command = ["taskset", "--cpu-list", str(core), program, *arguments, "-m", model]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)}: exit code {result.returncode}\n{result.stderr}")
    reply = json.loads(result.stdout)
    return reply["pictures"][0]["seconds"] if "pictures" in reply else reply["seconds"]


def measure(programs, arguments, pairs, model, core, folder):
    """[(seconds of OLD, seconds of NEW)], each pair in the other order than the one before."""
    seconds_of(programs[0], arguments, model, core, folder)  # brings the weights into memory
    measured = []
    for pair in range(pairs):
        order = (0, 1) if pair % 2 == 0 else (1, 0)
        seconds = {which: seconds_of(programs[which], arguments, model, core, folder) for which in order}
        measured.append((seconds[0], seconds[1]))
    return measured


def line_of(name, pairs):
    ratios = sorted(old / new for old, new in pairs)
    median = statistics.median(ratios)
    quarter = len(ratios) // 4
    old, new = (statistics.median(seconds) for seconds in zip(*pairs))
    verdict = "ok" if median >= SLOWEST else "SLOWER"
    spread = f"{ratios[quarter]:.3f} … {ratios[-1 - quarter]:.3f}, all {ratios[0]:.3f} … {ratios[-1]:.3f}"
    return median, f"{name:32} {old:9.3f} s {new:9.3f} s  {median:.3f} x  (middle half {spread})  {verdict}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--core", type=int, default=0, help="all runs are pinned to this one")
    parser.add_argument("--only", default="", help="runs with a line whose name contains this text")
    parser.add_argument("--model", type=Path, help="where the weights are, or are to be written (default: a temporary folder)")
    options = parser.parse_args()
    programs = [options.old.resolve(strict=True), options.new.resolve(strict=True)]
    medians = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = options.model.resolve() if options.model else folder / "model"
        write_model(model)
        pictures.write(folder / "init.png", 512, 512, lambda x, y: (x // 2, y // 2, (x * y) % 256))
        print(f"{'':32} {'OLD':>11} {'NEW':>11}  speed of NEW, {options.pairs} pairs on core {options.core}", flush=True)
        for arguments, lines in RUNS:
            if not any(options.only in name for name in lines):
                continue
            measured = measure(programs, arguments, options.pairs, model, options.core, folder)
            for name, key in lines.items():
                median, text = line_of(name, [(old[key], new[key]) for old, new in measured])
                medians.append(median)
                print(text, flush=True)
    slower = sum(median < SLOWEST for median in medians)
    print(f"{len(medians) - slower} of {len(medians)} lines at {SLOWEST} x or above")
    return 1 if slower or not medians else 0


if __name__ == "__main__":
    sys.exit(main())
