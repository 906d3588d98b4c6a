"""Which tensors a recording keeps: a level of depth, and globs of names."""

from __future__ import annotations

import re
from typing import Any

LEVELS = ("boundaries", "blocks", "all")


def level_of(path: str, is_outermost: bool) -> str:
    """Of what a module reads and returns. PATH: the module's, in its model.

    What is called from outside the model is a boundary. An item of a list is a block, unless it lies in another one; so is
    whatever lies in no list.
    """
    if is_outermost:
        return "boundaries"
    parts = path.split(".")
    numbers = [index for index, part in enumerate(parts) if part.isdigit()]
    return "blocks" if not numbers or numbers == [len(parts) - 1] else "all"


def depth_of(path: str) -> int:
    """How many names deep; the place in a list is no name."""
    return sum(not part.isdigit() for part in path.split(".")) if path else 0


class Choice:
    def __init__(self, level: str | int) -> None:
        self._text = ""
        self._level, self._depth = -1, -1
        self._globs: list[re.Pattern[str]] = []
        if isinstance(level, int) and not isinstance(level, bool):
            if level < 0:
                raise ValueError(f"level {level}: a depth is 0 or more")
            self._depth = level
            return
        if not isinstance(level, str):
            raise TypeError(f"level is a {type(level).__name__}; expected is a str or an int")
        self._text = level
        for word in level.split(","):
            if word in LEVELS:
                self._level = max(self._level, LEVELS.index(word))
            elif re.search(r"[*/:.]", word):
                # '*' is any text, everything else is itself.
                self._globs.append(re.compile(".*".join(map(re.escape, word.split("*"))), re.DOTALL))
            else:
                raise ValueError(f"level {word!r} is none of {', '.join(LEVELS)}, and no glob such as '*.attn.to_q'")

    def wants(self, name: str, path: str, level: str) -> bool:
        if LEVELS.index(level) <= self._level or depth_of(path) <= self._depth:
            return True
        return any(glob.fullmatch(name) for glob in self._globs)

    def facts(self) -> dict[str, Any]:
        """For the manifest: what one run was told to leave out is not missing there. `compare` knows no depths."""
        return {"checkpoints_level": self._text} if self._text else {}
