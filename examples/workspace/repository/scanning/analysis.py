"""What the bytes of a file tell, wherever the file lies: so it can be kept by their hash."""

from __future__ import annotations

from typing import Final

import msgspec

from ..secrets import secrets_in
from .marks import PYTHON, generated_by_text
from .python import Outline, outline

__all__ = ["VERSION", "Analysis", "analyse"]

VERSION: Final = 3
"""Another number makes what was kept worthless: raise it when an analysis comes out differently."""


class Analysis(msgspec.Struct, frozen=True, array_like=True):
    """What was found."""

    why: str = ""
    """Why it is no text that can be read; empty if it is."""
    line: int = 0
    outline: Outline = Outline()
    secrets: tuple[tuple[int, str], ...] = ()
    generated: bool = False


def analyse(data: bytes, language: str) -> Analysis:
    """Of the bytes of a file that is written in ``language``."""
    found = outline(data) if language == PYTHON else Outline()
    if language != PYTHON and b"\0" in data:
        return Analysis(why="binary")
    why, line = found.why, found.line
    # What is no text is looked through all the same: a secret in it is one.
    text = data.decode("utf-8", "replace")
    if not why and language != PYTHON and "\ufffd" in text and not _is_utf8(data):
        why = "not UTF-8"
    return Analysis(why, line, found, secrets_in(text), generated_by_text(text))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
