"""What is measured: lines, the contestants of each, and how often. The runs of a line's contestants alternate, so that
whatever changes on the machine in the meantime meets all of them."""

from dataclasses import dataclass

import diffusers_peer
import kernels
import openvino_peer
import process
import sdcpp_peer
from measurements import Measured
from models import class_of
from progress import progress
from worker import Worker

ENGINE, SDCPP, DIFFUSERS, OPENVINO = "qwen-image.cpp", "stable-diffusion.cpp", "diffusers", "OpenVINO"
FAST, EXACT_BF16 = "4-bit, fast", "bf16, exact"
RESOLUTIONS, BLOCK_COUNTS = (256, 512, 768, 1024, 1536), (1, 2, 4, 8)
# Blocks of the model whose growth with the resolution is measured: few, since the largest picture takes long.
GROWTH_BLOCKS = 2


@dataclass
class Variant:
    name: str
    measure: object  # () -> Measured


@dataclass
class Contestant:
    who: str
    variants: list
    seconds: float  # about how long a run takes, with what has to be loaded; for the estimate only
    # Each is measured once, the fastest of these then as often as the line asks for; without choices all are.
    choices: tuple = ()


@dataclass
class Line:
    name: str
    title: str
    repeats: int
    contestants: list
    figure: str = "step"


