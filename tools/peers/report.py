"""docs/benchmarks.md from the measurements."""

import statistics
from pathlib import Path

from tools.peers import machine, openvino_peer, rivals, targets
from tools.peers.bench import GROWTH_BLOCKS
from tools.peers.contestants import DIFFUSERS, ENGINE, FAST, FAST_OUTLIERS, OPENVINO
from tools.peers.tables import (
    disturbed_text,
    engine_command,
    human,
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
    packages = versions(("diffusers", "torch", "torchao", "openvino", "nncf"))
    build = "built for this CPU (`GGML_NATIVE=ON`, `GGML_LLAMAFILE=ON`)"
    return f"{packages}, stable-diffusion.cpp of {SD_RELEASE}, {build}"


def openvino_text(m):
    """Where OpenVINO did not compute in fp32, the comparison is not one of equal arithmetic, and that is said."""
    forced = m.figure("blocks512", OPENVINO, openvino_peer.FORCED, "step")
    fast = m.figure("blocks512", ENGINE, FAST, "step")
    chosen = {
        record["notes"].get("inference precision")
        for record in m.of("blocks512", OPENVINO)
        if not openvino_peer.SETTINGS[record["variant"]].precision
    }
    if not fast or not forced or chosen <= {"f32"}:
        return ""
    ratio = statistics.median(forced) / statistics.median(fast)
    precisions = ", ".join(sorted(filter(None, chosen)))
    return (
        f" OpenVINO's own choice on this CPU is to compute in {precisions}; with f32 weights and kept to fp32 it takes "
        f"{targets.spread(forced)}, {ratio:.2f} × as long as this engine."
    )


SIZES = {"blocks512": "512×512", "blocks1024": "1024×1024"}


def winners_text(m):
    """Which setting of each peer is the one to beat, and which would be, were it not so far off."""
    won, faster = [], []
    for line, size in SIZES.items():
        # The errors are those of weights with outliers, so times are, where they were measured.
        fast = m.figure(line, ENGINE, FAST_OUTLIERS, "step") or m.figure(line, ENGINE, FAST, "step")
        for who in (OPENVINO, DIFFUSERS):
            if variant := m.winner(line, who, "step", rivals.of(m, who)):
                won.append(f"{who} at {size}: {variant}")
            for other in m.variants(line, who) if fast else ():
                ratio = statistics.median(fast) / statistics.median(m.figure(line, who, other, "step"))
                error = rivals.error(m, who, other)
                if ratio > 1 and error is not None and not rivals.is_rival(m, who, other):
                    times = error / rivals.ours(m)
                    faster.append(f"{who}, {other}, at {size} ({ratio:.2f} × as fast, {times:.0f} × our error)")
    text = f"The fastest settings that are near enough: {'; '.join(won)}." if won else "Not measured yet."
    return text + (f" Faster than this engine but no rivals: {'; '.join(faster)}." if faster else "")


def rival_table(m):
    """Every setting of the peers: its error, whether it counts, and its times."""
    own = rivals.ours(m)
    if own is None:
        return "Not measured yet."
    rows = []
    for who in (ENGINE, OPENVINO, DIFFUSERS):
        for variant in m.variants(rivals.LINE, who):
            error = rivals.error(m, who, variant)
            counts = "–" if who == ENGINE else "yes" if rivals.is_rival(m, who, variant) else "no"
            times = [m.figure(line, who, variant, "step") for line in SIZES]
            cells = [targets.spread(values) if values else "" for values in times]
            rows.append([who, variant, human("nmse", error), f"{error / own:.2f} ×", counts, *cells])
    return table(["program", "setting", "NMSE", "of ours", "rival", "a step, 512×512", "1024×1024"], rows)


def depth_text(m):
    """Fast against exact through as many blocks as the published model has."""
    for record in m.of("depth", ENGINE, FAST)[-1:]:
        figures = record["figures"]
        return (
            f"The largest value of the picture's stream is {figures['largest_first']:.2g} behind the first block and "
            f"{figures['largest_last']:.2g} behind the last one. NMSE of the velocity, `fast` against `exact`: "
            f"**{figures['nmse']:.1e}**."
        )
    return "Not measured yet."


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
    from tools.peers import plots  # which need matplotlib

    rows = targets.all_rows(m)
    step_and_memory = ["step", "peak_bytes"]
    text = PAGE.read_text(encoding="utf-8").format(
        machine=machine_text(m, programs()),
        disturbed=disturbed_text(m),
        targets=target_table(rows),
        somebody_faster=targets.somebody_faster(rows),
        openvino=openvino_text(m),
        command=engine_command(m, "blocks512", FAST),
        winners=winners_text(m),
        errors=rival_table(m),
        depth=depth_text(m),
        blocks512=line_table(m, "blocks512", step_and_memory),
        blocks1024=line_table(m, "blocks1024", step_and_memory),
        blocks1328=line_table(m, "blocks1328", step_and_memory),
        rest512=line_table(m, "rest512", ["rest"]),
        avx2_512=line_table(m, "avx2-512", step_and_memory),
        avx2_1024=line_table(m, "avx2-1024", step_and_memory),
        convrot512=line_table(m, "convrot512", step_and_memory),
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
