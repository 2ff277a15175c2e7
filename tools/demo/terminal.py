"""How the walk looks: short headings, a sentence each, and nothing but text where nobody sits at a terminal."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable
from typing import Final

from manglecp.base.text import escape_invisible

__all__ = ["Unexpected", "expect", "heading", "say", "table"]

WIDTH: Final = 110
BOLD: Final = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class Unexpected(Exception):
    """Something is not as it has to be."""


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Unexpected(otherwise)


def say(lines: Iterable[str] | str = "") -> None:
    """What servers and pages wrote is shown with every character that is not seen written out."""
    for text in (lines,) if isinstance(lines, str) else lines:
        for line in map(escape_invisible, text.split("\n")):
            further = " " * (len(line) - len(line.lstrip()) + 4)
            folded = textwrap.wrap(line, WIDTH, subsequent_indent=further, break_long_words=False) or [""]
            for part in folded if len(line) > WIDTH else [line]:
                print(f"   {part}".rstrip(), flush=True)


def table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def heading(number: int, title: str, sentence: str) -> None:
    line = f"{number}. {title}"
    print(f"\n\033[1m{line}\033[0m" if BOLD else f"\n{line}", flush=True)
    say(textwrap.wrap(sentence, 100))
    say()
