"""Plants a bug in the official code: lines of a function's source are changed, and the function takes the original's place
while a run lasts. Nothing in the installed packages is edited."""

import contextlib
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Edit:
    """WHERE: "module:Class.function" or "module:function". OLD stands there once; a line that does not is an error."""

    where: str
    old: str
    new: str


# The first tensor that is wrong is behind a matrix that no run holds, and what enters the matrix is not recorded: none can be
# named, and none may be.
BEHIND_A_MATRIX: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bug:
    """CHECKPOINT: where it shows first. KINDS: what a first hint may call it."""

    name: str
    checkpoint: str
    kinds: tuple[str, ...]
    edits: tuple[Edit, ...] = ()
    change: Callable[[Any], None] | None = None
    """Of the loaded pipeline: weights, settings, modules."""


def _owner(where: str) -> tuple[Any, Any, str]:
    """The module, the class or module that has the function, and the function's name."""
    module_name, path = where.split(":")
    module = importlib.import_module(module_name)
    owner: Any = module
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return module, owner, name


def _edited(where: str, edits: list[Edit]) -> Any:
    module, owner, name = _owner(where)
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(getattr(owner, name))))
    for edit in edits:
        if source.count(edit.old) != 1:
            raise SystemExit(f"{where} has {source.count(edit.old)} times {edit.old!r}; the bug needs it once")
        source = source.replace(edit.old, edit.new)
    # A function outside its class does not know what super() is.
    source = source.replace("super()", f"super({getattr(owner, '__name__', '')}, self)")
    names: dict[str, Any] = {}
    exec(compile(source, f"<planted in {where}>", "exec"), vars(module), names)
    return names[name]


@contextlib.contextmanager
def planted(bug: Bug) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for where in dict.fromkeys(edit.where for edit in bug.edits):
            _, owner, name = _owner(where)
            original = inspect.getattr_static(owner, name)
            setattr(owner, name, _edited(where, [edit for edit in bug.edits if edit.where == where]))
            stack.callback(setattr, owner, name, original)
        yield


def replace_module(pipe: Any, path: str, make: Callable[[Any], Any]) -> None:
    """PATH: "transformer.blocks.0.norm"; globs of numbers ("blocks.*.norm") mean each of them."""
    component, _, inner = path.partition(".")
    root = getattr(pipe, component)
    pattern = re.compile(re.escape(inner).replace(r"\*", r"\d+"))
    found = [name for name, _ in root.named_modules() if pattern.fullmatch(name)]
    if not found:
        raise SystemExit(f"{component} has no module {inner}")
    for name in found:
        parent, _, last = name.rpartition(".")
        owner = root.get_submodule(parent)
        setattr(owner, last, make(getattr(owner, last)))
