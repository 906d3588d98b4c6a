"""The plots of docs/benchmarks.md, as SVG whose text stays text."""

import statistics

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams |= {
    "svg.fonttype": "none",
    "svg.hashsalt": "benchmarks",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
}

from matplotlib import pyplot  # noqa: E402

from tools.peers import kernels  # noqa: E402
from tools.peers.bench import GROWTH_BLOCKS  # noqa: E402
from tools.peers.contestants import DIFFUSERS, ENGINE, FAST, OPENVINO, SDCPP  # noqa: E402

COLORS = {ENGINE: "#c0392b", SDCPP: "#2980b9", DIFFUSERS: "#7f8c8d", OPENVINO: "#8e44ad"}
BLOCKS = 4


def save(figure, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    # No date, so that a plot of the same figures is the same file.
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)


def median_step(m, line, who, variant):
    values = m.figure(line, who, variant, "step")
    return statistics.median(values) if values else None


def time_per_block(m, path):
    bars = []
    for who in (ENGINE, OPENVINO, DIFFUSERS, SDCPP):
        steps = {variant: median_step(m, "blocks512", who, variant) for variant in m.variants("blocks512", who)}
        # A peer has many settings, and the slow ones are of no interest here.
        bars += [(f"{who}\n{variant}", steps[variant], who) for variant in sorted(steps, key=steps.get)[:3]]
    figure, axes = pyplot.subplots(figsize=(7, 0.5 * len(bars) + 1))
    for place, (_, seconds, who) in enumerate(bars):
        axes.barh(place, seconds / BLOCKS, color=COLORS[who])
        axes.text(seconds / BLOCKS, place, f" {seconds / BLOCKS:.2f} s", va="center")
    axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("seconds a block at 512×512, 2 threads: less is better")
    save(figure, path)


def growth(m, path):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6))
    sides = points(m, "resolutions", GROWTH_BLOCKS)
    draw(left, sides, "o-", ENGINE)
    for who in (SDCPP, DIFFUSERS):
        draw(left, peer_points(m, who), "s--", who)
    left.set(xscale="log", yscale="log", xlabel="side of the picture", ylabel="seconds a block")
    left.set_xticks([256, 512, 768, 1024, 1536], ["256", "512", "768", "1024", "1536"])
    left.minorticks_off()
    if left.lines:
        left.legend()
    counts = points(m, "blocks", 1)
    draw(right, counts, "o-", ENGINE)
    right.set(xlabel="blocks, at 512×512", ylabel="seconds a step", xlim=(0, None), ylim=(0, None))
    save(figure, path)


def draw(axes, found, style, who):
    if found:
        axes.plot([x for x, _ in found], [y for _, y in found], style, color=COLORS[who], label=who)


def points(m, line, blocks):
    found = {
        int(r["who"]): r["figures"]["step"]
        for r in m.records
        if r["line"] == line and r["who"].isdigit() and "failed" not in r
    }
    return sorted((size, step / blocks) for size, step in found.items())


def peer_points(m, who):
    """The fastest variant of 512 and 1024, and the one run at 256."""
    found = []
    for line, label, side in (("resolutions", f"{who} 256", 256), ("blocks512", who, 512), ("blocks1024", who, 1024)):
        variant = m.fastest(line, label, "step")
        if variant:
            found.append((side, median_step(m, line, label, variant) / BLOCKS))
    return found


def block_point(m):
    """A block of the 4-bit model at 512×512: operations, bytes of weights and activations, operations a second."""
    seconds = median_step(m, "blocks512", ENGINE, FAST)
    if not seconds:
        return None
    tokens, width = 1024 + 23, 3072
    operations = 2 * 12 * width * width * tokens + 4 * tokens * tokens * width
    weights = 2 * 12 * width * width * (0.5 + 4 / 64)
    return operations, weights + 4 * 30 * tokens * width, operations / (seconds / BLOCKS)


def roofline(m, path):
    """What the kernels reach against what the machine allows; the fp32 peak is no limit to 8-bit kernels."""
    runs = m.of("kernels", ENGINE)
    figure, axes = pyplot.subplots(figsize=(6, 4.5))
    if runs:
        draw_roof(axes, runs[-1])
    block = block_point(m)
    if block:
        operations, size, rate = block
        label = "a whole 4-bit block, 512×512"
        axes.plot(operations / size, rate / 1e9, "*", markersize=14, color=COLORS[ENGINE], label=label)
    axes.set(xscale="log", yscale="log", xlabel="operations a byte that must be moved", ylabel="Gop/s, 2 threads")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8)
    save(figure, path)


def draw_roof(axes, record):
    found, peak = record["notes"]["kernels"], record["figures"]["peak_gflops"]
    bandwidth = max((f["gbytes"] for f in found.values() if "gbytes" in f), default=20.0)
    intensities = [0.25, peak / bandwidth, 4000]
    label = f"fp32 peak {peak:.0f} GFLOP/s; {bandwidth:.0f} GB/s,\nthe most that any kernel moved"
    axes.plot(intensities, [min(peak, bandwidth * i) for i in intensities], color="black", label=label)
    places = {name: kernels.shape_of(name) for name in found if "gflops" in found[name] and "1 thread" not in name}
    colors = matplotlib.colormaps["tab20"].colors
    for i, (name, shape) in enumerate((name, shape) for name, shape in places.items() if shape):
        intensity, color = shape[0] / shape[1], colors[i % len(colors)]
        axes.plot(intensity, found[name]["gflops"], "os^D"[i % 4], color=color, label=name.split(",")[0])


def write(m, folder):
    if m.variants("blocks512", ENGINE):
        time_per_block(m, folder / "bench_time_per_block.svg")
    growth(m, folder / "bench_growth.svg")
    roofline(m, folder / "bench_roofline.svg")
