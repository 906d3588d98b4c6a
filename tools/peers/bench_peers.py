"""This engine against its peers on the same full-size synthetic weights: `./run bench --peers`.

Every run is kept in build/peers/measurements.json, and a measurement that was interrupted goes on where it was;
docs/benchmarks.md with its plots and docs/benchmarks_21.md are written from that file.
"""

import argparse
import fcntl
import os
import sys
import time
import traceback
from pathlib import Path

from tools.peers import lines as what
from tools.peers import lines_21, machine, pages, tables
from tools.peers.bench import Bench
from tools.peers.engine import Engine
from tools.peers.measurements import Measurements
from tools.peers.models import PROJECT, Models
from tools.peers.models_21 import Models21
from tools.peers.process import ProgramFailed
from tools.peers.progress import say
from tools.peers.sdcpp_peer import StableDiffusion


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="./run bench --peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="a line, or 21 for those of 2.1; may be given several times"
    )
    parser.add_argument("--list", action="store_true", help="the names of the lines, and how long they take")
    parser.add_argument("--report", action="store_true", help="only write the documents from what was measured")
    parser.add_argument(
        "--repeat", type=int, metavar="N", help="runs of each contestant (default: the line's own, 5 to 1)"
    )
    parser.add_argument("--fresh", action="store_true", help="measure everything (or what --only names) anew")
    parser.add_argument("--synthetic", type=Path, metavar="DIR", help="the 20 B model, if it was written elsewhere")
    parser.add_argument("--work", type=Path, default=PROJECT / "build" / "peers", help=argparse.SUPPRESS)
    parser.add_argument("--docs", type=Path, default=PROJECT / "docs", help=argparse.SUPPRESS)
    parser.add_argument(
        "--engine", type=Path, default=PROJECT / "build" / "release" / "qwen-image", help=argparse.SUPPRESS
    )
    parser.add_argument("--programs", type=Path, default=PROJECT / "build" / "bench" / "bench", help=argparse.SUPPRESS)
    parser.add_argument("--baseline", type=Path, metavar="PROGRAM", help="an older qwen-image to hold this one against")
    sd = PROJECT / "build" / "sdcpp"
    parser.add_argument("--sd", type=Path, default=sd / "native" / "bin" / "sd-cli", help=argparse.SUPPRESS)
    # What is built for any CPU uses AVX2 and nothing newer.
    parser.add_argument("--sd-avx2", type=Path, default=sd / "build" / "bin" / "sd-cli", help=argparse.SUPPRESS)
    return parser.parse_args()


