"""This engine, by the command that a user types."""

import json
import os
import shutil

from tools.peers import process
from tools.peers.models import PROMPT, PROMPT_TOKENS


class Engine:
    def __init__(self, program, models, threads, work):
        self.program, self.models, self.threads, self.work = program, models, threads, work
        # Prompt embeddings that an earlier run left must not make the text encoder look fast: a cache of our own.
        self.cache = work / "engine_cache"
        self.env = os.environ | {"XDG_CACHE_HOME": str(self.cache)}
        self.warm = False  # the full model's prompt is known, its weights are in the page cache
        self.help = process.run([program, "generate", "--help"])
        self.has_fast = "fast" in self.help.find(r"--precision.*")[1][0]

    def precision(self, wanted):
        """An engine without the fast kernels is measured as it is, and the report says so."""
        return wanted if self.has_fast or wanted == "exact" else "exact"

    def must_have(self, option):
        if not any(option in text for _, text in self.help.lines):
            raise process.ProgramFailed(f"this program has no {option}")

    def forget_prompts(self):
        self.warm = False
        shutil.rmtree(self.cache, ignore_errors=True)

    def command(self, transformer, text_encoder, vae, side, steps, precision, threads=None, reference=None):
        return [
            *((self.program, "edit", PROMPT, "-i", reference) if reference else (self.program, "generate", PROMPT)),
            *("--transformer", transformer, "--text-encoder", text_encoder),
            *("--vae", vae, "--tokenizer", self.models.tokenizer, "--size", f"{side}x{side}", "--steps", steps),
            *self.settings(precision, threads),
        ]

    def settings(self, precision, threads=None):
        return [
            *("--cfg", 1, "--seed", 1, "--threads", threads or self.threads),
            *("--precision", self.precision(precision), "--json", "-o", self.work / "picture.png"),
        ]

    def generate(self, command, **options):
        done = process.run(command, env=self.env, terminal=True, **options)
        record = json.loads(next(text for _, text in done.lines if text.startswith("{")))
        if record["prompt_tokens"] != PROMPT_TOKENS:
            raise process.ProgramFailed(f"the prompt has {record['prompt_tokens']} tokens, expected {PROMPT_TOKENS}")
        seconds = record["seconds"]
        figures = {
            "step": seconds["denoise"] / record["steps"],
            "encode_prompt": seconds["encode_prompt"],
            "decode": seconds["decode"],
            "total": done.seconds,
            "peak_bytes": done.peak_bytes,
        }
        if record["steps"] > 1:
            figures["later_step"] = later_step(done, record["steps"])
        return done, figures

    def with_short_parts(self, transformer, side, precision, steps, **options):
        """The command for a transformer alone; a short text encoder and a narrow VAE do the rest."""
        models = self.models
        return self.command(
            transformer, models.short_text_encoder(), models.small_vae(), side, steps, precision, **options
        )

    def blocks(self, transformer, side, precision, steps=4, figure="step", reference=None, only_set=None, **options):
        """Steps of a model of a few blocks. REFERENCE: an edit of a picture of that side. ONLY_SET: the instruction set
        to keep to."""
        picture = self.models.picture(reference) if reference else None
        command = self.with_short_parts(transformer, side, precision, steps, reference=picture, **options)
        if only_set:
            self.must_have("--instruction-set")
            command += ["--instruction-set", only_set]
        done, figures = self.generate(command)
        return done, {key: figures[key] for key in (figure, "peak_bytes")}

    def rest(self, transformer, side):
        """Seconds of a step that are neither products nor attention, by the program's own clock."""
        self.must_have("--profile")
        profile = self.work / "profile.json"
        command = self.with_short_parts(transformer, side, "fast", steps=4) + ["--profile", profile]
        done, _ = self.generate(command)
        microseconds = json.loads(profile.read_text(encoding="utf-8"))["transformer"]
        rest = [value for name, value in microseconds.items() if name not in ("products", "attention")]
        return done, {"rest": 1e-6 * sum(rest) / 4}

    def record(self, transformer, side, precision, artifacts, run, checkpoints, substitute=()):
        """One step, of which some tensors are kept. SUBSTITUTE: those that are replaced by the reference's."""
        program, *command = self.with_short_parts(transformer, side, precision, steps=1)
        debug = ["--artifacts", artifacts, f"--debug={run}", "--checkpoints", ",".join(checkpoints)]
        if substitute:
            debug += ["--substitute", ",".join(substitute)]
        # 1: the tensors are not those of the reference, and how far they are is what is asked.
        return process.run([program, *debug, *command], env=self.env, good=(0, 1))

    def decode(self, side):
        models = self.models
        command = self.command(
            models.transformer(1), models.short_text_encoder(), models.vae(), side, steps=1, precision="fast"
        )
        done, figures = self.generate(command)
        return done, {key: figures[key] for key in ("decode", "peak_bytes")}

    def text_encoder(self):
        """The prompt has not been seen before: embeddings that are kept on disk do not count."""
        self.forget_prompts()
        models = self.models
        command = self.command(
            models.transformer(1), models.full() / "text_encoder", models.small_vae(), 256, steps=1, precision="fast"
        )
        done, figures = self.generate(command)
        return done, {"encode_prompt": figures["encode_prompt"]}

    def full_command(self, steps):
        full = self.models.full()
        return self.command(
            full / "transformer", full / "text_encoder", full / "vae", 512, steps=steps, precision="fast"
        )

    def full(self, steps):
        """The whole model from an unseen prompt to the picture."""
        self.forget_prompts()
        return self.generate(self.full_command(steps))

    def official(self, side, **options):
        """The same with the folder as it would be published, and the number of steps that it asks for."""
        self.forget_prompts()
        command = [self.program, "generate", PROMPT, "--model", self.models.full(), "--size", f"{side}x{side}"]
        return self.generate(command + self.settings("fast"), **options)

    def first_step(self):
        """Seconds from the start of the program to that of the first step; the run is ended there. Its prompt is that
        of an earlier run, and the weights have been read before."""
        if not self.warm:
            process.run(self.full_command(4), until=r"step 0/", env=self.env)
            self.warm = True
        done = process.run(self.full_command(4), until=r"step 0/", env=self.env)
        return done, {"start": done.find(r"step 0/")[0]}


def later_step(done, steps):
    """Seconds of a step behind the first, which also computes what the others find ready."""
    first, last = done.find(r"\bstep 1/")[0], done.find(rf"\bstep {steps}/{steps}\b")[0]
    return (last - first) / (steps - 1)
