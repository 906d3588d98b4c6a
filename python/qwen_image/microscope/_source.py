"""Which line of the program's own code is running."""

from __future__ import annotations

import linecache
import os
import sys
from types import FrameType
from typing import NamedTuple


def folder_of(file: str | None) -> str:
    """As the frames of its code spell it."""
    return os.path.dirname(file or "") + os.sep


_HERE = folder_of(__file__)


class Line(NamedTuple):
    file: str
    number: int

    @staticmethod
    def of_caller(*libraries: str) -> Line | None:
        """The innermost line that is neither here nor in one of the LIBRARIES (folders)."""
        frame: FrameType | None = sys._getframe(1)
        while frame:
            file = frame.f_code.co_filename
            # Code that was made at run time has no file.
            if not file.startswith((_HERE, *libraries)) and not file.startswith("<frozen"):
                return Line(file, frame.f_lineno)
            frame = frame.f_back
        return None

    def facts(self) -> dict[str, str]:
        code = linecache.getline(self.file, self.number).strip()
        roots = [root for root in map(os.path.abspath, sys.path) if self.file.startswith(root + os.sep)]
        # As it is imported: the rest of the path is the machine's, not the model's.
        shown = os.path.relpath(self.file, max(roots, key=len)) if roots else self.file
        return {"source": f"{shown}:{self.number}", **({"code": code} if code else {})}
