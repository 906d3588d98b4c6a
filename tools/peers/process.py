"""Runs a program and notes when it said what."""

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass

import machine


class ProgramFailed(Exception):
    pass


@dataclass
class Finished:
    command: list
    lines: list  # (seconds since the start, text)
    seconds: float
    peak_bytes: int
    conditions: dict

    def find(self, pattern):
        """The first line that fits, as (seconds, match)."""
        for seconds, text in self.lines:
            match = re.search(pattern, text)
            if match:
                return seconds, match
        raise ProgramFailed(f"{' '.join(self.command)}: no line fits {pattern!r}; its last: {self.lines[-3:]}")


def read_lines(descriptor, start):
    """Lines as they come; a carriage return ends one too (progress bars)."""
    rest = b""
    while chunk := os.read(descriptor, 1 << 16):
        now = time.monotonic() - start
        *complete, rest = re.split(rb"[\r\n]+", rest + chunk)
        for line in complete:
            yield now, line.decode("utf-8", "replace")
    if rest:
        yield time.monotonic() - start, rest.decode("utf-8", "replace")


def run(command, until=None, env=None):
    """Runs COMMAND to its end, or until a line fits UNTIL: what comes after is of no interest and may take minutes."""
    command = [str(word) for word in command]
    watch, start = machine.Watch(), time.monotonic()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
    )
    lines, stopped = [], False
    for seconds, text in read_lines(process.stdout.fileno(), start):
        lines.append((seconds, text))
        if until and not stopped and re.search(until, text):
            process.send_signal(signal.SIGKILL)
            stopped = True
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    if process.returncode and not stopped:
        tail = "\n".join(text for _, text in lines[-8:])
        raise ProgramFailed(f"{' '.join(command)} ended with {process.returncode}:\n{tail}")
    conditions = watch.finish(usage.ru_utime + usage.ru_stime)
    return Finished(command, lines, seconds, usage.ru_maxrss * 1024, conditions)