def lock(work):
    """Two measurements at once would disturb each other, and overwrite each other's figures."""
    file = open(work / "lock", "w", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit("another ./run bench --peers is measuring") from None
    return file  # locked until it is closed, at the end


def in_child(work):
    """A program's peak memory, as the system reports it, is never below what its parent had used when it was started.
    So gigabytes are written by a process of their own, and this one stays small."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except ProgramFailed as error:
            say(f"some weights cannot be written: {error}")  # the lines that need them will say so
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the weights cannot be written")


def make_bench(args, threads):
    models = Models(args.work / "models", args.synthetic)
    engine = Engine(args.engine, models, threads, args.work)
    before = Engine(args.baseline, models, threads, args.work) if args.baseline else None
    peers = [
        StableDiffusion(program, models, threads, args.work / "sd.png") if program.exists() else None
        for program in (args.sd, args.sd_avx2)
    ]
    return Bench(args.work, threads, models, engine, args.programs, before, *peers)


def make_bench_21(args, threads):
    models = Models21(args.work / "models_21")
    return Bench(args.work, threads, models, Engine(args.engine, models, threads, args.work), args.programs)


def with_needs(lines, all_lines):
    """The lines, and before them those that decide who takes part."""
    names = {line.name for line in lines}
    needed = {need for line in lines for need in line.needs}
    while not needed <= names:
        names |= needed
        needed = {need for line in all_lines if line.name in names for need in line.needs}
    return [line for line in all_lines if line.name in names]


def chosen_lines(lines, only):
    """By their names, or by the part before the dash."""
    known = {name for line in lines for name in (line.name, line.name.split("-")[0])}
    unknown = set(only or ()) - known
    if unknown:
        raise SystemExit(f"no such line: {', '.join(unknown)}; known are {', '.join(line.name for line in lines)}")
    return [line for line in lines if not only or {line.name, line.name.split("-")[0]} & set(only)]


def runs_of(contestant, repeats):
    """One of each variant, and the rest of the fastest's; at most, since some lines leave variants out."""
    return len(contestant.variants) - 1 + repeats


def seconds_of(line, repeat):
    repeats = repeat or line.repeats
    return sum(contestant.seconds * runs_of(contestant, repeats) for contestant in line.contestants)


def estimate(lines, repeat):
    for line in lines:
        say(f"  {line.name:<12} {seconds_of(line, repeat) / 60:5.1f} min  {line.title}")
    total = sum(seconds_of(line, repeat) for line in lines)
    say(f"about {total / 60:.0f} minutes in all; writing weights and building programs takes some 25 more, once")


def measure_once(line, contestant, variant, measurements):
    name = " ".join(filter(None, (line.name, contestant.who, variant.name)))
    say(f"{name} … (about {contestant.seconds:.0f} s)")
    start = time.monotonic()
    try:
        measured = variant.measure()
    except (ProgramFailed, OSError) as error:
        measurements.add_failure(line.name, contestant.who, variant.name, str(error)[:2000])
        say(f"{name}: FAILED: {error}")
        return
    measurements.add(line.name, contestant.who, variant.name, measured)
    figures = ", ".join(f"{key} {tables.human(key, value)}" for key, value in measured.figures.items())
    disturbed = (
        f"; DISTURBED by {measured.conditions['foreign_cores']} cores of others' work"
        if machine.is_disturbed(measured.conditions)
        else ""
    )
    say(f"{name}: {figures} (after {time.monotonic() - start:.0f} s, load {measured.conditions['load'][0]}{disturbed})")


def measure_line(line, repeats, measurements):
    """Every candidate once, then the contestants in turn until the fastest of each has its number of runs."""
    say(f"{line.name}: {line.title}")
    for contestant in line.contestants:
        for variant in contestant.candidates_of(measurements):
            if not measurements.of(line.name, contestant.who, variant.name):
                measure_once(line, contestant, variant, measurements)
    for repeat in range(1, repeats):
        for contestant in line.contestants:
            fastest = contestant.fastest(measurements, line.name, line.figure)
            if fastest and len(measurements.of(line.name, contestant.who, fastest.name)) <= repeat:
                measure_once(line, contestant, fastest, measurements)
    for contestant in line.contestants:
        for _ in range(repeats * len(contestant.variants)):  # another one may have turned out to be the fastest
            fastest = contestant.fastest(measurements, line.name, line.figure)
            if not fastest or len(measurements.of(line.name, contestant.who, fastest.name)) >= repeats:
                break
            measure_once(line, contestant, fastest, measurements)


def measure(args, measurements):
    threads = len(os.sched_getaffinity(0))
    bench, bench_21 = make_bench(args, threads), make_bench_21(args, threads)
    all_lines = what.all_lines(bench) + lines_21.all_lines(bench_21)
    asked = chosen_lines(all_lines, args.only)
    lines = with_needs(asked, all_lines)
    estimate(lines, args.repeat)
    if args.list:
        return
    locked = lock(args.work)
    in_child(lambda: prepare({line.name for line in lines}, bench, bench_21))
    if args.fresh and not args.only:
        measurements.start_anew()
    for line in asked if args.fresh and args.only else ():
        measurements.drop(line.name)
    for line in lines:
        try:
            measure_line(line, (args.repeat or line.repeats) if line in asked else 1, measurements)
        finally:
            bench.close_workers()
            bench_21.close_workers()
    locked.close()


def prepare(names, bench, bench_21):
    """Writes the weights of these lines, so that nothing but measurements happens between measurements."""
    newer = {line.name for line in lines_21.all_lines(bench_21)}
    if names & newer:
        lines_21.prepare(bench_21.models)
    if names - newer:
        bench.prepare(names)


def main():
    args = parse_arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    measurements = Measurements(args.work / "measurements.json")
    if not args.report:
        measure(args, measurements)
    if not args.list:
        for path in pages.write(measurements, args.docs):
            say(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
