"""Writes checkpoints (a name and a tensor) as npy files, and the manifest beside them."""

import json
from pathlib import Path

import numpy as np
import torch


def to_numpy(tensor):
    """A private copy in a dtype that npy knows: the pipeline may reuse the memory behind the tensor."""
    tensor = tensor.detach().cpu()
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return np.array(tensor.numpy(), order="C", copy=True)


def stays_inside(name):
    """Whether a name from anywhere, read as a path, is a file below the folder that it is added to."""
    return not any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in name.split("/"))


class CheckpointStore:
    """One folder of checkpoints. The manifest is written last, so a folder without one is an unfinished run."""

    def __init__(self, folder, overwrite=False):
        self.folder = Path(folder)
        self.entries = []
        self._names = set()
        if self.folder.exists() and any(self.folder.iterdir()):
            if not overwrite:
                raise SystemExit(f"{self.folder} is not empty; give --overwrite to replace the run in it")
            self._remove_old_run()
        self.folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, _error, _trace):
        """A run that failed leaves nothing behind: half a run would stand in the way of the next."""
        if kind is None:
            return
        for entry in self.entries:
            (self.folder / entry["file"]).unlink(missing_ok=True)
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    def _remove_old_run(self):
        manifest = self.folder / "manifest.json"
        if manifest.exists():
            old = json.loads(manifest.read_text(encoding="utf-8"))
            pictures = [*old.get("images", []), *([old["mask"]] if "mask" in old else [])]
            for file in [*(entry["file"] for entry in old["checkpoints"]), *pictures]:
                if stays_inside(file):
                    (self.folder / file).unlink(missing_ok=True)
            manifest.unlink()
        # A checkpoint of an older run would count as an extra one in a comparison.
        left = sorted(str(path) for path in self.folder.rglob("*.npy"))
        if left:
            raise SystemExit(f"{self.folder} holds arrays that no manifest names, e.g. {left[0]}; remove them first")

    def save(self, name, tensor, notes=None):
        """Writes NAME.npy; the slashes of a name become folders. NOTES are kept in the manifest's entry."""
        if name in self._names:
            raise RuntimeError(f"checkpoint {name} was written twice")
        if not stays_inside(name):
            raise SystemExit(f"{name!r} cannot be a checkpoint's name: it would not be a file inside {self.folder}")
        self._names.add(name)
        # C order: the engine reads no other.
        array = np.asarray(tensor if isinstance(tensor, np.ndarray) else to_numpy(tensor), order="C")
        file = f"{name}.npy"
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array, allow_pickle=False)
        entry = {"name": name, "file": file, "shape": list(array.shape), "dtype": str(array.dtype)}
        self.entries.append({**entry, **(notes or {})})

    def write_manifest(self, facts):
        manifest = {"schema": 1, "tool": "diffusers", **facts, "checkpoints": self.entries}
        text = json.dumps(manifest, ensure_ascii=False, indent=1)
        (self.folder / "manifest.json").write_text(text + "\n", encoding="utf-8")
