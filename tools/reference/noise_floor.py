"""How far the reference's own bfloat16 run is from its float32 run, checkpoint by checkpoint."""

import sys

import numpy as np

from tools.reference.checkpoint_store import to_numpy


def difference(got, want):
    """NMSE (with a zero reference: the sum of squares) and the largest absolute difference."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    error, energy = got - want, float(np.sum(want * want))
    square = float(np.sum(error * error))
    return {"nmse": square / energy if energy else square, "max_abs": float(np.abs(error).max(initial=0.0))}


class FloorMeter:
    """Takes the place of the store in the second run: compares each tensor with the first run's file, keeps none."""

    def __init__(self, store):
        self._folder = store.folder
        self._entries = {entry["name"]: entry for entry in store.entries}

    def save(self, name, tensor):
        entry = self._entries[name]
        if not entry["dtype"].startswith("float"):
            return
        want = np.load(self._folder / entry["file"], allow_pickle=False)
        floor = difference(to_numpy(tensor), want)
        if np.isfinite(floor["nmse"]):
            entry["floor"] = floor
        else:
            print(f"{name}: no floor, for one of the two runs is not finite", file=sys.stderr)
