"""`python -m qwen_image` is the program: what it prints, its exit codes, and how it ends."""

import signal
import subprocess
import sys
import unittest

import numpy as np
import qwen_image
from case import ModuleTest
from PIL import Image

MODULE = [sys.executable, "-m", "qwen_image"]


class Program(ModuleTest):
    def run_module(self, *arguments, **options):
        return subprocess.run([*MODULE, *arguments], cwd=self.folder, timeout=120, check=False, **options)

    def test_draws_the_modules_picture(self):
        """With the model of the package, which it finds by itself."""
        done = self.run_module(*"generate|a red circle|--size=64x32|--steps=2|--cfg=1|-q|-o|circle.png".split("|"))
        self.assertEqual(done.returncode, 0)
        np.testing.assert_array_equal(np.asarray(Image.open(self.folder / "circle.png")), self.picture.array)

    def test_exit_codes_and_output_are_the_programs(self):
        done = self.run_module("--version", capture_output=True, text=True)
        self.assertIn(qwen_image.__version__, done.stdout)
        done = self.run_module("generate", "x", "--size=100x100", capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("qwen-image", done.stderr)
        self.assertIn("100x100", done.stderr)

    def test_signals_reach_it(self):
        """It is in the place of Python, not below it."""
        command = [*MODULE, "serve", "--port=0"]
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True) as server:
            self.assertIn("http://127.0.0.1:", server.stdout.readline())
            with open(f"/proc/{server.pid}/comm", encoding="utf-8") as name:
                self.assertEqual(name.read().strip(), "qwen-image")
            server.send_signal(signal.SIGINT)
            self.assertEqual(server.wait(60), 0)


if __name__ == "__main__":
    unittest.main()
