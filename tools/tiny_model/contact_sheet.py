#!/usr/bin/env python3
"""Draw held-out captions with this project's engine or the official pipeline and put them on one sheet.

    python -m tools.tiny_model.contact_sheet models/tiny sheet.png --engine build/release/qwen-image
    python -m tools.tiny_model.contact_sheet models/tiny sheet.png
    python -m tools.tiny_model.contact_sheet models/tiny sizes.png --sizes 160x96 96x160 192x128
"""
import argparse
import subprocess
import tempfile
import time
from pathlib import Path

from PIL import Image, ImageDraw

from tools.tiny_model.scenes import held_out_captions

ZOOM = 2
MARGIN = 6
CAPTION_HEIGHT = 28


def draw_with_engine(captions, size, args):
    pictures = []
    with tempfile.TemporaryDirectory() as folder:
        for seed, caption in enumerate(captions):
            path = Path(folder) / "picture.png"
            command = [args.engine, "generate", caption, f"--model={args.model}", f"--output={path}", f"--seed={seed}"]
            command += [f"--size={size[0]}x{size[1]}", f"--steps={args.steps}", f"--cfg={args.cfg}", "--quiet"]
            subprocess.run(command, check=True)
            pictures.append(Image.open(path).copy())
    return pictures


def draw_with_diffusers(captions, size, args):
    # Imported here: a sheet that the engine draws needs neither.
    import torch
    from diffusers import QwenImagePipeline

    from tools.tiny_model import wait_policy  # noqa: F401  before torch

    torch.set_num_threads(1)  # as fast as two for such small products
    pipeline = QwenImagePipeline.from_pretrained(args.model, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    pictures, start = [], time.time()
    for seed, caption in enumerate(captions):
        output = pipeline(
            prompt=caption,
            negative_prompt=" ",
            true_cfg_scale=args.cfg,
            width=size[0],
            height=size[1],
            num_inference_steps=args.steps,
            generator=torch.Generator().manual_seed(seed),
        )
        pictures.append(output.images[0])
    seconds = (time.time() - start) / len(captions)
    print(f"{size[0]}x{size[1]}, {args.steps} steps: {seconds:.2f} s a picture", flush=True)
    return pictures


def paste_row(sheet, top, pictures, captions, cell):
    canvas = ImageDraw.Draw(sheet)
    for column, (picture, caption) in enumerate(zip(pictures, captions)):
        left = column * cell[0] + MARGIN
        zoomed = picture.resize((picture.width * ZOOM, picture.height * ZOOM), Image.NEAREST)
        sheet.paste(zoomed, (left, top + MARGIN))
        words = caption.split()
        middle = (len(words) + 1) // 2
        text = " ".join(words[:middle]) + "\n" + " ".join(words[middle:])
        canvas.text((left, top + MARGIN + zoomed.height), text, fill="white", spacing=0)


def make_sheet(rows, captions, columns):
    """rows: for each picture size the pictures of all captions."""
    width = max(picture.width for row in rows for picture in row) * ZOOM + 2 * MARGIN
    lines = []
    for row in rows:
        for i in range(0, len(row), columns):
            lines.append((row[i : i + columns], captions[i : i + columns]))
    heights = [line[0].height * ZOOM + 2 * MARGIN + CAPTION_HEIGHT for line, _ in lines]
    sheet = Image.new("RGB", (columns * width, sum(heights)), "gray")
    top = 0
    for (line, texts), height in zip(lines, heights):
        paste_row(sheet, top, line, texts, (width, height))
        top += height
    return sheet


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("sheet")
    parser.add_argument("--engine", help="the qwen-image program; default: the official pipeline")
    parser.add_argument("--sizes", nargs="+", default=["128x128"], help="WIDTHxHEIGHT")
    parser.add_argument("--count", type=int, default=16, help="number of captions")
    parser.add_argument("--columns", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cfg", type=float, default=4.0)
    args = parser.parse_args()

    captions = held_out_captions(args.count)
    rows = []
    for text in args.sizes:
        size = tuple(int(side) for side in text.split("x"))
        rows.append((draw_with_engine if args.engine else draw_with_diffusers)(captions, size, args))
    make_sheet(rows, captions, args.columns).save(args.sheet)


if __name__ == "__main__":
    main()
