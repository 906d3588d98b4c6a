"""docs/benchmarks_21.md from the measurements."""

from pathlib import Path

from tools.peers import targets_21
from tools.peers.contestants import FAST
from tools.peers.tables import disturbed_text, engine_command, line_table, machine_text, target_table, versions, whole_picture_text

PAGE = Path(__file__).resolve().parent / "page_21.md"  # the words around the tables
NAME = "benchmarks_21.md"


def write(m, docs):
    text = PAGE.read_text(encoding="utf-8").format(
        machine=machine_text(m, versions(("diffusers", "torch"))),
        disturbed=disturbed_text(m),
        targets=target_table(targets_21.all_rows(m)),
        command=engine_command(m, "21-blocks", FAST),
        blocks=line_table(m, "21-blocks", ["later_step", "peak_bytes"]),
        edit=line_table(m, "21-edit", ["later_step", "peak_bytes"]),
        vae=line_table(m, "21-vae", ["decode", "peak_bytes"]),
        turbo=whole_picture_text(m, "21-turbo"),
        limited=whole_picture_text(m, "21-8gb"),
    )
    docs.mkdir(parents=True, exist_ok=True)
    (docs / NAME).write_text(text, encoding="utf-8")
