"""Runs the official text-to-image pipeline once and records its checkpoints."""

import math

import torch

from tools.reference import official_pipelines
from tools.reference.block_taps import BlockTaps
from tools.reference.module_taps import PassRecorder, attach

KIND = official_pipelines.KINDS["text-to-image"]


def load(model, dtype):
    return official_pipelines.load(KIND, model, dtype)


def call(pipe, args, **noise):
    return official_pipelines.call(KIND, pipe, args, **noise)


def check_literal(pipe, prompt):
    """The engine reads a prompt as plain text; the reference would turn "<|im_start|>" into a control token."""
    tokenizer = getattr(pipe, "tokenizer", None) or pipe.processor.tokenizer
    found = sorted(token for token in tokenizer.get_added_vocab() if token in prompt)
    if found:
        raise SystemExit(
            f"the prompt contains {', '.join(found)}, which the reference reads as control tokens and the engine "
            "as plain text; give --reference-special-tokens if that is what you want to export"
        )


def check_size(pipe, width, height):
    multiple = pipe.vae_scale_factor * 2
    if width % multiple or height % multiple:
        raise SystemExit(f"--width and --height must be multiples of {multiple}; the pipeline would round them down")


class TextToImage:
    """Wraps the seams of one pipeline (encoder, transformer, scheduler, VAE) so that each tells what passes."""

    make_block_taps: type = BlockTaps

    def __init__(self, kind, pipe, store, choice, guided):
        self._kind = kind
        self._pipe = pipe
        self._store = store
        self._choice = choice
        self._passes = ("", ".neg") if guided else ("",)
        self._text_calls = 0
        self._prompt_calls = 0
        self._transformer_calls = 0
        self._steps_done = 0
        self._pre_decode_latents = None
        self._tap_text_encoder()
        self._tap_prompt()
        self._tap_transformer()
        self._tap_scheduler()
        self._tap_final_latents()
        self._tap_vae()

    def _save(self, name, tensor):
        """A tensor that passes between the components."""
        if self._choice.wants(name, "boundaries"):
            self._store.save(name, tensor)

    def _tap_text_encoder(self):
        encoder = self._pipe.text_encoder
        recorder = PassRecorder(self._store, self._choice)

        def begin(_module, _args, kwargs):
            suffix = self._passes[self._text_calls]
            self._text_calls += 1
            self._save("negative_input_ids" if suffix else "input_ids", kwargs["input_ids"])
            recorder.begin(f"text_encoder{suffix}")

        encoder.register_forward_pre_hook(begin, with_kwargs=True)
        self._attach_text_encoder(recorder)
        encoder.register_forward_hook(lambda *_: recorder.end())

    def _attach_text_encoder(self, recorder):
        self._attach("text_encoder", self._pipe.text_encoder, recorder)

    def _attach(self, component, module, recorder):
        attach(f"{component}{self._kind.family}", module, recorder, self._choice)

    def _tap_prompt(self):
        original = self._pipe.encode_prompt

        def encode_prompt(*args, **kwargs):
            result = original(*args, **kwargs)
            embeds, mask = result[:2]
            prefix = "negative_" if self._passes[self._prompt_calls] else ""
            self._prompt_calls += 1
            self._save(f"{prefix}prompt_embeds", embeds)
            # The pipeline drops a mask of ones; the checkpoint keeps it.
            ones = torch.ones(embeds.shape[:2])
            saved = ones if mask is None else mask
            self._save(f"{prefix}prompt_embeds_mask", saved.to(torch.uint8))
            return result

        self._pipe.encode_prompt = encode_prompt

    def _tap_transformer(self):
        transformer = self._pipe.transformer
        recorder = PassRecorder(self._store, self._choice)

        def begin(_module, _args, kwargs):
            step, index = divmod(self._transformer_calls, len(self._passes))
            self._transformer_calls += 1
            if index == 0:
                self._save(f"packed_latents_step{step}", self._latents(kwargs))
            recorder.begin(f"transformer/step{step:03d}{self._passes[index]}")

        transformer.register_forward_pre_hook(begin, with_kwargs=True)
        self._attach("transformer", transformer, recorder)
        if self._choice.needs("all"):
            self.make_block_taps(transformer, recorder)
        transformer.register_forward_hook(lambda *_: recorder.end())

    def _latents(self, kwargs):
        """The pictures that an edit starts from stand behind the latents."""
        return kwargs["hidden_states"][:, : math.prod(kwargs["img_shapes"][0][0])]

    def _tap_scheduler(self):
        scheduler = self._pipe.scheduler
        original = scheduler.step

        def step(model_output, timestep, sample, **kwargs):
            if self._steps_done == 0:
                # A run that starts from a picture leaves out the first steps.
                self._save("sigmas", scheduler.sigmas[scheduler.begin_index :])
                self._save("timesteps", scheduler.timesteps[scheduler.begin_index :])
            self._save(f"noise_pred_step{self._steps_done}", model_output)
            self._steps_done += 1
            return original(model_output, timestep, sample, **kwargs)

        scheduler.step = step

    def _tap_final_latents(self):
        original = self._pipe._unpack_latents

        def unpack(latents, *sizes):
            self._save("final_latents_packed", latents)
            return original(latents, *sizes)

        self._pipe._unpack_latents = unpack

    def _tap_vae(self):
        vae = self._pipe.vae
        recorder = PassRecorder(self._store, self._choice)
        self._attach("vae_decode", vae, recorder)
        original = vae.decode

        def decode(z, **kwargs):
            self._pre_decode_latents = z.clone()
            self._save("vae/pre_decode_latents", z)
            recorder.begin("vae")
            result = original(z, **kwargs)
            recorder.end()
            self._save("image", result[0][:, :, 0])
            return result

        vae.decode = decode
        self._plain_decode = original

    def run(self, args):
        latents = initial_latents(self._pipe, args)
        self._save("initial_latents_packed", latents)
        return official_pipelines.call(self._kind, self._pipe, args, latents=latents)

    @torch.no_grad()
    def decode_tiled(self, tiling):
        """The VAE alone once more on the same latents; the first family's is then not clamped, unlike the plain decode."""
        self._pipe.vae.enable_tiling(**tiling)
        image = self._plain_decode(self._pre_decode_latents, return_dict=False)[0]
        self._save("image_tiled", image[:, :, 0])
        self._pipe.vae.disable_tiling()


def initial_latents(pipe, args):
    """Drawn in float32 whatever the run's precision: torch draws other numbers in bfloat16."""
    latents = pipe.prepare_latents(
        1,
        pipe.transformer.config.in_channels // 4,
        args.height,
        args.width,
        torch.float32,
        torch.device("cpu"),
        torch.Generator("cpu").manual_seed(args.seed),
    )
    return latents.to(pipe.transformer.dtype)

