"""What the official image processors make of small odd pictures, and the sizes the edit pipelines choose.

    python -m tools.reference.processor_goldens tests/goldens/processors

Pictures follow from a formula (`picture`), so that the tests can make them too; of most results only a hash is kept.
The resizes are those of Pillow 13, which has changed the order of its two passes for tall pictures.
"""

import argparse
import hashlib
import json
import pathlib
import types

import numpy as np
import PIL
import torch
from diffusers.image_processor import VaeImageProcessor
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as edit_plus
from diffusers.pipelines.qwenimage.pipeline_qwenimage_inpaint import QwenImageInpaintPipeline
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

from tools.reference import golden_json

FILTERS = {"bicubic": Image.Resampling.BICUBIC, "lanczos": Image.Resampling.LANCZOS}
SIDES = (1, 2, 3, 7, 16, 31, 64, 65, 100, 127, 200)
REAL_SIZES = (
    (4000, 3000, 1184, 896), (3000, 4000, 896, 1184), (1080, 2400, 672, 1536), (1920, 1080, 1376, 768),
    (512, 512, 1024, 1024), (1184, 880, 1204, 896), (640, 480, 640, 512), (128, 128, 392, 392),
)  # fmt: skip
OFFICIAL_VISION = {"min_pixels": 3136, "max_pixels": 12845056}
VISION_CASES = (
    # width, height, settings
    (384, 384, OFFICIAL_VISION), (320, 448, OFFICIAL_VISION), (37, 23, OFFICIAL_VISION), (1, 150, OFFICIAL_VISION),
    (128, 96, {"min_pixels": 784, "max_pixels": 4000}),
    (90, 61, {"min_pixels": 64, "max_pixels": 8192, "patch_size": 7, "merge_size": 3, "temporal_patch_size": 1}),
    (50, 50, {**OFFICIAL_VISION, "image_mean": [0.5, 0.25, 0.1], "image_std": [0.5, 0.2, 1.5], "rescale_factor": 0.01}),
)  # fmt: skip
RGBA_SIZES = ((37, 23, 48, 32), (64, 48, 64, 48), (100, 70, 47, 50), (31, 64, 96, 16), (200, 9, 8, 9), (3, 150, 3, 20))
VAE_CASES = ((37, 23, 48, 32), (64, 48, 64, 48), (100, 70, 50, 47), (31, 64, 96, 16))
MASK_CHANNELS = 3
NEAREST_CASES = ((64, 48, 8, 6), (48, 64, 6, 8), (7, 5, 3, 4), (5, 3, 13, 11), (1, 1, 4, 4), (166, 23, 61, 59))
AREAS = (1024 * 1024, 384 * 384, 128 * 128, 96 * 96, 1000000)
INPUT_SIZES = (
    (1024, 1024), (1248, 832), (832, 1248), (1328, 1328), (1920, 1080), (1080, 1920), (4000, 3000), (1477, 2056),
    (1536, 1152), (880, 1184), (1, 1), (3, 2), (640, 480), (1184, 896), (1376, 768), (2048, 512), (1023, 1025),
)  # fmt: skip


