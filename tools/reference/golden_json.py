"""Float32 values in JSON: the shortest decimal that reads back as the same float32."""

import json

import numpy as np


def floats(values):
    return [float(str(value)) for value in np.asarray(values, dtype=np.float32).ravel()]


def write(path, description, rows):
    """One row a line, so that a change shows as a small diff."""
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    path.write_text(f'{{"description": {json.dumps(description)},\n "rows": [\n{lines}\n]}}\n', encoding="utf-8")
