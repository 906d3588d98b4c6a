"""The official pipelines, what each reads besides a prompt, and how they are loaded and called here."""

import contextlib
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import diffusers
import numpy as np
import torch
from diffusers.models.autoencoders import vae as posterior
from diffusers.utils import load_image
from PIL import Image
from transformers import BatchFeature, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tools.reference.processor_21 import Processor21, repeat_image_pads


@dataclass(frozen=True)
class Kind:
    class_name: str
    max_images: int = 0  # it needs at least one where it takes any, unless they are optional
    optional_images: bool = False
    sees: bool = False  # the text encoder gets the pictures too
    strength: bool = False  # the loop starts from the picture with noise over it
    mask: bool = False
    fixed_size: bool = False  # the pictures alone decide the size
    family: str = ""  # which modules its models have, see module_taps.PATHS

    @property
    def min_images(self):
        return 0 if self.optional_images else min(1, self.max_images)

    @property
    def is_21(self):
        return self.family == "-2.1"

    @property
    def cls(self):
        return getattr(diffusers, self.class_name)


KINDS = {
    "text-to-image": Kind("QwenImagePipeline"),
    "edit": Kind("QwenImageEditPipeline", max_images=1, sees=True),
    "edit-plus": Kind("QwenImageEditPlusPipeline", max_images=8, sees=True),
    "img2img": Kind("QwenImageImg2ImgPipeline", max_images=1, strength=True),
    "inpaint": Kind("QwenImageInpaintPipeline", max_images=1, strength=True, mask=True),
    "edit-inpaint": Kind(
        "QwenImageEditInpaintPipeline", max_images=1, sees=True, strength=True, mask=True, fixed_size=True
    ),
    "2.1": Kind("QwenImage21Pipeline", max_images=10, optional_images=True, sees=True, family="-2.1"),
}
# The areas that the official pipelines have as literals.
VAE_AREA = 1024 * 1024
CONDITION_AREA = 384 * 384
# The published models' processor/preprocessor_config.json; the class has another upper limit by default.
PIXELS = {"shortest_edge": 56 * 56, "longest_edge": 12845056}


class Processor:
    """Qwen2VLProcessor's part in these pipelines, without torchvision, which has no build for a CPU's torch."""

    def __init__(self, model, tokenizer):
        folder = Path(model) / "processor"
        if (folder / "preprocessor_config.json").exists():
            self._images = Qwen2VLImageProcessorPil.from_pretrained(folder)
        else:
            self._images = Qwen2VLImageProcessorPil(size=PIXELS)
        self._tokenizer = tokenizer

    def __call__(self, text, images, padding, return_tensors):
        pictures = self._images(images=images, return_tensors=return_tensors)
        expanded = repeat_image_pads(text, pictures["image_grid_thw"], self._images.merge_size)
        tokens = self._tokenizer(expanded, padding=padding, return_tensors=return_tensors)
        return BatchFeature({**tokens, **pictures})


def place_pictures(text_encoder):
    """transformers 5 gives a picture's tokens the positions of text unless it is told which tokens they are."""

    def tell(_module, args, kwargs):
        types = (kwargs["input_ids"] == text_encoder.config.image_token_id).to(torch.int32)
        return args, {**kwargs, "mm_token_type_ids": types}

    def check(_module, _args, kwargs):
        positions = kwargs["position_ids"]
        if positions is None or positions.shape[0] != 3 or torch.equal(positions[1], positions[2]):
            raise SystemExit("the language model's positions do not tell a picture's rows from its columns")

    text_encoder.register_forward_pre_hook(tell, with_kwargs=True)
    text_encoder.model.language_model.register_forward_pre_hook(check, with_kwargs=True)


def index_of(model):
    return json.loads((Path(model) / "model_index.json").read_text(encoding="utf-8"))


def kind_of(model):
    """The kind that a model folder stands for without further words."""
    return "2.1" if index_of(model)["_class_name"] == KINDS["2.1"].class_name else "text-to-image"


def load(kind, model, dtype):
    """The parts are the model folder's, whichever of its family's pipelines its model_index.json names."""
    pipe = load_21(Path(model), dtype) if kind.is_21 else load_first_family(kind, model, dtype)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def load_21(model, dtype):
    def part(cls, name):
        return cls.from_pretrained(model, subfolder=name, dtype=dtype)

    return diffusers.QwenImage21Pipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(model, subfolder="scheduler"),
        vae=part(diffusers.AutoencoderKLQwenImage21, "vae"),
        text_encoder=part(Qwen3VLForConditionalGeneration, "text_encoder"),
        processor=Processor21(model / "processor"),
        transformer=part(diffusers.QwenImage21Transformer2DModel, "transformer"),
        sample_sigmas=index_of(model).get("sample_sigmas"),
    )


