"""From the names and layouts of another program to the reference's.

A map is a JSON object: {"their name": "reference name"}. Each '*' of a key matches any text, which takes the place of the
'*' of the value, in order. A key without '*' goes before one with, then the first in the file counts. The value null leaves
a tensor out; an object changes its layout, in this order:

    {"name": "…", "permute": [0, 3, 1, 2], "squeeze": [2], "reshape": [1, -1], "pack": true, "dtype": "int64"}

"pack" turns latents [1, channels, 1, height, width] into the transformer's [1, tokens, 4 · channels]; "dtype" (int64 or
uint8) is for ids and masks that were saved as floats. "guessed": true marks a pair that `--suggest` made from shape and order
alone; whoever has checked it takes the mark away.
"""

import json
from pathlib import Path

import numpy as np

from tools.reference.checkpoint_choice import glob_pattern


def pack_latents(array):
    batch, channels, _, height, width = array.shape
    patches = array.reshape(batch, channels, height // 2, 2, width // 2, 2)
    return patches.transpose(0, 2, 4, 1, 3, 5).reshape(batch, -1, 4 * channels)


def to_integers(array, dtype):
    integers = array.astype(dtype)
    if dtype not in ("int64", "uint8") or not np.array_equal(integers, array):
        raise ValueError(f"values that are not {dtype}")
    return integers


LAYOUT = {
    "permute": lambda array, axes: array.transpose(axes),
    "squeeze": lambda array, axes: array.squeeze(tuple(axes)),
    "reshape": lambda array, shape: array.reshape(shape),
    "pack": lambda array, wanted: pack_latents(array) if wanted else array,
    "dtype": to_integers,
}


class Rule:
    def __init__(self, key, value, where):
        self._pattern = glob_pattern(key)
        self.is_exact = "*" not in key
        self.leaves_out = value is None
        self.guessed = isinstance(value, dict) and value.get("guessed") is True
        self._value = value if isinstance(value, dict) else {"name": "" if value is None else value}
        name = self._value.get("name")
        if not isinstance(name, str) or not set(self._value) <= {"name", "guessed", *LAYOUT}:
            known = ", ".join(("name", "guessed", *LAYOUT))
            raise SystemExit(f"{where}: the value of {key!r} must be a name, null, or an object with {known}")
        if name.count("*") > key.count("*"):
            raise SystemExit(f"{where}: {name!r} has more '*' than its key {key!r}")

    def matches(self, name):
        return self._pattern.fullmatch(name) is not None

    def rename(self, name):
        pieces = self._value["name"].split("*")
        carried = [*self._pattern.fullmatch(name).groups()[: len(pieces) - 1], ""]
        return "".join(piece + text for piece, text in zip(pieces, carried, strict=True))

    def arrange(self, name, array):
        for step, change in LAYOUT.items():
            if step in self._value:
                try:
                    array = change(array, self._value[step])
                except (ValueError, TypeError) as error:
                    raise SystemExit(f"{name}, of shape {array.shape}: {step} {self._value[step]}: {error}") from None
        return array


def _refuse_twins(pairs):
    keys = [key for key, _ in pairs]
    twins = sorted({key for key in keys if keys.count(key) > 1})
    if twins:
        raise ValueError(f"the key {twins[0]!r} occurs twice")
    return dict(pairs)


class NameMap:
    def __init__(self, rules):
        self._rules = sorted(rules, key=lambda rule: not rule.is_exact)

    @classmethod
    def read(cls, path):
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=_refuse_twins)
        except (OSError, ValueError) as error:
            raise SystemExit(f"{path}: {error}") from None
        if not isinstance(content, dict):
            raise SystemExit(f"{path}: expected a JSON object")
        return cls([Rule(key, value, path) for key, value in content.items()])

    def find(self, name):
        return next((rule for rule in self._rules if rule.matches(name)), None)
