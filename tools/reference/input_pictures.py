"""Draws the input pictures of the cases: deterministic, of any size, with the fine detail that a resize must get right.

    python -m tools.reference.input_pictures 150x100 a.png [--seed 1] [--alpha | --mask]
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter


def parse_size(text):
    width, height = text.split("x")
    return int(width), int(height)


def _waves(random, width, height):
    """Soft light, [height, width, 3] in 0…255: slow waves of another direction in each channel."""
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    channels = []
    for _ in range(3):
        fx, fy, phase = random.uniform(-5, 5), random.uniform(-5, 5), random.uniform(0, 6)
        channels.append(128 + 90 * np.sin(fx * x + fy * y + phase))
    return np.stack(channels, axis=-1)


def _corners(random, width, height):
    """Two corners of a box, each side at least a sixth of the picture's."""
    left, top = random.uniform(0, 0.6) * width, random.uniform(0, 0.6) * height
    return left, top, left + random.uniform(0.17, 0.4) * width, top + random.uniform(0.17, 0.4) * height


def picture(size, seed):
    """Waves, hard-edged shapes, thin lines, and grain over all of it."""
    width, height = parse_size(size)
    random = np.random.default_rng([seed, width, height])
    image = Image.fromarray(_waves(random, width, height).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for index in range(4):
        shape = draw.ellipse if index % 2 else draw.rectangle
        shape(_corners(random, width, height), fill=tuple(int(value) for value in random.integers(0, 256, 3)))
    for _ in range(3):
        draw.line(_corners(random, width, height), fill=tuple(int(value) for value in random.integers(0, 256, 3)))
    grain = random.normal(0, 6, (height, width, 3))
    return Image.fromarray((np.asarray(image) + grain).clip(0, 255).astype(np.uint8))


def alpha(size, seed):
    """Waves of all values, an opaque and a transparent shape with hard edges: a resize must weigh colours by it."""
    width, height = parse_size(size)
    random = np.random.default_rng([seed, width, height, 1])
    image = Image.fromarray(_waves(random, width, height)[..., 0].astype(np.uint8))
    draw = ImageDraw.Draw(image)
    draw.ellipse(_corners(random, width, height), fill=0)
    draw.rectangle(_corners(random, width, height), fill=255)
    return image


def picture_of_case(words, seed):
    """"150x100", or "150x100 RGBA": with alpha, the colours also where it is transparent."""
    size, _, mode = words.partition(" ")
    image = picture(size, seed)
    if mode == "RGBA":
        image.putalpha(alpha(size, seed))
    elif mode:
        raise SystemExit(f"an input picture cannot be {words!r}")
    return image


def mask(size, seed):
    """White shapes with soft edges, so that the limit between kept and redrawn counts."""
    width, height = parse_size(size)
    random = np.random.default_rng([seed, width, height])
    image = Image.new("L", (width, height))
    draw = ImageDraw.Draw(image)
    draw.ellipse(_corners(random, width, height), fill=255)
    draw.rectangle(_corners(random, width, height), fill=255)
    return image.filter(ImageFilter.GaussianBlur(max(width, height) / 50))


def write_inputs(case, folder):
    """Draws what a case starts from; returns the case with its pictures' paths in place of their sizes."""
    if "images" not in case:
        return case
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {**case, "images": []}
    for index, size in enumerate(case["images"]):
        path = folder / f"input{index}.png"
        picture_of_case(size, case["seed"] + index).save(path)
        drawn["images"].append(path)
    if "mask" in case:
        drawn["mask"] = folder / "mask.png"
        mask(case["mask"], case["seed"]).save(drawn["mask"])
    return drawn


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", help="e.g. 150x100")
    parser.add_argument("path")
    parser.add_argument("--seed", type=int, default=0)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--alpha", action="store_true", help="with an alpha channel")
    kind.add_argument("--mask", action="store_true", help="a mask instead")
    args = parser.parse_args()
    image = mask(args.size, args.seed) if args.mask else picture_of_case(args.size + " RGBA" * args.alpha, args.seed)
    image.save(args.path)


if __name__ == "__main__":
    main()
