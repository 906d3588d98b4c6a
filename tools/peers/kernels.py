"""The kernels' own benchmark (`./run bench`), read from the file that Google Benchmark writes."""

import json
import re

from tools.peers import process

FILTER = "MatMul 1024x3072x12288|Attention 24x128|Conv2d 3x3|LayerNorm|RmsNorm|MatMul 23x|MatMul 1x"


def run(program, out):
    """{name: {ms, gflops, share, gbytes}}, the best repetition of every case; and the peaks of all cores."""
    command = [program, f"--benchmark_filter={FILTER}", f"--benchmark_out={out}", "--benchmark_out_format=json"]
    done = process.run(command)
    found = {}
    for run_ in json.loads(out.read_text(encoding="utf-8"))["benchmarks"]:
        if run_["run_type"] != "iteration":
            continue
        name = run_["name"].split("/min_time")[0]
        figures = {"ms": run_["real_time"]}
        for key, counter in (("gflops", "GFLOP/s"), ("share", "%peak"), ("gbytes", "GB/s")):
            if counter in run_:
                figures[key] = run_[counter]
        if name not in found or figures["ms"] < found[name]["ms"]:
            found[name] = figures
    return done, found, peaks(done)


def peaks(done):
    """In operations a second: of fp32, and of 8-bit integers where the program knows it for this CPU."""
    found = {"peak_gflops": float(done.find(r"f32 peak (\d+) GFLOP/s on 1 thread, (\d+) on")[1][2])}
    for _, text in done.lines:
        if match := re.search(r"8-bit peak (\d+) Gop/s on 1 thread, (\d+) on", text):
            found["int8_peak_gflops"] = float(match[2])
    return found


def shape_of(name):
    """Operations and bytes that a case must at least move, from its name; None where it does not tell."""
    if match := re.search(r"MatMul (\d+)x(\d+)x(\d+) (\S+)", name):
        rows, depth, cols = map(int, match.groups()[:3])
        size = {"f32": 4, "bf16": 2, "f16": 2, "8-bit": 1 + 4 / 64, "4-bit": 0.5 + 4 / 64}.get(match[4].rstrip(","), 4)
        return 2 * rows * depth * cols, size * depth * cols + 4 * rows * (depth + cols)
    if match := re.search(r"Attention (\d+)x(\d+) (\d+) tokens", name):
        heads, dim, tokens = map(int, match.groups())
        return 4 * heads * dim * tokens * tokens, 16 * heads * dim * tokens
    if match := re.search(r"Conv2d (\d)x\d (\d+)x(\d+) (\d+)->(\d+)", name):
        kernel, height, width, inputs, outputs = map(int, match.groups())
        pixels, weights = height * width, kernel * kernel * inputs * outputs
        return 2 * pixels * weights, 4 * (pixels * (inputs + outputs) + weights)
    return None
