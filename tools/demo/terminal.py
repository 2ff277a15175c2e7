"""The output of the demo: headings, sentences and tables; bold type only on a terminal."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable
from typing import Final

from manglecp.base.text import escape_invisible

__all__ = ["StepFailed", "expect", "heading", "show", "table"]

WIDTH: Final = 110
BOLD: Final = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class StepFailed(Exception):
    """A check of a step failed."""


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise StepFailed(otherwise)


def show(lines: Iterable[str] | str = "") -> None:
    """Print lines, indented and wrapped. Invisible characters are escaped: the text may come from servers and pages."""
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
    show(textwrap.wrap(sentence, 100))
    show()
