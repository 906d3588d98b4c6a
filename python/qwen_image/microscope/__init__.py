"""Records the tensors of a program in PyTorch or MLX as a run that `qwen-image compare` reads.

    from qwen_image.microscope import record

    with record(model, "runs/port"):
        model(x)

Any tree of modules will do: the names are the modules'. The model is not changed: torch's hooks, and MLX's classes while
the block lasts, only read. This folder uses nothing of the package around it; put elsewhere it works by itself, where
NumPy and the model's own framework are.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any

from ._choice import Choice
from ._recorder import Recorder, file_part
from ._run_folder import RunFolder

__all__ = ["Recorder", "record"]


@contextlib.contextmanager
def record(
    model: Any,
    folder: str | PathLike[str],
    level: str | int = "blocks",
    *,
    inputs: bool = True,
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Iterator[Recorder]:
    """Writes what the modules of MODEL read and return, while the block lasts, to FOLDER.

    model: a module of torch or MLX, a pipeline of diffusers, another object with modules in its attributes, or a dict of
    modules by name. level: "boundaries" (what goes into a model and comes out), "blocks" (and each block, and what stands
    beside the blocks), "all"; a number, how many names deep; globs of names ("*.attn.to_q"); or several with commas
    between them. inputs: also what modules read. settings: what two runs must have in common ("prompt", "seed", "steps",
    …), for the manifest. overwrite: replaces an earlier run in the folder.

    If the program raises an error, the run holds what was computed until then.
    """
    choice = Choice(level)
    tree = _open(model)
    run = RunFolder(folder, overwrite)
    recorder = Recorder(run, choice, tree.arrays, inputs)
    facts: dict[str, Any] = {"tool": tree.framework, **(settings or {}), **choice.facts()}
    tree.attach(recorder)
    try:
        yield recorder
    except BaseException as error:
        facts["stopped"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        tree.detach()
        run.finish({**facts, "versions": tree.versions()})
    if not run.entries:
        raise ValueError(f"{folder}: nothing was recorded at level {level!r}; is the model called inside the block?")


def _open(model: Any) -> Any:
    """The tree of modules that MODEL is or has. A framework that is not imported cannot be its."""
    if "torch" in sys.modules:
        from ._torch import TorchTree, torch_components

        components = _components(model, torch_components)
        if components:
            return TorchTree(components)
    if "mlx.nn" in sys.modules:
        from ._mlx import MlxTree, mlx_components

        components = _components(model, mlx_components)
        if components:
            return MlxTree(components)
    raise TypeError(f"a {type(model).__name__} is no module of torch or MLX, and has none in its attributes")


def _components(model: Any, components_of: Any) -> dict[str, Any]:
    """Name -> module. A module that can be called is one, without a name."""
    found = components_of(model)
    if found is not None:
        return dict(found)
    # A pipeline of diffusers says itself what it is made of.
    parts = model if isinstance(model, Mapping) else getattr(model, "components", None)
    if not isinstance(parts, Mapping):
        parts = vars(model) if hasattr(model, "__dict__") else {}
    return {file_part(name): part for name, part in parts.items() if components_of(part) is not None}
