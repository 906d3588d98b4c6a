"""Edits of scenes: pictures before and after, and the instructions which lead from one to the other."""
import math
import random

from tools.tiny_model.scenes import BASE_SIZE, COLORS, SHAPES, Item, draw, held_out, sample_scene

# Sizes of the reference pictures (width, height) and their share.
EDIT_SIZES = {
    (128, 128): 0.84,
    (160, 96): 0.08,
    (96, 160): 0.08,
}
VISIBLE = 70  # distance of two colours which can be told apart

RECOLOR = [
    "make {it} {color}", "make {it} {color}", "make {it} {color}", "turn {it} {color}",
    "paint {it} {color}", "color {it} {color}", "change {it} to {color}",
    "change the color of {it} to {color}", "change the {noun} color to {color}",
    "replace {it} with {a_color} {noun}", "turn {it} into {a_color} {noun}",
]  # fmt: skip
BACKGROUND = [
    "change the background to {color}", "change the background to {color}",
    "make the background {color}", "make the background {color}", "turn the background {color}",
    "paint the background {color}", "color the background {color}",
    "change the background color to {color}", "change the color of the background to {color}",
    "change the background from {old} to {color}", "replace the background with {color}",
    "put it on {a_color} background",
]  # fmt: skip
BOTH = [
    "make {it} {color} and the background {color2}",
    "change {it} to {color} and the background to {color2}",
    "paint {it} {color} and the background {color2}",
]  # fmt: skip


def rgb(color):
    return COLORS.get(color, color)


def distance(color1, color2):
    return math.dist(rgb(color1), rgb(color2))


# ---- the picture before the edit ----


def sample_free_scene(rng, size):
    """One or two shapes anywhere, as a person may draw them."""
    width, height = size
    scale = min(width, height) / BASE_SIZE
    background = rng.choice(list(COLORS))
    shapes, objects = rng.sample(SHAPES, rng.choice([1, 2])), []
    for shape in shapes:
        for _ in range(20):
            r = rng.uniform(14, 46 if len(shapes) == 1 else 28) * scale
            x, y = rng.uniform(r, width - r), rng.uniform(r, height - r)
            if all(math.dist((x, y), (o.x, o.y)) > 1.2 * (r + o.r) for o in objects):
                color = rng.choice([c for c in COLORS if c != background])
                objects.append(Item(shape, color, x, y, r))
                break
    return {"size": size, "background": background, "objects": objects}


def loosen(scene, rng):
    """Colours and outlines as the user's picture may have them, instead of exactly the grammar's.

    Returns the scene and the names of its colours, None for a colour without a name.
    """
    spread = rng.choice([0, 0, 8, 20])
    names, colors = {}, {}
    for name in [scene["background"]] + [item.color for item in scene["objects"]]:
        if name in colors:
            continue
        names[name] = name
        colors[name] = tuple(
            min(255, max(0, round(v + rng.gauss(0, spread)))) for v in COLORS[name]
        )
        if rng.random() < 0.08:
            candidate = tuple(rng.randrange(256) for _ in range(3))
            if all(distance(candidate, other) > 110 for other in colors.values()):
                names[name], colors[name] = None, candidate
    waves = ()
    if rng.random() < 0.4:
        waves = tuple(
            (f, rng.uniform(0, 0.12 / f), rng.uniform(0, 2 * math.pi)) for f in (2, 3, 4, 6, 8)
        )
    objects = [item._replace(color=colors[item.color], waves=waves) for item in scene["objects"]]
    loose = {"size": scene["size"], "background": colors[scene["background"]], "objects": objects}
    item_names = [names[item.color] for item in scene["objects"]]
    return loose, names[scene["background"]], item_names


# ---- one edit: what to say and the scene after it ----


def with_items(scene, chosen, **changes):
    objects = [
        item._replace(**changes) if i in chosen else item
        for i, item in enumerate(scene["objects"])
    ]
    return dict(scene, objects=objects)


