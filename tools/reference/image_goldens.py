"""Writes picture files of all kinds and what Pillow reads from them.

    python -m tools.reference.image_goldens --out tests/goldens/images

NAME.png, .jpg, .webp      the files; mask_*.png are masks
expected.npz               for each file its pixels, [height, width, 3] of uint8, as the engine's ReadImage must return them;
                           for masks [height, width], 255 where something is redrawn; and png_rgb.L, what convert("L") gives
"""

import argparse
import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageChops, ImageOps, PngImagePlugin

ORIENTATION = 0x0112
SHORT, LONG = 3, 4


def photo(width, height, seed):
    """Smooth colours with edges and some noise: enough for every part of a codec, and small."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    phase = rng.uniform(0, 6, 3)
    pixels = np.stack([127 + 120 * np.sin(x / (4 + c) + y / (7 - c) + phase[c]) for c in range(3)], axis=-1)
    pixels[height // 3 : height // 2, width // 4 : width // 2] = rng.uniform(0, 255, 3)
    pixels += rng.normal(0, 4, pixels.shape)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def alpha_of(width, height):
    """A slope from clear to opaque that reaches both."""
    y, x = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.clip((x + y) * 400 // (width + height) - 60, 0, 255).astype(np.uint8))


def with_alpha(image):
    image = image.copy()
    image.putalpha(alpha_of(*image.size))
    return image


def encoded(image, format, **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def exif(orientation, order=">", kind=SHORT, count=1):
    """The smallest EXIF data that has an orientation, after a field that is none."""
    head = b"MM\0*" if order == ">" else b"II*\0"
    fields = 2
    end = 8 + 2 + fields * 12 + 4
    value = struct.pack(order + ("H" if kind == SHORT else "L") * count, *[orientation] * count)
    data = b""
    if len(value) > 4:
        value, data = struct.pack(order + "L", end), value
    return (
        head
        + struct.pack(order + "LH", 8, fields)
        + struct.pack(order + "HHLHH", 0x0100, SHORT, 1, 7, 0)
        + struct.pack(order + "HHL", ORIENTATION, kind, count)
        + value.ljust(4, b"\0")
        + struct.pack(order + "L", 0)
        + data
    )


def xmp(orientation):
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" '
        f'tiff:Orientation="{orientation}"/></x:xmpmeta>'
    )


def jpeg_segments(data):
    """(marker, start, end) of the segments before the first scan's data"""
    at = 2
    while True:
        marker, length = struct.unpack(">HH", data[at : at + 4])
        yield marker, at, at + 2 + length
        if marker == 0xFFDA:
            return
        at += 2 + length


def without_adobe(data):
    for marker, start, end in jpeg_segments(data):
        if marker == 0xFFEE:
            return data[:start] + data[end:]
    raise ValueError("no Adobe segment")


def as_ycck(data):
    """The same numbers, declared to be YCCK instead of CMYK."""
    for marker, _, end in jpeg_segments(data):
        if marker == 0xFFEE:
            return data[: end - 1] + b"\2" + data[end:]
    raise ValueError("no Adobe segment")


def as_440(data, width, height):
    """4:2:2 declared to be 4:4:0, as cameras' pictures are after a lossless turn; the blocks land elsewhere."""
    for marker, start, end in jpeg_segments(data):
        if marker == 0xFFC0:
            frame = bytearray(data[start:end])
            frame[5:9] = struct.pack(">HH", height, width)
            assert frame[11] == 0x21
            frame[11] = 0x12
            return data[:start] + bytes(frame) + data[end:]
    raise ValueError("no frame")


def png_chunk(name, data):
    return struct.pack(">L", len(data)) + name + data + struct.pack(">L", zlib.crc32(name + data))


