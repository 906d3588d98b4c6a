"""From the names and layouts of another program to the reference's.

A map is a JSON object: {"their name": "reference name"}. Each '*' of a key matches any text, which takes the place of the
'*' of the value, in order. A key without '*' goes before one with, then the first in the file counts. Instead of a name:

    null                                                       leave the tensor out
    {"name": "…", "permute": [0, 3, 1, 2], "reshape": [1, -1]}   change its layout: first permute, then reshape
"""

import json
from pathlib import Path

from checkpoint_choice import glob_pattern

KEYS = {"name", "permute", "reshape"}


class Rule:
    def __init__(self, key, value, where):
        self._pattern = glob_pattern(key)
        self.is_exact = "*" not in key
        value = {"name": value} if isinstance(value, str) else value
        self.leaves_out = value is None
        if self.leaves_out:
            return
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not set(value) <= KEYS:
            raise SystemExit(f"{where}: the value of {key!r} must be a name, null, or an object with {', '.join(sorted(KEYS))}")
        if value["name"].count("*") > key.count("*"):
            raise SystemExit(f"{where}: {value['name']!r} has more '*' than its key {key!r}")
        self._name = value["name"]
        self._permute = value.get("permute")
        self._reshape = value.get("reshape")

    def rename(self, name):
        """The reference's name; None if the rule is for other names."""
        match = self._pattern.fullmatch(name)
        if match is None or self.leaves_out:
            return None
        pieces = self._name.split("*")
        carried = [*match.groups()[: len(pieces) - 1], ""]
        return "".join(piece + text for piece, text in zip(pieces, carried, strict=True))

    def matches(self, name):
        return self._pattern.fullmatch(name) is not None

    def arrange(self, name, array):
        try:
            array = array if self._permute is None else array.transpose(self._permute)
            return array if self._reshape is None else array.reshape(self._reshape)
        except (ValueError, TypeError) as error:
            raise SystemExit(f"{name}, of shape {array.shape}: {error}") from None


def _refuse_twins(pairs):
    keys = [key for key, _ in pairs]
    twins = sorted({key for key in keys if keys.count(key) > 1})
    if twins:
        raise ValueError(f"the key {twins[0]!r} occurs twice")
    return dict(pairs)


class NameMap:
    def __init__(self, rules=()):
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
