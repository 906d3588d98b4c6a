"""The rows of the first table of docs/benchmarks.md: what the engine is to reach against whom, and whether it does."""

import re
import statistics
from dataclasses import dataclass, field

from tools.peers import machine, rivals
from tools.peers.contestants import BEFORE, DIFFUSERS, ENGINE, EXACT_BF16, FAST, FAST_OUTLIERS, OPENVINO, ROTATED, SDCPP


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
    ratio: float | None = None  # how many times as long as we the other takes

    @property
    def verdict(self):
        mark = " ⚠" if any(machine.is_disturbed(record["conditions"]) for record in self.records) else ""
        return {True: "yes", False: "**no**", None: "–"}[self.passed] + mark


def spread(values):
    """The median, and the smallest and largest where there are several."""
    if len(values) == 1:
        return f"{values[0]:.2f} s"
    return f"{statistics.median(values):.2f} s ({min(values):.2f}–{max(values):.2f})"


def faster(measurements, work, line, figure, ours, who, least, aim=None, variant=None, among=None):
    """A row about a ratio of medians; against the peer's fastest variant, or the fastest AMONG some, unless one is
    named."""
    wanted = f"{least} ×" + (f" ({aim} ×)" if aim else "")
    row = Row(work, who, wanted)
    mine = measurements.figure(line, ENGINE, ours, figure)
    if mine:
        row.ours = spread(mine)
    elif measurements.failure(line, ENGINE):
        row.ours = reason(measurements, line, ENGINE)
    variant = variant or measurements.winner(line, who, figure, among)
    other = measurements.figure(line, who, variant, figure) if variant else []
    if not other:
        failed = measurements.failure(line, who)
        row.theirs = f"cannot be run: {reason(measurements, line, who)}" if failed else "not measured"
        return row
    row.against = f"{who}, {variant}"
    row.theirs = spread(other)
    if mine:
        row.records = of_both(measurements, line, ours, who, variant)
        row.ratio = statistics.median(other) / statistics.median(mine)
        row.result, row.passed = f"{row.ratio:.2f} ×", row.ratio >= least
    return row


def of_both(measurements, line, ours, who, variant):
    return measurements.of(line, ENGINE, ours) + measurements.of(line, who, variant)


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


FP32_PEAK, INT8_PEAK = "peak_gflops", "int8_peak_gflops"


def kernel_share(measurements, work, pattern, least, aim, peak_of=FP32_PEAK):
    against = {FP32_PEAK: "fp32 FMA peak, same run", INT8_PEAK: "8-bit peak, same run"}[peak_of]
    row = Row(work, against, f"{least:.0%} ({aim:.0%})")
    for record in measurements.of("kernels", ENGINE)[-1:]:
        peak = record["figures"].get(peak_of)
        found = kernel_rates(record, pattern)
        if peak is None:
            row.theirs = "not known for this CPU"
        elif found:
            share = max(found) / peak
            row.theirs, row.records = f"{peak:.0f} Gop/s", [record]
            row.ours, row.result, row.passed = f"{max(found):.0f} Gop/s", f"{share:.0%}", share >= least
    return row


def kernel_rates(record, pattern):
    kernels = record["notes"]["kernels"].items()
    return [figures["gflops"] for name, figures in kernels if re.search(pattern, name) and "gflops" in figures]


def faster_kernel(measurements, work, ours, theirs, against, least, aim):
    """A row about two kernels that do the same work."""
    row = Row(work, against, f"{least} × ({aim} ×)")
    for record in measurements.of("kernels", ENGINE)[-1:]:
        mine, other = kernel_rates(record, ours), kernel_rates(record, theirs)
        if other:
            row.theirs, row.records = f"{max(other):.0f} Gop/s", [record]
        if mine and other:
            ratio = max(mine) / max(other)
            row.ours, row.result, row.passed = f"{max(mine):.0f} Gop/s", f"{ratio:.2f} ×", ratio >= least
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


def threads(measurements, fewer, more, wanted, holds):
    """A row about how many times as fast MORE threads are as FEWER."""
    row = Row(f"{fewer} → {more}, 4 blocks, 512×512", fewer, wanted)
    slow, fast = (measurements.figure("threads", who, FAST, "step") for who in (fewer, more))
    if slow and fast:
        ratio = statistics.median(slow) / statistics.median(fast)
        row.records = measurements.of("threads", fewer) + measurements.of("threads", more)
        row.ours, row.theirs, row.result, row.passed = spread(fast), spread(slow), f"{ratio:.2f} ×", holds(ratio)
    return row


