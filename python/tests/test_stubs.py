"""The stubs say what the compiled module has, and Pipeline.generate takes every setting that it knows."""

import ast
import inspect
import unittest
from pathlib import Path

import qwen_image
from qwen_image import _core


def declared(body):
    """Names in a stub's class or module: {name: node}."""
    names = {}
    for node in body:
        if isinstance(node, ast.AnnAssign):
            names[node.target.id] = node
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] = node
    return {name: node for name, node in names.items() if not name.startswith("_")}


def public(thing):
    """Without the members of enums that Python could not write ("mlx-cpu"), and what all enums have."""
    names = {name for name in dir(thing) if not name.startswith("_") and name.isidentifier()}
    return names - {"name", "value"} if hasattr(thing, "__members__") else names


class Stubs(unittest.TestCase):
    def setUp(self):
        stub = Path(qwen_image.__file__).parent / "_core.pyi"
        self.module = declared(ast.parse(stub.read_text()).body)

    def test_names_of_the_module(self):
        self.assertEqual(set(self.module), public(_core))

    def test_members_of_classes(self):
        for name, node in self.module.items():
            if isinstance(node, ast.ClassDef):
                with self.subTest(type=name):
                    self.assertEqual(set(declared(node.body)), public(getattr(_core, name)))

    def test_generate_takes_every_setting(self):
        parameters = set(inspect.signature(qwen_image.Pipeline.generate).parameters)
        self.assertEqual(parameters, set(_core.SETTINGS) | {"self", "progress", "preview"})


if __name__ == "__main__":
    unittest.main()
