"""The scripts and commands of docs/python.md, the script of README.md, and the examples."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import support

PAGE = (support.ROOT / "docs" / "python.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = BLOCK.findall(PAGE)
SCRIPTS = [block for language, block in BLOCKS if language == "python"]
README = (support.ROOT / "README.md").read_text(encoding="utf-8")
LIBRARIES = ("torch", "numpy", "jax", "sklearn")


def missing(script):
    """Libraries that a script imports and that are not installed."""
    imports = " ".join(line for line in script.splitlines() if re.match("import|from", line))
    return [name for name in LIBRARIES if name in imports and not support.has(name)]


class TestDocs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pstrain-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # The words `python3` and `pstrain` of the page are those of this test.
        programs = {"python3": support.sys.executable, "pstrain": support.program.find()}
        for name, path in programs.items():
            script = self.folder / name
            script.write_text(f'#!/bin/sh\nexec "{path}" "$@"\n', encoding="utf-8")
            script.chmod(0o755)
        self.variables = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}

    def start(self, command):
        output = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        child = subprocess.Popen(
            command, shell=True, cwd=self.folder, env=self.variables, **output
        )
        self.addCleanup(child.stdout.close)
        return child

    def finish(self, child):
        said = child.communicate(timeout=support.PATIENCE)[0].decode()
        self.assertEqual(child.returncode, 0, said)
        return said

    def run_script(self, name, text, command):
        lacks = missing(text)
        if lacks:
            self.skipTest(f"{name}: {', '.join(lacks)} not installed")
        (self.folder / "train.py").write_text(text, encoding="utf-8")
        return self.finish(self.start(command))

    def run_as_printed(self, name, script):
        """Runs a script, under pstrain if it wants the address of a server."""
        command = "python3 train.py"
        if "sys.argv[1]" in script:
            command = "pstrain run --epochs 2 --quiet --process 'python3 train.py -'"
        self.run_script(name, script, command)

    def test_scripts_of_the_page(self):
        self.assertEqual(len(SCRIPTS), 7)
        for number, script in enumerate(SCRIPTS):
            with self.subTest(number=number):
                self.run_as_printed(f"script {number}", script)

    def test_script_of_the_readme(self):
        (script,) = [block for language, block in BLOCK.findall(README) if language == "python"]
        compile(script, "README.md", "exec")
        self.run_as_printed("README.md", script)

    def test_commands_of_the_page(self):
        commands = next(block for _, block in BLOCKS if block.startswith("pstrain server"))
        if missing(SCRIPTS[0]):
            self.skipTest("torch is not installed")
        (self.folder / "train.py").write_text(SCRIPTS[0], encoding="utf-8")
        server, *workers = commands.replace("127.0.0.1:7070", "unix:server").splitlines()
        self.assertEqual(len(workers), 2)
        started = [self.start(command) for command in (f"{server} --listen unix:server", *workers)]
        for child in started:
            self.finish(child)

    def test_examples(self):
        for path in sorted((support.PYTHON / "examples").glob("*.py")):
            text = path.read_text(encoding="utf-8")
            # As the example's own text says: alone, and in the place of a server.
            said = text.replace(path.name, "train.py")
            alone = re.search(r"^python3 train.py(?: \S+)*", said, re.MULTILINE)[0]
            (command,) = re.findall(r"^pstrain server (.*)", said, re.MULTILINE)
            with self.subTest(example=path.name):
                self.assertIn("accuracy", self.run_script(path.name, text, alone))
            with self.subTest(process=path.name):
                command = f"pstrain run --epochs 1 --quiet {command}"
                self.run_script(path.name, text, command)


if __name__ == "__main__":
    unittest.main()
