"""File content as lines of text.

A line ends at ``\\n`` only, so that line numbers are those of other tools. Content that is not UTF-8 or has a NUL byte
is refused; the encoding is not guessed.
"""

from __future__ import annotations

from hashlib import sha256

from ..refusal import Refusal

__all__ = ["decode_text", "digest", "split_lines", "truncate"]


def digest(data: bytes) -> str:
    """Return the SHA-256 as hexadecimal digits."""
    return sha256(data).hexdigest()


def decode_text(data: bytes, path: str) -> str:
    if b"\0" in data:
        raise Refusal(f"{path!r} is binary: only text files are read and changed")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refusal(
            f"{path!r} is not UTF-8 text: byte {error.start} is invalid; a person has to look at it"
        ) from None


def split_lines(text: str) -> list[str]:
    """Return the lines with their line breaks; the last line may have none."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def truncate(text: str, most: int) -> tuple[str, bool]:
    """Return at most ``most`` characters, cut after a line if possible, and whether the text was cut."""
    if len(text) <= most:
        return text, False
    end = text.rfind("\n", 0, most) + 1
    return text[: end or most], True
