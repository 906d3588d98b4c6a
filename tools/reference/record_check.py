"""Recordings by qwen_image.microscope, of real models: what docs/record.md shows, and that a recording changes nothing.

    python -m tools.reference.record_check --work DIR --engine build/release/qwen-image [--framework mlx]

The package is the one that was built beside the engine.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from tools.reference import compare_runs, docs_check, environment
from tools.reference.case_list import ROOT


def entries(folder):
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["checkpoints"]


def expect(what, found, expected):
    if found != expected:
        raise SystemExit(f"{what}: {found!r}, expected {expected!r}")


def check_plain_torch(engine, work):
    """The port of docs/record.md: its bug is found, with its line."""
    report = compare_runs.compare(engine, work / "runs/reference", work / "runs/port")
    expect("first divergence", report["first_divergence"], "call000/2.down:input")
    first = next(row for row in report["checkpoints"] if row["name"] == report["first_divergence"])
    expect("its first hint", first["hints"][0]["kind"], "constant_factor")
    expect("its line", first["run_source"], "plain.py:13: hidden = torch.relu(self.up(self.norm(x))) * self.factor")


def check_torch_pipeline(_engine, work):
    """Every level of a real pipeline: the picture stays as it is, bit for bit, and nothing of the recorder stays behind."""
    import torch
    from diffusers import DiffusionPipeline
    from qwen_image.microscope import record

    pipe = DiffusionPipeline.from_pretrained(ROOT / "models/tiny", dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)

    def draw():
        generator = torch.Generator().manual_seed(0)
        size = {"height": 64, "width": 64, "num_inference_steps": 2}
        return pipe("a red circle", true_cfg_scale=1, generator=generator, output_type="np", **size).images[0]

    plain, before = draw(), 0
    for level in ("boundaries", "blocks", "all"):
        with record(pipe, work / level, level=level):
            recorded = draw()
        expect(f"picture at level {level}", np.array_equal(plain, recorded), True)
        names = [entry["name"] for entry in entries(work / level)]
        expect(f"names at level {level} that are there twice", len(names) - len(set(names)), 0)
        expect(f"more tensors at level {level} than before", len(names) > before, True)
        before = len(names)
    hooks = [name for name, module in pipe.transformer.named_modules() if module._forward_hooks or module._forward_pre_hooks]
    expect("hooks that are left", hooks, [])


def check_torch_values(_engine, work):
    """Types that npy does not have, containers, operations in place, calls of the same module, and an error."""
    import torch
    from qwen_image.microscope import record

    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Identity()

        def forward(self, x, *, mode=None):
            y = self.inner(x)
            y.add_(1)
            self.inner(y)
            if mode == "fail":
                raise RuntimeError("on purpose")
            return {"low": y.bfloat16(), "truth": y > 0, "complex": torch.complex(y, y), "none": None}

    model, x = Odd(), torch.zeros(2, 3)
    with torch.inference_mode(), record({"odd": model}, work / "odd", level="all", settings={"seed": 3}):
        model(x=x)
    found = {entry["name"]: (entry["original_dtype"], entry["dtype"], entry["shape"]) for entry in entries(work / "odd")}
    whole = ("float32", "float32", [2, 3])
    expected = {name: whole for name in ("input", "/inner:input", "/inner", "/inner:repeat1:input", "/inner:repeat1")}
    expected = {f"odd/call000{'' if name[0] == '/' else ':'}{name}": value for name, value in expected.items()}
    expected["odd/call000:low"] = ("bfloat16", "float32", [2, 3])
    expected["odd/call000:truth"] = ("bool", "uint8", [2, 3])
    expected["odd/call000:complex"] = ("complex64", "float32", [2, 3, 2])
    expect("what was recorded", found, expected)
    first = np.load(work / "odd" / "odd/call000/inner.npy") if (work / "odd/odd/call000/inner.npy").exists() else np.zeros(1)
    expect("a tensor that was changed in place later", float(first.max()), 0.0)
    lines = {entry["name"]: entry["code"] for entry in entries(work / "odd")}
    expect("the line that changed it", lines["odd/call000/inner:repeat1:input"], "y.add_(1)")
    try:
        with record(model, work / "stopped", level="all"):
            model(x, mode="fail")
    except RuntimeError:
        pass
    manifest = json.loads((work / "stopped" / "manifest.json").read_text(encoding="utf-8"))
    expect("why it stopped", manifest["stopped"], "RuntimeError: on purpose")
    expect("what was recorded until then", manifest["checkpoints"][-1]["name"], "call000/inner:repeat1")
    try:
        with record(model, work / "nothing"):
            pass
    except ValueError as error:
        expect("a recording of nothing", "nothing was recorded" in str(error), True)
    else:
        raise SystemExit("a recording of nothing is no error")


def check_mlx(engine, work):
    """Classes that call the one above them, compiled functions, bfloat16; and a bug."""
    import mlx.core as mx
    import mlx.nn as nn
    from qwen_image.microscope import record

    class Inner(nn.Linear):
        def __call__(self, x):
            return super().__call__(x)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [Inner(8, 8), nn.Linear(8, 8)]
            self.factor = 1.0

        def __call__(self, x):
            for layer in self.layers:
                x = layer(x) * self.factor
            return x

    class Model(nn.Module):  # as mflux's: it cannot be called
        def __init__(self):
            super().__init__()
            self.block = Block()

    mx.random.seed(0)
    model = Model()
    calls = [cls.__dict__["__call__"] for cls in (nn.Linear, Inner, Block)]
    draw = mx.compile(lambda x: model.block(x))
    x = mx.random.normal((4, 8))
    plain = np.array(draw(x))
    for name, factor in (("ref", 1.0), ("port", 1.5)):
        model.block.factor = factor
        with record(model, work / name, "all"):
            recorded = np.array(model.block(x))
        if factor == 1.0:
            expect("what the model returns", np.allclose(plain, recorded, atol=1e-6), True)
    expect("classes as before", [cls.__dict__["__call__"] for cls in (nn.Linear, Inner, Block)] == calls, True)
    inner = ["block/call000/layers.0:input", "block/call000/layers.0", "block/call000/layers.1:input", "block/call000/layers.1"]
    names = [entry["name"] for entry in entries(work / "ref")]
    expect("names", names, ["block/call000:input", *inner, "block/call000"])
    report = compare_runs.compare(engine, work / "ref", work / "port")
    expect("first divergence", report["first_divergence"], "block/call000/layers.1:input")
    with record(model, work / "compiled", "all"):
        draw(x.astype(mx.bfloat16))
    expect("type", entries(work / "compiled")[0]["original_dtype"], "bfloat16")


CHECKS = {"torch": (check_plain_torch, check_torch_pipeline, check_torch_values), "mlx": (check_mlx,)}
# What docs/record.md calls the programs of each.
PROGRAMS = {"torch": ("plain.py", "pipeline.py"), "mlx": ("mlx_model.py", "mflux_model.py")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, type=Path, help="folder for the runs; is emptied")
    parser.add_argument("--engine", required=True, type=Path, help="the qwen-image program, which compares")
    parser.add_argument("--framework", choices=CHECKS, default="torch")
    args = parser.parse_args()
    environment.silence_progress_bars()
    engine, work = args.engine.resolve(), args.work.resolve() / args.framework
    sys.path.insert(0, str(engine.parent / "python"))
    typed = docs_check.check_programs(ROOT / "docs/record.md", work, engine, PROGRAMS[args.framework])
    for check in CHECKS[args.framework]:
        check(engine, work)
        print(f"{check.__name__}: passed")
    print(f"{typed} programs and commands of docs/record.md work")


if __name__ == "__main__":
    main()