class Bench:
    """The programs and weights, and the peers' processes that are running."""

    def __init__(self, work, threads, models, engine, sd, programs):
        self.work, self.threads, self.models = work, threads, models
        self.engine, self.sd, self.programs = engine, sd, programs
        self.workers = {}

    def worker(self, key, script, start):
        if key not in self.workers:
            worker = Worker(script, self.work / "workers.log", self.threads)
            self.workers[key] = (worker, start(worker))
        return self.workers[key]

    def close_workers(self):
        for worker, _ in self.workers.values():
            worker.close()
        self.workers = {}

    def prepare(self, names):
        models = self.models
        models.short_text_encoder(), models.small_vae(), models.vae(), models.picture()
        counts = {4, 1} | ({GROWTH_BLOCKS, *BLOCK_COUNTS} if names & {"resolutions", "blocks"} else set())
        for count in sorted(counts):
            models.transformer(count)
        models.transformer_bf16(4)
        if names & {"full", "start", "text57"}:
            models.full()
        if self.sd and names & {"blocks512", "blocks1024", "vae512", "text57", "resolutions"}:
            self.prepare_sd(names)

    def prepare_sd(self, names):
        models, convert = self.models, self.sd.convert
        models.sd_vae()
        models.sd_transformer(convert, 1, "q4_0")
        models.sd_text_encoder(convert, "q4_0", short=True)
        for kind in sdcpp_peer.VARIANTS:
            models.sd_transformer(convert, 4, kind)
        if "text57" in names:
            models.sd_text_encoder(convert, "q4_0", short=False)

    # One measurement each

    def run_engine(self, call, *arguments, **options):
        done, figures = call(*arguments, **options)
        slow = "precision" not in options or options["precision"] == "fast"
        notes = {"precision": "exact: this build has no fast kernels"} if slow and not self.engine.has_fast else {}
        return Measured(figures, done.command, done.conditions, notes)

    def run_sd(self, call, *arguments):
        if not self.sd:
            raise process.ProgramFailed("it could not be built")
        done, figures = call(self.sd)(*arguments)
        return Measured(figures | {"peak_bytes": done.peak_bytes}, done.command, done.conditions)

    def diffusers_blocks(self, side, work="blocks", figure="step"):
        tokens, folder = self.models.text_tokens, self.models.transformer_bf16(4)

        def start(worker):
            with progress("diffusers: loading the blocks in fp32"):
                worker.ask("set_threads", threads=self.threads)
                worker.ask("load_blocks", folder=str(folder))
                worker.ask(work, side=256, text_tokens=tokens)  # memory is touched, kernels are chosen

        worker, _ = self.worker("diffusers blocks", "diffusers_peer.py", start)
        answer = worker.ask(work, side=side, text_tokens=tokens)
        figures = {figure: answer["seconds"], "peak_bytes": answer["peak_bytes"]}
        return Measured(figures, [f"{class_of(folder)}.forward"], answer["conditions"])

    def diffusers_vae(self, side, works=("encode", "decode")):
        def start(worker):
            worker.ask("set_threads", threads=self.threads)
            worker.ask("load_vae", folder=str(self.models.vae()))

        worker, _ = self.worker("diffusers vae", "diffusers_peer.py", start)
        answers = {work: worker.ask(work, side=side) for work in works}
        figures = {work: answer["seconds"] for work, answer in answers.items()}
        figures["peak_bytes"] = max(answer["peak_bytes"] for answer in answers.values())
        foreign = max(answer["conditions"]["foreign_cores"] for answer in answers.values())
        conditions = answers[works[0]]["conditions"] | {"foreign_cores": foreign}
        return Measured(figures, [f"{class_of(self.models.vae())}.{', '.join(works)}"], conditions)

    def openvino_blocks(self, variant, side):
        options = {
            "transformer": str(self.models.transformer_bf16(4)),
            "variant": variant,
            "cache": str(self.models.root / "openvino"),
            "threads": self.threads,
            "side": side,
            "text_tokens": self.models.text_tokens,
        }

        def start(worker):
            with progress(f"OpenVINO: loading a block, {variant}"):
                answer = worker.ask("load", **options)
            worker.ask("blocks", count=1)
            return answer

        worker, loaded = self.worker(f"openvino {variant}", "openvino_peer.py", start)
        answer = worker.ask("blocks", count=4)
        figures = {"step": answer["seconds"], "peak_bytes": answer["peak_bytes"]}
        notes = {"inference precision": loaded["precision"], "version": loaded["version"]}
        return Measured(figures, ["one block, 4 times"], answer["conditions"], notes)

    def engine_vae(self, side):
        decoded = self.run_engine(self.engine.decode, side)
        command = [self.programs / "vae_encode_bench", self.models.vae(), side, self.threads]
        done = process.run(command)
        decoded.figures["encode"] = float(done.find(r"encode ([\d.]+) s")[1][1])
        return decoded

    def kernels(self):
        done, found, peak = kernels.run(self.programs / "kernels_bench", self.work / "kernels.json")
        return Measured({"peak_gflops": peak}, done.command, done.conditions, {"kernels": found})

    def full_run(self):
        return self.whole_picture(self.engine.full, 4)

    def whole_picture(self, call, *arguments, **options):
        """With what its stages weigh, to hold the peak memory against."""
        measured = self.run_engine(call, *arguments, **options)
        stages = self.models.stage_bytes()
        measured.figures["largest_stage_bytes"] = max(stages.values())
        measured.notes["weight bytes"] = stages
        return measured


def engine_blocks(bench, variant, seconds, count=4, side=512, who=ENGINE, **options):
    precision = "exact" if variant == EXACT_BF16 else "fast"
    options = {"precision": precision, "bf16": variant == EXACT_BF16} | options
    measure = lambda: bench.run_engine(bench.engine.blocks, count, side, **options)  # noqa: E731
    return Contestant(who, [Variant(variant, measure)], seconds)


def sd_blocks(bench, variants, seconds, side, count=4):
    made = [Variant(kind, lambda k=kind: bench.run_sd(lambda sd: sd.blocks, count, k, side)) for kind in variants]
    return Contestant(SDCPP, made, seconds, choices=sdcpp_peer.VARIANTS if len(made) > 1 else ())


