"""docs/benchmarks.md from the measurements."""

import importlib.metadata
import statistics
from pathlib import Path

import machine
import plots
import targets
from lines import ENGINE, FAST, GROWTH_BLOCKS, OPENVINO
from models import PROMPT
from openvino_peer import FORCED

PAGE = Path(__file__).resolve().parent / "page.md"  # the words around the tables
SD_RELEASE = "stable-diffusion-cpp-python 0.4.7"


def human(name, value):
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


def versions():
    parts = [f"{name} {version(name)}" for name in ("diffusers", "torch", "openvino", "nncf")]
    return ", ".join([*parts, f"stable-diffusion.cpp of {SD_RELEASE}, built for this CPU (`GGML_NATIVE=ON`)"])


def machine_text(m):
    facts = m.machine
    return (
        f"{facts['cores']} cores of an {facts['cpu']}, {', '.join(facts['features'])}, {facts['memory_gb']} GB, "
        f"{facts['system']}; "
        f"all programs with {facts['cores']} threads. {versions()}."
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


def target_table(m):
    rows = [
        [row.work, row.against, row.ours, row.theirs, row.result, row.wanted, row.verdict]
        for row in targets.all_rows(m)
    ]
    return table(["work", "against", "qwen-image.cpp", "the other", "result", "pass (aim)", "reached"], rows)


def openvino_text(m):
    """Where OpenVINO did not compute in fp32, the comparison is not one of equal arithmetic, and that is said."""
    fast, forced = m.figure("blocks512", ENGINE, FAST, "step"), m.figure("blocks512", OPENVINO, FORCED, "step")
    chosen = {r["notes"].get("inference precision") for r in m.of("blocks512", OPENVINO) if r["variant"] != FORCED}
    if not fast or not forced or chosen <= {"f32"}:
        return ""
    ratio = statistics.median(forced) / statistics.median(fast)
    precisions = ", ".join(sorted(filter(None, chosen)))
    return (
        f" OpenVINO's own choice on this CPU is to compute in {precisions}; kept to fp32 it takes "
        f"{targets.spread(forced)}, {ratio:.2f} × as long as this engine."
    )


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
    names = {"step": "a step", "peak_bytes": "peak memory", "encode_prompt": "text encoder"}
    head = ["program", "weights", *(names.get(figure, figure) for figure in figures), "runs", "load"]
    return table(head, rows)


def note(record):
    notes = record["notes"]
    if "inference precision" in notes:
        return f" (computes in {notes['inference precision']})"
    return f" ({notes['precision']})" if "precision" in notes else ""


def full_text(m):
    runs = m.of("full", ENGINE)
    if not runs:
        return "Not measured yet."
    figures, conditions = runs[-1]["figures"], runs[-1]["conditions"]
    sizes = runs[-1]["notes"]["weight bytes"]
    weights = ", ".join(f"{name.replace('_', ' ')} {size / 1e9:.2f} GB" for name, size in sizes.items())
    return (
        f"{figures['total']:.0f} s in all: text encoder {figures['encode_prompt']:.1f} s, "
        f"a step {figures['step']:.1f} s, decoding {figures['decode']:.1f} s; "
        f"peak memory {figures['peak_bytes'] / 1e9:.2f} GB (weights: {weights}). "
        f"Load {conditions['load'][0]}{' ⚠' if machine.is_disturbed(conditions) else ''}."
    )


def growth_table(m, line, label, divisor):
    """A row a size: seconds, and seconds of a block."""
    rows = []
    for record in m.records:
        if record["line"] == line and record["who"].isdigit() and "failed" not in record:
            blocks = divisor or int(record["who"])
            step = record["figures"]["step"]
            memory = f"{record['figures']['peak_bytes'] / 1e9:.2f} GB"
            mark = " ⚠" if machine.is_disturbed(record["conditions"]) else ""
            rows.append([record["who"] + mark, f"{step:.2f} s", f"{step / blocks:.3f} s", memory])
    return table([label, "a step", "of that a block", "peak memory"], rows)


def kernel_table(m):
    rows = []
    for record in m.of("kernels", ENGINE)[-1:]:
        for name, figures in record["notes"]["kernels"].items():
            share = f"{figures['share']:.0f} %" if "share" in figures else ""
            gflops = f"{figures['gflops']:.0f}" if "gflops" in figures else ""
            rows.append(
                [name, f"{figures['ms']:.2f}", gflops, share, f"{figures['gbytes']:.1f}" if "gbytes" in figures else ""]
            )
    return table(["kernel", "ms", "Gop/s", "of the fp32 peak", "GB/s"], rows)


def engine_command(m):
    for record in m.of("blocks512", ENGINE, FAST)[-1:]:
        words = record["command"].replace(PROMPT, f'"{PROMPT}"').split(" ")
        return " ".join("build/" + word.split("/build/", 1)[1] if "/build/" in word else short(word) for word in words)
    return ""


def short(word):
    return "models/tiny/tokenizer" if word.endswith("models/tiny/tokenizer") else word


def write(m, docs):
    text = PAGE.read_text(encoding="utf-8").format(
        machine=machine_text(m),
        disturbed=disturbed_text(m),
        targets=target_table(m),
        openvino=openvino_text(m),
        command=engine_command(m),
        blocks512=line_table(m, "blocks512", ["step", "peak_bytes"]),
        blocks1024=line_table(m, "blocks1024", ["step", "peak_bytes"]),
        vae512=line_table(m, "vae512", ["decode", "encode", "peak_bytes"]),
        text57=line_table(m, "text57", ["encode_prompt"]),
        full=full_text(m),
        start=line_table(m, "start", ["start"]),
        threads=line_table(m, "threads", ["step"]),
        resolutions=growth_table(m, "resolutions", "side", GROWTH_BLOCKS),
        blocks=growth_table(m, "blocks", "blocks", None),
        kernels=kernel_table(m),
    )
    docs.mkdir(parents=True, exist_ok=True)
    (docs / "benchmarks.md").write_text(text, encoding="utf-8")
    plots.write(m, docs / "images")
