"""Files as lines of text.

A line ends at ``\\n`` and nowhere else: what other tools call line 12 is line 12. What is no UTF-8, or has a NUL in it,
is no text here, and no action guesses.
"""

from __future__ import annotations

from hashlib import sha256

from ..refusal import Refused

__all__ = ["digest", "lines_of", "shown", "text_of"]


def digest(data: bytes) -> str:
    """What a file is known by: hexadecimal SHA-256."""
    return sha256(data).hexdigest()


def text_of(data: bytes, path: str) -> str:
    if b"\0" in data:
        raise Refused(f"{path!r} is binary: only text is read and changed here")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refused(
            f"{path!r} is no UTF-8 text: byte {error.start} does not fit; a person has to look at it"
        ) from None


def lines_of(text: str) -> list[str]:
    """Lines with their ends; the last one may have none."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def shown(text: str, most: int) -> tuple[str, bool]:
    """As much of the text as may be told, cut between lines where there are some; and whether it was cut."""
    if len(text) <= most:
        return text, False
    end = text.rfind("\n", 0, most) + 1
    return text[: end or most], True
