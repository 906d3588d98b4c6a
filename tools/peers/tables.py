"""The parts that pages are made of: tables and sentences from measurements."""

import importlib.metadata
import statistics

from tools.peers import machine, targets
from tools.peers.contestants import ENGINE
from tools.peers.models import PROMPT


def human(name, value):
    if name == "nmse":
        return f"{value:.1e}"
    if name.endswith("_bytes"):
        return f"{value / 1e9:.2f} GB"
    return f"{value:.0f}" if name.endswith("gflops") else f"{value:.2f} s"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def versions(packages):
    return ", ".join(f"{name} {version(name)}" for name in packages)


def machine_text(m, programs):
    """The machine, and the versions of the other PROGRAMS."""
    facts = m.machine
    return (
        f"{facts['cores']} cores of an {facts['cpu']}, {', '.join(facts['features'])}, {facts['memory_gb']} GB, "
        f"{facts['system']}; "
        f"all programs with {facts['cores']} threads. {programs}."
    )


def disturbed_text(m):
    runs = [record for record in m.records if "failed" not in record]
    disturbed = [record for record in runs if machine.is_disturbed(record["conditions"])]
    if not runs:
        return "Nothing has been measured yet."
    dates = sorted(record["when"] for record in runs)
    text = f"{len(runs)} runs from {dates[0]} to {dates[-1]}. "
    if not disturbed:
        return text + "During none of them did other programs take more than a tenth of a core."
    names = dict.fromkeys(record["line"] for record in disturbed)
    return text + (
        f"During {len(disturbed)} of them (marked ⚠) other programs took more than a tenth of a core, so these figures "
        f"are too slow: {', '.join(names)}."
    )


def target_table(rows):
    head = ["work", "against", "qwen-image.cpp", "the other", "result", "pass (aim)", "reached"]
    return table(head, [[r.work, r.against, r.ours, r.theirs, r.result, r.wanted, r.verdict] for r in rows])


def line_table(m, line, figures):
    """Every program and variant of a line."""
    keys = dict.fromkeys((r["who"], r["variant"]) for r in m.records if r["line"] == line and "failed" not in r)
    rows = []
    for who, variant in keys:
        records = m.of(line, who, variant)
        mark = " ⚠" if any(machine.is_disturbed(record["conditions"]) for record in records) else ""
        cells = []
        for figure in figures:
            values = m.figure(line, who, variant, figure)
            if not values:
                cells.append("")
            elif figure.endswith("_bytes"):
                cells.append(f"{max(values) / 1e9:.2f} GB")
            else:
                cells.append(targets.spread(values))
        load = f"{statistics.median(record['conditions']['load'][0] for record in records):.1f}"
        rows.append([who + mark, variant + note(records[-1]), *cells, str(len(records)), load])
    for who in dict.fromkeys(r["who"] for r in m.records if r["line"] == line and "failed" in r):
        rows.append([who, f"failed: {targets.reason(m, line, who)}", *[""] * (len(figures) + 2)])
    names = {
        "step": "a step",
        "later_step": "a step behind the first",
        "peak_bytes": "peak memory",
        "encode_prompt": "text encoder",
        "rest": "the rest of a step",
    }
    if not rows:
        return "Not measured yet."
    head = ["program", "weights", *(names.get(figure, figure) for figure in figures), "runs", "load"]
    return table(head, rows)


def note(record):
    notes = record["notes"]
    if "inference precision" in notes:
        return f" (computes in {notes['inference precision']})"
    return f" ({notes['precision']})" if "precision" in notes else ""


def whole_picture_text(m, line):
    runs = m.of(line, ENGINE)
    if not runs:
        return f"Failed: {targets.reason(m, line, ENGINE)}" if m.failure(line, ENGINE) else "Not measured yet."
    figures, conditions = runs[-1]["figures"], runs[-1]["conditions"]
    sizes = runs[-1]["notes"]["weight bytes"]
    weights = ", ".join(f"{name.replace('_', ' ')} {size / 1e9:.2f} GB" for name, size in sizes.items())
    return (
        f"{figures['total']:.0f} s in all: text encoder {figures['encode_prompt']:.1f} s, "
        f"a step {figures['step']:.1f} s, decoding {figures['decode']:.1f} s; "
        f"peak memory {figures['peak_bytes'] / 1e9:.2f} GB (weights: {weights}). "
        f"Load {conditions['load'][0]}{' ⚠' if machine.is_disturbed(conditions) else ''}."
    )


def engine_command(m, line, variant):
    """As a user would type it in the project's folder."""
    for record in m.of(line, ENGINE, variant)[-1:]:
        words = record["command"].replace(PROMPT, f'"{PROMPT}"').split(" ")
        return " ".join("build/" + word.split("/build/", 1)[1] if "/build/" in word else short(word) for word in words)
    return ""


def short(word):
    return "models/tiny/tokenizer" if word.endswith("models/tiny/tokenizer") else word
