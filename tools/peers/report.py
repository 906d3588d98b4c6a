"""docs/benchmarks.md from the measurements."""

import statistics
from pathlib import Path

import machine
import targets
from lines import ENGINE, FAST, GROWTH_BLOCKS, OPENVINO
from openvino_peer import FORCED
from tables import (
    disturbed_text,
    engine_command,
    line_table,
    machine_text,
    table,
    target_table,
    versions,
    whole_picture_text,
)

PAGE = Path(__file__).resolve().parent / "page.md"  # the words around the tables
NAME = "benchmarks.md"
SD_RELEASE = "stable-diffusion-cpp-python 0.4.7"


def programs():
    packages = versions(("diffusers", "torch", "openvino", "nncf"))
    return f"{packages}, stable-diffusion.cpp of {SD_RELEASE}, built for this CPU (`GGML_NATIVE=ON`)"


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


def write(m, docs):
    import plots  # which need matplotlib

    text = PAGE.read_text(encoding="utf-8").format(
        machine=machine_text(m, programs()),
        disturbed=disturbed_text(m),
        targets=target_table(targets.all_rows(m)),
        openvino=openvino_text(m),
        command=engine_command(m, "blocks512", FAST),
        blocks512=line_table(m, "blocks512", ["step", "peak_bytes"]),
        blocks1024=line_table(m, "blocks1024", ["step", "peak_bytes"]),
        vae512=line_table(m, "vae512", ["decode", "encode", "peak_bytes"]),
        text57=line_table(m, "text57", ["encode_prompt"]),
        full=whole_picture_text(m, "full"),
        start=line_table(m, "start", ["start"]),
        threads=line_table(m, "threads", ["step"]),
        resolutions=growth_table(m, "resolutions", "side", GROWTH_BLOCKS),
        blocks=growth_table(m, "blocks", "blocks", None),
        kernels=kernel_table(m),
    )
    docs.mkdir(parents=True, exist_ok=True)
    (docs / NAME).write_text(text, encoding="utf-8")
    plots.write(m, docs / "images")
