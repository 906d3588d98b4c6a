"""Types the Python commands of docs/debugging.md, and has the engine repeat the run that they export."""

import shlex
import shutil
import subprocess
import sys

from tools.reference.case_list import ROOT

PYTHON = ".venv/bin/python "


def commands(document):
    fenced, found = False, []
    for line in document.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced and line.startswith(PYTHON):
            found.append(line)
    return found


def check(work, engine):
    """Raises unless every command works; returns how many there were."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name in ("tools", "models"):
        (work / name).symlink_to(ROOT / name)
    found = commands(ROOT / "docs" / "debugging.md")
    if not found:
        raise SystemExit("docs/debugging.md shows no Python command any more")
    typed = [[sys.executable, *shlex.split(line)[1:]] for line in found]
    typed.append([str(engine), "--debug=circle", "--checkpoints=all", "generate", "--model=models/tiny", "--output=out.png"])
    for command in typed:
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{shlex.join(command)} failed ({done.returncode}):\n{done.stderr.strip()}")
    return len(found)
