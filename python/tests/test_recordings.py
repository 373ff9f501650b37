"""The recordings of the book: the recorder, the pictures, and the commands that they show."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

import support

FOLDER = support.ROOT / "docs" / "recordings"
SCRIPT = (FOLDER / "record.sh").read_text(encoding="utf-8").replace("\\\n", " ")
#: Name and command of each recording.
RECORDED = re.findall(r'^recorded (\w+) "(.*?)"', SCRIPT, re.MULTILINE)
#: More would be slow to fetch and to keep.
MOST_BYTES = 60_000


def read(path):
    """The header and the events of a recording."""
    header, *events = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return header, events


class TestRecordings(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pstrain-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cast = self.folder / "it.cast"

    def record(self, command, *options):
        line = [sys.executable, str(FOLDER / "record.py"), str(self.cast), command, *options]
        return subprocess.run(line, cwd=self.folder, timeout=support.PATIENCE).returncode

    def draw(self, *options):
        svg = self.folder / "it.svg"
        line = [sys.executable, str(FOLDER / "picture.py"), str(self.cast), str(svg), *options]
        subprocess.run(line, check=True, timeout=support.PATIENCE)
        return ElementTree.parse(svg).getroot()

    def check(self, path):
        """Checks that a recording is one of asciinema's; returns its title."""
        header, events = read(path)
        self.assertEqual((header["version"], header["width"], header["height"]), (2, 80, 24))
        times = [at for at, _, _ in events]
        self.assertEqual(times, sorted(times))
        self.assertEqual({kind for _, kind, _ in events}, {"o"})
        typed = "".join(text for _, _, text in events).split("\r\n")[0]
        self.assertEqual(typed, f"$ {header['title']}")
        return header["title"]

    def test_a_command_is_recorded_with_its_times_in_a_terminal_of_80_columns(self):
        command = "stty size; sleep 1; echo später; exit 3"
        self.assertEqual(self.record(command), 3)
        self.assertEqual(self.check(self.cast), command)
        _, events = read(self.cast)
        at = {text.strip(): at for at, _, text in events}
        self.assertIn("24 80", at)
        self.assertGreaterEqual(at["später"] - at["24 80"], 0.9)

    def test_keys_are_pressed_when_they_are_due(self):
        self.assertEqual(self.record("read it; echo it is $it", "--press", "0.5:here\r"), 0)
        self.assertIn("it is here", "".join(text for _, _, text in read(self.cast)[1]))

    @support.needs("pyte")
    def test_a_picture_shows_the_first_screen_with_a_text(self):
        own, back = r"\033[?1049h", r"\033[?1049l"
        # The typed command does not have the words that its screens show.
        first = f"printf '{own}on%s <b>  \\033[31mred\\033[0m ⣿' e"
        self.record(f"{first}; sleep 1; printf '{back}tw%s' o")
        root = self.draw("--showing", "one")
        texts = {it.text: it for it in root if it.tag.endswith("text")}
        self.assertEqual(set(texts), {"one <b>", "red"})
        self.assertEqual(texts["red"].get("fill"), "#ff8a80")
        # The eight dots of the letter.
        (path,) = [it.get("d") for it in root if it.tag.endswith("path")]
        self.assertEqual(path.count("z"), 8)
        self.assertIn("two", "".join(it.text or "" for it in self.draw()))

    def test_the_recordings_of_the_book_are_those_that_the_script_makes(self):
        self.assertEqual({path.stem for path in FOLDER.glob("*.cast")}, {n for n, _ in RECORDED})
        for name, command in RECORDED:
            with self.subTest(name=name):
                path = FOLDER / f"{name}.cast"
                self.assertEqual(self.check(path), command)
                self.assertLess(path.stat().st_size, MOST_BYTES)
                ElementTree.parse(FOLDER / f"{name}.svg")

    def test_the_commands_of_the_script_and_their_flags_exist(self):
        commands = re.findall(r'(?:^|["(]| |until )pstrain ([a-z]+)\b([^">|&]*)', SCRIPT, re.M)
        expected = {"run", "server", "worker", "status", "why", "top"}
        self.assertEqual({command for command, _ in commands}, expected)
        for command, rest in commands:
            said = subprocess.run(
                [support.program.find(), command, "--help"], stdout=subprocess.PIPE, check=True
            )
            known = said.stdout.decode()
            for flag in re.findall(r"--[a-z-]+", rest):
                self.assertRegex(known, rf"(?m)^ +(-\w, )?{flag}\b", command)


if __name__ == "__main__":
    unittest.main()
