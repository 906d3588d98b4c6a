"""The rows of the first table of docs/benchmarks.md: what the engine is to reach against whom, and whether it does."""

import re
import statistics
from dataclasses import dataclass, field

import machine
from lines import DIFFUSERS, ENGINE, EXACT_BF16, FAST, OPENVINO, SDCPP
from openvino_peer import FORCED


@dataclass
class Row:
    work: str
    against: str
    wanted: str  # the least, and the aim in brackets
    ours: str = "not measured"
    theirs: str = ""
    result: str = ""
    passed: bool | None = None  # None: not measured
    records: list = field(default_factory=list)  # that the result is made of

    @property
    def verdict(self):
        mark = " ⚠" if any(machine.is_disturbed(record["conditions"]) for record in self.records) else ""
        return {True: "yes", False: "**no**", None: "–"}[self.passed] + mark


def spread(values):
    """The median, and the smallest and largest where there are several."""
    if len(values) == 1:
        return f"{values[0]:.2f} s"
    return f"{statistics.median(values):.2f} s ({min(values):.2f}–{max(values):.2f})"


def faster(measurements, work, line, figure, ours, who, least, aim=None, variant=None):
    """A row about a ratio of medians; against the peer's fastest variant unless one is named."""
    wanted = f"{least} ×" + (f" ({aim} ×)" if aim else "")
    row = Row(work, who, wanted)
    mine = measurements.figure(line, ENGINE, ours, figure)
    if mine:
        row.ours = spread(mine)
    variant = variant or measurements.fastest(line, who, figure, without_forced(measurements.variants(line, who)))
    other = measurements.figure(line, who, variant, figure) if variant else []
    if not other:
        row.theirs = (
            f"cannot be run: {reason(measurements, line, who)}" if measurements.failure(line, who) else "not measured"
        )
        return row
    row.against = f"{who}, {variant}"
    row.theirs = spread(other)
    if mine:
        row.records = of_both(measurements, line, ours, who, variant)
        ratio = statistics.median(other) / statistics.median(mine)
        row.result, row.passed = f"{ratio:.2f} ×", ratio >= least
    return row


def of_both(measurements, line, ours, who, variant):
    return measurements.of(line, ENGINE, ours) + measurements.of(line, who, variant)


def without_forced(variants):
    return [variant for variant in variants if variant != FORCED]


def reason(measurements, line, who):
    return measurements.failure(line, who).splitlines()[0][:160].replace("|", "/")


def half_the_memory(measurements):
    row = Row("4 blocks, bf16 weights, 512×512: peak memory", f"{DIFFUSERS}, fp32", "0.5 × at most")
    mine = measurements.figure("blocks512", ENGINE, EXACT_BF16, "peak_bytes")
    other = measurements.figure("blocks512", DIFFUSERS, "fp32", "peak_bytes")
    if mine and other:
        share = max(mine) / max(other)
        row.ours, row.theirs = f"{max(mine) / 1e9:.2f} GB", f"{max(other) / 1e9:.2f} GB"
        row.result, row.passed = f"{share:.2f} ×", share <= 0.5
    return row


def kernel_share(measurements, work, pattern, least, aim):
    row = Row(work, "fp32 FMA peak, same run", f"{least:.0%} ({aim:.0%})")
    for record in measurements.of("kernels", ENGINE)[-1:]:
        peak = record["figures"]["peak_gflops"]
        row.theirs, row.records = f"{peak:.0f} GFLOP/s", [record]
        found = [
            f["gflops"] for name, f in record["notes"]["kernels"].items() if re.search(pattern, name) and "gflops" in f
        ]
        if found:
            share = max(found) / peak
            row.ours, row.result, row.passed = f"{max(found):.0f} Gop/s", f"{share:.0%}", share >= least
    return row


def memory(measurements, work, line, wanted="+ 1 GB at most", room=1e9):
    """The peak of a whole picture, which may be ROOM above its largest stage."""
    row = Row(work, "weights of the largest stage", wanted)
    for record in measurements.of(line, ENGINE)[-1:]:
        peak, stage = record["figures"]["peak_bytes"], record["figures"]["largest_stage_bytes"]
        row.ours, row.theirs = f"{peak / 1e9:.2f} GB", f"{stage / 1e9:.2f} GB"
        row.result, row.passed = f"{(peak - stage) / 1e9:+.2f} GB", peak - stage <= room
    return row


def first_step(measurements):
    row = Row("start to first step, known prompt, warm cache", "–", "< 1 s")
    values = measurements.figure("start", ENGINE, FAST, "start")
    if values:
        row.ours = row.result = spread(values)
        row.records = measurements.of("start", ENGINE, FAST)
        row.passed = statistics.median(values) < 1
    return row


def scaling(measurements):
    row = Row("1 → 2 threads, 4 blocks, 512×512", "1 thread", "1.9 ×")
    one, two = (measurements.figure("threads", who, FAST, "step") for who in ("1 thread", "2 threads"))
    if one and two:
        ratio = statistics.median(one) / statistics.median(two)
        row.records = measurements.of("threads", "1 thread") + measurements.of("threads", "2 threads")
        row.ours, row.theirs, row.result, row.passed = spread(two), spread(one), f"{ratio:.2f} ×", ratio >= 1.9
    return row


def all_rows(m):
    blocks, bf16 = "4 blocks, 4-bit, 512×512", "4 blocks, bf16 weights, fp32 arithmetic, 512×512"
    gemm = "1024×3072×12288"
    rows = [
        faster(m, blocks, "blocks512", "step", FAST, SDCPP, 4, 5),
        faster(m, blocks, "blocks512", "step", FAST, DIFFUSERS, 3, 3.5),
        faster(m, blocks, "blocks512", "step", FAST, OPENVINO, 2, 2.5),
        faster(m, bf16, "blocks512", "step", EXACT_BF16, DIFFUSERS, 1.1),
        half_the_memory(m),
        faster(m, "4 blocks, 4-bit, 1024×1024", "blocks1024", "step", FAST, SDCPP, 3.5, 4.5),
    ]
    for figure in ("decode", "encode"):
        work = f"VAE {figure}, 512×512, fp32"
        rows.append(faster(m, work, "vae512", figure, "fp32", DIFFUSERS, 5, 8))
        rows.append(faster(m, work, "vae512", figure, "fp32", SDCPP, 14, 20))
    return rows + [
        faster(m, "text encoder, 28 layers, 4-bit, 57 tokens", "text57", "encode_prompt", FAST, SDCPP, 4),
        kernel_share(m, f"4-bit × 8-bit GEMM {gemm}", r"1024x3072x12288 (q4|4-bit).*[^1] threads", 2.0, 2.5),
        kernel_share(m, f"fp32 GEMM {gemm}", r"^MatMul 1024x3072x12288 f32.*[^1] threads", 0.8, 0.9),
        memory(m, "peak memory, 20 B, 4-bit, 512×512", "full"),
        first_step(m),
        scaling(m),
    ]
