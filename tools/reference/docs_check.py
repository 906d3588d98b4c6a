"""Types what the documents show in Python: the commands of docs/debugging.md and of skills/, whose run the engine repeats, and
the programs of docs/record.md."""

import os
import re
import shlex
import shutil
import subprocess
import sys

from tools.reference.case_list import ROOT

PYTHON = ".venv/bin/python "
PROGRAM = "build/release/qwen-image "


def commands(document):
    fenced, found = False, []
    for line in document.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced and line.startswith(PYTHON):
            found.append(line)
    return found


def begin(work):
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name in ("tools", "models"):
        (work / name).symlink_to(ROOT / name)


def check(work, engine):
    """Raises unless every command works; returns how many there were."""
    begin(work)
    found = []
    for document in (ROOT / "docs" / "debugging.md", *sorted(ROOT.glob("skills/*/SKILL.md"))):
        shown = commands(document)
        if not shown:
            raise SystemExit(f"{document} shows no Python command any more")
        found += [line for line in shown if line not in found]
    typed = [[sys.executable, *shlex.split(line)[1:]] for line in found]
    typed.append([str(engine), "--debug=circle", "--checkpoints=all", "generate", "--model=models/tiny", "--output=out.png"])
    for command in typed:
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{shlex.join(command)} failed ({done.returncode}):\n{done.stderr.strip()}")
    return len(found)


def check_programs(document, work, engine, programs):
    """Writes the PROGRAMS that DOCUMENT shows, each with its name in the first line, and runs them; then the engine's commands
    of the blocks that run one of them. Raises unless all end as the document says; returns how many there were."""
    begin(work)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    shown = {text.partition("\n")[0].removeprefix("# "): text for kind, text in blocks if kind == "python"}
    # With the settings of this shell and the package that was built beside the engine.
    environment = {**os.environ, "PYTHONPATH": str(engine.parent / "python")}
    typed = []
    for name in programs:
        (work / name).write_text(shown[name], encoding="utf-8")
        lines = next((text.splitlines() for kind, text in blocks if not kind and f"{PYTHON}{name}" in text), [f"{PYTHON}{name}"])
        typed += [line for line in lines if line.startswith((PYTHON, PROGRAM))]
    for line in typed:
        command, _, expected = line.partition("# exit ")
        words = shlex.split(command)
        words[0] = sys.executable if line.startswith(PYTHON) else str(engine)
        done = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != int(expected or 0):
            raise SystemExit(f"{line} ended with {done.returncode}:\n{done.stdout}\n{done.stderr.strip()}")
    return len(typed)
