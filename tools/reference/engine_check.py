"""Runs the engine on the references and compares: tensor by tensor (the engine does that itself) and pixel by pixel."""

import json
import math
import subprocess

import numpy as np
from PIL import Image

from tools.reference import engine_command, official_pipelines

LIMIT_LEVELS = 1
LIMIT_PSNR = 60.0
COMPONENTS = ("text_encoder", "transformer", "vae")


def run_engine(engine, work, case, model, substitute=(), device=None, options=()):
    """One run of the engine beside the reference; returns its report. The manifest supplies prompt and settings.
    SUBSTITUTE: after which checkpoints it goes on from the reference's."""
    picture = work / case["name"] / "engine.png"
    command = [str(engine), f"--debug={case['name']}", f"--artifacts={work}", f"--checkpoints={case['checkpoints']}"]
    command += [f"--substitute={glob}" for glob in substitute]
    if "only" in case:
        command.append(f"--only={case['only']}")
    folder = work / case["name"] / "ref"
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    command += engine_command.words(case["pipeline"], folder, manifest)
    command += [f"--model={model}", f"--output={picture}", "--quiet", *device_words(device), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{case['name']}: the engine failed ({done.returncode}): {done.stderr.strip()}")
    return json.loads((work / case["name"] / "cpp" / "report.json").read_text(encoding="utf-8"))


def device_words(device):
    """On another device than the CPU `fast` means bfloat16, which the tolerances are not made for."""
    return [f"--device={device}", "--precision=exact"] if device else []


def compare_pictures(ours, reference):
    """The largest difference in 8-bit levels, and PSNR in dB; of all channels that the reference has."""
    a = np.asarray(Image.open(ours), dtype=np.int32)
    b = np.asarray(Image.open(reference), dtype=np.int32)
    if a.shape != b.shape:
        return 255, 0.0
    square = float(np.mean((a - b) ** 2))
    return int(np.abs(a - b).max()), math.inf if square == 0 else 10 * math.log10(255**2 / square)


def worst_nmse(report, component):
    values = [row["nmse"] for row in report["checkpoints"] if row["component"] == component]
    # A NaN arrives as null: nothing is worse.
    return max((math.inf if value is None else value for value in values), default=None)


def check_case(engine, work, case, model, device=None):
    """A row of the table: what was compared, and the worst of each component, alone and accumulated."""
    isolated = run_engine(engine, work, case, model, ("*",), device)
    accumulated = run_engine(engine, work, case, model, (), device)
    folder = work / case["name"]
    levels, psnr = compare_pictures(folder / "engine.png", folder / "ref" / "image.png")
    manifest = json.loads((folder / "ref" / "manifest.json").read_text(encoding="utf-8"))
    latents = [row["nmse"] for row in accumulated["checkpoints"] if row["name"] == "final_latents_packed"]
    return {
        "case": case,
        "size": (manifest["width"], manifest["height"]),
        "steps": manifest["steps"],
        "tensors": len(accumulated["checkpoints"]),
        "isolated": {component: worst_nmse(isolated, component) for component in COMPONENTS},
        "latents": latents[0],
        "levels": levels,
        "psnr": psnr,
        "passed": isolated["passed"] and accumulated["passed"] and levels <= LIMIT_LEVELS and psnr >= LIMIT_PSNR,
        "failures": [row["name"] for report in (isolated, accumulated) for row in report["checkpoints"] if not row["passed"]]
        + isolated["missing"]
        + isolated["extra"],
    }


def figure(value):
    return "–" if value is None else f"{value:.0e}"


def table(rows, versions):
    lines = [
        "# Parity with the official pipelines",
        "",
        "Written by `./run parity`. Every case is exported from diffusers in fp32 and repeated by this engine with the same "
        "prompt, pictures, seed and settings.",
        "",
        "- *tensors*: checkpoints compared; a missing or extra one fails the case.",
        "- *text encoder (with the vision tower), transformer, VAE*: the worst NMSE of a single operation whose inputs are the reference's "
        "(limits: 1e-10 a module, 1e-8 a block); – where the case records only what passes between the components.",
        "- *latents*: NMSE of the final latents when the engine computes everything itself (limit 1e-6).",
        "- *picture*: largest difference in 8-bit levels (limit 1) and PSNR (limit 60 dB).",
        "",
        f"Reference: {', '.join(f'{name} {version}' for name, version in versions.items())}.",
        "",
        "## From text",
        "",
        *rows_table([row for row in rows if "images" not in row["case"] and not is_21(row["case"])]),
        "",
        "## From pictures",
        "",
        "*From*: the size of each input picture, and how much of the way from noise is taken (strength). Masked pictures "
        "are compared as the pipeline returns them, without the untouched pixels laid over (`--no-blend`).",
        "",
        *rows_table(
            [row for row in rows if "images" in row["case"] and not is_21(row["case"])],
            {"pipeline": pipeline, "from": inputs},
        ),
        "",
        "## Qwen-Image-2.1",
        "",
        "One pipeline, QwenImage21, draws from text and from pictures. Pictures are compared in all four channels. The reference computes "
        "every row at every step; in the cases named *kv-cache* it keeps the prefix's keys and values, as its users call it.",
        "",
        *rows_table([row for row in rows if is_21(row["case"])], {"from": inputs}),
    ]
    return "\n".join(lines) + "\n"


def is_21(case):
    return official_pipelines.KINDS[case["pipeline"]].is_21


def pipeline(case):
    return official_pipelines.KINDS[case["pipeline"]].class_name.removeprefix("QwenImage").removesuffix("Pipeline")


def inputs(case):
    masked = " and a mask" if "mask" in case else ""
    strength = f", strength {case['strength']:g}" if "strength" in case else ""
    pictures = ", ".join(size.replace("x", "×") for size in case.get("images", [])) or "text"
    return pictures + masked + strength


def rows_table(rows, more_columns=None):
    """MORE_COLUMNS: title -> what it shows of a case, after the model."""
    more_columns = more_columns or {}
    titles = ["case", "model", *more_columns, "size", "steps", "cfg", "tensors", "text encoder", "transformer", "VAE", "latents"]
    lines = [f"| {' | '.join(titles)} | picture | |", "|---" * (len(titles) + 2) + "|"]
    for row in rows:
        case, (width, height) = row["case"], row["size"]
        picture = "identical" if math.isinf(row["psnr"]) else f"{row['levels']} level, {row['psnr']:.0f} dB"
        cells = [case["name"], case["model"], *(show(case) for show in more_columns.values()), f"{width}×{height}"]
        cells += [row["steps"], f"{case['cfg']:g}", row["tensors"]]
        cells += [figure(row["isolated"][component]) for component in COMPONENTS]
        cells += [figure(row["latents"]), picture, "passed" if row["passed"] else "**FAILED**"]
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return lines
