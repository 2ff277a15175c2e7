"""Tables and wrapped lines in Markdown."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["cell", "code", "table", "wrapped"]

_WIDTH: Final = 120


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are Markdown already; see :func:`cell` for text that is not."""
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Plain text, as it can stand in a cell."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


def code(text: str) -> str:
    """As code in a cell. A bar ends a cell, and readers of Markdown disagree about how to write one in backticks."""
    return f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def wrapped(words: Iterable[str], indent: str = "    ") -> str:
    """Words that are not torn apart, in lines of at most 120 characters."""
    lines = [""]
    for word in words:
        if lines[-1].strip() and len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines.append(indent + word)
        else:
            lines[-1] += f" {word}" if lines[-1].strip() else word
    return "\n".join(lines)
