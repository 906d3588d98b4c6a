"""What this machine is, and whether others used it while something was measured."""

import os
import platform
import re
import time
from pathlib import Path

# More than this many cores' worth of foreign work during a run makes its figure doubtful.
FOREIGN_LIMIT = 0.1
TICKS = os.sysconf("SC_CLK_TCK")
FEATURES = ("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimd", "asimddp", "i8mm")


def describe():
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*: (.*)$", cpu, re.M)
    numbers = [re.search(rf"^{key}\s*: (\d+)$", cpu, re.M) for key in ("cpu family", "model")]
    flags = re.search(r"^(?:flags|Features)\s*: (.*)$", cpu, re.M)
    known = set(flags[1].split()) if flags else set()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": (model[1] if model else platform.machine())
        + (f" (family {numbers[0][1]}, model {numbers[1][1]})" if all(numbers) else ""),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9, 1),
        "features": [feature for feature in FEATURES if feature in known],
        "system": platform.system(),
    }


def busy_seconds():
    """Seconds of all cores that were not idle since the machine started, others' (steal) too."""
    fields = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / TICKS


class Watch:
    """Measures how many cores' worth of work others did: what was busy, less what the measured process used."""

    def __init__(self):
        self.load = [round(value, 2) for value in os.getloadavg()]
        self.start, self.busy = time.monotonic(), busy_seconds()

    def finish(self, own_cpu_seconds):
        seconds = time.monotonic() - self.start
        foreign = (busy_seconds() - self.busy - own_cpu_seconds) / max(seconds, 1e-9)
        return {"load": self.load, "foreign_cores": round(max(0.0, foreign), 2)}


def is_disturbed(conditions):
    return conditions["foreign_cores"] > FOREIGN_LIMIT