def all_rows(m):
    blocks, bf16 = "4 blocks, 4-bit, 512×512", "4 blocks, bf16 weights, fp32 arithmetic, 512×512"
    large, gemm, on_all = "4 blocks, 4-bit, 1024×1024", "1024×3072×12288", ".*[^1] threads"
    openvino, diffusers = rivals.of(m, OPENVINO), rivals.of(m, DIFFUSERS)
    rows = [
        faster(m, blocks, "blocks512", "step", FAST, OPENVINO, 1.15, 1.25, among=openvino),
        faster(m, f"{blocks}, with outliers", "blocks512", "step", FAST_OUTLIERS, OPENVINO, 1.15, among=openvino),
        faster(m, blocks, "blocks512", "step", FAST, SDCPP, 4, 5),
        faster(m, blocks, "blocks512", "step", FAST, DIFFUSERS, 3, 3.5, among=diffusers),
        faster(m, bf16, "blocks512", "step", EXACT_BF16, DIFFUSERS, 1.1, variant="fp32"),
        half_the_memory(m),
        faster(m, large, "blocks1024", "step", FAST, OPENVINO, 1.15, 1.3, among=openvino),
        faster(m, large, "blocks1024", "step", FAST, SDCPP, 5.5, 6.5),
        faster(m, "4 blocks, 4-bit, 1328×1328", "blocks1328", "step", FAST, BEFORE, 1.5, 1.8),
        faster(m, f"{blocks}: neither product nor attention", "rest512", "rest", FAST, BEFORE, 2),
        faster(m, f"{blocks}, AVX2 alone", "avx2-512", "step", FAST, SDCPP, 4),
        faster(m, f"{large}, AVX2 alone", "avx2-1024", "step", FAST, SDCPP, 4),
        faster(m, "4 blocks, int8 ConvRot, 512×512", "convrot512", "step", ROTATED, f"{ENGINE}, 4-bit", 1),
    ]
    for figure in ("decode", "encode"):
        work = f"VAE {figure}, 512×512, fp32"
        rows.append(faster(m, work, "vae512", figure, "fp32", DIFFUSERS, 5, 8))
        rows.append(faster(m, work, "vae512", figure, "fp32", SDCPP, 14, 20))
    attention = "Attention 24x128 4119 tokens"
    return rows + [
        faster(m, "text encoder, 28 layers, 4-bit, 57 tokens", "text57", "encode_prompt", FAST, SDCPP, 4),
        faster_kernel(
            *(m, "attention 24×128, 4,119 tokens, fast", f"^Fast{attention}{on_all}", f"^{attention}{on_all}"),
            *("fp32 kernel, same run", 2.0, 2.5),
        ),
        kernel_share(
            m, f"4-bit × 8-bit GEMM {gemm}", rf"^Int8MatMul 1024x3072x12288 4-bit{on_all}", 0.85, 0.9, INT8_PEAK
        ),
        kernel_share(m, f"fp32 GEMM {gemm}", rf"^MatMul 1024x3072x12288 f32{on_all}", 0.8, 0.9),
        memory(m, "peak memory, 20 B, 4-bit, 512×512", "full"),
        first_step(m),
        threads(m, "1 thread", "2 threads", "1.9 ×", lambda ratio: ratio >= 1.9),
        threads(m, "2 threads", "16 threads", "0.95 ×", lambda ratio: ratio >= 0.95),
    ]


def somebody_faster(rows):
    """A sentence about those that beat this engine, for whoever reads no table."""
    beaten = [row for row in rows if row.ratio is not None and row.ratio < 1 and not row.against.startswith(ENGINE)]
    if not any(row.ratio is not None for row in rows):
        return ""
    if not beaten:
        return "Of the rivals that were measured, none was faster than this engine at the same work."
    places = "; ".join(f"{row.work}: {row.against}, by a factor of {1 / row.ratio:.2f}" for row in beaten)
    return f"**Somebody else is faster** here: {places}."
