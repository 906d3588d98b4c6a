"""Runs an official pipeline that starts from pictures once and records its checkpoints."""

from tools.reference import official_pipelines
from tools.reference.module_taps import PassRecorder
from tools.reference.text_to_image import TextToImage


class PictureToImage(TextToImage):
    """Adds the seams that pictures pass: the vision tower, the VAE's encoder, the latents made of them, the mask."""

    def __init__(self, kind, pipe, store, choice, guided):
        super().__init__(kind, pipe, store, choice, guided)
        self._encoded = 0
        self._encoding_masked = False
        if kind.sees:
            self._tap_vision()
            self._tap_positions()
        self._tap_vae_encoder()
        self._tap_image_latents()
        self._tap_noise()
        self._tap_latents()
        if kind.mask:
            self._tap_mask()

    def _tap_vision(self):
        encoder = self._pipe.text_encoder
        recorder = PassRecorder(self._store, self._choice)

        def begin(_module, _args, kwargs):
            # The negative prompt comes with the same pictures: their features are the same again.
            if self._text_calls == 1 and "pixel_values" in kwargs:
                self._save("pixel_values", kwargs["pixel_values"])
                self._save("image_grid_thw", kwargs["image_grid_thw"])
                recorder.begin("text_encoder")

        # After the hook that counts the calls: it was registered first.
        encoder.register_forward_pre_hook(begin, with_kwargs=True)
        self._attach_vision(recorder)
        encoder.model.visual.register_forward_hook(lambda *_: recorder.end())

    def _attach_vision(self, recorder):
        self._attach("vision", self._pipe.text_encoder, recorder)

    def _tap_positions(self):
        def begin(_module, _args, kwargs):
            prefix = "negative_" if self._passes[self._text_calls - 1] else ""
            # Without a picture the language model counts by itself.
            if kwargs["position_ids"] is not None:
                self._save(f"{prefix}position_ids", kwargs["position_ids"])

        self._pipe.text_encoder.model.language_model.register_forward_pre_hook(begin, with_kwargs=True)

    def _tap_vae_encoder(self):
        vae = self._pipe.vae
        recorder = PassRecorder(self._store, self._choice)
        self._attach("vae_encode", vae, recorder)
        original = vae.encode

        def encode(x, **kwargs):
            if self._encoding_masked:
                return original(x, **kwargs)
            self._save(f"vae_image{self._encoded}", x[:, :, 0])
            recorder.begin(f"vae.image{self._encoded}")
            self._encoded += 1
            result = original(x, **kwargs)
            recorder.end()
            return result

        vae.encode = encode

    def _pack(self, latents):
        """[1, channels, 1, height, width] or [1, 1, channels, height, width], which lie alike in memory."""
        channels = self._pipe.transformer.config.in_channels // 4
        return self._pipe._pack_latents(latents, 1, channels, *latents.shape[3:])

    def _tap_image_latents(self):
        """Where the loop starts from a picture; an edit's references are put together in prepare_latents."""
        original = self._pipe._encode_vae_image

        def encode(image, generator):
            latents = original(image=image, generator=generator)
            if self._kind.strength and not self._encoding_masked:
                self._save("image_latents", self._pack(latents))
            return latents

        self._pipe._encode_vae_image = encode

    def _tap_latents(self):
        original = self._pipe.prepare_latents

        def prepare(*args, **kwargs):
            result = original(*args, **kwargs)
            latents = result[0] if isinstance(result, tuple) else result
            if not self._kind.strength and result[1] is not None:
                self._save("image_latents", result[1])
            self._save("initial_latents_packed", latents)
            return result

        self._pipe.prepare_latents = prepare

    def _tap_noise(self):
        """What is drawn for the loop; without a strength it is the initial latents themselves."""
        original = self._pipe.scheduler.scale_noise

        def scale_noise(sample, timestep, noise):
            # Later calls, between the steps, are the mask's.
            if self._steps_done == 0:
                self._save("noise_packed", self._pack(noise))
            return original(sample, timestep, noise)

        self._pipe.scheduler.scale_noise = scale_noise

    def _tap_mask(self):
        original = self._pipe.prepare_mask_latents

        def prepare(*args, **kwargs):
            # It also encodes the picture without the masked part, and nothing uses the result.
            self._encoding_masked = True
            result = original(*args, **kwargs)
            self._encoding_masked = False
            self._save("mask_packed", result[0])
            return result

        self._pipe.prepare_mask_latents = prepare

    def run(self, args):
        with official_pipelines.float32_draws(self._kind):
            return official_pipelines.call(self._kind, self._pipe, args, **official_pipelines.seeded(args))
