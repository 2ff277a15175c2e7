"""What a docstring says: a first paragraph about the function, and lines ``name: text`` under ``Args:``.

A line may name a type, ``name (type): text``; text that stands further in goes on; empty lines mean nothing. Whatever
stands no further in than ``Args:`` itself ends the list.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Docstring"]

_HEADINGS: Final = ("Args:", "Arguments:", "Parameters:")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:(.*)")


class Docstring:
    """The summary, and the descriptions of parameters."""

    def __init__(self, text: str) -> None:
        lines = text.expandtabs().splitlines()
        start = next((number for number, line in enumerate(lines) if line.strip() in _HEADINGS), len(lines))
        paragraphs = re.split(r"\n\s*\n", "\n".join(lines[:start]).strip(), maxsplit=1)
        self.summary: Final = " ".join(paragraphs[0].split())
        self.parameters: Final[dict[str, str]] = {}
        if start < len(lines):
            self._read(lines[start + 1 :], _depth(lines[start]))

    def _read(self, lines: list[str], heading: int) -> None:
        entries: int | None = None
        name = ""
        for line in filter(str.strip, lines):
            depth = _depth(line)
            if depth <= heading:
                return
            entries = depth if entries is None else entries
            said = line.strip()
            if depth > entries:
                if name:
                    self.parameters[name] = f"{self.parameters[name]} {said}".strip()
                continue
            found = _ENTRY.match(said)
            name = found[1] if found is not None else ""
            if found is not None:
                self.parameters[name] = found[2].strip()


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