def png_16(image, color_type):
    """16 bits per channel, whose low bytes would round up where they are not cut off."""
    high = np.atleast_3d(np.asarray(image)).astype(np.uint16)
    rows = (high << 8 | 0xF0).astype(">u2").reshape(high.shape[0], -1)
    packed = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    header = struct.pack(">LLBBBBB", image.width, image.height, 16, color_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", packed) + png_chunk(b"IEND", b"")


def png_with_text(image, key, value, compressed=False):
    text = PngImagePlugin.PngInfo()
    text.add_itxt(key, value) if not compressed else text.add_text(key, value, zip=True)
    return encoded(image, "PNG", pnginfo=text)


def raw_profile(data):
    """As ImageMagick writes EXIF data into a PNG."""
    digits = data.hex()
    return f"\nexif\n{len(data):8}\n" + "\n".join(digits[i : i + 72] for i in range(0, len(digits), 72)) + "\n"


def png_files():
    rgb = photo(29, 19, 1)
    yield "png_rgb.png", encoded(rgb, "PNG")
    yield "png_rgba.png", encoded(with_alpha(rgb), "PNG")
    yield "png_opaque.png", encoded(photo(13, 7, 3).convert("RGBA"), "PNG")
    yield "png_grey_alpha.png", encoded(with_alpha(rgb.convert("L")), "PNG")
    yield "png_palette.png", encoded(rgb.quantize(16), "PNG")
    yield "png_palette_clear.png", encoded(rgb.quantize(16), "PNG", transparency=bytes([0, 128]))
    yield "png_colour_clear.png", encoded(rgb, "PNG", transparency=rgb.getpixel((5, 5)))
    yield "png_1bit.png", encoded(rgb.convert("1"), "PNG")
    yield "png_rgb16.png", png_16(photo(13, 7, 13), 2)
    yield "png_rgba16.png", png_16(with_alpha(photo(13, 7, 13)), 6)
    small = photo(13, 7, 3)
    yield "png_animated.png", encoded(small, "PNG", save_all=True, append_images=[photo(13, 7, 2)])
    yield "png_exif6.png", encoded(small, "PNG", exif=exif(6, ">"))
    yield "png_exif8_alpha.png", encoded(with_alpha(small), "PNG", exif=exif(8, "<"))
    yield "png_xmp3.png", png_with_text(small, "XML:com.adobe.xmp", xmp(3))
    yield "png_raw_profile5.png", png_with_text(small, "Raw profile type exif", raw_profile(exif(5)), compressed=True)


def jpeg_files():
    rgb = photo(29, 19, 4)
    for name, subsampling in {"444": 0, "422": 1, "420": 2}.items():
        yield f"jpeg_{name}.jpg", encoded(rgb, "JPEG", quality=85, subsampling=subsampling)
        yield f"jpeg_{name}_progressive.jpg", encoded(rgb, "JPEG", quality=85, subsampling=subsampling, progressive=True)
    yield "jpeg_440.jpg", as_440(encoded(photo(48, 24, 5), "JPEG", quality=85, subsampling=1), 21, 46)
    yield "jpeg_grey.jpg", encoded(rgb.convert("L"), "JPEG", quality=85)
    yield "jpeg_grey_progressive.jpg", encoded(rgb.convert("L"), "JPEG", quality=85, progressive=True)
    yield "jpeg_restarts.jpg", encoded(rgb, "JPEG", quality=85, restart_marker_blocks=2)
    yield "jpeg_rgb.jpg", encoded(rgb, "JPEG", quality=85, keep_rgb=True)
    yield "jpeg_quality5.jpg", encoded(rgb, "JPEG", quality=5)
    # with enough black to see its rounding
    cmyk = Image.merge("CMYK", [*rgb.split(), photo(29, 19, 6).convert("L")])
    adobe = encoded(cmyk, "JPEG", quality=85)
    yield "jpeg_cmyk.jpg", adobe
    yield "jpeg_cmyk_plain.jpg", without_adobe(adobe)
    yield "jpeg_ycck.jpg", as_ycck(adobe)
    small = photo(13, 7, 7)
    for orientation in range(1, 10):
        order = "<>"[orientation % 2]
        yield f"jpeg_exif{orientation}.jpg", encoded(small, "JPEG", quality=85, exif=b"Exif\0\0" + exif(orientation, order))
    yield "jpeg_exif6_long.jpg", encoded(small, "JPEG", quality=85, exif=b"Exif\0\0" + exif(6, "<", LONG))
    yield "jpeg_exif3_twice.jpg", encoded(small, "JPEG", quality=85, exif=b"Exif\0\0" + exif(3, ">", SHORT, 3))
    yield "jpeg_xmp8.jpg", encoded(small, "JPEG", quality=85, xmp=xmp(8).encode())
    # EXIF counts more than XMP
    yield "jpeg_exif1_xmp8.jpg", encoded(small, "JPEG", quality=85, xmp=xmp(8).encode(), exif=b"Exif\0\0" + exif(1))


def webp_files():
    rgb = photo(29, 19, 8)
    yield "webp_lossy.webp", encoded(rgb, "WEBP", quality=80)
    yield "webp_lossy_alpha.webp", encoded(with_alpha(rgb), "WEBP", quality=80)
    yield "webp_lossless.webp", encoded(photo(19, 11, 9), "WEBP", lossless=True)
    yield "webp_lossless_alpha.webp", encoded(with_alpha(photo(19, 11, 9)), "WEBP", lossless=True, exact=True)
    yield "webp_exif6.webp", encoded(rgb, "WEBP", quality=80, exif=exif(6, "<"))
    yield "webp_xmp3.webp", encoded(rgb, "WEBP", quality=80, xmp=xmp(3))
    frames = dict(save_all=True, duration=100, quality=80)
    animated = encoded(rgb, "WEBP", append_images=[photo(29, 19, 10)], **frames)
    yield "webp_animated.webp", animated
    yield "webp_animated_part.webp", on_larger_canvas(animated, 35, 23)
    clear = with_alpha(photo(19, 11, 10))
    animated = encoded(clear, "WEBP", append_images=[photo(19, 11, 9)], **frames)
    yield "webp_animated_alpha.webp", animated
    yield "webp_animated_alpha_part.webp", on_larger_canvas(animated, 24, 14)


def on_larger_canvas(data, width, height):
    """The pictures of an animation cover a part of the canvas only, from (4, 2) on."""

    def three(value):
        return struct.pack("<L", value)[:3]

    assert data[12:16] == b"VP8X"
    parts = (data[:24] + three(width - 1) + three(height - 1) + data[30:]).split(b"ANMF")
    # after a frame's size in bytes its place, in units of 2 pixels
    return parts[0] + b"".join(b"ANMF" + part[:4] + three(2) + three(1) + part[10:] for part in parts[1:])


def masks():
    """name → (file, expected)"""
    width, height = 21, 13
    picture, alpha = photo(width, height, 11), alpha_of(width, height)
    grey = picture.convert("L")

    def drawn(colour):
        image = Image.new("RGBA", (width, height), colour)
        image.putalpha(alpha)
        return encoded(image, "PNG")

    on_black = Image.new("L", (width, height), 0)
    on_black.paste(grey, mask=alpha)
    yield "mask_colour.png", encoded(picture, "PNG"), picture.convert("L")
    yield "mask_grey.png", encoded(grey, "PNG"), grey
    yield "mask_white_strokes.png", drawn("white"), alpha
    yield "mask_red_strokes.png", drawn("red"), alpha
    yield "mask_black_cover.png", drawn("black"), ImageChops.invert(alpha)
    yield "mask_greys_clear.png", encoded(with_alpha(grey), "PNG"), on_black
    yield "mask_hole.png", encoded(with_alpha(picture), "PNG"), ImageChops.invert(alpha)
    yield "mask_exif6.png", encoded(grey, "PNG", exif=exif(6)), grey.transpose(Image.Transpose.ROTATE_270)


def expected_pixels(data):
    """As diffusers loads a picture, but with transparent parts on white."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGB", image.size, "white")
        white.paste(image, mask=image.getchannel("A"))
        return white
    return image.convert("RGB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, data in [*png_files(), *jpeg_files(), *webp_files()]:
        (out / name).write_bytes(data)
        expected[name] = np.asarray(expected_pixels(data))
    for name, data, mask in masks():
        (out / name).write_bytes(data)
        expected[name] = np.asarray(mask)
    expected["png_rgb.L"] = np.asarray(Image.open(out / "png_rgb.png").convert("L"))
    grey16 = Image.fromarray((np.asarray(photo(13, 7, 12).convert("L")).astype(np.uint16) << 8) + 0xF0)
    (out / "png_grey16.png").write_bytes(encoded(grey16, "PNG"))
    # The high byte here: Pillow's convert("RGB") clips 16-bit greys, which leaves nothing but white.
    expected["png_grey16.png"] = np.repeat((np.asarray(grey16) >> 8).astype(np.uint8)[..., None], 3, axis=2)
    np.savez_compressed(out / "expected.npz", **expected)


if __name__ == "__main__":
    main()
