"""What texts, ids and numbers may be. Whoever writes one that is not gets told the rule, never the text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from manglecp.store.errors import Invalid

__all__ = [
    "DEFAULT_PRIORITY",
    "DEFAULT_TTL",
    "ID",
    "MOST_EDGES",
    "check_id",
    "check_labels",
    "check_name",
    "check_priority",
    "check_text",
    "check_title",
    "check_ttl",
]

ID: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Fits into a URI, a file name and a shell word without quotes."""

LONGEST_TITLE: Final = 200
LONGEST_TEXT: Final = 65_536
LONGEST_NAME: Final = 128
MOST_LABELS: Final = 32
MOST_EDGES: Final = 256
LOWEST_PRIORITY: Final = 4
DEFAULT_PRIORITY: Final = 2
SHORTEST_TTL: Final = 30
LONGEST_TTL: Final = 86_400
DEFAULT_TTL: Final = 3_600

_ID: Final = re.compile(ID)
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")


def check_id(text: str, field: str = "id") -> None:
    """Raises :class:`Invalid` for what is no id of an issue."""
    if _ID.fullmatch(text) is None:
        raise Invalid(field, "an id is 1 to 64 letters, digits, dots, underscores and hyphens; the first no sign")


def check_title(text: str) -> None:
    """Raises :class:`Invalid` for an empty title, a long one, and more than one line."""
    if not text.strip():
        raise Invalid("title", "it is empty")
    if len(text) > LONGEST_TITLE:
        raise Invalid("title", f"it has {len(text):,} characters, and {LONGEST_TITLE} are allowed")
    _check_line(text, "title")


def check_text(text: str, field: str) -> None:
    """Raises :class:`Invalid` for a long text and for control characters."""
    if len(text) > LONGEST_TEXT:
        raise Invalid(field, f"it has {len(text):,} characters, and {LONGEST_TEXT:,} are allowed")
    if any(unicodedata.category(sign) in ("Cc", "Cs") for sign in set(text) - {"\n", "\t"}):
        raise Invalid(field, "it has control characters other than line feeds and tabs")


def check_name(text: str, field: str) -> None:
    """Of a person or a worker."""
    if not text.strip() or len(text) > LONGEST_NAME:
        raise Invalid(field, f"a name has 1 to {LONGEST_NAME} characters")
    _check_line(text, field)


def check_labels(labels: Sequence[str]) -> None:
    """Raises :class:`Invalid` for too many, malformed, unsorted or repeated labels."""
    if len(labels) > MOST_LABELS:
        raise Invalid("labels", f"there are {len(labels):,}, and {MOST_LABELS} are allowed")
    if any(_LABEL.fullmatch(label) is None for label in labels):
        raise Invalid("labels", "a label is 1 to 64 letters, digits and . _ : / -; the first a letter or a digit")
    if list(labels) != sorted(set(labels)):
        raise Invalid("labels", "they are not sorted, or one is there twice")


def check_priority(priority: int) -> None:
    """Raises :class:`Invalid` outside of the scale."""
    if not 0 <= priority <= LOWEST_PRIORITY:
        raise Invalid("priority", f"it is a number from 0, the most urgent, to {LOWEST_PRIORITY}")


def check_ttl(seconds: int) -> None:
    """Raises :class:`Invalid` for a lease that is too short or too long."""
    if not SHORTEST_TTL <= seconds <= LONGEST_TTL:
        raise Invalid("ttl", f"a lease lasts from {SHORTEST_TTL} to {LONGEST_TTL:,} seconds")


def _check_line(text: str, field: str) -> None:
    """Nothing that a terminal or a reader would show as something else than it is (threats 3)."""
    if any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") for sign in set(text)):
        raise Invalid(field, "it has line breaks, control characters or invisible ones")