def blocks_512(bench):
    openvino = [Variant(v, lambda v=v: bench.openvino_blocks(v, 512)) for v in openvino_peer.VARIANTS]
    return Line(
        "blocks512",
        "4 blocks, 512×512 (1024 + 23 tokens): seconds of a step",
        5,
        [
            engine_blocks(bench, FAST, 8),
            engine_blocks(bench, EXACT_BF16, 14),
            sd_blocks(bench, sdcpp_peer.VARIANTS, 13, 512),
            Contestant(DIFFUSERS, [Variant(diffusers_peer.VARIANT, lambda: bench.diffusers_blocks(512))], 8),
            # A fp32 run of its own is of interest where its choice is another; it is not among those to beat.
            Contestant(OPENVINO, openvino, 5, choices=openvino_peer.VARIANTS[:3]),
        ],
    )


def blocks_1024(bench, fastest_sd):
    return Line(
        "blocks1024",
        "4 blocks, 1024×1024 (4096 + 23 tokens): seconds of a step",
        3,
        [engine_blocks(bench, FAST, 15, side=1024, steps=2), sd_blocks(bench, (fastest_sd,), 50, 1024)],
    )


def vae_512(bench):
    return Line(
        "vae512",
        "VAE, 512×512, fp32: seconds",
        3,
        [
            Contestant(ENGINE, [Variant("fp32", lambda: bench.engine_vae(512))], 16),
            Contestant(DIFFUSERS, [Variant(diffusers_peer.VARIANT, lambda: bench.diffusers_vae(512))], 36),
            Contestant(SDCPP, [Variant("as it loads it", lambda: bench.run_sd(lambda sd: sd.vae, 512))], 120),
        ],
        figure="decode",
    )


def text_encoder(bench):
    return Line(
        "text57",
        "text encoder, 28 layers, 57 tokens: seconds",
        5,
        [
            Contestant(ENGINE, [Variant(FAST, lambda: bench.run_engine(bench.engine.text_encoder))], 6),
            Contestant(SDCPP, [Variant("q4_0", lambda: bench.run_sd(lambda sd: sd.text_encoder, "q4_0"))], 14),
        ],
        figure="encode_prompt",
    )


def scaling(bench):
    return Line(
        "threads",
        "4 blocks, 512×512, 1 and 2 threads: seconds of a step",
        3,
        [
            engine_blocks(bench, FAST, 7, who="1 thread", threads=1),
            engine_blocks(bench, FAST, 5, who="2 threads", threads=2),
        ],
    )


def growth_with_resolution(bench):
    engine = [engine_blocks(bench, FAST, 6, GROWTH_BLOCKS, side, f"{side}", steps=2) for side in RESOLUTIONS]
    peers = [
        Contestant(f"{DIFFUSERS} 256", [Variant(diffusers_peer.VARIANT, lambda: bench.diffusers_blocks(256))], 12),
        Contestant(f"{SDCPP} 256", [Variant("q4_0", lambda: bench.run_sd(lambda sd: sd.blocks, 4, "q4_0", 256))], 6),
    ]
    return Line(
        "resolutions", f"growth with the resolution, {GROWTH_BLOCKS} blocks: seconds of a step", 1, engine + peers
    )


def growth_with_blocks(bench):
    contestants = [engine_blocks(bench, FAST, 6, count, 512, f"{count}", steps=2) for count in BLOCK_COUNTS]
    return Line("blocks", "growth with the number of blocks, 512×512: seconds of a step", 1, contestants)


def all_lines(bench, fastest_sd):
    first_step = Variant(FAST, lambda: bench.run_engine(bench.engine.first_step))
    return [
        Line(
            "kernels",
            "kernels against the fp32 peak",
            1,
            [Contestant(ENGINE, [Variant("", bench.kernels)], 40)],
            "peak_gflops",
        ),
        blocks_512(bench),
        blocks_1024(bench, fastest_sd),
        vae_512(bench),
        text_encoder(bench),
        scaling(bench),
        growth_with_resolution(bench),
        growth_with_blocks(bench),
        Line(
            "full", "20 B model, 4-bit, 512×512, 4 steps", 1, [Contestant(ENGINE, [Variant(FAST, bench.full_run)], 240)]
        ),
        Line("start", "20 B model: start to first step", 5, [Contestant(ENGINE, [first_step], 3)], "start"),
    ]
