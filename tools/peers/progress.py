"""One line when something begins that may take more than two seconds, and one when it has ended."""

import contextlib
import sys
import time


def say(text):
    print(f"peers: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress(text):
    say(f"{text} …")
    start = time.monotonic()
    yield
    seconds = time.monotonic() - start
    if seconds > 2:
        say(f"{text}: {seconds:.0f} s")
