"""Measures what the network costs when two machines draw one picture, and compares it with a cost model.

    python -m tools.machines.network PROGRAM [--model DIR] [--rates 100,300,1000,none] [--sizes 512x512] [--json FILE]

The machines are network namespaces of this one, with a core each. Their links have a bandwidth and a delay (tc). PROGRAM needs the
plugin for Open MPI beside it (./run build --mpi). Three things come out:

  bytes     that the interfaces counted, against those that the model computes from sizes
  seconds   of a step at each bandwidth and for each way of splitting, against the model. What it knows of computing is measured
            with one process alone on one core; what it knows of the network is the bandwidth that was set, and the latency of the
            embedded model's small messages. Nothing is fitted to the steps that it is compared with
  a table   that the model computes for other machines and networks and the model of full size

Needs root, iproute2, Open MPI and a machine that has nothing else to do. Without --model it writes synthetic weights of full width
(needs numpy, 2 GB). It makes no connection to anything outside its namespaces.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.compare_programs import same_speed
from tools.machines import cost
from tools.machines.namespaces import ROOT, Network, NetworkError, missing
from tools.peers import machine

TINY = ROOT / "models" / "tiny"
TINY_SIZE = "64x64"
# The prompt of `qwen-image bench`'s first picture.
PROMPT = "a red circle on a blue background, picture 1"
TOKEN_SIDE = 16  # pixels of a picture's side
PROBE_BYTES = 10_000_000
TIMEOUT = 900
AIM = 0.15
# A run during which others took more of the processor (in cores) is done again, so many times. What the kernel does for the network
# counts as theirs.
FOREIGN_LIMIT = 0.25
MOST_TRIES = 3
MEGA, GIGA = 1e6, 1e9

# Of the computed table.
FULL_BLOCKS = 60
MACHINES = (2, 4, 8, 16)
CORES = (2, 16, 64)
NETWORKS = (1, 10, 100)  # Gbit/s
LAYERS_CORES = (2, 16)
TABLE_SIDES = (512, 1024)
# Bytes per second that a machine with so many cores reads from memory: assumed.
MEMORY_RATE = {2: 25e9, 16: 100e9, 64: 300e9}


class Program:
    def __init__(self, program: Path, scratch: Path) -> None:
        self.program = program.resolve(strict=True)
        self.environment = {"HOME": str(scratch), "XDG_CACHE_HOME": str(scratch / "cache")}
        self.scratch = scratch

    def bench(self, model: Path, sizes: list[str], steps: int, cfg: float, extra: tuple[str, ...] = ()) -> list[str]:
        words = [str(self.program), "bench", "-m", str(model), "--sizes", ",".join(sizes), "--steps", str(steps), "--cfg", str(cfg)]
        return [*words, "-t", "1", "--json", "--profile", "-q", *extra]

    def start_alone(self, command: list[str], core: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["taskset", "--cpu-list", str(core), *command],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            text=True,
        )

    def alone(self, command: list[str], cores: tuple[int, ...] = (0,)) -> list[Any]:
        """The pictures of the first of as many processes at once as there are cores."""
        started = [self.start_alone(command, core) for core in cores]
        outputs = [process.communicate(timeout=TIMEOUT)[0] for process in started]
        if any(process.returncode != 0 for process in started):
            raise NetworkError(f"{' '.join(command)} failed")
        pictures: list[Any] = json.loads(outputs[0])["pictures"]
        return pictures

    def prompt_tokens(self, model: Path) -> tuple[int, int]:
        """Of the prompt that bench draws, and of the negative one, as the transformer sees them."""
        words = [str(self.program), "--artifacts", str(self.scratch / "artifacts"), "--debug=tokens", "--checkpoints", "boundaries"]
        words += ["generate", PROMPT, "-m", str(model), "--size", TINY_SIZE, "--steps", "1", "--cfg", "4", "-q", "--no-prompt-cache"]
        words += ["-o", str(self.scratch / "tokens.png")]
        subprocess.run(words, check=True, capture_output=True, env={**os.environ, **self.environment})
        manifest = json.loads((self.scratch / "artifacts" / "tokens" / "cpp" / "manifest.json").read_text(encoding="utf-8"))
        shapes = {checkpoint["name"]: checkpoint["shape"] for checkpoint in manifest["checkpoints"]}
        return shapes["prompt_embeds"][1], shapes["negative_prompt_embeds"][1]


def children_seconds() -> float:
    """Processor time of all processes that this one has waited for, and theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def side_of(size: str) -> int:
    width, height = (int(side) for side in size.split("x"))
    if width != height:
        raise SystemExit(f"{size}: only squares")
    return width


