"""The programs and weights that are measured, and one measurement of each kind of work."""

from tools.peers import diffusers_peer, kernels, outliers, process, rotated, sdcpp_peer
from tools.peers.measurements import Measured
from tools.peers.models import class_of
from tools.peers.progress import progress
from tools.peers.worker import Worker

BLOCKS = 4  # of the model that stands for the published one
BLOCK_COUNTS = (1, 2, 4, 8)
# Blocks of the model whose growth with the resolution is measured: few, since the largest picture takes long.
GROWTH_BLOCKS = 2


class Bench:
    """The programs and weights, and the peers' processes that are running."""

    def __init__(self, work, threads, models, engine, programs, before=None, sd=None, sd_avx2=None):
        self.work, self.threads, self.models = work, threads, models
        self.engine, self.programs = engine, programs
        self.before = before  # an older program to hold this one against
        self.sd, self.sd_avx2 = sd, sd_avx2
        self.workers = {}

    def worker(self, script, key, start):
        """One process for each peer, since each holds gigabytes: another KEY ends the one before."""
        running = self.workers.get(script)
        if running and running[0] == key:
            return running[1:]
        if running:
            self.workers.pop(script)[1].close()
        worker = Worker(script, self.work / "workers.log", self.threads)
        self.workers[script] = (key, worker, None)  # known from now on, so that it is closed whatever happens
        self.workers[script] = (key, worker, start(worker))
        return self.workers[script][1:]

    def close_workers(self):
        for _, worker, _ in self.workers.values():
            worker.close()
        self.workers = {}

    def prepare(self, names):
        """Writes what these lines need."""
        models = self.models
        models.short_text_encoder(), models.small_vae(), models.vae(), models.picture()
        counts = {BLOCKS, 1} | ({GROWTH_BLOCKS, *BLOCK_COUNTS} if names & {"resolutions", "blocks"} else set())
        for count in sorted(counts):
            models.transformer(count)
        models.transformer_bf16(BLOCKS)
        if names & {"full", "start", "text57"}:
            models.full()
        if "convrot512" in names:
            rotated.transformer(models, BLOCKS)
        if "depth" in names:
            outliers.transformer(models, outliers.DEPTH)
        if names & {"errors", "blocks512", "blocks1024"}:
            self.outlier_case()
        for sd, wanted in (
            (self.sd, {"blocks512", "blocks1024", "vae512", "text57", "resolutions"}),
            (self.sd_avx2, {"avx2-512", "avx2-1024"}),
        ):
            if sd and names & wanted:
                self.prepare_sd(names, sd.convert)
        self.close_workers()

    def prepare_sd(self, names, convert):
        models = self.models
        models.sd_vae()
        models.sd_transformer(convert, 1, "q4_0")
        models.sd_text_encoder(convert, "q4_0", short=True)
        for kind in sdcpp_peer.KINDS:
            models.sd_transformer(convert, BLOCKS, kind)
        if "text57" in names:
            models.sd_text_encoder(convert, "q4_0", short=False)

    # One measurement each

    def run_engine(self, call, *arguments, **options):
        done, figures = call(*arguments, **options)
        slow = "precision" not in options or options["precision"] == "fast"
        notes = {"precision": "exact: this build has no fast kernels"} if slow and not self.engine.has_fast else {}
        return Measured(figures, done.command, done.conditions, notes)

    def run_before(self, *arguments, work="blocks", **options):
        if not self.before:
            raise process.ProgramFailed("no older program was given: --baseline PROGRAM")
        return self.run_engine(getattr(self.before, work), *arguments, **options)

    def run_sd(self, sd, call, *arguments):
        if not sd:
            raise process.ProgramFailed("it could not be built")
        done, figures = call(sd)(*arguments)
        return Measured(figures | {"peak_bytes": done.peak_bytes}, done.command, done.conditions)

    def diffusers_blocks(self, side, variant=diffusers_peer.VARIANT, work="blocks", figure="step"):
        tokens, folder = self.models.text_tokens, self.models.transformer_bf16(BLOCKS)

        def start(worker):
            with progress(f"diffusers: loading the blocks, {variant}"):
                worker.ask("set_threads", threads=self.threads)
                worker.ask("load_blocks", folder=str(folder), variant=variant)
                # Memory is touched, kernels are chosen, and where a compiler works, it does so for each size anew.
                worker.ask(work, side=side if variant == diffusers_peer.INT8 else 256, text_tokens=tokens)

        key = f"blocks {variant} {side if variant == diffusers_peer.INT8 else ''}"
        worker, _ = self.worker("diffusers_peer", key, start)
        answer = worker.ask(work, side=side, text_tokens=tokens)
        figures = {figure: answer["seconds"], "peak_bytes": answer["peak_bytes"]}
        return Measured(figures, [f"{class_of(folder)}.forward"], answer["conditions"])

    def diffusers_vae(self, side, works=("encode", "decode")):
        def start(worker):
            worker.ask("set_threads", threads=self.threads)
            worker.ask("load_vae", folder=str(self.models.vae()))

        worker, _ = self.worker("diffusers_peer", "vae", start)
        answers = {work: worker.ask(work, side=side) for work in works}
        figures = {work: answer["seconds"] for work, answer in answers.items()}
        figures["peak_bytes"] = max(answer["peak_bytes"] for answer in answers.values())
        foreign = max(answer["conditions"]["foreign_cores"] for answer in answers.values())
        conditions = answers[works[0]]["conditions"] | {"foreign_cores": foreign}
        return Measured(figures, [f"{class_of(self.models.vae())}.{', '.join(works)}"], conditions)

    def openvino(self, variant, side):
        """A worker with a block compiled for this size, and what it says about itself."""
        options = {
            "transformer": str(outliers.block_folder(self.models)),
            "case": str(self.outlier_case()),
            "variant": variant,
            "cache": str(self.models.root / "openvino"),
            "threads": self.threads,
            "side": side,
            "text_tokens": self.models.text_tokens,
        }

        def start(worker):
            with progress(f"OpenVINO: loading a block, {variant}"):
                answer = worker.ask("load", **options)
            return {"inference precision": answer["precision"], "version": answer["version"]}

        return self.worker("openvino_peer", f"{variant} {side}", start)

    def openvino_blocks(self, variant, side):
        worker, notes = self.openvino(variant, side)
        worker.ask("blocks", count=1)
        answer = worker.ask("blocks", count=BLOCKS)
        figures = {"step": answer["seconds"], "peak_bytes": answer["peak_bytes"]}
        return Measured(figures, [f"one block, {BLOCKS} times"], answer["conditions"], notes)

    # The error of a block whose weights make outliers

    def outlier_case(self):
        """What goes into the block that is measured, and what diffusers makes of it in fp32."""
        return outliers.case(self.models, self.engine, self.reference_block)

    def reference_block(self, folder, inputs, target):
        worker, _ = self.worker("diffusers_peer", "reference block", lambda worker: None)
        worker.ask("set_threads", threads=self.threads)
        worker.ask("write_expected", folder=str(folder), inputs=str(inputs), target=str(target))

    def engine_error(self):
        done, error = outliers.engine_error(self.models, self.engine, self.outlier_case())
        return Measured({"nmse": error}, done.command, done.conditions)

    def depth_error(self):
        done, figures = outliers.depth_error(self.models, self.engine)
        return Measured(figures, done.command, done.conditions)

    def openvino_error(self, variant):
        worker, notes = self.openvino(variant, outliers.SIDE)
        answer = worker.ask("error", case=str(self.outlier_case()))
        return Measured({"nmse": answer["nmse"]}, ["one block"], answer["conditions"], notes)

    def diffusers_error(self, variant):
        case, folder = str(self.outlier_case()), str(outliers.block_folder(self.models))
        worker, _ = self.worker("diffusers_peer", f"error {variant}", lambda worker: None)
        worker.ask("set_threads", threads=self.threads)
        answer = worker.ask("block_error", folder=folder, case=case, variant=variant)
        return Measured({"nmse": answer["nmse"]}, ["one block"], answer["conditions"])

    def engine_vae(self, side):
        decoded = self.run_engine(self.engine.decode, side)
        command = [self.programs / "vae_encode_bench", self.models.vae(), side, self.threads]
        done = process.run(command)
        decoded.figures["encode"] = float(done.find(r"encode ([\d.]+) s")[1][1])
        return decoded

    def kernels(self):
        done, found, peaks = kernels.run(self.programs / "kernels_bench", self.work / "kernels.json")
        return Measured(peaks, done.command, done.conditions, {"kernels": found})

    def full_run(self):
        return self.whole_picture(self.engine.full, 4)

    def whole_picture(self, call, *arguments, **options):
        """With what its stages weigh, to hold the peak memory against."""
        measured = self.run_engine(call, *arguments, **options)
        stages = self.models.stage_bytes()
        measured.figures["largest_stage_bytes"] = max(stages.values())
        measured.notes["weight bytes"] = stages
        return measured
