"""The rows of the first table of docs/benchmarks_21.md."""

import statistics

from tools.peers.contestants import DIFFUSERS, ENGINE, FAST
from tools.peers.lines_21 import MEMORY_LIMIT, WITH, WITHOUT
from tools.peers.models_21 import Models21
from tools.peers.targets import Row, faster, memory, reason, spread

# Keys and values of the prompt, in fp32: 2 × 32 layers × 4096 numbers a token.
PREFIX_BYTES = Models21.text_tokens * 2 * 32 * 4096 * 4


def edit(m):
    row = Row("a step of an edit, 4 blocks, 4-bit, 1024×1024, a reference", "a step without it", "1.35 × at most")
    plain, edited = (m.figure("21-edit", who, FAST, "later_step") for who in (WITHOUT, WITH))
    if plain and edited:
        ratio = statistics.median(edited) / statistics.median(plain)
        row.records = m.of("21-edit", WITHOUT) + m.of("21-edit", WITH)
        row.ours, row.theirs, row.result, row.passed = spread(edited), spread(plain), f"{ratio:.2f} ×", ratio <= 1.35
    return row


def limited(m):
    row = Row("the same with a limit of 8 GB: peak memory", "the limit", "8 GB at most")
    if m.failure("21-8gb", ENGINE):
        row.ours, row.passed = f"failed: {reason(m, '21-8gb', ENGINE)}", False
    for record in m.of("21-8gb", ENGINE)[-1:]:
        peak = record["figures"]["peak_bytes"]
        row.ours = row.result = f"{peak / 1e9:.2f} GB"
        row.theirs, row.passed = f"{MEMORY_LIMIT / 1e9:.2f} GB", peak <= MEMORY_LIMIT
    return row


def all_rows(m):
    whole = "whole picture, 7 B Turbo, 4-bit, 1024×1024, 8 steps: peak memory"
    room = f"+ 1 GB + the prompt's keys and values ({PREFIX_BYTES / 1e9:.2f} GB) at most"
    return [
        faster(m, "a step, 4 blocks, 4-bit, 1024×1024", "21-blocks", "later_step", FAST, DIFFUSERS, 2.8, 4),
        faster(m, "VAE decode, 1024×1024, fp32", "21-vae", "decode", "fp32", DIFFUSERS, 3, 4.5),
        edit(m),
        memory(m, whole, "21-turbo", room, 1e9 + PREFIX_BYTES),
        limited(m),
    ]
