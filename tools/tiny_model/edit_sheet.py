#!/usr/bin/env python3
"""Edit held-out pictures with this project's engine or the official pipeline: before and after.

    python -m tools.tiny_model.edit_sheet models/tiny edits.png --engine build/release/qwen-image
    python -m tools.tiny_model.edit_sheet models/tiny edits.png --expected

Also says which pictures are right: those whose pixels, but for the edges, have the expected colour.
"""
import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from tools.tiny_model.contact_sheet import make_sheet
from tools.tiny_model.edits import held_out_edits

GAP = 4
COLOR_ERROR = 60  # of 255; a pixel which is further off has the wrong colour
WRONG_SHARE = 0.03  # pixels of the wrong colour which a right picture may have, at its edges


def edit_with_engine(edits, args):
    pictures = []
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.png", Path(folder) / "after.png"
        for seed, (text, picture, _) in enumerate(edits):
            Image.fromarray(picture).save(before)
            command = [args.engine, "edit", text, f"--model={args.model}", f"--input-image={before}"]
            command += [f"--output={after}", f"--seed={seed}", f"--steps={args.steps}"]
            subprocess.run(command + [f"--cfg={args.cfg}", "--quiet"], check=True)
            pictures.append(Image.open(after).copy())
    return pictures


def edit_with_diffusers(edits, args):
    # Imported here: a sheet that the engine draws needs neither.
    import torch

    from tools.tiny_model import wait_policy  # noqa: F401  before torch
    from tools.tiny_model.edit_pipeline import load_edit_pipeline

    torch.set_num_threads(1)  # as fast as two for such small products
    pipeline, output_size = load_edit_pipeline(args.model)
    pictures = []
    for seed, (text, picture, _) in enumerate(edits):
        image = Image.fromarray(picture)
        width, height = output_size(image)
        output = pipeline(
            image=[image],
            prompt=text,
            negative_prompt=" ",
            true_cfg_scale=args.cfg,
            width=width,
            height=height,
            num_inference_steps=args.steps,
            generator=torch.Generator().manual_seed(seed),
        )
        pictures.append(output.images[0])
    return pictures


def wrong_share(picture, expected):
    """Share of the pixels which do not have the expected colour."""
    error = np.abs(np.asarray(picture, dtype=int) - expected.astype(int))
    return float((error.max(2) > COLOR_ERROR).mean())


def side_by_side(pictures):
    width = sum(picture.width + GAP for picture in pictures) - GAP
    row, left = Image.new("RGB", (width, pictures[0].height), "gray"), 0
    for picture in pictures:
        row.paste(picture, (left, 0))
        left += picture.width + GAP
    return row


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("sheet")
    parser.add_argument("--engine", help="the qwen-image program; default: the official pipeline")
    parser.add_argument("--expected", action="store_true", help="show the expected picture too")
    parser.add_argument("--count", type=int, default=24, help="number of edits")
    parser.add_argument("--columns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cfg", type=float, default=4.0)
    args = parser.parse_args()

    edits = held_out_edits(args.count)
    results = (edit_with_engine if args.engine else edit_with_diffusers)(edits, args)
    rows, right = [], 0
    for (text, before, expected), after in zip(edits, results):
        share = wrong_share(after, expected)
        right += share <= WRONG_SHARE
        if share > WRONG_SHARE:
            print(f"{share:.1%} of the pixels are wrong: {text}")
        shown = [Image.fromarray(before), after] + [Image.fromarray(expected)] * args.expected
        rows.append(side_by_side(shown))
    print(f"{right} of {len(edits)} edits are right")
    make_sheet([rows], [text for text, _, _ in edits], args.columns).save(args.sheet)


if __name__ == "__main__":
    main()
