"""Read a range of lines of a file, with secrets redacted.

Secrets are searched in the whole file before the range is cut: the middle of a private key does not look like a secret.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from manglecp import Context, Limits, action

from ..credentials import refuse_credentials
from ..refusal import Refusal
from ..secrets import redact
from .roots import Root
from .texts import decode_text, digest, split_lines, truncate

__all__ = ["Lines", "read_range"]

_MOST_CHARACTERS = 150_000


class Lines(TypedDict):
    path: str
    start: int
    """The number of the first line, from 1."""
    end: int
    """The number of the last line; ``start - 1`` if the range is empty."""
    total: int
    text: str
    sha256: str
    """The hash of the whole file; empty if the file has a secret, which could be guessed from the hash."""
    redacted: bool
    """Whether a secret in these lines was redacted. Such lines cannot be used in an edit."""
    more: bool
    """Whether the file has lines after the range."""
    problem: str
    """The reason why there are no lines; empty on success."""


@action(effects=["filesystem"], mutates=False, idempotent=True)
def read_range(
    context: Context,
    path: Annotated[str, Limits(min_length=1, max_length=1024)],
    start: Annotated[int, Limits(ge=1)] = 1,
    lines: Annotated[int, Limits(ge=1, le=2000)] = 200,
    refuse: bool = True,
) -> Lines:
    """Read a range of lines of a file.

    Args:
        path: relative to the repository
        start: the number of the first line, from 1
        lines: the maximum number of lines
        refuse: fail if the file cannot be read, instead of returning the problem
    """
    try:
        refuse_credentials(path)
        with Root.open(context.settings) as root:
            content = root.read(path)
        whole = decode_text(content.data, path)
    except Refusal as refusal:
        if refuse:
            raise
        return _none(path, str(refusal))
    true, seen = split_lines(whole), split_lines(redact(whole))
    wanted = "".join(seen[start - 1 : start - 1 + lines])
    text, _ = truncate(wanted, _MOST_CHARACTERS)
    count = len(split_lines(text))
    return {
        "path": path,
        "start": start,
        "end": start - 1 + count,
        "total": len(seen),
        "text": text,
        "sha256": digest(content.data) if seen == true else "",
        "redacted": seen[start - 1 : start - 1 + count] != true[start - 1 : start - 1 + count],
        "more": start - 1 + count < len(seen),
        "problem": "",
    }


def _none(path: str, problem: str) -> Lines:
    return {
        "path": path,
        "start": 1,
        "end": 0,
        "total": 0,
        "text": "",
        "sha256": "",
        "redacted": False,
        "more": False,
        "problem": problem,
    }