def load_first_family(kind, model, dtype):
    pipe = diffusers.QwenImagePipeline.from_pretrained(model, dtype=dtype)
    if kind.class_name != "QwenImagePipeline":
        parts = dict(pipe.components)
        if kind.sees:
            parts["processor"] = Processor(model, pipe.tokenizer)
            place_pictures(pipe.text_encoder)
        pipe = kind.cls(**parts)
    return pipe


def read_picture(path, with_alpha=False):
    """As diffusers' users do: turned as EXIF says, RGB. There transparency would be dropped without a word."""
    if with_alpha:
        return load_image(str(path), convert_method=lambda image: image.convert("RGBA"))
    with Image.open(path) as image:
        if image.has_transparency_data:
            raise SystemExit(f"{path} has transparent pixels, whose colour the reference would take for opaque")
    return load_image(str(path))


def areas_of(model):
    """What a model says in qwen_image.json in place of the official areas, by those."""
    path = Path(model) / "qwen_image.json"
    settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        VAE_AREA: settings.get("vae_area", VAE_AREA),
        CONDITION_AREA: settings.get("condition_area", CONDITION_AREA),
    }


@contextlib.contextmanager
def replaced(module, name, value):
    original = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, original)


@contextlib.contextmanager
def areas(kind, args):
    """The model's areas take the official ones' place."""
    module = sys.modules[kind.cls.__module__]
    if not hasattr(module, "calculate_dimensions"):
        yield
        return
    known, original = areas_of(args.model), module.calculate_dimensions
    with replaced(module, "calculate_dimensions", lambda area, ratio: original(known[area], ratio)):
        yield


@contextlib.contextmanager
def float32_draws(kind):
    """Random numbers are drawn in float32 whatever the run's precision: torch draws others in bfloat16."""
    module = sys.modules[kind.cls.__module__]
    original = posterior.randn_tensor

    def draw(shape, generator=None, device=None, dtype=None, **options):
        return original(shape, generator=generator, device=device, dtype=torch.float32, **options).to(dtype)

    with replaced(module, "randn_tensor", draw), replaced(posterior, "randn_tensor", draw):
        yield


def seeded(args):
    return {"generator": torch.Generator("cpu").manual_seed(args.seed)}


def call_21(pipe, args, use_kv_cache, **noise):
    """A plain call of the 2.1 pipeline, whose pictures may have alpha."""
    return pipe(
        prompt=args.prompt,
        image=[read_picture(path, with_alpha=True) for path in args.image] or None,
        negative_prompt=args.negative_prompt,
        true_cfg_scale=args.cfg,
        height=args.height,
        width=args.width,
        num_inference_steps=args.steps,
        sigmas=args.sigmas,
        output_resolution=math.isqrt(areas_of(args.model)[VAE_AREA]),
        use_kv_cache=use_kv_cache,
        **noise,
    ).images[0]


def call(kind, pipe, args, **noise):
    """A plain call. NOISE is the latents to start from, or a generator."""
    if kind.is_21:
        return call_21(pipe, args, args.kv_cache, **noise)
    options = {}
    if kind.max_images:
        pictures = [read_picture(path) for path in args.image]
        options["image"] = pictures if kind.max_images > 1 else pictures[0]
    if kind.mask:
        options["mask_image"] = read_picture(args.mask)
    if kind.strength:
        options["strength"] = args.strength
    if not kind.fixed_size:
        options.update(height=args.height, width=args.width)
    with areas(kind, args):
        return pipe(
            prompt=args.prompt,
            negative_prompt=args.negative_prompt,
            true_cfg_scale=args.cfg,
            num_inference_steps=args.steps,
            max_sequence_length=args.max_sequence_length,
            **options,
            **noise,
        ).images[0]


def verify_untouched(kind, args, dtype, image):
    """A fresh pipeline without any tap, in float32 from the seed alone, must paint the same picture bit for bit."""
    pipe = load(kind, args.model, dtype)
    draws = contextlib.nullcontext() if dtype == torch.float32 else float32_draws(kind)
    with draws:
        plain = call(kind, pipe, args, **seeded(args))
    if (plain.mode, plain.size, plain.tobytes()) != (image.mode, image.size, image.tobytes()):
        raise SystemExit("the recorded run differs from a plain pipeline call")
    print(f"verified: a plain pipeline call gives the same {image.mode} picture, bit for bit", file=sys.stderr)
    if kind.is_21 and dtype == torch.float32:
        verify_kv_cache(pipe, args, image)


def verify_kv_cache(pipe, args, image):
    """With and without the prefix cache the pipeline computes the same, but for the rounding of other matrix sizes."""
    other = call_21(pipe, args, not args.kv_cache, **seeded(args))
    levels = np.abs(np.asarray(other, dtype=np.int32) - np.asarray(image, dtype=np.int32)).max()
    if levels > 1:
        raise SystemExit(f"with and without the prefix cache the pictures differ by {levels} levels")
    print(f"verified: with and without the prefix cache the pictures differ by at most {levels} level", file=sys.stderr)
