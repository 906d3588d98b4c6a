"""A Python peer in a process of its own that loads its weights once and then answers one request a line, so that runs
can alternate with other programs' without loading gigabytes between them."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from tools.peers import machine
from tools.peers.process import ProgramFailed


class Worker:
    """The near end."""

    def __init__(self, script, log, threads):
        self.script = script
        self.log = open(log, "ab")
        env = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"tools.peers.{script}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=env,
        )

    def ask(self, work, **options):
        """The answer, with the conditions it was computed under."""
        watch = machine.Watch()
        try:
            self.process.stdin.write(json.dumps({"work": work, **options}).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the reason is in the log
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"it ended; see {self.log.name}"}
        if "error" in answer:
            raise ProgramFailed(f"{self.script}: {work}: {answer['error']}")
        answer["conditions"] = watch.finish(answer.pop("cpu_seconds"))
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.log.close()


def peak_bytes():
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def forget_peak():
    """From here on the peak is that of the work: what loading needed for a moment is not held against a peer."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def serve(handlers):
    """The far end: calls handlers[work](**options) for each line; what they return is the answer."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries that print do not disturb the answers
    for line in sys.stdin:
        request = json.loads(line)
        before = cpu_seconds()
        try:
            answer = handlers[request.pop("work")](**request) or {}
        except Exception as error:  # the far end's whole purpose is to tell
            answer = {"error": f"{type(error).__name__}: {error}"}
        answer |= {"cpu_seconds": cpu_seconds() - before, "peak_bytes": peak_bytes()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def timed(function):
    start = time.monotonic()
    function()
    return time.monotonic() - start
