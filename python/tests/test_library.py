"""What the package declares of the library is what c_api.h declares, and Pipeline.generate takes every setting."""

import ctypes
import inspect
import re
import unittest
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_uint8, c_uint64, c_void_p
from pathlib import Path

import qwen_image
from qwen_image import _library, _models

HEADER = Path(__file__).resolve().parents[2] / "include/qwen_image/c_api.h"

# C's types without "const" as the package may declare them. Handles are void*, and bytes may come as Python has them.
TYPES = {
    "void": {None},
    "int": {c_int},
    "int64_t": {c_int64},
    "uint64_t": {c_uint64},
    "double": {c_double},
    "char*": {c_char_p},
    "uint8_t*": {POINTER(c_uint8), c_char_p},
    "float*": {POINTER(c_float)},
    "int*": {POINTER(c_int)},
    "int64_t*": {POINTER(c_int64)},
    "double*": {POINTER(c_double)},
    "qwen_image_status": {c_int},
    "qwen_image_progress*": {POINTER(_library.Progress)},
    "qwen_image_alignment*": {POINTER(_library.Alignment)},
}


def allowed(declared):
    """Of "const char*" or "const char* name"."""
    kind = "".join(re.match(r"\s*(?:const\s+)?(\w+)(\**)", declared).groups())
    return TYPES.get(kind) or ({POINTER(c_void_p)} if kind.endswith("**") else {c_void_p})


class Library(unittest.TestCase):
    def setUp(self):
        text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.S)
        found = re.findall(r"QWEN_IMAGE_API\s+([^;(]*?)qwen_image_(\w+)\(([^)]*)\);", text)
        self.declared = {
            name: (result, [] if parameters == "void" else parameters.split(",")) for result, name, parameters in found
        }

    def test_functions_are_those_of_the_header(self):
        made = {name: (c_int, parameters) for name, parameters in _library.STATUS_FUNCTIONS.items()}
        made.update(_library.PLAIN_FUNCTIONS)
        for name, (result, parameters) in made.items():
            with self.subTest(function=name):
                in_c = self.declared[name]
                self.assertIn(result, allowed(in_c[0]))
                self.assertEqual("status" in in_c[0], name in _library.STATUS_FUNCTIONS)
                self.assertEqual(len(parameters), len(in_c[1]))
                for mine, theirs in zip(parameters, in_c[1]):
                    self.assertIn(mine, allowed(theirs), theirs)

    def test_numbers_are_those_of_the_header(self):
        numbers = dict(re.findall(r"QWEN_IMAGE_(\w+) = (\d+)", HEADER.read_text(encoding="utf-8")))
        for name, number in _models.PRECISIONS.items():
            self.assertEqual(number, int(numbers[name.upper()]))
        for name, number in _models.DEVICES.items():
            self.assertEqual(number, int(numbers["DEVICE_" + name.upper().replace("-", "_")]))

    def test_a_function_that_is_not_declared_is_an_error(self):
        with self.assertRaisesRegex(AttributeError, "does not declare qwen_image_no_such"):
            _library.call.no_such  # noqa: B018
        self.assertEqual(ctypes.sizeof(_library.Progress), 32)

    def test_generate_takes_every_setting(self):
        parameters = set(inspect.signature(qwen_image.Pipeline.generate).parameters)
        self.assertEqual(parameters, set(_models.SETTINGS) | {"self", "progress", "preview"})


if __name__ == "__main__":
    unittest.main()