def sample_edit(scene, background_name, item_names, kind, rng):
    """What an instruction has to say, and the scene after the edit."""
    items = scene["objects"]
    if len({item.shape for item in items}) == 1:
        chosen = list(range(len(items)))  # one shape, or a row of equal ones
    else:
        chosen = [rng.randrange(len(items))]
    item = items[chosen[0]]

    def visible(others):
        return [c for c in COLORS if all(distance(c, other) > VISIBLE for other in others)]

    edit = {
        "kind": kind,
        "shape": item.shape,
        "plural": len(chosen) > 1,
        "only": len(chosen) == len(items),
        "old": background_name if kind == "background" else item_names[chosen[0]],
    }
    if kind == "color":
        edit["color"] = rng.choice(visible([scene["background"]]))
        return edit, with_items(scene, chosen, color=edit["color"])
    if kind == "both":
        edit["color"] = rng.choice(list(COLORS))
        scene = with_items(scene, chosen, color=edit["color"])
    background = rng.choice(visible([other.color for other in scene["objects"]]))
    edit["color2" if kind == "both" else "color"] = background
    return edit, dict(scene, background=background)


def sample_kinds(rng):
    """Always a colour and a background; the third is anything."""
    return ["color", "background", rng.choice(["color", "background", "both"])]


def edit_item(job):
    """(seed, size) -> the picture before, and a list of (edit, the picture after)."""
    seed, size = job
    rng = random.Random(f"edit {seed}")
    if rng.random() < 0.4:
        scene = sample_free_scene(rng, size)
    else:
        caption, scene = sample_scene(rng, size)
        while held_out(caption):
            caption, scene = sample_scene(rng, size)
    loose = loosen(scene, rng)
    pairs = []
    for kind in sample_kinds(rng):
        edit, after = sample_edit(*loose, kind, rng)
        pairs.append((edit, draw(after)))
    return draw(loose[0]), pairs


# ---- the instruction ----


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def plural(shape):
    return shape + ("es" if shape == "cross" else "s")


def noun_phrase(edit, noun, rng):
    """The circle, the red circle, the shape, it."""
    if edit["only"] and rng.random() < 0.12:
        return rng.choice(["the shapes", "them"] if edit["plural"] else ["the shape", "it"])
    if edit["old"] and edit["kind"] != "background" and rng.random() < 0.25:
        return f"the {edit['old']} {noun}"
    if edit["plural"] and rng.random() < 0.1:
        return f"all the {noun}"
    return f"the {noun}"


def instruction(edit, rng):
    """One of the ways in which a person may ask for the edit."""
    kind = edit["kind"]
    noun = plural(edit["shape"]) if edit["plural"] else edit["shape"]
    words = {"it": noun_phrase(edit, noun, rng), "noun": noun, "old": edit["old"]}
    for key in ("color", "color2"):
        if key in edit:
            words[key] = edit[key]
            words["a_" + key] = edit[key] if edit["plural"] else article(edit[key])
    choice = {"color": RECOLOR, "background": BACKGROUND, "both": BOTH}[kind]
    if kind == "background":
        words["a_color"] = article(edit["color"])
        choice = [t for t in choice if edit["old"] or "{old}" not in t]
    text = rng.choice(choice).format(**words)
    if rng.random() < 0.05:
        text = "please " + text
    if rng.random() < 0.2:
        text = text[0].upper() + text[1:]
    return text + "." if rng.random() < 0.15 else text


# ---- pairs which are never trained on ----


def held_out_edits(count):
    """Instruction, picture before, picture after: edits of scenes whose captions are held out."""
    rng, found = random.Random(321), []
    kinds = ["color", "background"] * 3 + ["color", "both"]
    while len(found) < count:
        caption, scene = sample_scene(rng)
        if not held_out(caption):
            continue
        loose = loosen(scene, rng)
        edit, after = sample_edit(*loose, kinds[len(found) % len(kinds)], rng)
        found.append((instruction(edit, rng), draw(loose[0]), draw(after)))
    return found
