#!/usr/bin/env python3
"""Draws the screen at a moment of a .cast file as an SVG picture.

    picture.py FILE.cast FILE.svg [--from SECONDS] [--showing TEXT]

It is the first screen from that second on that shows the text. Without a text it is the last one.
Needs `pip install pyte`, which plays the terminal.
"""

import argparse
import itertools
import json
import re
import sys
from xml.sax.saxutils import escape

import pyte

BRAILLE = re.compile("[\u2801-\u28ff]+")
#: Parts of a text between two spaces or more.
WORD = re.compile("[^ \u2800-\u28ff]+( [^ \u2800-\u28ff]+)*")
#: Of one letter, in pixels.
WIDTH, HEIGHT = 8.4, 17
MARGIN = 14
PAPER, INK = "#1b1e23", "#d5d8dc"
#: The first colours of a terminal, readable on the dark paper.
PALETTE = (
    ("black", "#3b4048"),
    ("red", "#ff8a80"),
    ("green", "#5fd39b"),
    ("brown", "#e8c468"),
    ("blue", "#7fb4ff"),
    ("magenta", "#d8a1ff"),
    ("cyan", "#67d4e0"),
    ("white", "#f0f2f4"),
)
#: Programs choose them by name or by number; pyte makes a text of six digits of a number.
COLOURS = {
    "default": INK,
    **dict(PALETTE),
    **{pyte.graphics.FG_BG_256[number]: it for number, (_, it) in enumerate(PALETTE)},
}
FONTS = "'DejaVu Sans Mono', Menlo, Consolas, monospace"
#: Begins a screen of its own, which pyte does not know: it is empty at first.
OWN_SCREEN = "\x1b[?1049h"
EMPTY = "\x1b[2J\x1b[H"
#: The dots of a Braille letter by its bits: column and row.
DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))


def screen_of(path, seconds, showing):
    """The first screen from `seconds` on that shows a text, or the last one without a text."""
    with open(path, encoding="utf-8") as file:
        header = json.loads(next(file))
        screen = pyte.Screen(header["width"], header["height"])
        stream = pyte.Stream(screen)
        for at, _, text in map(json.loads, file):
            stream.feed(text.replace(OWN_SCREEN, OWN_SCREEN + EMPTY))
            if showing and at >= seconds and showing in "\n".join(screen.display):
                return header, screen
    if showing:
        sys.exit(f"{path} does not show {showing!r} from {seconds:g} s on")
    return header, screen


def colour(name):
    name = name.replace("bright", "")
    return COLOURS.get(name) or f"#{name}"


def look(cell):
    """Ink, paper (None: that of the picture) and weight of a cell."""
    ink = colour(cell.fg)
    paper = None if cell.bg == "default" else colour(cell.bg)
    if cell.reverse:
        ink, paper = paper or PAPER, ink
    return ink, paper, cell.bold


def runs(screen, row):
    """The texts of a row with one look each: column, look, text."""
    cells = [(column, screen.buffer[row][column]) for column in range(screen.columns)]
    for key, group in itertools.groupby(cells, lambda it: look(it[1])):
        group = list(group)
        yield group[0][0], key, "".join(cell.data for _, cell in group)


def svg(header, screen):
    # Without the empty rows below.
    rows = max((row + 1 for row, text in enumerate(screen.display) if text.strip()), default=1)
    width = 2 * MARGIN + screen.columns * WIDTH
    height = 2 * MARGIN + rows * HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" height="{height:g}"'
        f' viewBox="0 0 {width:g} {height:g}" font-family="{FONTS}" font-size="14">',
        f"<title>{escape(header['title'])}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
    ]
    for row in range(rows):
        top = MARGIN + row * HEIGHT
        for column, (ink, paper, bold), text in runs(screen, row):
            left = MARGIN + column * WIDTH
            if paper:
                lines.append(
                    f'<rect x="{left:g}" y="{top:g}" fill="{paper}"'
                    f' width="{len(text) * WIDTH:g}" height="{HEIGHT}"/>'
                )
            lines += [dots(it, left, top, ink) for it in BRAILLE.finditer(text)]
            weight = ' font-weight="bold"' if bold else ""
            # Word by word, each at its column, so that columns stay columns in every font.
            for word in WORD.finditer(text):
                lines.append(
                    f'<text x="{left + word.start() * WIDTH:g}" y="{top + 13:g}" fill="{ink}"'
                    f'{weight} textLength="{len(word[0]) * WIDTH:g}"'
                    f' lengthAdjust="spacingAndGlyphs">{escape(word[0])}</text>'
                )
    return "\n".join([*lines, "</svg>", ""])


def dots(letters, left, top, ink):
    """Braille letters as squares: few fonts of fixed width have them."""
    path = ""
    for column, letter in enumerate(letters[0], letters.start()):
        for bit, (right, down) in enumerate(DOTS):
            if ord(letter) >> bit & 1:
                x = left + (column + right / 2) * WIDTH
                path += f"M{x + 1:g} {top + down * HEIGHT / 4 + 1:g}h2.4v2.4h-2.4z"
    return f'<path fill="{ink}" d="{path}"/>'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cast", metavar="FILE.cast")
    parser.add_argument("svg", metavar="FILE.svg")
    parser.add_argument("--from", metavar="SECONDS", type=float, default=0, dest="seconds")
    parser.add_argument("--showing", metavar="TEXT")
    arguments = parser.parse_args()
    picture = svg(*screen_of(arguments.cast, arguments.seconds, arguments.showing))
    with open(arguments.svg, "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    sys.exit(main())
