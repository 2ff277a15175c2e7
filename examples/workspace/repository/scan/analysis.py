"""The analysis of a file's bytes. It does not depend on the path, so it is cached by the hash of the content."""

from __future__ import annotations

from typing import Final

import msgspec

from ..secrets import secret_locations
from .file_kinds import PYTHON, generated_by_text
from .python import Outline, parse_outline

__all__ = ["VERSION", "Analysis", "analyse"]

VERSION: Final = 3
"""The version of cached analyses. Increment it when the result of an analysis changes."""


class Analysis(msgspec.Struct, frozen=True, array_like=True):
    """The outline and the secrets of a file."""

    problem: str = ""
    """The reason why the file cannot be read as text; empty otherwise."""
    line: int = 0
    outline: Outline = Outline()
    secrets: tuple[tuple[int, str], ...] = ()
    generated: bool = False


def analyse(data: bytes, language: str) -> Analysis:
    """Analyse the bytes of a file in ``language``."""
    found = parse_outline(data) if language == PYTHON else Outline()
    if language != PYTHON and b"\0" in data:
        return Analysis(problem="binary")
    problem, line = found.problem, found.line
    # Secrets are searched in invalid text too.
    text = data.decode("utf-8", "replace")
    if not problem and language != PYTHON and "\ufffd" in text and not _is_utf8(data):
        problem = "not UTF-8"
    return Analysis(problem, line, found, secret_locations(text), generated_by_text(text))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
