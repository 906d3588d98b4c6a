"""What is measured of Qwen-Image-2.1. Its steps behind the first find the keys and values of prompt and references
ready, so these are what is compared."""

import os

from tools.peers import diffusers_peer
from tools.peers.contestants import DIFFUSERS, ENGINE, FAST
from tools.peers.lines import Contestant, Line, Variant, engine_blocks

BLOCKS, SIDE, STEPS = 4, 1024, 3
WITHOUT, WITH = "without a reference", "with one of 1024×1024"
MEMORY_LIMIT = 8_000_000_000


def prepare(models):
    """Writes the weights of all lines."""
    models.full(), models.short_text_encoder(), models.small_vae(), models.picture(SIDE)
    models.transformer(1), models.transformer_bf16(BLOCKS)


def engine_steps(bench, seconds, who=ENGINE, **options):
    return engine_blocks(bench, FAST, seconds, BLOCKS, SIDE, who, steps=STEPS, figure="later_step", **options)


def blocks(bench):
    theirs = Variant(
        diffusers_peer.VARIANT, lambda: bench.diffusers_blocks(SIDE, work="later_step", figure="later_step")
    )
    return Line(
        "21-blocks",
        f"2.1: {BLOCKS} blocks, {SIDE}×{SIDE} (4096 + 26 tokens): seconds of a step behind the first",
        3,
        [engine_steps(bench, 60), Contestant(DIFFUSERS, [theirs], 60)],
        figure="later_step",
    )


def edit(bench):
    return Line(
        "21-edit",
        f"2.1: {BLOCKS} blocks, {SIDE}×{SIDE}, with and without a reference: seconds of a step behind the first",
        3,
        [engine_steps(bench, 60, WITHOUT), engine_steps(bench, 130, WITH, reference=SIDE)],
        figure="later_step",
    )


def vae(bench):
    ours = Variant("fp32", lambda: bench.run_engine(bench.engine.decode, SIDE))
    theirs = Variant(diffusers_peer.VARIANT, lambda: bench.diffusers_vae(SIDE, ["decode"]))
    return Line(
        "21-vae",
        f"2.1: VAE decode, {SIDE}×{SIDE}, fp32: seconds",
        2,
        [Contestant(ENGINE, [ours], 50), Contestant(DIFFUSERS, [theirs], 200)],
        figure="decode",
    )


def turbo(bench):
    measure = lambda: bench.whole_picture(bench.engine.official, SIDE)  # noqa: E731
    return Line(
        "21-turbo",
        f"2.1-Turbo: a whole picture, 7 B, 4-bit, {SIDE}×{SIDE}, 8 steps",
        1,
        [Contestant(ENGINE, [Variant(FAST, measure)], 1200)],
        figure="total",
    )


def limited(bench):
    def measure():
        forget_files(bench.models.full())
        return bench.whole_picture(bench.engine.official, SIDE, data_limit=MEMORY_LIMIT)

    return Line(
        "21-8gb",
        "2.1-Turbo: the same with a limit of 8 GB, weights not in the page cache",
        1,
        [Contestant(ENGINE, [Variant(FAST, measure)], 1230)],
        figure="total",
    )


def forget_files(folder):
    """Out of the page cache, which a machine of 8 GB has no room for them in."""
    for path in folder.rglob("*.safetensors"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def all_lines(bench):
    return [blocks(bench), edit(bench), vae(bench), turbo(bench), limited(bench)]
