"""How far pictures drawn with --precision fast are from exact ones, with two programs.

    python -m tools.compare_programs.fast_pictures OLD NEW [--seeds 8] [--sizes 128 256 384]

The embedded model in 4 and 8 bits, one prompt, several seeds; NEW draws the exact pictures. A row for each kind of weights
and size: the median PSNR of OLD and of NEW, and the smallest and the largest. Needs Python 3 alone; changes nothing.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from tools.compare_programs.same_pixels import PROMPT, TINY, must_run, run

KINDS = ("q4", "q8")


def psnr(program, reference, picture, folder):
    """The exit code tells whether pictures are the same; the figure stands in the JSON either way."""
    found = json.loads(run(program, ["compare", reference, picture, "--json", "-", "-q"], folder).stdout)
    return found["pictures"][0]["psnr"]


def measure(programs, model, side, seed, folder):
    """The PSNR of each program's fast picture."""
    options = ["-m", model, "--size", f"{side}x{side}", "--seed", seed, "-q"]
    exact, fast = folder / "exact.png", folder / "fast.png"
    must_run(programs[-1], ["generate", PROMPT, *options, "--precision", "exact", "-o", exact], folder)
    values = []
    for program in programs:
        must_run(program, ["generate", PROMPT, *options, "--precision", "fast", "-o", fast], folder)
        values.append(psnr(programs[-1], exact, fast, folder))
    return values


def spread(values):
    return f"{statistics.median(values):.1f} dB ({min(values):.1f} to {max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="a program")
    parser.add_argument("new", type=Path, help="another one, which draws the exact pictures, too")
    parser.add_argument("--seeds", type=int, default=8, help="how many (default: 8)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 256, 384], help="sides of the pictures")
    options = parser.parse_args()
    programs = [options.old.resolve(), options.new.resolve()]
    if options.seeds < 1:
        parser.error("--seeds must be at least 1")
    for program in programs:
        if not program.is_file():
            parser.error(f"there is no {program}")
    print("| weights | size | OLD | NEW |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for kind in KINDS:
            model = folder / kind
            must_run(programs[-1], ["convert", TINY, "-o", model, "--to", kind, "-q"], folder)
            for side in options.sizes:
                pairs = [measure(programs, model, side, seed, folder) for seed in range(options.seeds)]
                old, new = (spread(values) for values in zip(*pairs))
                print(f"| {kind} | {side}×{side} | {old} | {new} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
