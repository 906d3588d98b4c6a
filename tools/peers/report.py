"""docs/benchmarks.md from the measurements."""

import importlib.metadata
import statistics

import machine
import plots
import targets
from lines import ENGINE, FAST, GROWTH_BLOCKS
from models import PROMPT

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
        f"{facts['cores']} cores of an {facts['cpu']} ({', '.join(facts['features'])}), {facts['memory_gb']} GB, {facts['system']}; "
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
    names = sorted({f"{record['line']} ({record['who']})" for record in disturbed})
    return text + (
        f"During {len(disturbed)} of them (marked ⚠) other programs took more than a tenth of a core, so these figures are too slow: "
        f"{', '.join(names)}."
    )


def target_table(m):
    rows = [
        [row.work, row.against, row.ours, row.theirs, row.result, row.wanted, row.verdict] for row in targets.all_rows(m)
    ]
    return table(["work", "against", "qwen-image.cpp", "the other", "result", "pass (aim)", "reached"], rows)


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
    figures = runs[-1]["figures"]
    stages = runs[-1]["notes"]["weight bytes"]
    return (
        f"{figures['total']:.0f} s in all: text encoder {figures['encode_prompt']:.1f} s, {figures['step']:.1f} s a step, decoding "
        f"{figures['decode']:.1f} s; peak memory {figures['peak_bytes'] / 1e9:.2f} GB (weights: "
        + ", ".join(f"{name.replace('_', ' ')} {size / 1e9:.2f} GB" for name, size in stages.items())
        + f"). The machine's load was {runs[-1]['conditions']['load'][0]}{' ⚠' if machine.is_disturbed(runs[-1]['conditions']) else ''}."
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
            rows.append([name, f"{figures['ms']:.2f}", gflops, share, f"{figures['gbytes']:.1f}" if "gbytes" in figures else ""])
    return table(["kernel", "ms", "Gop/s", "of the fp32 peak", "GB/s"], rows)


def engine_command(m):
    for record in m.of("blocks512", ENGINE, FAST)[-1:]:
        words = record["command"].replace(PROMPT, f'"{PROMPT}"').split(" ")
        return " ".join("build/" + word.split("/build/", 1)[1] if "/build/" in word else short(word) for word in words)
    return ""


def short(word):
    return "models/tiny/tokenizer" if word.endswith("models/tiny/tokenizer") else word


PAGE = """# Against other programs

`./run bench --peers` measures this engine and three others on the same weights and writes this page. One line of it:
`./run bench --peers --only NAME`, with the names in brackets below; `--fresh` measures again, `--list` says how long it takes.

{machine}

{disturbed}

## Targets

{targets}

Times are medians, with the smallest and the largest in brackets; the programs' runs alternate. "Against" names the variant that
was the fastest of those below.

## How it is measured

The weights are random, of the published model's full size ([tools/synthetic](../tools/synthetic/write_model.py)); 4-bit ones are in MLX's
form (groups of 64), and what those are worth, in bfloat16, is what every other program starts from. Real weights would take the same time.
A model of 4 blocks stands for the published 60, which all cost the same: what lies before and after the blocks is a few thousandths.
The prompt has 18 tokens, so the transformer sees 23 and the text encoder 57.

- **qwen-image.cpp**: the command that a user types, two steps, the seconds that `--json` reports, as in

  ```
  {command}
  ```

  `fast` and `exact` are its `--precision`. The VAE's encoder is not used by any command yet: `build/bench/bench/vae_encode_bench`.
- **stable-diffusion.cpp**: its own program with flash attention (`--fa`), weights by its own converter, the times of its own log (one
  step, the weights are in memory before it begins). Its VAE keeps convolutions in 16 bits.
- **diffusers**: fp32, one forward pass of `QwenImageTransformer2DModel`, after a small one to warm up; no attention mask. Its memory is what
  it needs after loading, which needs more.
- **OpenVINO**: one block of diffusers' transformer, converted, compressed with NNCF (4 bits in groups of 64, asymmetric; 8 bits), run four
  times (one block's weights are many times the cache); `LATENCY` hint; nothing before and after the blocks. The precision of its
  arithmetic is its own choice for this CPU and stands in the table; the run that is told to keep to fp32 is there for comparison.

Other programs' work on the machine is measured during every run: ⚠ marks figures during whose runs it took more than a tenth of a core.

## 4 blocks, 512×512 (blocks512)

{blocks512}

![time per block](images/bench_time_per_block.svg)

## 4 blocks, 1024×1024 (blocks1024)

{blocks1024}

## VAE, 512×512 (vae512)

{vae512}

## Text encoder (text57)

{text57}

## One whole picture: 20 B parameters, 4-bit, 512×512, 4 steps (full, start)

{full}

{start}

## Threads (threads)

{threads}

## Growth with the resolution (resolutions) and with the number of blocks (blocks)

{resolutions}

{blocks}

![growth](images/bench_growth.svg)

## Kernels (kernels)

`./run bench` has the rest. The peak is measured in the same run: fused multiply-adds in registers, fp32, all cores.

{kernels}

![roofline](images/bench_roofline.svg)
"""


def write(m, docs):
    text = PAGE.format(
        machine=machine_text(m),
        disturbed=disturbed_text(m),
        targets=target_table(m),
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


