"""Plants bugs in diffusers, one at a time, and counts what `qwen-image compare` makes of them.

    python -m tools.planted_bugs.check --engine build/release/qwen-image --work DIR [--bug NAME]...

Each run is a real one of the official pipeline with models/tiny, recorded as tools.reference.export records, and compared with a
run of the untouched pipeline. The first divergence must be where the bug is, and the first hint must not name another cause.
Runs that are right, in float32 and in lower precisions, must pass.
"""

import argparse
import contextlib
import gc
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tools.planted_bugs import other_bugs, transformer_bugs
from tools.planted_bugs.planting import Bug, planted
from tools.reference import compare_runs, environment, export, official_pipelines, random_model, random_spec
from tools.reference.checkpoint_choice import CheckpointChoice
from tools.reference.checkpoint_store import CheckpointStore

BUGS = transformer_bugs.BUGS + other_bugs.BUGS
SETTINGS = ["--prompt=a red circle on a blue background", "--negative-prompt= ", "--width=64", "--height=48", "--steps=4", "--cfg=4"]
# Hints that say that no cause was found.
NEUTRAL = ("no_relation", "not_tested")
LEAST_NAMED = 0.9


def draw(args, dtype, change: Callable[[Any], None] | None = None):
    """One run of the official pipeline, CHANGEd first."""
    args.dtype = {value: key for key, value in export.DTYPES.items()}.get(dtype, str(dtype).removeprefix("torch."))
    pipe = export.load_pipeline(args, dtype)
    if change:
        change(pipe)
    with CheckpointStore(args.out, overwrite=True) as store:
        image = export.run_pipeline(args, pipe, store, CheckpointChoice(args.checkpoints))
        store.write_manifest({**export.pipeline_facts(args, image), **export.common_facts(args)})
    # Hooks and modules hold each other; the next model must find the memory free.
    del pipe
    gc.collect()


def arguments(model, seed, folder):
    return export.parse_arguments([f"--model={model}", f"--seed={seed}", f"--out={folder}", "--checkpoints=all", "--overwrite", *SETTINGS])


# ── Bugs ──


def check_bug(engine, work, reference, model, bug: Bug):
    """What was found: (first divergence, kind of the first hint or "")."""
    run = work / "bug"
    with planted(bug):
        draw(arguments(model, 0, run), torch.float32, bug.change)
    report = compare_runs.compare(engine, reference, run)
    first = report["first_divergence"]
    hints: list[dict[str, Any]] = next((row.get("hints", []) for row in report["checkpoints"] if row["name"] == first), [])
    return first, hints[0]["kind"] if hints else ""


def check_bugs(engine, work, reference, model, bugs):
    """True if all are found where they are, none has a wrong name, and enough have the right one."""
    counts = {"found": 0, "named": 0, "wrong": 0, "hidden": 0}
    for bug in bugs:
        first, kind = check_bug(engine, work, reference, model, bug)
        found, named = first == bug.checkpoint, kind in bug.kinds
        wrong = bool(kind) and not named and kind not in NEUTRAL
        counts["found"] += found
        counts["named"] += found and named
        counts["wrong"] += wrong
        counts["hidden"] += not bug.kinds
        verdict = "named" if found and named else "WRONG HINT" if wrong else "not named" if bug.kinds else "behind a matrix"
        print(f"{bug.name:32} {'' if found else 'NOT FOUND, but at '}{first}  {kind or '–'}  {verdict}", flush=True)
    print(
        f"{len(bugs)} bugs: {counts['found']} found where they are, {counts['named']} named, {counts['hidden']} behind a matrix that "
        f"no run holds, {counts['wrong']} with a wrong first hint"
    )
    return counts["found"] == len(bugs) and not counts["wrong"] and counts["named"] >= LEAST_NAMED * (len(bugs) - counts["hidden"])


# ── Runs that are right ──


def written_out(query, key, value, **_options):
    """The attention as one would write it: [batch, tokens, heads, dim]."""
    q, k, v = (x.float().transpose(1, 2) for x in (query, key, value))
    weights = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return (torch.softmax(weights, dim=-1) @ v).transpose(1, 2).to(query.dtype)


@contextlib.contextmanager
def own_attention() -> Iterator[None]:
    from diffusers.models.transformers import transformer_qwenimage

    with official_pipelines.replaced(transformer_qwenimage, "dispatch_attention_fn", written_out):
        yield


@contextlib.contextmanager
def two_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


WAYS = {"plain": contextlib.nullcontext, "two threads": two_threads, "attention written out": own_attention}


def check_right_runs(engine, work, reference, model, seed):
    """How many were run, and the alarms."""
    alarms, runs = [], 0
    for dtype in (torch.float32, torch.bfloat16):
        for name, way in WAYS.items():
            run = work / "right"
            with way():
                draw(arguments(model, seed, run), dtype)
            report = compare_runs.compare(engine, reference, run)
            runs += 1
            if not report["passed"]:
                alarms.append(f"{model.name}, seed {seed}, {dtype}, {name}: {report['first_divergence']}")
    return runs, alarms


def check_alarms(engine, work, references):
    runs, alarms = 0, []
    for reference, model, seed in references:
        more, found = check_right_runs(engine, work, reference, model, seed)
        runs, alarms = runs + more, alarms + found
    for alarm in alarms:
        print(f"FALSE ALARM: {alarm}")
    print(f"{runs} right runs in float32 and bfloat16: {len(alarms)} false alarms")
    return not alarms


def chosen(names):
    bugs = [bug for bug in BUGS if not names or bug.name in names]
    unknown = set(names) - {bug.name for bug in bugs}
    if unknown:
        raise SystemExit(f"no such bug: {', '.join(sorted(unknown))}; there are {', '.join(bug.name for bug in BUGS)}")
    return bugs


def reference_of(work, model, seed):
    folder = work / f"ref-{model.name}-{seed}"
    export.export([f"--model={model}", f"--seed={seed}", f"--out={folder}", "--checkpoints=all", "--overwrite", *SETTINGS])
    return folder, model, seed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True, type=Path, help="the qwen-image program, which compares")
    parser.add_argument("--work", required=True, type=Path, help="folder for the runs")
    parser.add_argument("--bug", action="append", default=[], help="only this one (may be repeated), and no right runs")
    args = parser.parse_args()
    environment.silence_progress_bars()
    torch.set_num_threads(1)  # for a model this small more cost more
    engine, work, tiny = args.engine.resolve(), args.work.resolve(), export.EMBEDDED_MODEL
    bugs = chosen(args.bug)
    shutil.rmtree(work, ignore_errors=True)
    references = [reference_of(work, tiny, 0)]
    passed = check_bugs(engine, work, *references[0][:2], bugs)
    if not args.bug:
        odd = work / "odd"
        random_model.write_model(odd, random_spec.make("odd"))
        references += [reference_of(work, tiny, 1), reference_of(work, odd, 0)]
        passed = check_alarms(engine, work, references) and passed
    if not passed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
