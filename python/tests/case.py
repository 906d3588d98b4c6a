"""What the tests of the Python module share."""

import os
import tempfile
import unittest
from pathlib import Path

import qwen_image

os.environ.pop("QWEN_IMAGE_MODEL", None)
TINY = Path(qwen_image.__file__).parent / "models" / "tiny"
SMALL = {"width": 64, "height": 32, "steps": 2, "cfg": 1.0}


class ModuleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pipeline = qwen_image.Pipeline()
        cls.picture = cls.pipeline.generate("a red circle", **SMALL)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
