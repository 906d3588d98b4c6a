"""stable-diffusion.cpp: its own program with its own converter; the figures are those of its log."""

import os

from tools.peers import process
from tools.peers.models import PROMPT

KINDS = ("q4_0", "q4_K", "q8_0", "f16", "bf16")  # of weights
WITHOUT_FLASH = ", no flash attention"
VARIANTS = KINDS + tuple(kind + WITHOUT_FLASH for kind in KINDS[:3])


class StableDiffusion:
    def __init__(self, program, models, threads, out):
        self.program, self.models, self.threads, self.out = program, models, threads, out
        self.env = os.environ | {"LD_LIBRARY_PATH": str(program.parent)}

    def convert(self, source, target, kind):
        command = [self.program, "-M", "convert", "-m", source, "-o", target, "--type", kind]
        process.run(command, env=self.env)

    def command(self, blocks, variant, text_encoder, side):
        models, kind = self.models, variant.removesuffix(WITHOUT_FLASH)
        return [
            *(self.program, "--diffusion-model", models.sd_transformer(self.convert, blocks, kind)),
            *("--llm", text_encoder, "--vae", models.sd_vae(), "-p", PROMPT, "--cfg-scale", 1),
            *("-W", side, "-H", side, "--steps", 1, "-s", 1, "--sampling-method", "euler"),
            *(() if variant.endswith(WITHOUT_FLASH) else ("--fa",)),
            *("-t", self.threads, "-v", "-o", self.out),
        ]

    def short_text_encoder(self):
        return self.models.sd_text_encoder(self.convert, "q4_0", short=True)

    def blocks(self, blocks, variant, side):
        """One step. The program loads its weights first, so the step does not read the disk."""
        command = self.command(blocks, variant, self.short_text_encoder(), side)
        done = process.run(command, until=r"sampling completed", env=self.env)
        return done, {"step": float(done.find(r"sampling completed, taking ([\d.]+)s")[1][1])}

    def vae(self, side):
        """A picture is encoded, one block is run on it (the shortest way to the decoder), and it is decoded."""
        command = self.command(1, "q4_0", self.short_text_encoder(), side)
        command += ["-i", self.models.picture(), "--strength", 1]
        done = process.run(command, until=r"decode_first_stage completed", env=self.env)
        figures = {
            "encode": float(done.find(r"encode_first_stage completed, taking ([\d.]+)s")[1][1]),
            "decode": float(done.find(r"decode_first_stage completed, taking ([\d.]+)s")[1][1]),
        }
        return done, figures

    def text_encoder(self, kind):
        text_encoder = self.models.sd_text_encoder(self.convert, kind, short=False)
        command = self.command(1, "q4_0", text_encoder, 256)
        done = process.run(command, until=r"get_learned_condition completed", env=self.env)
        milliseconds = float(done.find(r"computing condition graph completed, taking (\d+) ms")[1][1])
        return done, {"encode_prompt": milliseconds / 1000}
