"""The Python module, on the embedded model."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import numpy as np
import qwen_image
from case import SMALL, TINY, ModuleTest
from PIL import Image


class Pictures(ModuleTest):
    def test_equals_the_programs(self):
        """With every setting, to the bit."""
        program = os.environ.get("QWEN_IMAGE_PROGRAM")
        if not program:
            self.skipTest("the program is not at hand")
        path = self.folder / "program.png"
        arguments = "--size 64x32 --steps 2 --cfg 2.5 --seed 7 --negative-prompt blue --no-prompt-cache -q".split()
        subprocess.run([program, "generate", "a red circle", "-m", TINY, "-o", path, *arguments], check=True)
        picture = self.pipeline.generate("a red circle", "blue", 64, 32, 2, 2.5, 7)
        np.testing.assert_array_equal(picture.array, np.asarray(Image.open(path)))

    def test_every_setting_of_the_program(self):
        program = os.environ.get("QWEN_IMAGE_PROGRAM")
        if not program:
            self.skipTest("the program is not at hand")
        path, noise = self.folder / "program.png", self.folder / "noise.npy"
        latents = np.random.default_rng(1).standard_normal((1, 8, 64), dtype=np.float32)
        np.save(noise, latents)
        arguments = "--size 64x32 --steps 2 --cfg 1 --vae-tiling on --max-sequence-length 2 --reference-special-tokens"
        command = [program, "generate", "<|im_start|>a red circle", "-m", TINY, "-o", path, "--latents", noise]
        subprocess.run([*command, *arguments.split(), "--no-prompt-cache", "-q"], check=True)
        settings = {"vae_tiling": "on", "max_sequence_length": 2, "reference_special_tokens": True, "latents": latents}
        picture = self.pipeline.generate("<|im_start|>a red circle", **SMALL, **settings)
        np.testing.assert_array_equal(picture.array, np.asarray(Image.open(path)))

    def test_a_run_that_was_stopped_goes_on(self):
        def stop(progress):
            if progress.stage == "denoise" and progress.step == 1:
                raise KeyboardInterrupt

        settings = {**SMALL, "steps": 3, "resume_folder": self.folder / "kept"}
        with self.assertRaises(KeyboardInterrupt):
            self.pipeline.generate("a red circle", progress=stop, **settings)
        self.assertEqual(len(list((self.folder / "kept").iterdir())), 1)
        picture = self.pipeline.generate("a red circle", **settings)
        self.assertEqual(picture.steps_resumed, 1)
        expected = self.pipeline.generate("a red circle", **{**SMALL, "steps": 3})
        np.testing.assert_array_equal(picture.array, expected.array)
        picture.remove_resume_state()
        self.assertEqual(list((self.folder / "kept").iterdir()), [])

    def test_what_a_picture_gives(self):
        picture = self.pipeline.generate("a red circle", "blue", 64, 32, 2, 2.5, 2**64 - 1)
        self.assertEqual(picture.array.shape, (32, 64, 3))
        self.assertEqual(picture.array.dtype, np.uint8)
        self.assertEqual((picture.width, picture.height, picture.seed), (64, 32, 2**64 - 1))
        self.assertEqual(picture.image.size, (64, 32))
        np.testing.assert_array_equal(np.asarray(picture.image), picture.array)
        np.testing.assert_array_equal(np.asarray(picture), picture.array)
        self.assertEqual(np.asarray(picture, dtype=np.float32).dtype, np.float32)
        self.assertFalse(np.shares_memory(np.array(picture), picture.array))
        expected = {"prompt": "a red circle", "negative_prompt": "blue", "width": 64, "height": 32, "steps": 2}
        expected.update({"cfg": 2.5, "seed": 2**64 - 1, "strength": None})
        self.assertEqual(picture.settings, expected)
        self.assertIn("64x32", repr(picture))
        self.assertEqual((picture.notes, picture.alignment, picture.prompt_truncated), ([], None, False))
        self.assertEqual(set(picture.seconds), {"encode_prompt", "encode_pictures", "denoise", "decode"})
        self.assertGreater(picture.seconds["denoise"], 0)

    def test_sigmas_and_background(self):
        sized = {"width": 64, "height": 32, "cfg": 1.0}
        self.assertEqual(self.pipeline.channels, 3)
        picture = self.pipeline.generate("a red circle", sigmas=(1, np.float32(0.5), 0.25), background="white", **sized)
        self.assertEqual(picture.settings["steps"], 3)
        self.assertEqual(len(picture.notes), 1)
        self.assertIn("the background has no effect", picture.notes[0])
        plain = self.pipeline.generate("a red circle", steps=3, **sized)
        self.assertTrue((picture.array != plain.array).any())
        picture.save(self.folder / "a.png")
        record = json.loads(Image.open(self.folder / "a.png").text["qwen-image"])
        self.assertEqual((record["sigmas"], record["background"]), ([1, 0.5, 0.25], "white"))

    def test_a_model_with_alpha(self):
        """A small random Qwen-Image-2.1: noise, half transparent."""
        pipeline = qwen_image.Pipeline(Path(__file__).resolve().parents[2] / "tests/goldens/models/21-micro")
        self.assertEqual(pipeline.channels, 4)
        settings = {"width": 64, "height": 32, "steps": 2}
        previews = []
        picture = pipeline.generate("a ghost", preview=previews.append, **settings)
        self.assertEqual(picture.array.shape, (32, 64, 4))
        self.assertEqual([preview.shape for preview in previews], [(32, 64, 4)])
        self.assertEqual(picture.image.mode, "RGBA")
        self.assertLess(picture.array[..., 3].min(), 255)
        picture.save(self.folder / "ghost.png")
        np.testing.assert_array_equal(np.asarray(Image.open(self.folder / "ghost.png")), picture.array)
        flat = pipeline.generate("a ghost", background="black", **settings)
        self.assertEqual(flat.image.mode, "RGB")
        on_black = Image.new("RGB", (64, 32))
        on_black.paste(picture.image, mask=picture.image.getchannel("A"))
        np.testing.assert_array_equal(flat.array, np.asarray(on_black))
        # Alpha reaches the model, however it comes.
        edited = pipeline.generate("make it green", input_images=[picture], **settings).array
        for kind in (picture.array, picture.image, self.folder / "ghost.png"):
            with self.subTest(kind=type(kind)):
                again = pipeline.generate("make it green", input_images=[kind], **settings).array
                np.testing.assert_array_equal(again, edited)
        opaque = pipeline.generate("make it green", input_images=[picture.array[..., :3]], **settings).array
        self.assertTrue((opaque != edited).any(), "alpha has no influence")

    def test_array_protocol(self):
        """Of NumPy 2, whichever is installed."""
        array = self.picture.array
        self.assertIs(self.picture.__array__(), array)
        self.assertIs(self.picture.__array__(copy=False), array)
        self.assertIs(self.picture.__array__(np.uint8, copy=False), array)
        for dtype in (None, np.uint8, np.float32):
            copied = self.picture.__array__(dtype, copy=True)
            self.assertFalse(np.shares_memory(copied, array))
            np.testing.assert_array_equal(copied, array)
        with self.assertRaisesRegex(ValueError, "float32 without a copy"):
            self.picture.__array__(np.float32, copy=False)

    def test_what_a_result_tells_of_its_source(self):
        settings = {"init_image": self.picture, "strength": 0.5, "steps": 2, "cfg": 1.0}
        picture = self.pipeline.generate("a red circle", mask=np.full((3, 1), 255, np.uint8), **settings)
        self.assertRegex(picture.notes[0], "mask of 1x3")
        shape = np.zeros((128, 128, 3), np.uint8)
        shape[40:90, 30:80] = (250, 20, 20)
        picture = self.pipeline.generate("a red square", init_image=shape, strength=0.1, steps=10, cfg=1.0)
        names = {"shift_x", "shift_y", "scale_x", "scale_y", "confidence", "uncertainty"}
        self.assertEqual(set(picture.alignment), names)
        self.assertGreater(picture.alignment["confidence"], 0.5)

    def test_the_program_draws_a_saved_picture_again(self):
        program = os.environ.get("QWEN_IMAGE_PROGRAM")
        if not program:
            self.skipTest("the program is not at hand")
        saved, again = self.folder / "saved.png", self.folder / "again.png"
        picture = self.pipeline.generate("a red circle", "blue", 64, 32, 2, 2.5, 7)
        picture.save(saved)
        subprocess.run([program, "generate", "--from", saved, "-m", TINY, "-q", "-o", again], check=True)
        np.testing.assert_array_equal(np.asarray(Image.open(again)), picture.array)
        self.assertEqual(Image.open(again).text, Image.open(saved).text)

    def test_pixels_outlive_the_pipeline(self):
        pipeline = qwen_image.Pipeline(threads=1)
        array = pipeline.generate("a red circle", **SMALL).array
        del pipeline
        gc.collect()
        np.testing.assert_array_equal(array, self.picture.array)

    def test_save(self):
        path = self.folder / "circle.png"
        self.picture.save(path)
        np.testing.assert_array_equal(np.asarray(Image.open(path)), self.picture.array)
        self.picture.save(str(path))
        with self.assertRaisesRegex(qwen_image.CannotWriteError, "no/such") as caught:
            self.picture.save(self.folder / "no/such/folder.png")
        self.assertIsInstance(caught.exception, OSError)
        with self.assertRaisesRegex(qwen_image.UsageError, "PNG"):
            self.picture.save(self.folder / "circle.jpg")


class Models(ModuleTest):
    def test_what_a_pipeline_tells(self):
        defaults = self.pipeline.defaults
        self.assertEqual((defaults.width, defaults.height), (128, 128))
        self.assertGreater(defaults.steps, 0)
        self.assertTrue(self.pipeline.edits)
        self.assertEqual(self.pipeline.variant, qwen_image.Pipeline(variant=self.pipeline.variant).variant)
        self.assertIn("width=128", repr(defaults))
        self.assertRegex(qwen_image.__version__, r"^\d+\.\d+")

    def test_options_reach_the_model(self):
        cache = self.folder / "cache"
        names = ("transformer", "text_encoder", "vae", "tokenizer")
        pipeline = qwen_image.Pipeline(
            threads=1, precision="exact", prompt_cache=cache, variant="edit-2509", **{name: TINY / name for name in names}
        )
        self.assertEqual((pipeline.variant, pipeline.threads), ("edit-2509", 1))
        pipeline.generate("a red circle", **SMALL)
        self.assertTrue(list(cache.iterdir()))
        with self.assertRaisesRegex(qwen_image.BadInputError, "no-such-lora"):
            qwen_image.Pipeline(loras=["no-such-lora.safetensors"])
        with self.assertRaisesRegex(qwen_image.BadInputError, "no-such-lora"):
            qwen_image.Pipeline(loras=[("no-such-lora.safetensors", 0.5)])
        for one in ("no-such-lora.safetensors", Path("no-such-lora.safetensors"), ("no-such-lora.safetensors", 0.5)):
            with self.assertRaisesRegex(qwen_image.BadInputError, "no-such-lora"):
                qwen_image.Pipeline(loras=one)
        two = ("a-lora.safetensors", "b-lora.safetensors")
        with self.assertRaisesRegex(qwen_image.BadInputError, "a-lora"):
            qwen_image.Pipeline(loras=two)

    def test_wrong_models(self):
        with self.assertRaisesRegex(qwen_image.BadInputError, "/no/such/model"):
            qwen_image.Pipeline("/no/such/model")
        with self.assertRaisesRegex(qwen_image.UsageError, "precision"):
            qwen_image.Pipeline(precision="best")
        with self.assertRaisesRegex(qwen_image.UsageError, "device is 'tpu'; expected is one of auto, cpu, gpu, mlx-cpu"):
            qwen_image.Pipeline(device="tpu")
        with self.assertRaisesRegex(TypeError, "path holds a NUL"):
            qwen_image.Pipeline("a\0b")
        with self.assertRaisesRegex(qwen_image.UsageError, "built without MLX"):
            qwen_image.Pipeline(device="gpu")
        for threads in (-1, 1025, 2**31 - 1, 2**40):
            with self.assertRaisesRegex(qwen_image.UsageError, "threads"):
                qwen_image.Pipeline(threads=threads)
        wrong = [
            ({"path": 7}, "path is a int: 7; expected is a str"),
            ({"vae": 7}, "vae is a int"),
            ({"variant": 7}, "variant is a int"),
            ({"threads": "two"}, "threads is a str: 'two'; expected is an int"),
            ({"threads": None}, "threads is None"),
            ({"check_memory": "no"}, "check_memory is a str: 'no'; expected is True or False"),
            ({"prompt_cache": 7}, "prompt_cache is a int"),
            ({"loras": 7}, "loras is a int"),
            ({"loras": [7]}, r"loras\[0\] is a int"),
            ({"loras": [("a", "b")]}, r"loras\[0\] is a tuple"),
            ({"loras": {"a": 1.0}}, "loras is a dict"),
            ({"loras": ("a", None)}, r"the scale of loras\[0\] is None"),
        ]
        for arguments, message in wrong:
            with self.subTest(arguments=arguments), self.assertRaisesRegex(TypeError, message):
                qwen_image.Pipeline(**arguments)
        os.environ["QWEN_IMAGE_MODEL"] = "/no/such/variable"
        self.addCleanup(os.environ.pop, "QWEN_IMAGE_MODEL")
        with self.assertRaisesRegex(qwen_image.BadInputError, "/no/such/variable"):
            qwen_image.Pipeline()


class Callbacks(ModuleTest):
    def test_progress_and_previews(self):
        seen, previews = [], []
        settings = {**SMALL, "steps": 3}
        self.pipeline.generate("a red circle", progress=seen.append, preview=previews.append, **settings)
        stages = list(dict.fromkeys(progress.stage for progress in seen))
        self.assertEqual(stages, ["encode_prompt", "denoise", "decode"])
        self.assertEqual({progress.step for progress in seen if progress.stage == "denoise"}, {0, 1, 2, 3})
        self.assertTrue(all(progress.steps == 3 and 0 <= progress.fraction <= 1 for progress in seen))
        self.assertEqual([preview.shape for preview in previews], [(32, 64, 3)] * 2)
        self.assertEqual(previews[0].dtype, np.uint8)
        self.assertIn("denoise", repr(seen[len(seen) // 2]))
        self.assertEqual((seen[-1].stage, seen[-1].step, seen[-1].fraction), ("decode", 3, 1.0))

    def test_what_a_callback_raises_comes_out_unchanged(self):
        class Mine(Exception):
            pass

        raised = Mine("enough")

        def stop(_):
            raise raised

        for callback in ("progress", "preview"):
            with self.subTest(callback=callback):
                with self.assertRaises(Mine) as caught:
                    self.pipeline.generate("a red circle", **{callback: stop}, **SMALL)
                self.assertIs(caught.exception, raised)
        again = self.pipeline.generate("a red circle", **SMALL)  # the pipeline is as good as before
        np.testing.assert_array_equal(again.array, self.picture.array)

    def test_a_callback_cannot_draw_with_its_pipeline(self):
        def again(_):
            self.pipeline.generate("a red circle", **SMALL)

        with self.assertRaisesRegex(qwen_image.UsageError, "callback"):
            self.pipeline.generate("a red circle", progress=again, **SMALL)


class Threads(ModuleTest):
    MANY_STEPS = 1000  # far more than it takes until another thread gets its turn

    def setUp(self):
        super().setUp()
        # Python itself changes threads only where one waits: who runs while a picture is drawn owes it to the module.
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1e6)

    def start(self, action):
        """A thread that waits for the returned lock, and then does something."""
        lock = threading.Lock()
        lock.acquire()

        def run():
            with lock:
                action()

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        return lock

    def run_python(self, text):
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)

    def test_python_may_end_while_a_daemon_draws(self):
        result = self.run_python(
            "import atexit, threading\n"
            "atexit.register(lambda: print(len(qwen_image._drawing._drawings._running), 'go on'))  # behind the module's own\n"
            "import qwen_image\n"
            "pipeline, begun = qwen_image.Pipeline(), threading.Event()\n"
            "draw = lambda: pipeline.generate('a', steps=1000, progress=lambda p: begun.set())\n"
            "threading.Thread(target=draw, daemon=True).start()\n"
            "begun.wait()\n"
        )
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "0 go on\n", ""))

    def test_a_child_cannot_draw_but_ends_well(self):
        result = self.run_python(
            "import os, qwen_image\n"
            "pipeline = qwen_image.Pipeline()\n"
            "child = os.fork()\n"
            "try:\n"
            "    pipeline.generate('a', steps=1)\n"
            "except qwen_image.UsageError as error:\n"
            "    print(error, flush=True)\n"
            "if child:\n"
            "    print('it ended with', os.waitpid(child, 0)[1])\n"
        )
        self.assertIn("before the process forked", result.stdout)
        self.assertIn("it ended with 0\n", result.stdout, result.stderr)

    def test_a_model_that_is_cut_while_in_use_is_an_error(self):
        result = self.run_python(
            "import os, shutil, tempfile, qwen_image\n"
            "folder = tempfile.mkdtemp()\n"
            "model = os.path.join(folder, 'model')\n"
            "shutil.copytree(os.path.join(os.path.dirname(qwen_image.__file__), 'models', 'tiny'), model)\n"
            "pipeline = qwen_image.Pipeline(model)\n"
            "os.truncate(os.path.join(model, 'transformer', 'diffusion_pytorch_model.safetensors'), 5000)\n"
            "try:\n"
            "    pipeline.generate('a', steps=1)\n"
            "except qwen_image.BadInputError as error:\n"
            "    print(error)\n"
            "shutil.rmtree(folder)\n"
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("diffusion_pytorch_model.safetensors", result.stdout)

    def test_others_run_while_a_picture_is_drawn(self):
        class HasRun(Exception):
            pass

        ran = []
        lock = self.start(lambda: ran.append(True))

        def look(_):
            if ran:
                raise HasRun

        lock.release()
        with self.assertRaises(HasRun):
            self.pipeline.generate("a red circle", progress=look, **{**SMALL, "steps": self.MANY_STEPS})

    def test_control_c_stops_it(self):
        # A shell starts what runs in the background with SIGINT ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        lock = self.start(lambda: os.kill(os.getpid(), signal.SIGINT))
        seen = []
        lock.release()
        with self.assertRaises(KeyboardInterrupt):
            # list.append runs no Python code, in which Python would look for signals itself
            self.pipeline.generate("a red circle", progress=seen.append, **{**SMALL, "steps": self.MANY_STEPS})
        self.assertNotIn(self.MANY_STEPS, [progress.step for progress in seen])

    def test_control_c_is_seen_while_another_thread_draws(self):
        result = self.run_python(
            "import os, signal, threading, qwen_image\n"
            "pipeline, begun, end = qwen_image.Pipeline(), threading.Event(), threading.Event()\n"
            "def hold(progress):\n"
            "    begun.set()\n"
            "    end.wait()\n"
            "other = threading.Thread(target=lambda: pipeline.generate('a', steps=1, progress=hold))\n"
            "other.start()\n"
            "begun.wait()\n"
            "signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C, but while this thread waits\n"
            "try:\n"
            "    signal.setitimer(signal.ITIMER_REAL, 0.1)\n"
            "    pipeline.generate('b', steps=1)\n"
            "except KeyboardInterrupt:\n"
            "    print('stopped')\n"
            "end.set()\n"
        )
        self.assertEqual((result.returncode, result.stdout), (0, "stopped\n"), result.stderr)

    def test_two_threads_draw_one_after_another(self):
        sys.setswitchinterval(0.005)
        drawn = []
        threads = [
            threading.Thread(target=lambda: drawn.append(self.pipeline.generate("a red circle", **SMALL)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(drawn), 3)
        for picture in drawn:
            np.testing.assert_array_equal(picture.array, self.picture.array)


if __name__ == "__main__":
    unittest.main()