def sizes_of(model: Path, side: int, prompts: tuple[int, ...]) -> cost.Sizes:
    config = json.loads((model / "transformer" / "config.json").read_text(encoding="utf-8"))
    return cost.Sizes(
        blocks=config["num_layers"],
        heads=config["num_attention_heads"],
        head_dim=config["attention_head_dim"],
        channels=config["in_channels"],
        picture=(side // TOKEN_SIDE) ** 2,
        prompts=prompts,
    )


def per_step(picture: Any) -> float:
    return float(picture["seconds"]["per_step"])


def exchange_per_step(picture: Any) -> float:
    return float(picture["profile_microseconds"]["transformer"].get("exchange", 0)) / 1e6 / int(picture["steps"])


class Measurement:
    def __init__(self, options: argparse.Namespace, program: Program, model: Path) -> None:
        self.options = options
        self.program = program
        self.model = model
        self.tokens = program.prompt_tokens(model)
        self.tiny_tokens = program.prompt_tokens(TINY)
        self.sides = [side_of(size) for size in options.sizes.split(",")]
        self.latency = 0.0
        self.computing = cost.Computing(0, 0, 0)
        self.result: dict[str, Any] = {"machine": machine.describe(), "tokens": self.tokens, "machines": options.machines}

    def prompts(self, way: cost.Way) -> tuple[int, ...]:
        return self.tokens if way.cfg > 1 else self.tokens[:1]

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def measure_computing(self) -> None:
        """One process alone on one core, cfg 1, three sizes; then as many at once as there are machines."""
        sides = [int(side) for side in self.options.alone.split(",")]
        self.say("computing, one process alone")
        names = [TINY_SIZE, *(f"{side}x{side}" for side in sides)]
        pictures = self.program.alone(self.program.bench(self.model, names, 2, 1))[1:]
        points = [((side // TOKEN_SIDE) ** 2 + self.tokens[0], per_step(picture)) for side, picture in zip(sides, pictures)]
        sizes = sizes_of(self.model, self.sides[0], self.tokens[:1])
        self.computing = cost.fit(points, sizes.blocks)
        self.result["alone"] = [{"tokens": tokens, "seconds": seconds} for tokens, seconds in points]
        name = f"{self.sides[0]}x{self.sides[0]}"
        cores = tuple(machine % (os.cpu_count() or 1) for machine in range(self.options.machines))
        self.say("computing, one process on each core")
        together = per_step(self.program.alone(self.program.bench(self.model, [TINY_SIZE, name], 2, 1), cores)[1])
        once = cost.computing_seconds(cost.alone(sizes), self.computing)
        self.result["neighbours"] = {"alone": once, "together": together, "factor": together / once}

    def measure_latency(self, network: Network) -> None:
        """By the embedded model, whose messages are small: the seconds that its steps take longer, for each message."""
        command = self.program.bench(TINY, [TINY_SIZE, TINY_SIZE], 50, 1)
        network.limit(None)
        alone = per_step(self.program.alone(command)[1])
        split = per_step(json.loads(network.run(command, self.program.environment, TIMEOUT))["pictures"][1])
        sizes = sizes_of(TINY, side_of(TINY_SIZE), self.tiny_tokens[:1])
        messages = sum(phase.count * phase.messages for phase in cost.sequence(sizes, network.machines))
        self.latency = max(0.0, split - alone) / messages
        self.result["latency"] = {"alone": alone, "split": split, "messages": messages, "seconds": self.latency}

    def step(self, network: Network, way: cost.Way, side: int, steps: int, warm: bool) -> tuple[Any, int]:
        """The picture, and the bytes of the whole run."""
        names = [TINY_SIZE] * warm + [f"{side}x{side}"]
        before = network.sent_bytes()
        out = network.run(self.program.bench(self.model, names, steps, way.cfg, way.arguments), self.program.environment, TIMEOUT)
        return json.loads(out)["pictures"][-1], network.sent_bytes() - before

    def measure_bytes(self, network: Network, ways: list[cost.Way]) -> None:
        """The difference of two runs with other numbers of steps: what the start takes is not counted."""
        network.limit(None)
        self.result["bytes"] = []
        for way in ways:
            self.say(f"bytes: {way.name}")
            first, second = (self.step(network, way, self.sides[0], steps, False)[1] for steps in (1, 3))
            computed = cost.volume(way.phases(sizes_of(self.model, self.sides[0], self.prompts(way)), network.machines))
            counted = (second - first) / 2
            self.result["bytes"].append({"way": way.name, "side": self.sides[0], "counted": counted, "computed": computed})

    def measure_steps(self, network: Network, ways: list[cost.Way]) -> None:
        self.result["links"], self.result["steps"] = [], []
        for text in self.options.rates.split(","):
            rate = None if text == "none" else float(text)
            network.limit(rate * MEGA if rate else None)
            probe = network.probe(PROBE_BYTES)
            self.result["links"].append({"megabits": rate, "tcp_latency": probe["latency"], "tcp_rate": probe["rate"]})
            # The links without a limit: only what a plain connection reaches says how fast they are.
            link = cost.Network(self.latency, cost.payload_rate(rate * MEGA) if rate else probe["rate"])
            for way in ways:
                for side in self.sides:
                    self.measure_step(network, way, side, rate, link)

    def measure_step(self, network: Network, way: cost.Way, side: int, rate: float | None, link: cost.Network) -> None:
        self.say(f"{way.name}, {side}x{side}, {f'{rate:g} Mbit/s' if rate else 'no limit'}")
        runs = []
        for _ in range(MOST_TRIES * self.options.repeat):
            watch, own = machine.Watch(), children_seconds()
            picture = self.step(network, way, side, self.options.steps, True)[0]
            runs.append((watch.finish(children_seconds() - own)["foreign_cores"], picture))
            if sum(foreign <= FOREIGN_LIMIT for foreign, _ in runs) == self.options.repeat:
                break
        # Where there are not enough quiet ones, those that were disturbed least.
        runs = sorted(runs, key=lambda run: run[0])[: self.options.repeat]
        pictures = [picture for _, picture in runs]
        phases = way.phases(sizes_of(self.model, side, self.prompts(way)), network.machines)
        computing = cost.computing_seconds(phases, self.computing)
        exchange = cost.exchange_seconds(phases, link)
        seconds = statistics.median(per_step(picture) for picture in pictures)
        self.result["steps"].append(
            {
                "way": way.name,
                "cfg": way.cfg,
                "side": side,
                "megabits": rate,
                "measured": seconds,
                "foreign_cores": runs[-1][0],
                "least": min(per_step(picture) for picture in pictures),
                "most": max(per_step(picture) for picture in pictures),
                "measured_exchange": statistics.median(exchange_per_step(picture) for picture in pictures),
                "computing": computing,
                "exchange": exchange,
                "computed": computing + exchange,
                "error": (computing + exchange) / seconds - 1,
                "alone": cost.computing_seconds(cost.alone(sizes_of(self.model, side, self.prompts(way))), self.computing),
            }
        )


def full_table(computing: cost.Computing, latency: float, sizes: cost.Sizes, weight_bytes: float) -> list[dict[str, Any]]:
    """Of the model of full size. `weight_bytes`: of a block."""
    lines = []
    for side, cores, machines in itertools.product(TABLE_SIDES, CORES, MACHINES):
        prices = computing.with_cores(cores, weight_bytes / MEMORY_RATE[cores])
        guided = replace(sizes, blocks=FULL_BLOCKS, picture=(side // TOKEN_SIDE) ** 2)
        for way, here, phases_of in (
            ("guidance", guided, cost.chosen_by_program),
            ("sequence", replace(guided, prompts=guided.prompts[:1]), cost.chosen_by_program),
            ("layers", guided, cost.layers),
        ):
            phases = phases_of(here, machines)
            seconds = {rate: cost.step_seconds(phases, prices, cost.Network(latency, cost.payload_rate(rate * GIGA))) for rate in NETWORKS}
            alone = cost.computing_seconds(cost.alone(here), prices)
            line = {"side": side, "cores": cores, "machines": machines, "way": way, "alone": alone}
            lines.append({**line, "seconds": seconds, "bytes": cost.volume(phases)})
    return lines


# ---- tables ----


def markdown(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in [header, *rows]]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def seconds_text(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"


def rate_text(megabits: float | None) -> str:
    return f"{megabits / 1000:g} Gbit/s" if megabits else "no limit"


def bytes_table(result: dict[str, Any]) -> str:
    rows = [
        [line["way"], f"{line['side']}×{line['side']}", f"{line['counted'] / MEGA:.3f} MB", f"{line['computed'] / MEGA:.3f} MB"]
        + [f"{line['counted'] / line['computed'] - 1:+.1%}"]
        for line in result["bytes"]
    ]
    return markdown(["way", "picture", "counted in a step", "computed", "difference"], rows)


def links_table(result: dict[str, Any]) -> str:
    rows = []
    for line in result["links"]:
        expected = f"{cost.payload_rate(line['megabits'] * MEGA) * 8 / MEGA:.0f} Mbit/s" if line["megabits"] else "–"
        measured = f"{line['tcp_rate'] * 8 / MEGA:.0f} Mbit/s"
        rows.append([rate_text(line["megabits"]), measured, expected, f"{line['tcp_latency'] * 1e6:.0f} µs"])
    return markdown(["link", "a plain TCP connection", "expected", "its latency"], rows)


def steps_table(result: dict[str, Any]) -> str:
    rows = []
    for line in result["steps"]:
        error = f"{line['error']:+.1%}" + (" ⚠" if abs(line["error"]) > AIM else "")
        spread = f"{seconds_text(line['measured'])} ({seconds_text(line['least'])} – {seconds_text(line['most'])})"
        if line["foreign_cores"] > FOREIGN_LIMIT:
            spread += f", disturbed by {line['foreign_cores']:.1f} cores"
        rows.append(
            [f"{line['way']}, cfg {line['cfg']:g}", f"{line['side']}×{line['side']}", rate_text(line["megabits"]), spread]
            + [seconds_text(line["computed"]), error, seconds_text(line["computing"]), seconds_text(line["exchange"])]
            + [f"{line['alone'] / line['measured']:.2f} ×"]
        )
    header = ["way", "picture", "link", "a step, measured", "computed", "error", "of it computing", "exchange", "against one machine"]
    return markdown(header, rows)


def full_tables(lines: list[dict[str, Any]]) -> str:
    known = {(line["side"], line["cores"], line["machines"], line["way"]): line for line in lines}

    def cells(line: dict[str, Any]) -> list[str]:
        return [seconds_text(line["alone"]), *(f"{seconds_text(seconds)} ({line['alone'] / seconds:.1f} ×)" for seconds in line["seconds"].values())]

    networks = [f"{rate} Gbit/s" for rate in NETWORKS]
    texts = []
    for side in TABLE_SIDES:
        rows = [
            [str(cores), str(machines), *cells(known[side, cores, machines, "guidance"]), *cells(known[side, cores, machines, "sequence"])]
            for cores, machines in itertools.product(CORES, MACHINES)
        ]
        header = ["cores", "machines", "cfg 4: one machine", *networks, "cfg 1: one machine", *networks]
        texts.append(f"{side}×{side}, computed:\n\n{markdown(header, rows)}")
    rows = [
        [f"{side}×{side}", str(cores), str(machines), *cells(known[side, cores, machines, "layers"])]
        for side, cores, machines in itertools.product(TABLE_SIDES, LAYERS_CORES, MACHINES)
    ]
    texts.append(f"Layers in a row, cfg 4, computed:\n\n{markdown(['picture', 'cores', 'machines', 'one machine', *networks], rows)}")
    return "\n\n".join(texts)


def report(result: dict[str, Any]) -> str:
    alone = ", ".join(f"{seconds_text(line['seconds'])} with {line['tokens']} tokens" for line in result["alone"])
    neighbours, latency = result["neighbours"], result["latency"]
    kind = result["machine"]
    parts = [
        f"{kind['cpu']}, {kind['cores']} cores, {', '.join(kind['features'])}, {kind['memory_gb']} GB, {kind['system']}.",
        f"Prompts of {' and '.join(str(tokens) for tokens in result['tokens'])} tokens.",
        f"One process alone on one core, a step without guidance: {alone}.",
        f"The same on {result['machines']} cores at once: {seconds_text(neighbours['together'])}"
        f" where one alone takes {seconds_text(neighbours['alone'])} ({neighbours['factor']:.3f} ×).",
        f"A small message: {latency['seconds'] * 1e6:.0f} µs ({latency['messages']} of them in a step of the embedded model).",
        f"Delay of the links: {1000 * result['delay']:g} ms" + (f", by {result['delayed_by']}" if result["delayed_by"] else "") + ".",
        bytes_table(result) if result["bytes"] else "",
        links_table(result),
        steps_table(result),
        full_tables(result["full"]) if result["full"] else "",
    ]
    return "\n\n".join(part for part in parts if part)


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    program = Program(options.program, scratch)
    model = options.model.resolve(strict=True) if options.model else scratch / "model"
    same_speed.write_model(model)
    measurement = Measurement(options, program, model)
    ways = [way for way in cost.WAYS if way.name in options.ways.split(",")]
    with Network(options.machines, options.delay / 1000) as network:
        measurement.measure_computing()
        measurement.measure_latency(network)
        if not options.no_bytes:
            measurement.measure_bytes(network, ways)
        measurement.measure_steps(network, ways)
        result = {"bytes": [], **measurement.result, "delay": network.delay, "delayed_by": network.delayed_by, "full": []}
    if not options.no_table:
        weights = sum(file.stat().st_size for file in (model / "transformer").glob("*.safetensors"))
        sizes = sizes_of(model, measurement.sides[0], measurement.tokens)
        result["full"] = full_table(measurement.computing, measurement.latency, sizes, weights / sizes.blocks)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--model", type=Path, help="a folder with weights (default: synthetic ones, 4 blocks of full width)")
    parser.add_argument("--rates", default="100,300,1000,none", help="Mbit/s of each machine's link, or none (default: 100,300,1000,none)")
    parser.add_argument("--delay", type=float, default=0, help="milliseconds that a message takes from machine to machine (default: 0)")
    parser.add_argument("--ways", default=",".join(way.name for way in cost.WAYS), help="of splitting (default: all)")
    parser.add_argument("--machines", type=int, default=2, help="(default: 2)")
    parser.add_argument("--sizes", default="512x512", help="of pictures (default: 512x512)")
    parser.add_argument("--steps", type=int, default=3, help="of each picture (default: 3)")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each line (default: 2)")
    parser.add_argument("--alone", default="128,512,1024", help="three sides of pictures by which computing is measured (default: 128,512,1024)")
    parser.add_argument("--no-bytes", action="store_true", help="do not count bytes")
    parser.add_argument("--no-table", action="store_true", help="do not compute the table for other machines")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to this file")
    options = parser.parse_args()
    reason = missing()
    if reason:
        sys.exit(reason)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    try:
        with tempfile.TemporaryDirectory() as scratch:
            result = measure(options, Path(scratch))
    except NetworkError as error:
        sys.exit(str(error))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(report(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
