"""What is given to the Python module: pictures of every kind, and values of the wrong type."""

import struct
import unittest
import zlib
from pathlib import Path

import numpy as np
import qwen_image
from case import ModuleTest
from PIL import Image, ImageOps
from qwen_image import _models, _pixels


class Inputs(ModuleTest):
    def edited(self, picture):
        return self.pipeline.generate("make the circle green", input_images=[picture], steps=1, cfg=1.0).array

    def test_every_kind_of_picture_is_the_same(self):
        path = self.folder / "circle.png"
        self.picture.save(path)
        expected = self.edited(self.picture.array)
        transparent = self.picture.image.convert("RGBA")
        turned = self.picture.image.transpose(Image.Transpose.ROTATE_90)
        turned.getexif()[0x0112] = 6  # it must be turned by 90 degrees clockwise
        gaps = np.zeros((32, 128, 3), np.uint8)[:, ::2]
        gaps[:] = self.picture.array
        for kind in (self.picture, self.picture.image, path, str(path), transparent, turned, gaps):
            with self.subTest(kind=type(kind)):
                np.testing.assert_array_equal(self.edited(kind), expected)
        blank = self.edited(np.zeros((32, 64, 3), np.uint8))
        self.assertTrue((blank != expected).any(), "the picture has no influence")

    def test_transparent_parts_are_laid_on_white(self):
        clear = Image.new("RGBA", (64, 32), (255, 0, 0, 0))
        np.testing.assert_array_equal(self.edited(clear), self.edited(np.full((32, 64, 3), 255, np.uint8)))

    def test_alpha_is_read_as_pillow_reads_it(self):
        """With the colours that lie hidden. (Pictures without alpha are compared in src/files/image_test.cc.)"""
        goldens = Path(__file__).resolve().parents[2] / "tests/goldens/images"
        with_alpha = 0
        for path in sorted(goldens.iterdir()):
            if path.suffix == ".npz":
                continue
            with self.subTest(file=path.name):
                image = ImageOps.exif_transpose(Image.open(path))
                array = _models.read_image(path)
                self.assertEqual(array.shape[2] == 4, "A" in image.mode or "transparency" in image.info)
                if array.shape[2] == 4:
                    with_alpha += 1
                    np.testing.assert_array_equal(array, np.asarray(image.convert("RGBA")))
        self.assertGreater(with_alpha, 9)

    def test_arrays_and_images_with_alpha(self):
        """What they become for a model without alpha is what it is in a file."""
        array = np.zeros((32, 64, 4), np.uint8)
        array[..., :3] = self.picture.array
        array[:, :, 3] = np.arange(64) * 4
        path = self.folder / "clear.png"
        _models.write_png(path, array, "{}")
        np.testing.assert_array_equal(np.asarray(Image.open(path)), array)
        self.assertEqual(Image.open(path).mode, "RGBA")
        np.testing.assert_array_equal(_pixels.pixels(Image.fromarray(array), "x"), array)
        np.testing.assert_array_equal(_pixels.pixels(path, "x"), array)
        white = np.full((32, 64, 3), 255, np.uint8)
        flat = Image.fromarray(white)
        flat.paste(Image.fromarray(array), mask=Image.fromarray(array).getchannel("A"))
        expected = self.edited(flat)
        for kind in (array, Image.fromarray(array), path):
            with self.subTest(kind=type(kind)):
                np.testing.assert_array_equal(self.edited(kind), expected)
        begun = {"init_image": array, "steps": 2, "cfg": 1.0}
        np.testing.assert_array_equal(
            self.pipeline.generate("x", **begun).array, self.pipeline.generate("x", **{**begun, "init_image": flat}).array
        )

    def pngs(self):
        """Files that Pillow opens as something other than 8-bit RGB, or that are clear where a colour is."""

        def chunk(name, data):
            return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

        def png(bits, colour, rows, clear=None):
            height, width = rows.shape[:2]
            packed = b"".join(b"\0" + row.tobytes() for row in rows)
            parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))]
            if clear is not None:
                parts.append(chunk(b"tRNS", struct.pack(f">{len(clear)}H", *clear)))
            parts += [chunk(b"IDAT", zlib.compress(packed)), chunk(b"IEND", b"")]
            return b"\x89PNG\r\n\x1a\n" + b"".join(parts)

        deep = (np.arange(64 * 32).reshape(32, 64) * 31).astype(">u2")
        colours = np.zeros((32, 64, 3), np.uint8)
        colours[:, 20:] = (10, 200, 30)
        grey = np.ascontiguousarray(deep // 256).astype(np.uint8)
        return {
            "16-bit grey": png(16, 0, deep),
            "16-bit grey, one of them clear": png(16, 0, deep, (int(deep[3, 7]),)),
            "RGB, a colour clear": png(8, 2, colours, (10, 200, 30)),
            "grey, one of them clear": png(8, 0, grey, (int(grey[3, 7]),)),
        }

    def test_pillow_images_are_what_their_files_are(self):
        for name, data in self.pngs().items():
            path = self.folder / "made.png"
            path.write_bytes(data)
            opened = Image.open(path)
            with self.subTest(name=name, mode=opened.mode):
                expected = _pixels.pixels(path, "x")
                self.assertGreater(len(np.unique(expected)), 1)
                np.testing.assert_array_equal(_pixels.pixels(opened, "x"), expected)
                np.testing.assert_array_equal(_pixels.grey(opened, "x"), _pixels.grey(path, "x"))

    def test_repairs(self):
        """A mask as an array of bytes or truths, as a Pillow image, as a file: what it does not cover stays."""
        settings = {"init_image": self.picture, "strength": 1.0, "keep_size": True, "steps": 2, "cfg": 1.0, "seed": 5}
        mask = np.zeros((32, 64), np.uint8)
        mask[:, 32:] = 255
        path = self.folder / "mask.png"
        Image.fromarray(mask).save(path)
        first = self.pipeline.generate("a blue square", mask=mask, **settings).array
        np.testing.assert_array_equal(first[:, :32], self.picture.array[:, :32])
        self.assertTrue((first[:, 32:] != self.picture.array[:, 32:]).any())
        for kind in (mask > 0, Image.fromarray(mask), Image.fromarray(mask).convert("1"), path):
            with self.subTest(kind=type(kind)):
                again = self.pipeline.generate("a blue square", mask=kind, **settings).array
                np.testing.assert_array_equal(again, first)
        unblended = self.pipeline.generate("a blue square", mask=mask, blend=False, **settings).array
        self.assertTrue((unblended[:, :32] != first[:, :32]).any())

    def test_outpaint(self):
        settings = {"init_image": self.picture, "steps": 1, "cfg": 1.0}
        wide = self.pipeline.generate("a blue square", outpaint=(16, 0, 32, 16), keep_size=True, **settings)
        self.assertEqual(wide.array.shape, (48, 112, 3))
        np.testing.assert_array_equal(wide.array[:32, 16:80], self.picture.array)

    def test_wrong_arrays(self):
        cases = {
            "moveaxis": np.zeros((3, 32, 64), np.uint8),
            "astype": np.zeros((32, 64, 3), np.float32),
            "one by one": np.zeros((1, 32, 64, 3), np.uint8),
            "or 4 with alpha": np.zeros((32, 64, 2), np.uint8),
            r"\[32, 64\]": np.zeros((32, 64), np.uint8),
            "int64": np.zeros((32, 64, 3), np.int64),
            r"\[0, 64, 3\]": np.zeros((0, 64, 3), np.uint8),
        }
        for message, array in cases.items():
            with self.subTest(message=message):
                with self.assertRaisesRegex(qwen_image.UsageError, r"input_images\[1\].*" + message) as caught:
                    self.pipeline.generate("x", input_images=[self.picture, array])
                self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaisesRegex(qwen_image.UsageError, r"init_image.*\[height, width, 3\]"):
            self.pipeline.generate("x", init_image=np.zeros((2, 2), np.uint8))
        with self.assertRaisesRegex(qwen_image.UsageError, r"mask.*\[height, width\]"):
            self.pipeline.generate("x", init_image=self.picture, mask=np.zeros((2, 2, 3), np.uint8))
        for wrong in ({"input_images": [7]}, {"init_image": 7}, {"init_image": self.picture, "mask": 7}):
            with self.assertRaisesRegex(TypeError, "is a int"):
                self.pipeline.generate("x", **wrong)
        with self.assertRaisesRegex(TypeError, "expected is a list"):
            self.pipeline.generate("x", input_images=self.picture)

    def test_wrong_values(self):
        wrong = [
            ({"width": 100, "height": 100}, "100x100"),
            ({"width": 2**70}, "width"),
            ({"steps": 0}, "steps"),
            ({"seed": -1}, "seed"),
            ({"seed": 2**64}, "seed"),
            ({"cfg": float("nan")}, ""),
            ({"outpaint": (1, 2)}, "4"),
            ({"init_image": self.picture, "strength": 2.0}, "strength"),
            ({"background": "transparent"}, "draws no transparent pictures"),
            ({"background": "pinkish"}, '"pinkish" is not a background'),
            ({"sigmas": [0.5, 1]}, "sigmas"),
            ({"sigmas": [1, 0.5], "steps": 3}, "2 sigmas are 2 steps"),
            ({"vae_tiling": "sideways"}, "vae_tiling is 'sideways'; expected is one of auto, on, off"),
            ({"latents": np.zeros((1, 2, 3), np.float32)}, "the initial latents have shape"),
            ({"max_sequence_length": 0}, "maximum sequence length"),
        ]
        for settings, message in wrong:
            with self.subTest(settings=settings):
                with self.assertRaisesRegex(qwen_image.UsageError, message):
                    self.pipeline.generate("x", **settings)
        wrong = [
            ({"prompt": None}, "prompt is None; expected is a str"),
            ({"prompt": b"x"}, "prompt is a bytes: b'x'; expected is a str"),
            ({"negative_prompt": 7}, "negative_prompt is a int: 7; expected is a str"),
            ({"width": "64"}, "width is a str: '64'; expected is an int"),
            ({"steps": 1.5}, "steps is a float: 1.5; expected is an int"),
            ({"seed": None}, "seed is None; expected is an int"),
            ({"cfg": "4"}, "cfg is a str: '4'; expected is a number"),
            ({"cfg": 1j}, "cfg is a complex"),
            ({"strength": "1"}, "strength is a str"),
            ({"step_cache": None}, "step_cache is None; expected is a number"),
            ({"keep_size": "no"}, "keep_size is a str: 'no'; expected is True or False"),
            ({"blend": 1}, "blend is a int: 1; expected is True or False"),
            ({"outpaint": 7}, "outpaint is a int: 7; expected is 4 margins"),
            ({"outpaint": (1, 2, 3, "4")}, r"outpaint\[3\] is a str"),
            ({"input_images": None}, "input_images is None; expected is a list"),
            ({"input_images": 7}, "input_images is a int: 7; expected is a list"),
            ({"background": 7}, "background is a int: 7; expected is a str"),
            ({"sigmas": 7}, "sigmas is a int: 7; expected is a list of numbers"),
            ({"sigmas": [1, "0.5"]}, r"sigmas\[1\] is a str"),
            ({"latents": "noise.npy"}, "latents is an array of <U9; expected are floats"),
            ({"resume_folder": 7}, "resume_folder is a int: 7; expected is a str or a pathlib.Path"),
            ({"progress": 7}, "progress is a int: 7; expected is a function"),
            ({"preview": 7}, "preview is a int"),
        ]
        for settings, message in wrong:
            with self.subTest(settings=settings), self.assertRaisesRegex(TypeError, message):
                self.pipeline.generate(**{"prompt": "x", **settings})
        with self.assertRaisesRegex(qwen_image.UsageError, "prompt is no text"):
            self.pipeline.generate("\ud800")
        numbers = {"width": np.int64(64), "height": np.int32(32), "steps": np.uint8(1), "cfg": np.float32(1)}
        self.pipeline.generate("x", blend=np.bool_(True), **numbers)  # NumPy's are taken as well
        with self.assertRaises(qwen_image.BadInputError):
            self.pipeline.generate("x", input_images=["/no/such/picture.png"])


if __name__ == "__main__":
    unittest.main()
