"""Reads tensors that others dumped: .npy, .npz, .safetensors and torch's .pt/.pth. No pickled code is ever run."""

import pickle
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

SUFFIXES = (".npy", ".npz", ".safetensors", ".pt", ".pth")
# NumPy has no bfloat16; MLX and JAX write it as two bytes without a type.
UNTYPED_BFLOAT16 = np.dtype("V2")
BROKEN = (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, SafetensorError)


def _reason(error):
    return (str(error) or type(error).__name__).splitlines()[0]


def _read_npy(path):
    return {"": lambda: np.load(path, mmap_mode="r", allow_pickle=False)}


def _read_npz(path):
    archive = np.load(path, allow_pickle=False)
    return {name: lambda name=name: archive[name] for name in archive.files}


def _read_safetensors(path):
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())

    def load(name):
        with safe_open(path, framework="pt") as file:
            return file.get_tensor(name)

    return {name: lambda name=name: load(name) for name in names}


def _flatten(value, prefix=""):
    """Nested dicts and lists: their keys and indices with slashes between them. What is no tensor is left out."""
    if isinstance(value, torch.Tensor):
        return {prefix: lambda: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    found = {}
    for key, child in items:
        found.update(_flatten(child, f"{prefix}/{key}" if prefix else str(key)))
    return found


def _read_torch(path):
    try:
        return _flatten(torch.load(path, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError:
        raise ValueError("it holds more than tensors in plain containers; what would run code is refused") from None


READERS = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".pt": _read_torch,
    ".pth": _read_torch,
}


def _open_file(path, stem):
    """Name -> function that reads the array. STEM is the file's own part of the names."""
    try:
        members = READERS[path.suffix](path)
    except BROKEN as error:
        raise SystemExit(f"{path}: cannot be read as {path.suffix}: {_reason(error)}") from None
    if not members:
        raise SystemExit(f"{path}: holds no tensors")
    names = {name: "/".join(part for part in (stem, name) if part) for name in members}
    return {names[name] or path.stem: _guarded(path, name, read) for name, read in members.items()}


def _guarded(path, name, read):
    def guarded():
        try:
            return read()
        except BROKEN as error:
            raise SystemExit(f"{path}: {name or 'the array'} cannot be read: {_reason(error)}") from None

    return guarded


def open_dump(path):
    """A file's or a folder's tensors. In a folder, a/b.npy is "a/b" and the member c of a/b.npz is "a/b/c"."""
    path = Path(path)
    if path.is_file() and path.suffix in SUFFIXES:
        return _open_file(path, "")
    if not path.is_dir():
        raise SystemExit(f"{path}: expected a folder or a file that ends in {', '.join(SUFFIXES)}")
    tensors = {}
    for file in sorted(path.rglob("*")):
        if file.suffix in SUFFIXES and file.is_file():
            for name, read in _open_file(file, file.relative_to(path).with_suffix("").as_posix()).items():
                if name in tensors:
                    raise SystemExit(f"{path}: two files hold {name}")
                tensors[name] = read
    if not tensors:
        raise SystemExit(f"{path}: no file in it ends in {', '.join(SUFFIXES)}")
    return tensors


def storable(name, value):
    """The array as a run keeps it (float32, int64 or uint8), and the type it came in."""
    tensor = value if isinstance(value, torch.Tensor) else None
    if tensor is None and value.dtype == UNTYPED_BFLOAT16:
        tensor = torch.from_numpy(np.array(value).view(np.uint16)).view(torch.bfloat16)
    if tensor is not None:
        kind = str(tensor.dtype).removeprefix("torch.")
        value = (tensor.float() if tensor.is_floating_point() else tensor).detach().numpy()
    else:
        kind = str(value.dtype)
    if value.dtype.kind == "f":
        return np.asarray(value, dtype=np.float32, order="C"), kind
    if value.dtype in (np.bool_, np.uint8):
        return np.asarray(value, dtype=np.uint8, order="C"), kind
    if value.dtype.kind in "iu":
        return np.asarray(value, dtype=np.int64, order="C"), kind
    raise SystemExit(f"{name}: values of type {kind} cannot be compared")
