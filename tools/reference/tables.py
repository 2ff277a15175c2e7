"""Tables and wrapped lines in Markdown."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["cell", "code", "table", "wrapped"]

_WIDTH: Final = 120


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. Cells are Markdown; see :func:`cell` for plain text."""
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Return plain text, escaped for a cell."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


def code(text: str) -> str:
    """Return code for a cell. A bar ends a cell, and Markdown dialects differ in how to escape one in backticks."""
    return f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def wrapped(words: Iterable[str], indent: str = "    ") -> str:
    """Join words into lines of at most 120 characters."""
    lines = [""]
    for word in words:
        if lines[-1].strip() and len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines.append(indent + word)
        else:
            lines[-1] += f" {word}" if lines[-1].strip() else word
    return "\n".join(lines)
