"""Runs a program and notes when it said what."""

import os
import pty
import re
import resource
import signal
import subprocess
import time
from dataclasses import dataclass

from tools.peers import machine


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


ESCAPES = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")


def read_lines(descriptor, start):
    """Lines as they come, without what only moves the cursor; a carriage return ends one too (progress bars)."""
    rest, began = b"", 0.0
    while chunk := read(descriptor):
        now = time.monotonic() - start
        began = began if rest else now  # a bar ends its line when it draws the next
        *complete, rest = re.split(rb"[\r\n]+", ESCAPES.sub(b"", rest + chunk))
        for line in complete:
            yield began, line.decode("utf-8", "replace")
            began = now
    if rest:
        yield began, rest.decode("utf-8", "replace")


def read(descriptor):
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # how a terminal says that nobody writes to it any more
        return b""


def run(command, until=None, env=None, terminal=False, data_limit=None, good=(0,)):
    """Runs COMMAND to its end, or until a line fits UNTIL: what comes after is of no interest and may take minutes.
    TERMINAL: the program believes that it writes to one, and shows its progress as it comes. DATA_LIMIT: bytes that it
    may have in its own memory, without mapped files (RLIMIT_DATA). GOOD: the exit codes that are no failure."""
    command = [str(word) for word in command]
    ours, theirs = pty.openpty() if terminal else os.pipe()
    limit = (lambda: resource.setrlimit(resource.RLIMIT_DATA, (data_limit, data_limit))) if data_limit else None
    watch, start = machine.Watch(), time.monotonic()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=env, preexec_fn=limit
    )
    os.close(theirs)
    lines, stopped = [], False
    for seconds, text in read_lines(ours, start):
        lines.append((seconds, text))
        if until and not stopped and re.search(until, text):
            process.send_signal(signal.SIGKILL)
            stopped = True
    os.close(ours)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    if process.returncode not in good and not stopped:
        tail = "\n".join(text for _, text in lines[-8:])
        raise ProgramFailed(f"{' '.join(command)} ended with {process.returncode}:\n{tail}")
    conditions = watch.finish(usage.ru_utime + usage.ru_stime)
    return Finished(command, lines, seconds, usage.ru_maxrss * 1024, conditions)
