"""What `cmake --install` leaves on a machine, used as its users would: moved, linked, documented.

Run by ctest, with the folders and the program in the environment.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
from PIL import Image

SOURCE = Path(os.environ["QWEN_IMAGE_SOURCE"])
BUILD = Path(os.environ["QWEN_IMAGE_BUILD"])
LIBDIR = os.environ["QWEN_IMAGE_LIBDIR"]
PROMPT = "a red circle on a blue background"


def pixels(path):
    return np.asarray(Image.open(path))


class InstalledTree(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        installed, cls.prefix = cls.folder / "installed", cls.folder / "moved"
        cls.run_command("cmake", "--install", BUILD, "--prefix", installed, "--strip")
        installed.rename(cls.prefix)
        cls.library = cls.prefix / LIBDIR / "libqwen_image.so"
        cls.model = cls.prefix / "share/qwen-image/models/tiny"
        cls.examples = cls.prefix / "share/doc/qwen_image/examples"

    @classmethod
    def run_command(cls, *arguments, folder=None, **environment):
        """What it prints; it must not fail. Nothing of the project is in its environment."""
        clean = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
        clean["XDG_CACHE_HOME"] = str(cls.folder / "cache")
        done = subprocess.run(
            [str(argument) for argument in arguments],
            cwd=folder or cls.folder,
            env=clean | {key: str(value) for key, value in environment.items()},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{shlex.join(map(str, arguments))} failed\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def pkg_config(self, *arguments):
        """Of a folder with a space in its name."""
        spaced = self.folder / "moved here"
        if not spaced.exists():
            spaced.symlink_to(self.prefix)
        printed = self.run_command(
            "pkg-config", *arguments, "qwen_image", PKG_CONFIG_PATH=spaced / LIBDIR / "pkgconfig"
        )
        self.assertIn("moved\\ here", printed)
        return shlex.split(printed)

    def draw_with_the_program(self):
        """The installed one finds its model by itself."""
        path = self.folder / "program.png"
        if not path.exists():
            self.run_command(
                self.prefix / "bin/qwen-image", "generate", PROMPT, "--seed=7", "--steps=4", "-q", "-o", path
            )
        return pixels(path)

    def test_nothing_knows_where_it_was_built(self):
        for path in self.prefix.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                for place in (SOURCE, BUILD, self.folder):
                    self.assertNotIn(str(place).encode(), content, path)

    def test_only_public_symbols_are_exported(self):
        lines = self.run_command("nm", "-DC", "--defined-only", self.library).splitlines()
        exported = {re.sub(r"(\[abi:|\().*", "", line.split(maxsplit=2)[2]) for line in lines}
        header = (self.prefix / "include/qwen_image/c_api.h").read_text(encoding="utf-8")
        in_c = set(re.findall(r"QWEN_IMAGE_API[^;(]*?(qwen_image_\w+)\(", header))
        self.assertGreater(len(in_c), 40)
        pipeline = "Pipeline ~Pipeline operator= defaults variant edits channels side_multiple device loras threads".split()
        pipeline += ["Check", "Generate", "RunId"]
        functions = "DecodeImage DecodeMask EncodePng InstallTruncationGuard ReadImage ReadMask RemoveResumeState".split()
        functions += ["InstructionSetInUse", "InstructionSets", "ToGrey", "UseInstructionSet", "Version", "WritePng"]
        machines = "Machines ~Machines Join CheckPlugin rank size NameOf Follow set_exit_code".split()
        in_cxx = {f"qwen_image::Pipeline::{name}" for name in pipeline}
        in_cxx |= {f"qwen_image::Machines::{name}" for name in machines}
        in_cxx |= {f"qwen_image::{name}" for name in (*functions, "Picture::SavePng")}
        of_error = {name for name in exported if re.search(r"\bqwen_image::Error\b", name)}
        self.assertIn("typeinfo for qwen_image::Error", of_error)
        self.assertEqual(exported - of_error, in_c | in_cxx)

    def test_the_docs_name_what_the_library_needs(self):
        text = (SOURCE / "docs/library.md").read_text(encoding="utf-8")
        needed = re.search(r"At run time the library needs (.*?), in the\s", text, re.S).group(1)
        found = re.findall(r"NEEDED.*\[(\w+)\.so", self.run_command("readelf", "-d", self.library).replace("-", "_"))
        of_every_program = {"libc", "libm", "libgcc_s", "ld_linux_x86_64", "ld_linux_aarch64"}
        self.assertEqual(set(re.findall(r"lib\w+", needed)), set(found) - of_every_program)

    def test_links_of_the_documents_lead_somewhere(self):
        links = 0
        for document in (self.prefix / "share/doc/qwen_image").rglob("*.md"):
            text = document.read_text(encoding="utf-8")
            for link in re.findall(r"\]\(([^)#\s]+)", text):
                if "://" not in link:
                    self.assertTrue((document.parent / link).exists(), f"{document.name}: {link}")
                    links += 1
        self.assertGreater(links, 40)

    def test_examples_with_cmake(self):
        build = self.folder / "examples"
        self.run_command("cmake", "-S", self.examples, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.run_command("cmake", "--build", build)
        for program in ("generate", "generate_c"):
            self.run_command(build / program, self.model, PROMPT, f"{program}.png")
            np.testing.assert_array_equal(pixels(self.folder / f"{program}.png"), self.draw_with_the_program())
            settings = [Image.open(self.folder / f"{name}.png").text for name in (program, "program")]
            self.assertEqual(settings[0], settings[1])
        self.run_command(build / "edit", self.model, "make the circle green", "generate.png", "edit.png")
        arguments = "edit,make the circle green,-i,generate.png,--steps=4,-q,-o,program_edit.png".split(",")
        self.run_command(self.prefix / "bin/qwen-image", *arguments)
        np.testing.assert_array_equal(pixels(self.folder / "edit.png"), pixels(self.folder / "program_edit.png"))

        mask = np.zeros((128, 128), np.uint8)
        mask[:, 64:] = 255
        Image.fromarray(mask).save(self.folder / "mask.png")
        self.run_command(build / "repair", self.model, "a yellow star", "generate.png", "mask.png", "repair.png")
        arguments = "generate,--from,repair.png,--init-image,generate.png,--mask,mask.png,-q,-o,program_repair.png".split(",")
        self.run_command(self.prefix / "bin/qwen-image", *arguments)
        repaired = pixels(self.folder / "repair.png")
        np.testing.assert_array_equal(repaired, pixels(self.folder / "program_repair.png"))
        np.testing.assert_array_equal(repaired[:, :64], pixels(self.folder / "generate.png")[:, :64])

    def test_examples_with_pkg_config(self):
        strict = ["-pedantic", "-Wall", "-Wextra", "-Werror"]
        compilers = {"c/generate.c": ["cc", "-std=c99"], "cpp/generate.cc": ["c++", "-std=c++17"]}
        for source, compiler in compilers.items():
            with self.subTest(source=source):
                flags = self.pkg_config("--cflags", "--libs")
                self.run_command(*compiler, *strict, self.examples / source, *flags, "-o", "plain")
                model = self.pkg_config("--variable=models")[0] + "/tiny"
                self.run_command("./plain", model, PROMPT, "plain.png", LD_LIBRARY_PATH=self.prefix / LIBDIR)
                np.testing.assert_array_equal(pixels(self.folder / "plain.png"), self.draw_with_the_program())

    def test_wrong_versions_are_refused(self):
        project = self.folder / "version"
        project.mkdir()
        for version, works in (("0.1", False), ("0.2", True), ("0.3", False), ("1.0", False)):
            (project / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.22)\nproject(p LANGUAGES C)\n"
                f"find_package(qwen_image {version} QUIET)\n"
                "message(STATUS found=${qwen_image_FOUND})\n",
                encoding="utf-8",
            )
            out = self.run_command("cmake", "-S", project, "-B", project / version, f"-DCMAKE_PREFIX_PATH={self.prefix}")
            self.assertEqual("found=1" in out, works, version)

    def test_docs(self):
        """Files of docs/library.md are written, its commands are typed, in their order."""
        folder = self.folder / "docs"
        folder.mkdir()
        text = (SOURCE / "docs/library.md").read_text(encoding="utf-8").replace("/opt/qwen-image", str(self.prefix))
        typed = written = 0
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
            if language:
                name = re.match(r"(?://|/\*|#) ([\w.]+)", block).group(1)
                (folder / name).write_text(block, encoding="utf-8")
                written += 1
                continue
            for command in block.splitlines():
                if command.startswith(("./run ", "pip ")):
                    continue  # above, in ./run parity, and in tools/package/try_wheel.py
                self.run_command(
                    "sh",
                    "-c",
                    command,
                    folder=folder,
                    PKG_CONFIG_PATH=self.prefix / LIBDIR / "pkgconfig",
                    LD_LIBRARY_PATH=self.prefix / LIBDIR,
                    PYTHONPATH=BUILD / "python",
                    PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                )
                typed += 1
        self.assertGreaterEqual((typed, written), (5, 4))
        drawn = {path.stem: pixels(path) for path in folder.glob("*.png")}
        self.assertLessEqual({"from_cpp", "from_settings", "from_c", "from_python", "from_module"}, set(drawn))
        for name in ("from_settings", "from_c", "from_python", "from_module"):
            np.testing.assert_array_equal(drawn[name], drawn["from_cpp"])


if __name__ == "__main__":
    if not shutil.which("pkg-config"):
        sys.exit("pkg-config is missing")
    unittest.main()
