"""Which checkpoints a run keeps: what a level of depth holds, and what globs name."""

import re

LEVELS = ("boundaries", "blocks", "all")
# No level holds these, nor does a mere '*': they are large and cost time. A glob must spell their last part, as in
# "*.3:attn_weights".
ON_REQUEST = "on request"


def glob_pattern(glob):
    """'*' matches any text and is a group, everything else matches itself."""
    return re.compile("(.*)".join(re.escape(piece) for piece in glob.split("*")), re.DOTALL)


class CheckpointChoice:
    """"boundaries", "blocks", "all", globs of names, or several of these with commas between them."""

    def __init__(self, text):
        self.text = text
        items = [item for item in text.split(",") if item]
        if not items:
            raise SystemExit(f"--checkpoints {text!r} names nothing; give {', '.join(LEVELS)} or globs")
        self._level = max((LEVELS.index(item) for item in items if item in LEVELS), default=-1)
        self._globs = [(item, glob_pattern(item)) for item in items if item not in LEVELS]
        self._used = set()

    def needs(self, level):
        """Whether what lies at this level must be listened to at all."""
        return bool(self._globs) or LEVELS.index(level) <= self._level

    def wants(self, name, level):
        globs = {glob for glob, pattern in self._globs if pattern.fullmatch(name)}
        if level == ON_REQUEST:
            kind = name.rsplit(":", 1)[-1]
            globs = {glob for glob in globs if kind in glob}
        self._used |= globs
        return bool(globs) or (level != ON_REQUEST and LEVELS.index(level) <= self._level)

    def check_all_used(self):
        """A glob that met nothing is a slip of the pen."""
        unused = [glob for glob, _ in self._globs if glob not in self._used]
        if unused:
            raise SystemExit(f"no checkpoint of this run matches {', '.join(unused)}")
