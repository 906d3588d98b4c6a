"""Captions of a small grammar and the pictures which they describe."""
import hashlib
import math
import random
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

COLORS = {
    "red": (220, 40, 40),
    "green": (40, 160, 60),
    "blue": (45, 80, 215),
    "yellow": (250, 215, 40),
    "purple": (140, 60, 180),
    "orange": (245, 135, 30),
    "white": (250, 250, 250),
    "black": (20, 20, 20),
}
SHAPES = ["circle", "square", "triangle", "star", "heart", "cross"]
POSITIONS = {
    "on the left of": (-30, 0),
    "on the right of": (30, 0),
    "at the top of": (0, -30),
    "at the bottom of": (0, 30),
}
RELATIONS = {
    "above": (0, -1),
    "below": (0, 1),
    "left of": (-1, 0),
    "right of": (1, 0),
}
BASE_SIZE = 128  # all lengths of the grammar are meant for a picture of this side

# Picture sizes (width, height) and their share of the training set.
SIZES = {
    (128, 128): 0.70,
    (160, 96): 0.10,
    (96, 160): 0.10,
    (160, 160): 0.10,
}


class Item(NamedTuple):
    """One shape of a scene."""

    shape: str
    color: object  # a name of COLORS or red, green, blue
    x: float
    y: float
    r: float
    waves: tuple = ()  # (frequency, amplitude, phase) of dents in the outline; see dented()


def polygon(shape, cx, cy, r):
    """Corner points of a shape of 'radius' r."""
    if shape == "circle":
        angles = [2 * math.pi * i / 90 for i in range(90)]
        return [(cx + r * math.cos(a), cy + r * math.sin(a)) for a in angles]
    if shape == "square":
        s = 0.86 * r
        return [(cx - s, cy - s), (cx + s, cy - s), (cx + s, cy + s), (cx - s, cy + s)]
    if shape == "triangle":
        return [(cx, cy - r), (cx + r, cy + 0.8 * r), (cx - r, cy + 0.8 * r)]
    if shape == "star":
        points = []
        for i in range(10):
            length = r * (1.1 if i % 2 == 0 else 0.46)
            angle = i * math.pi / 5
            points.append(
                (cx + length * math.sin(angle), cy + 0.05 * r - length * math.cos(angle))
            )
        return points
    if shape == "heart":
        points = []
        for i in range(60):
            a = 2 * math.pi * i / 60
            height = 13 * math.cos(a) - 5 * math.cos(2 * a) - 2 * math.cos(3 * a) - math.cos(4 * a)
            points.append((cx + r * math.sin(a) ** 3, cy - 0.06 * r * height - 0.1 * r))
        return points
    w = 0.33 * r  # cross: a plus sign
    return [
        (cx - w, cy - r), (cx + w, cy - r), (cx + w, cy - w), (cx + r, cy - w),
        (cx + r, cy + w), (cx + w, cy + w), (cx + w, cy + r), (cx - w, cy + r),
        (cx - w, cy + w), (cx - r, cy + w), (cx - r, cy - w), (cx - w, cy - w),
    ]  # fmt: skip


def dented(points, item):
    """Push the outline in and out, as in pictures which a model has drawn."""
    outline = []
    for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1]):
        pieces = max(1, int(math.hypot(x1 - x0, y1 - y0) / (0.1 * item.r)))
        for i in range(pieces):
            x, y = x0 + (x1 - x0) * i / pieces, y0 + (y1 - y0) * i / pieces
            angle = math.atan2(y - item.y, x - item.x)
            push = 1 + sum(a * math.sin(f * angle + phase) for f, a, phase in item.waves)
            outline.append((item.x + push * (x - item.x), item.y + push * (y - item.y)))
    return outline


def draw(scene, colors=COLORS, oversampling=4):
    """Draw a scene of sample_scene() -> uint8 [height, width, 3], antialiased."""
    width, height = scene["size"]
    ss = oversampling

    def rgb(color):
        return colors.get(color, color)

    image = Image.new("RGB", (width * ss, height * ss), rgb(scene["background"]))
    canvas = ImageDraw.Draw(image)
    for item in scene["objects"]:
        if item.shape == "circle" and not item.waves:
            box = [item.x - item.r, item.y - item.r, item.x + item.r, item.y + item.r]
            canvas.ellipse([ss * v for v in box], fill=rgb(item.color))
            continue
        points = polygon(item.shape, item.x, item.y, item.r)
        if item.waves:
            points = dented(points, item)
        canvas.polygon([(ss * x, ss * y) for x, y in points], fill=rgb(item.color))
    return np.asarray(image.resize((width, height), Image.BOX))


