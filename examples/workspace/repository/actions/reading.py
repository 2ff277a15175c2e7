"""Reading: some lines of a file, without what looks like a secret in them.

Secrets are looked for in the whole file before lines are taken: the middle of a private key does not look like one.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from manglecp import Context, Limits, action

from ..credentials import refuse_credentials
from ..refusal import Refused
from ..secrets import redacted
from .roots import Root
from .texts import digest, lines_of, shown, text_of

__all__ = ["Lines", "read_range"]

_MOST_CHARACTERS = 150_000


class Lines(TypedDict):
    path: str
    start: int
    """The number of the first line; lines count from 1."""
    end: int
    """The number of the last line; before ``start`` if there is none."""
    total: int
    text: str
    sha256: str
    """Of the whole file as it is; empty if a secret is in it, which could be guessed by it."""
    redacted: bool
    """Something in these lines was taken out. They cannot be used as they are to change the file."""
    more: bool
    """The file goes on."""
    problem: str
    """Why there are no lines; empty if there is no problem."""


@action(effects=["filesystem"], mutates=False, idempotent=True)
def read_range(
    context: Context,
    path: Annotated[str, Limits(min_length=1, max_length=1024)],
    start: Annotated[int, Limits(ge=1)] = 1,
    lines: Annotated[int, Limits(ge=1, le=2000)] = 200,
    refuse: bool = True,
) -> Lines:
    """Read some lines of a file.

    Args:
        path: relative to the repository
        start: the number of the first line, from 1
        lines: how many at most
        refuse: fail if it cannot be read, in place of saying so
    """
    try:
        refuse_credentials(path)
        with Root.opened(context.settings) as root:
            content = root.read(path)
        whole = text_of(content.data, path)
    except Refused as refused:
        if refuse:
            raise
        return _none(path, str(refused))
    true, seen = lines_of(whole), lines_of(redacted(whole))
    wanted = "".join(seen[start - 1 : start - 1 + lines])
    text, _ = shown(wanted, _MOST_CHARACTERS)
    count = len(lines_of(text))
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
