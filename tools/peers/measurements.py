"""The figures so far, kept on disk after every single run, so that an interrupted measurement goes on where it was."""

import copy
import json
import statistics
import time
from dataclasses import dataclass, field

from tools.peers import machine


@dataclass
class Measured:
    figures: dict  # seconds, or bytes where the name ends so
    command: list
    conditions: dict
    notes: dict = field(default_factory=dict)


class Measurements:
    def __init__(self, path):
        self.path = path
        self.machine = machine.describe()
        self.records = []
        if path.exists():
            self.records = json.loads(path.read_text(encoding="utf-8"))["measurements"]

    def start_anew(self):
        """The old figures are kept under another name."""
        if self.records:
            stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self.path.stat().st_mtime))
            self.path.rename(self.path.with_name(f"measurements-{stamp}.json"))
        self.records = []

    def those_of(self, is_wanted):
        """The records of some lines, to be read only."""
        some = copy.copy(self)
        some.records = [record for record in self.records if is_wanted(record["line"])]
        return some

    def drop(self, line):
        self.records = [record for record in self.records if record["line"] != line]

    def add(self, line, who, variant, measured):
        record = {
            "line": line,
            "who": who,
            "variant": variant,
            "figures": measured.figures,
            "conditions": measured.conditions,
            "notes": measured.notes,
            "command": " ".join(map(str, measured.command)),
        }
        self._append(record)

    def add_failure(self, line, who, variant, reason):
        self._append({"line": line, "who": who, "variant": variant, "failed": reason})

    def _append(self, record):
        key = ("line", "who", "variant")
        # What failed once and runs now has not failed.
        self.records = [r for r in self.records if "failed" not in r or any(r[k] != record[k] for k in key)]
        record |= {"when": time.strftime("%Y-%m-%d %H:%M:%S"), "machine": self.machine["cpu"]}
        self.records.append(record)
        text = json.dumps({"machine": self.machine, "measurements": self.records}, indent=1)
        unfinished = self.path.with_suffix(".unfinished")
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.rename(self.path)

    def of(self, line, who, variant=None):
        return [
            record
            for record in self.records
            if record["line"] == line and record["who"] == who and variant in (None, record["variant"])
            if "failed" not in record
        ]

    def failure(self, line, who):
        reasons = [r["failed"] for r in self.records if r["line"] == line and r["who"] == who and "failed" in r]
        return reasons[-1] if reasons else None

    def variants(self, line, who):
        return list(dict.fromkeys(record["variant"] for record in self.of(line, who)))

    def figure(self, line, who, variant, name):
        """All values of a figure, in the order in which they were measured."""
        return [record["figures"][name] for record in self.of(line, who, variant) if name in record["figures"]]

    def fastest(self, line, who, name, among=None):
        """The variant with the smallest median, or None; of those AMONG, or of all."""
        medians = self.medians(line, who, name, among)
        return min(medians, key=medians.get) if medians else None

    def winner(self, line, who, name, among=None):
        """The fastest of those that were measured most often: the one that was repeated."""
        medians = self.medians(line, who, name, among)
        runs = {variant: len(self.figure(line, who, variant, name)) for variant in medians}
        repeated = [variant for variant in medians if runs[variant] == max(runs.values())]
        return min(repeated, key=medians.get) if repeated else None

    def medians(self, line, who, name, among=None):
        names = self.variants(line, who) if among is None else among
        found = {variant: self.figure(line, who, variant, name) for variant in names}
        return {variant: statistics.median(values) for variant, values in found.items() if values}
