"""The recorder without a framework: NumPy's arrays stand for tensors. tools/reference/record_check.py has torch and MLX."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np
from case import TINY
from qwen_image.microscope import record
from qwen_image.microscope._choice import Choice, depth_of, level_of
from qwen_image.microscope._recorder import Arrays, Recorder, tensors_in
from qwen_image.microscope._run_folder import RunFolder
from qwen_image.microscope._source import Line

PROGRAM = TINY.parents[1] / "bin" / "qwen-image"
NUMPY = Arrays(lambda value: isinstance(value, np.ndarray), lambda array: array, lambda array: str(array.dtype), lambda _array: None)


def floats(*values):
    return np.array(values, np.float32)


class Microscope(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def begin(self, name="run", level="all", inputs=True, overwrite=False):
        run = RunFolder(self.folder / name, overwrite)
        return run, Recorder(run, Choice(level), NUMPY, inputs)

    def call(self, recorder, path, given, returned, inside=(), component=""):
        recorder.enter(component, path, given, None)
        for inner in inside:
            self.call(recorder, *inner, component=component)
        recorder.leave(component, path, returned, None)

    def names(self, run):
        return [entry["name"] for entry in run.entries]

    def compare(self, *runs):
        """The exit code, and the report of the real program."""
        report = self.folder / "report.json"
        command = [PROGRAM, "compare", *(self.folder / run for run in runs), "--json", report, "--quiet"]
        code = subprocess.run(command, check=False).returncode
        return code, json.loads(report.read_text(encoding="utf-8"))

    def test_levels(self):
        for path, outermost, level in (
            ("", True, "boundaries"),
            ("decoder", True, "boundaries"),
            ("decoder", False, "blocks"),
            ("model.language.layers.3", False, "blocks"),
            ("model.language.layers.3.mlp", False, "all"),
            ("up_blocks.0.resnets.1", False, "all"),
        ):
            self.assertEqual(level_of(path, outermost), level, path)
        self.assertEqual([depth_of(path) for path in ("", "a", "a.0", "a.0.b.1.c")], [0, 1, 1, 3])

    def test_choices(self):
        def wants(level, name="call000/a.b.to_q", path="a.b.to_q", of="all"):
            return Choice(level).wants(name, path, of)

        self.assertTrue(wants("all") and wants(3) and wants("*.to_q") and wants("boundaries,*.to_q"))
        self.assertFalse(wants("blocks") or wants(2) or wants("*.to_k") or wants("*.to_"))
        self.assertTrue(wants(0, "call000", "", "boundaries"))
        for wrong in ("block", "", "boundaries,"):
            with self.assertRaisesRegex(ValueError, "none of boundaries, blocks, all"):
                Choice(wrong)
        with self.assertRaises(ValueError):
            Choice(-1)
        with self.assertRaises(TypeError):
            Choice(None)

    def test_names_tell_the_call_the_path_and_what_passes(self):
        run, recorder = self.begin()
        one, two = floats(1), floats(2)
        for _ in range(2):
            inside = [("layers.0", {"x": one}, two), ("layers.0", {"x": two}, (two, one))]
            self.call(recorder, "", {"x": one, "flag": True, "y": [one]}, {"sample": two}, inside)
        self.call(recorder, "layers.0", one, two)
        self.call(recorder, "", one, two, component="vae")
        expected = []
        for call in ("call000", "call001"):
            expected += [f"{call}:input.x", f"{call}:input.y.0", f"{call}/layers.0:input", f"{call}/layers.0"]
            expected += [f"{call}/layers.0:repeat1:input", f"{call}/layers.0:repeat1:0", f"{call}/layers.0:repeat1:1", call]
        # A module that is also called from outside: its first call of this kind, and its third below this name.
        expected += ["call000/layers.0:repeat2:input", "call000/layers.0:repeat2", "vae/call000:input", "vae/call000"]
        self.assertEqual(self.names(run), expected)

    def test_inputs_can_be_left_out(self):
        run, recorder = self.begin(inputs=False)
        self.call(recorder, "", floats(1), floats(2))
        self.assertEqual(self.names(run), ["call000"])

    def test_after_an_error_the_next_call_is_one_from_outside(self):
        run, recorder = self.begin(inputs=False)
        recorder.enter("", "", None, None)
        recorder.enter("", "layer", None, None)
        recorder.leave("", "", None, None)
        self.call(recorder, "", None, floats(1))
        self.assertEqual(self.names(run), ["call001"])

    def test_keep(self):
        run, recorder = self.begin(inputs=False)
        recorder.enter("", "", None, None)
        recorder.keep("rotated/query", floats(1))
        with self.assertRaisesRegex(ValueError, "recorded already"):
            recorder.keep("rotated/query", floats(1))
        with self.assertRaises(TypeError):
            recorder.keep("a list", [1])
        recorder.leave("", "", None, None)
        recorder.keep("..", floats(1))
        self.assertEqual(self.names(run), ["call000:rotated_query", "_"])
        self.assertRegex(run.entries[0]["source"], r"^test_microscope\.py:\d+$")
        self.assertIn("recorder.keep", run.entries[0]["code"])

    def test_values_in_containers(self):
        value = {"a": [floats(1), (floats(2), "text")], "b/c": None, "../d": floats(3)}
        self.assertEqual([key for key, _ in tensors_in(value, NUMPY.is_tensor)], ["a.0", "a.1.0", ".._d"])

    def test_what_was_there_before_is_not_written_again(self):
        run, recorder = self.begin()
        self.call(recorder, "", floats(1, 2), floats(1, 2))
        self.call(recorder, "", np.array([1, 2]), np.array([[1, 2]]))
        run.finish({})
        self.assertEqual(len(list(self.folder.rglob("*.npy"))), 3)
        self.assertEqual(self.compare("run", "run")[0], 0)

    def test_the_program_finds_the_first_divergence(self):
        for name, factor in (("ref", 1), ("port", 1.25)):
            run, recorder = self.begin(name)
            x = np.linspace(-1, 1, 64, dtype=np.float32)
            wrong = (x * factor).astype(np.float32)
            inside = [("a", {"x": x}, x + 1), ("b.0", {"x": x + 1}, wrong), ("c", {"x": wrong}, wrong + 1)]
            self.call(recorder, "", {"x": x}, wrong + 1, inside)
            run.finish({"checkpoints_level": "all"})
        code, report = self.compare("ref", "port")
        self.assertEqual((code, report["first_divergence"], report["order"]), (1, "call000/b.0", "reference"))
        first = next(row for row in report["checkpoints"] if row["name"] == "call000/b.0")
        self.assertEqual(first["hints"][0]["kind"], "constant_factor")

    def test_what_the_other_run_was_to_leave_out_is_not_missing(self):
        for name, level, paths in (("blocks", "blocks", ["a.0"]), ("all", "all", ["a.0", "a.0.b"])):
            run, recorder = self.begin(name, level, inputs=False)
            recorder.enter("", "", None, None)
            for path in paths:
                self.call(recorder, path, None, floats(1))
            recorder.leave("", "", floats(1), None)
            run.finish(Choice(level).facts())
        self.assertEqual(self.compare("blocks", "all")[0], 0)
        self.assertEqual(self.compare("all", "blocks")[0], 0)

    def test_an_earlier_run_is_replaced_only_when_asked(self):
        run, recorder = self.begin()
        self.call(recorder, "old", None, floats(1))
        run.finish({})
        with self.assertRaisesRegex(FileExistsError, "overwrite=True"):
            self.begin()
        run, recorder = self.begin(overwrite=True)
        self.call(recorder, "new", None, floats(1))
        run.finish({})
        self.assertEqual([file.stem for file in self.folder.rglob("*.npy")], ["new"])
        (self.folder / "run" / "stray.npy").touch()
        with self.assertRaisesRegex(FileExistsError, "stray.npy is named by no manifest"):
            self.begin(overwrite=True)

    def test_a_manifest_cannot_remove_files_elsewhere(self):
        mine = self.folder / "mine.npy"
        mine.touch()
        (self.folder / "run").mkdir()
        (self.folder / "run" / "manifest.json").write_text('{"checkpoints": [{"name": "x", "file": "../mine.npy"}]}')
        self.begin(overwrite=True)
        self.assertTrue(mine.exists())

    def test_the_precision_is_that_of_most_tensors(self):
        run = RunFolder(self.folder / "run", False)
        for name, dtype in (("a", "bfloat16"), ("b", "bfloat16"), ("time", "float32")):
            run.save(name, floats(1), dtype, {})
        run.save("ids", np.array([1]), "int64", {})
        run.finish({})
        self.assertEqual(json.loads((self.folder / "run" / "manifest.json").read_text())["dtype"], "bfloat16")

    def test_lines(self):
        facts = Line.of_caller().facts()
        self.assertRegex(facts["source"], r"^test_microscope\.py:\d+$")
        self.assertEqual(facts["code"], "facts = Line.of_caller().facts()")

    def test_what_is_no_model_is_an_error(self):
        for wrong in (7, None, {"a": 1}, object()):
            with self.assertRaisesRegex(TypeError, "no module of torch or MLX"):
                record(wrong, self.folder / "run").__enter__()
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    unittest.main()