def picture(width, height, channels):
    """[height, width, channels] of bytes that look random: a hash of each value's index."""
    x = np.arange(width * height * channels, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(12345)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(2246822519)
    values = ((x ^ (x >> np.uint32(13))) >> np.uint32(24)).astype(np.uint8)
    return values.reshape((height, width, channels) if channels > 1 else (height, width))


def image(width, height, channels=3):
    return Image.fromarray(picture(width, height, channels))


def transparent_image(width, height):
    """A quarter of the pixels is invisible and a quarter opaque."""
    values = picture(width, height, 4)
    alpha = values[:, :, 3]
    values[:, :, 3] = np.where(alpha < 64, 0, np.where(alpha >= 192, 255, alpha))
    return Image.fromarray(values)


def sha256(array, dtype=np.float32):
    return hashlib.sha256(np.ascontiguousarray(array, dtype=dtype).tobytes()).hexdigest()


def resize_rows():
    random = np.random.default_rng(7)
    cases = [tuple(int(side) for side in random.choice(SIDES, 4)) for _ in range(120)] + list(REAL_SIZES)
    for number, (in_width, in_height, width, height) in enumerate(cases):
        channels, name = (3, 1)[number % 3 == 0], list(FILTERS)[number % 2]
        out = np.array(image(in_width, in_height, channels).resize((width, height), FILTERS[name]))
        yield {
            "size": [in_width, in_height, channels],
            "to": [width, height],
            "filter": name,
            "sha256": sha256(out, np.uint8),
        }


def rgba_rows():
    for in_width, in_height, width, height in RGBA_SIZES:
        for name, resampling in FILTERS.items():
            out = np.array(transparent_image(in_width, in_height).resize((width, height), resampling))
            yield {
                "size": [in_width, in_height],
                "to": [width, height],
                "filter": name,
                "sha256": sha256(out, np.uint8),
            }


def vae_rgba_rows():
    """As Qwen-Image-2.1's pipeline reads its pictures."""
    processor = VaeImageProcessor(vae_scale_factor=16)
    for channels in (3, 4):
        for in_width, in_height, width, height in VAE_CASES:
            out = processor.preprocess(image(in_width, in_height, channels).convert("RGBA"), height, width)
            yield {
                "size": [in_width, in_height, channels],
                "to": [width, height],
                "shape": list(out.shape),
                "sha256": sha256(out),
            }


def vae_rows():
    processor = VaeImageProcessor(vae_scale_factor=16)
    for in_width, in_height, width, height in VAE_CASES:
        out = processor.preprocess(image(in_width, in_height), height, width)
        yield {"size": [in_width, in_height], "to": [width, height], "shape": list(out.shape), "sha256": sha256(out)}


def packed_mask(mask):
    """The official method; it wants an encoded picture too, which may be anything."""
    height, width = mask.shape[2:]
    pipeline = types.SimpleNamespace(
        vae_scale_factor=8, latent_channels=MASK_CHANNELS, _pack_latents=QwenImageInpaintPipeline._pack_latents
    )
    latents = torch.zeros(1, MASK_CHANNELS, 1, height // 8, width // 8)
    return QwenImageInpaintPipeline.prepare_mask_latents(
        pipeline, mask, latents, 1, MASK_CHANNELS, 1, height, width, torch.float32, "cpu", None
    )[0]


def mask_rows():
    processor = VaeImageProcessor(
        vae_scale_factor=16, do_normalize=False, do_binarize=True, do_convert_grayscale=True
    )
    for in_width, in_height, width, height in VAE_CASES:
        mask = processor.preprocess(image(in_width, in_height, 1), height, width)
        packed = packed_mask(mask)
        yield {
            "size": [in_width, in_height],
            "to": [width, height],
            "shape": list(mask.shape),
            "white": float(mask.mean()),
            "sha256": sha256(mask),
            "latent_channels": MASK_CHANNELS,
            "packed_shape": list(packed.shape),
            "packed_sha256": sha256(packed),
        }


def nearest_rows():
    for in_width, in_height, width, height in NEAREST_CASES:
        x = torch.arange(in_width * in_height, dtype=torch.float32).reshape(1, 1, in_height, in_width)
        out = torch.nn.functional.interpolate(x, size=(height, width))
        yield {"size": [in_width, in_height], "to": [width, height], "sha256": sha256(out)}


def vision_rows():
    for width, height, settings in VISION_CASES:
        out = Qwen2VLImageProcessorPil(**settings).preprocess(image(width, height), return_tensors="np")
        yield {
            "size": [width, height],
            "config": settings,
            "image_grid_thw": out["image_grid_thw"][0].tolist(),
            "shape": list(out["pixel_values"].shape),
            "sha256": sha256(out["pixel_values"]),
        }


def sweep():
    """All pairs of sides that follow from one another: a few thousand ratios."""
    side = 1
    while side < 6000:
        for other in range(1, 6000, 97):
            yield side, other
        side += 1 + side // 9


def size_rows():
    for area in AREAS:
        for width, height in INPUT_SIZES:
            out = edit_plus.calculate_dimensions(area, width / height)
            yield {"area": area, "size": [width, height], "calculated": list(out)}
        sizes = [edit_plus.calculate_dimensions(area, width / height) for width, height in sweep()]
        sizes = [size if all(size) else (0, 0) for size in sizes]  # a side is empty: no pipeline gets any further
        yield {"area": area, "sweep_sha256": sha256(sizes, np.int64)}


def smart_resize_rows():
    for min_pixels, max_pixels, factor in ((3136, 12845056, 28), (1000, 60000, 28), (400, 9000, 20)):
        sizes = []
        for width, height in sweep():
            if max(width, height) <= 200 * min(width, height):
                out_height, out_width = smart_resize(height, width, factor, min_pixels, max_pixels)
                sizes.append((out_width, out_height))
        yield {"min_pixels": min_pixels, "max_pixels": max_pixels, "factor": factor, "sweep_sha256": sha256(sizes, np.int64)}


def write_small_tensors(folder):
    """Whole tensors, for a test that can say by how much a value is off."""
    np.save(folder / "vae.npy", VaeImageProcessor(vae_scale_factor=16).preprocess(image(23, 37), 32, 48).numpy())
    processor = Qwen2VLImageProcessorPil(min_pixels=784, max_pixels=12845056)
    np.save(folder / "vision.npy", processor.preprocess(image(50, 30), return_tensors="np")["pixel_values"])


def write_configs(folder):
    """The config as transformers writes it, alone and nested."""
    config = json.loads(Qwen2VLImageProcessorPil(**OFFICIAL_VISION).to_json_string())
    text = json.dumps(config, indent=2)
    (folder / "preprocessor_config.json").write_text(text + "\n", encoding="utf-8")
    nested = json.dumps({"image_processor": config, "processor_class": "Qwen2VLProcessor"}, indent=2)
    (folder / "processor_config.json").write_text(nested + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    folder = parser.parse_args().output
    if int(PIL.__version__.split(".")[0]) < 13:
        raise SystemExit(f"Pillow 13 is needed, not {PIL.__version__}: earlier ones resize tall pictures in another order")
    folder.mkdir(parents=True, exist_ok=True)
    golden_json.write(folder / "resize.json", "Image.resize", list(resize_rows()))
    golden_json.write(folder / "resize_rgba.json", "Image.resize of transparent pictures", list(rgba_rows()))
    golden_json.write(folder / "vae_rgba.json", "VaeImageProcessor.preprocess of RGBA", list(vae_rgba_rows()))
    golden_json.write(folder / "vae.json", "VaeImageProcessor.preprocess", list(vae_rows()))
    golden_json.write(folder / "mask.json", "masks, and prepare_mask_latents", list(mask_rows()))
    golden_json.write(folder / "nearest.json", "torch's interpolate of 0, 1, 2, …", list(nearest_rows()))
    golden_json.write(folder / "vision.json", "Qwen2VLImageProcessorPil.preprocess", list(vision_rows()))
    golden_json.write(folder / "sizes.json", "calculate_dimensions: width, height", list(size_rows()))
    golden_json.write(folder / "smart_resize.json", "smart_resize: width, height", list(smart_resize_rows()))
    write_small_tensors(folder)
    write_configs(folder)


if __name__ == "__main__":
    main()
