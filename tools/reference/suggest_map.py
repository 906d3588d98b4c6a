"""Proposes a name map: pairs the tensors of a dump with those of a reference run by values, shapes and order."""

import itertools
import sys

import numpy as np
from safetensors.numpy import load_file

from tools.reference.foreign_files import storable

# Pairs whose values are this near (NMSE) belong together, whatever else is wrong with them; others by order.
NEAR = 0.1
# Elements looked at in a comparison of values.
SAMPLE = 4096


def _arrangements(shape, target):
    """The ways to turn SHAPE into TARGET, simplest first: none, permuting axes, reshaping."""
    if shape == target:
        yield {}
    if sorted(shape) == sorted(target) and len(shape) in (2, 3, 4, 5):
        for axes in itertools.permutations(range(len(shape))):
            if axes != tuple(range(len(shape))) and tuple(shape[axis] for axis in axes) == target:
                yield {"permute": list(axes)}
    if shape != target:
        yield {"reshape": list(target)}


def _sample(array):
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat[:: max(1, flat.size // SAMPLE)].astype(np.float64)


def _distance(array, target, arrangement):
    if "permute" in arrangement:
        array = array.transpose(arrangement["permute"])
    got, want = _sample(array), _sample(target)
    energy = float(np.sum(want * want))
    return float(np.sum((got - want) ** 2)) / energy if energy else float(np.abs(got).max(initial=0.0))


class _Reference:
    def __init__(self, folder, entries):
        self._folder = folder
        self._packed = {}
        self.by_count = {}
        for entry in entries:
            self.by_count.setdefault(int(np.prod(entry["shape"], dtype=np.int64)), []).append(entry)

    def read(self, entry):
        path = self._folder / entry["file"]
        if path.suffix == ".safetensors":
            if path not in self._packed:
                self._packed[path] = load_file(path)
            return self._packed[path][entry["name"]]
        return np.load(path, mmap_mode="r", allow_pickle=False)


def _by_values(name, array, candidates, reference):
    """(distance, name, the reference's name, arrangement) of every candidate that is near."""
    for entry in candidates:
        target = reference.read(entry)
        if (array.dtype.kind == "f") != (target.dtype.kind == "f"):
            continue
        for arrangement in _arrangements(array.shape, tuple(entry["shape"])):
            distance = _distance(array, target, arrangement)
            if distance <= NEAR:
                yield distance, name, entry["name"], arrangement


def suggest(tensors, folder, entries):
    """A map for name_map.py. Names of the reference stay.

    Equal tensors (a module that only passes on another's output) pair up in order.
    """
    reference = _Reference(folder, entries)
    shapes, near = {}, []
    for name, read in tensors.items():
        array, _ = storable(name, read())
        shapes[name] = array.shape
        near += _by_values(name, array, reference.by_count.get(array.size, []), reference)
    paired, taken = {}, set()
    by_name = {entry["name"]: entry for entry in entries}
    for name in [name for name in shapes if name in by_name]:  # a wrong tensor may be nearer to another one's values
        shape, target = shapes[name], tuple(by_name[name]["shape"])
        same_count = np.prod(shape, dtype=np.int64) == np.prod(target, dtype=np.int64)
        arrangements = [(distance, found) for distance, own, to, found in near if own == to == name]
        best = min(arrangements, key=lambda pair: pair[0])[1] if arrangements else {}
        if not arrangements and same_count and shape != target:
            best = next(_arrangements(shape, target))
        paired[name] = {"name": name, **best} if best else name
        taken.add(name)
    named = len(paired)
    for _, name, target, arrangement in sorted(near, key=lambda pair: pair[0]):
        if name not in paired and target not in taken:
            paired[name] = {"name": target, **arrangement} if arrangement else target
            taken.add(target)
    by_order = 0
    for name, shape in shapes.items():
        candidates = [entry for entry in entries if entry["name"] not in taken and tuple(entry["shape"]) == shape]
        if name not in paired and candidates:
            paired[name] = {"name": candidates[0]["name"], "guessed": True}
            taken.add(candidates[0]["name"])
            by_order += 1
    print(
        f"{named} of {len(shapes)} tensors have the reference's name, {len(paired) - by_order - named} were paired by "
        f'their values, {by_order} only by shape and order ("guessed": check these), '
        f"{len(shapes) - len(paired)} not at all; {len(entries) - len(taken)} of the reference left",
        file=sys.stderr,
    )
    return {name: paired.get(name) for name in shapes}
