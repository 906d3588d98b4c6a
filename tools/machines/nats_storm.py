"""Jobs on a NATS server while workers and the server are killed at random moments.

    python3 -m tools.machines.nats_storm build/release/qwen-image [--jobs 200] [--workers 3] [--seed 1] [--objects]

At the end every job's picture is there once, and equal to the picture that `generate` draws alone. Workers store
pictures in a folder that they share, with --objects on the server. Needs nats-server and Pillow. A job that was hit by
three kills is set aside, as it is meant to be; it is sent again then.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

LONGEST = 1200  # seconds


class Storm:
    def __init__(self, options: argparse.Namespace, folder: Path):
        self.program = str(Path(options.program).resolve())
        self.options = options
        self.folder = folder
        self.random = random.Random(options.seed)
        self.server: subprocess.Popen[bytes] | None = None
        self.port = -1
        self.workers: list[subprocess.Popen[bytes]] = []
        self.kills = {"worker": 0, "server": 0}

    def start_server(self) -> None:
        log = self.folder / "nats.log"
        program = shutil.which("nats-server", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if not program:
            sys.exit("nats-server is missing (Debian's package nats-server)")
        begin = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self.server = subprocess.Popen(
                [program, "-js", "-sd", "kept", "-a", "127.0.0.1", "-p", str(self.port)],
                cwd=self.folder,
                stdout=output,
                stderr=output,
            )
        while b"Server is ready" not in log.read_bytes()[begin:]:
            if self.server.poll() is not None:
                sys.exit(f"nats-server did not start:\n{log.read_text()}")
            time.sleep(0.01)
        if self.port < 0:
            text = log.read_text().split("client connections on 127.0.0.1:")[1]
            self.port = int(text.split()[0])

    def at_server(self) -> list[str]:
        return ["--nats", f"nats://127.0.0.1:{self.port}"]

    def start_worker(self) -> subprocess.Popen[bytes]:
        where = [] if self.options.objects else ["--results", "pictures"]
        with (self.folder / "workers.log").open("ab") as output:
            return subprocess.Popen(
                [self.program, "work", "--threads", "1", "--dead-after", "1", "--resume-dir", "states"]
                + self.at_server()
                + where,
                cwd=self.folder,
                stdout=output,
                stderr=output,
            )

    def hit(self) -> None:
        """Kills one of those that are there, and starts another."""
        victim = self.random.randrange(len(self.workers) + 1)
        if victim < len(self.workers):
            self.workers[victim].send_signal(signal.SIGKILL)
            self.workers[victim].wait()
            self.workers[victim] = self.start_worker()
            self.kills["worker"] += 1
        elif self.server:
            self.server.send_signal(signal.SIGKILL)
            self.server.wait()
            time.sleep(self.random.uniform(0, 1))
            self.start_server()
            self.kills["server"] += 1
        # A worker that starts while there is no server says so and ends.
        self.workers = [w if w.poll() is None else self.start_worker() for w in self.workers]

    def submit(self, more: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, "submit", "jobs.jsonl"] + self.at_server() + more,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def draw_all(self, count: int) -> None:
        """Until all are drawn: what is sent again is not drawn again."""
        end = time.monotonic() + LONGEST
        hits = 0
        drawn = 0
        while drawn < count:
            if time.monotonic() > end:
                sys.exit(f"only {drawn} of {count} jobs were drawn in {LONGEST} s; see {self.folder}")
            time.sleep(self.random.uniform(0.05, 0.6))
            if hits < self.options.kills:
                self.hit()
                hits += 1
            result = self.submit([])
            drawn = result.stdout.count("is drawn already")

    def close(self) -> None:
        for process in [*self.workers, self.server]:
            if process:
                process.kill()
                process.wait()


def jobs_of(count: int, seed: int) -> list[dict[str, object]]:
    shapes = random.Random(seed)
    prompts = ["a red circle", "two blue stars", "a green heart on a white background", "a cross"]
    return [
        {
            "prompt": shapes.choice(prompts),
            "width": shapes.choice([64, 128, 192]),
            "height": shapes.choice([64, 128]),
            "steps": shapes.randint(2, 60),
            "seed": number,
        }
        for number in range(count)
    ]


def draw_alone(program: str, job: dict[str, object], file: Path) -> None:
    size = f"{job['width']}x{job['height']}"
    command = [program, "generate", str(job["prompt"]), "--size", size, "--steps", str(job["steps"])]
    subprocess.run([*command, "--seed", str(job["seed"]), "-q", "-o", str(file)], check=True)


def check(storm: Storm, jobs: list[dict[str, object]]) -> None:
    pictures = storm.folder / "pictures"
    if storm.options.objects:
        result = storm.submit(["--fetch", "pictures"])
        assert result.returncode == 0, result.stderr
    files = sorted(pictures.glob("*.png"))
    assert len(files) == len(jobs), f"{len(files)} pictures of {len(jobs)} jobs"
    seeds = set()
    for file in files:
        with Image.open(file) as image:
            record = json.loads(image.info["qwen-image"])
            job = jobs[record["seed"]]
            assert record["prompt"] == job["prompt"] and record["steps"] == job["steps"], record
            alone = storm.folder / "alone.png"
            draw_alone(storm.program, job, alone)
            with Image.open(alone) as expected:
                assert image.tobytes() == expected.tobytes(), f"{file}: another picture than alone"
        seeds.add(record["seed"])
    assert seeds == set(range(len(jobs)))
    left = list((storm.folder / "states").glob("*"))
    print(f"{len(left)} states of killed runs are left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--objects", action="store_true", help="pictures in the object store, not in a folder")
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nats_storm_") as folder:
        storm = Storm(options, Path(folder))
        try:
            jobs = jobs_of(options.jobs, options.seed)
            (storm.folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
            storm.start_server()
            sent = storm.submit(["-q"])
            assert sent.returncode == 0, sent.stderr
            storm.workers = [storm.start_worker() for _ in range(options.workers)]
            storm.draw_all(len(jobs))
            check(storm, jobs)
        except BaseException:
            print((storm.folder / "workers.log").read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            storm.close()
        said = (storm.folder / "workers.log").read_text() if (storm.folder / "workers.log").exists() else ""
    for line in said.splitlines():
        if "set aside" in line:
            print(line)
    aside, tries = said.count("set aside after"), said.count("(try ")
    print(
        f"{len(jobs)} jobs, each drawn once and equal to its picture drawn alone; {storm.kills['worker']} workers and "
        f"the server {storm.kills['server']} times killed, {tries} jobs begun again, {said.count('goes on after step')} "
        f"of them in the middle, {aside} set aside; {time.monotonic() - begin:.0f} s"
    )


if __name__ == "__main__":
    main()
