"""A run on disk: one .npy for each tensor, and the manifest that names them in the order of computing."""

from __future__ import annotations

import collections
import hashlib
import json
import os
from pathlib import Path
from typing import Any


class RunFolder:
    """The manifest is written last, so that a folder without one is a run that was killed."""

    def __init__(self, folder: str | os.PathLike[str], overwrite: bool) -> None:
        self._folder = Path(folder)
        self.entries: list[dict[str, Any]] = []
        self._dtypes: collections.Counter[str] = collections.Counter()
        self._files: dict[bytes, str] = {}
        if self._folder.is_dir() and any(self._folder.iterdir()):
            if not overwrite:
                raise FileExistsError(f"{self._folder} is not empty; overwrite=True replaces the run in it")
            self._remove_old_run()
        self._folder.mkdir(parents=True, exist_ok=True)

    def _remove_old_run(self) -> None:
        manifest = self._folder / "manifest.json"
        if manifest.exists():
            root = self._folder.resolve()
            for entry in json.loads(manifest.read_text(encoding="utf-8"))["checkpoints"]:
                file = self._folder / entry["file"]
                if root in file.resolve().parents:
                    file.unlink(missing_ok=True)
            manifest.unlink()
        left = next(self._folder.rglob("*.npy"), None)
        if left:
            raise FileExistsError(f"{left} is named by no manifest; remove {self._folder} first")

    def save(self, name: str, array: Any, dtype: str, facts: dict[str, Any]) -> None:
        """DTYPE: what the program computed in. A tensor that was there before is not written again."""
        import numpy as np

        array = np.ascontiguousarray(array).reshape(array.shape)
        digest = hashlib.blake2b(f"{array.dtype} {array.shape}".encode(), digest_size=16)
        digest.update(memoryview(array).cast("B") if array.size else b"")
        file = self._files.setdefault(digest.digest(), f"{name}.npy")
        if file == f"{name}.npy":
            path = self._folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, array, allow_pickle=False)
        if array.dtype.kind == "f":
            self._dtypes[dtype] += 1
        entry = {"name": name, "file": file, "shape": list(array.shape), "dtype": str(array.dtype), "original_dtype": dtype}
        self.entries.append({**entry, **facts})

    def finish(self, facts: dict[str, Any]) -> None:
        # Tolerances follow the precision in which the run was made.
        dtype = self._dtypes.most_common(1)[0][0] if self._dtypes else "float32"
        manifest = {"schema": 1, **facts, "dtype": dtype, "checkpoints": self.entries}
        text = json.dumps(manifest, ensure_ascii=False, indent=1)
        (self._folder / "manifest.json").write_text(text + "\n", encoding="utf-8")
