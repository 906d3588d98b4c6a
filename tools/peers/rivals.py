"""Which of a peer's settings count: a block's output must be about as near to fp32 as this engine's, on values with
outliers (outliers.py). A setting that is fast because it is wrong is listed with its error, and is nobody's rival."""

import statistics

from tools.peers.contestants import ENGINE, FAST

LINE = "errors"
WITHIN = 3  # times our own error


def error(m, who, variant):
    found = m.figure(LINE, who, variant, "nmse")
    return found[-1] if found else None


def ours(m):
    return error(m, ENGINE, FAST)


def is_rival(m, who, variant):
    own, other = ours(m), error(m, who, variant)
    return own is not None and other is not None and other <= WITHIN * own


def of(m, who):
    """The names of a peer's settings that are near enough."""
    return [variant for variant in m.variants(LINE, who) if is_rival(m, who, variant)]


def fastest_two(m, line, who, among):
    """Those that are worth measuring where a run takes long; the first two where nothing is known."""
    found = {variant: m.figure(line, who, variant, "step") for variant in among}
    known = [variant for variant in among if found[variant]]
    return sorted(known, key=lambda variant: statistics.median(found[variant]))[:2] or list(among[:2])