def sample_one(rng, background, jitter, other_color):
    """One shape; its size and its place are sometimes named."""
    shape, color = rng.choice(SHAPES), other_color(background)
    size, r = rng.choice([("", 32)] * 3 + [("small ", 18), ("large ", 46)])
    dx, dy, where = 0, 0, "on"
    if size != "large " and rng.random() < 0.3:
        where = rng.choice(list(POSITIONS))
        dx, dy = POSITIONS[where]
        r = min(r, 26)
    objects = [(shape, color, dx + jitter(3), dy + jitter(3), r * (1 + jitter(0.05)))]
    return f"a {size}{color} {shape} {where} a {background} background", objects


def sample_row(rng, background, jitter, other_color):
    """Two or three equal shapes in a row."""
    shape, color, n = rng.choice(SHAPES), other_color(background), rng.choice([2, 3])
    r = (25 if n == 2 else 18) * (1 + jitter(0.05))
    gap, y = (60 if n == 2 else 42), jitter(3)
    objects = [
        (shape, color, (i - (n - 1) / 2) * gap + jitter(1), y, r) for i in range(n)
    ]
    plural = "crosses" if shape == "cross" else shape + "s"
    return f"{['two', 'three'][n - 2]} {color} {plural} on a {background} background", objects


def sample_pair(rng, background, tail, relation, jitter, other_color):
    """Two different shapes beside or above each other."""
    relation, (dx, dy) = relation
    shape1, shape2 = rng.sample(SHAPES, 2)
    color1 = other_color(background)
    color2 = other_color(background)
    r, m = 24 * (1 + jitter(0.05)), 30
    objects = [
        (shape1, color1, dx * m + jitter(2), dy * m + jitter(2), r),
        (shape2, color2, -dx * m + jitter(2), -dy * m + jitter(2), r),
    ]
    where = relation if relation in ("above", "below") else f"to the {relation}"
    return f"a {color1} {shape1} {where} a {color2} {shape2}{tail}", objects


def sample_scene(rng, size=(BASE_SIZE, BASE_SIZE)):
    """A random caption of the grammar and the scene which it describes."""

    def jitter(amount):
        return rng.uniform(-amount, amount)

    def other_color(taken):
        return rng.choice([c for c in COLORS if c != taken])

    background = rng.choice(list(COLORS))
    kind = rng.random()
    if kind < 0.5:
        caption, objects = sample_one(rng, background, jitter, other_color)
    elif kind < 0.7:
        caption, objects = sample_row(rng, background, jitter, other_color)
    else:
        relation = rng.choice(list(RELATIONS.items()))
        if rng.random() < 0.5:
            background, tail = "white", ""  # a background without a name is white
        else:
            tail = f" on a {background} background"
        caption, objects = sample_pair(rng, background, tail, relation, jitter, other_color)

    # The layout is shrunk to fit but never enlarged, and stays in the middle: so a larger picture
    # is the smallest change to the task of the base size.
    width, height = size
    sx, sy = min(1, width / BASE_SIZE), min(1, height / BASE_SIZE)
    placed = [
        Item(shape, color, width / 2 + x * sx, height / 2 + y * sy, r * min(sx, sy))
        for shape, color, x, y, r in objects
    ]
    scene = {"size": size, "background": background, "objects": placed}
    return caption.replace("a orange", "an orange"), scene


def vary(caption, rng):
    """Ways in which a person may type the same caption."""
    if rng.random() < 0.1:
        caption = rng.choice(["a picture of ", "draw ", "an image of "]) + caption
    if rng.random() < 0.1:
        caption = caption[0].upper() + caption[1:]
    return caption + "." if rng.random() < 0.1 else caption


def held_out(caption):
    """One caption in twelve is never trained on."""
    return hashlib.md5(caption.encode()).digest()[0] % 12 == 0


def held_out_captions(count):
    """The first held-out captions of a fixed random sequence."""
    rng, captions = random.Random(123), []
    while len(captions) < count:
        caption, _ = sample_scene(rng)
        if held_out(caption) and caption not in captions:
            captions.append(caption)
    return captions


def training_item(job):
    """(seed, size) -> caption, picture, the same picture in arbitrary colours."""
    seed, size = job
    rng = random.Random(seed)
    while True:
        caption, scene = sample_scene(rng, size)
        if not held_out(caption):
            break
    any_colors = {name: tuple(rng.randrange(256) for _ in range(3)) for name in COLORS}
    return caption, draw(scene), draw(scene, any_colors)
