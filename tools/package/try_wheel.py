#!/usr/bin/env python3
"""Installs a wheel in an empty environment and uses it: draws, edits, serves, and runs the module's tests.

    python -m tools.package.try_wheel build/package/qwen_image-*.whl [--python PYTHON]... [--wheels FOLDER]

Nothing is compiled, and nothing of the project is found by it but the tests. With --wheels NumPy and Pillow come from a
folder, for systems without a network.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PNG = b"\x89PNG\r\n\x1a\n"

# What of the package is loaded: the libraries must be those that the wheel brought.
LOADED = """
import qwen_image
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
for path in sorted(path for path in loaded if "qwen_image" in path or "libcrypto" in path or "libpng" in path):
    print(path)
"""


class Trial:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "environment/bin/python"
        clean = ("HOME", "TMPDIR", "LANG")
        self.environment = {name: os.environ[name] for name in clean if name in os.environ}
        # no compiler: whoever looks for one finds nothing
        self.environment |= {"PATH": str(self.python.parent), "XDG_CACHE_HOME": str(folder / "cache")}

    def run(self, *command: object, code: int = 0) -> str:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != code:
            shown = " ".join(map(str, command))
            raise SystemExit(f"{shown}\nended with {done.returncode}, expected was {code}:\n{done.stdout}")
        return done.stdout

    def install(self, python: str, wheel: Path, wheels: "Path | None") -> None:
        self.run(python, "-m", "venv", self.python.parents[1])
        source = ["--no-index", "--find-links", wheels] if wheels else []
        self.run(self.python, "-m", "pip", "install", "-q", "--only-binary", ":all:", *source, wheel)

    def try_module(self) -> None:
        outside = [
            path
            for path in self.run(self.python, "-c", LOADED).split()
            if ("qwen_image" in path or "libpng" in path) and str(self.folder) not in path
        ]
        if outside:
            raise SystemExit(f"these were loaded from outside of the environment: {outside}")
        self.environment["QWEN_IMAGE_PROGRAM"] = str(self.python.parent / "qwen-image")
        self.run(self.python, "-m", "unittest", "discover", "-s", PROJECT / "python/tests")

    def try_program(self) -> None:
        module = (self.python, "-m", "qwen_image")
        self.run(*module, "generate", "a red circle", "-q", "--steps=2", "-o", "circle.png")
        self.run(*module, "edit", "make it green", "-i", "circle.png", "-q", "--steps=2", "-o", "green.png")
        self.run(self.python.parent / "qwen-image", "generate", "a red circle", "-q", "--steps=2", "-o", "again.png")
        for name in ("circle.png", "green.png", "again.png"):
            if not (self.folder / name).read_bytes().startswith(PNG):
                raise SystemExit(f"{name} is no picture")
        # exit codes are the program's
        self.run(*module, "generate", "a red circle", "--size=100x100", "-q", code=2)
        self.run(*module, "generate", "a red circle", "--model=/no/such/model", "-q", code=3)

    def try_server(self) -> None:
        command = [str(self.python), "-m", "qwen_image", "serve", "--port=0"]
        server = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            address = ""
            for line in server.stdout or ():
                words = [word for word in line.split() if word.startswith("http://")]
                if words:
                    address = words[0].rstrip("/.,")
                    break
            if not address:
                raise SystemExit(f"the server does not say where it listens; it ended with {server.wait()}")
            body = b'{"prompt": "a red circle", "response_format": "b64_json", "steps": 2}'
            kind = {"Content-Type": "application/json"}
            asked = urllib.request.Request(address + "/v1/images/generations", body, kind)
            with urllib.request.urlopen(asked, timeout=120) as answer:
                if b"b64_json" not in answer.read():
                    raise SystemExit("the server's answer holds no picture")
        finally:
            server.send_signal(signal.SIGTERM)  # to the program itself, which took Python's place
            code = server.wait(60)
        if code != 0:
            raise SystemExit(f"the server ended with {code}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", action="append", default=[], help="default: the one that runs this")
    parser.add_argument("--wheels", type=Path, help="a folder with wheels of NumPy and Pillow")
    arguments = parser.parse_args()
    wheels = arguments.wheels.resolve() if arguments.wheels else None
    for python in arguments.python or [sys.executable]:
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(Path(folder))
            trial.install(python, arguments.wheel.resolve(), wheels)
            trial.try_module()
            trial.try_program()
            trial.try_server()
            version = trial.run(trial.python, "-c", "import sys; print(sys.version.split()[0])").strip()
        print(f"{arguments.wheel.name} works with Python {version}: tests, generate, edit, serve")


if __name__ == "__main__":
    main()
