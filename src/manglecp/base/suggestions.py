"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_MAX_LENGTH_DIFFERENCE: Final = 4
_MAX_CANDIDATES: Final = 200  # comparing is slow, and an input may be full of mistakes


def closest_match(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to ``name``, or None if none is similar.

    A prefix ``fn:`` or ``:`` is not part of the comparison.
    """
    import difflib  # only needed when a name is wrong

    start = next((s for s in ("fn:", ":") if name.startswith(s)), "")
    similar = (
        k.removeprefix(start)
        for k in known
        if k.startswith(start) and abs(len(k) - len(name)) <= _MAX_LENGTH_DIFFERENCE
    )
    candidates = sorted(similar, key=lambda k: (k[:1] != name[len(start) : len(start) + 1], k))[:_MAX_CANDIDATES]
    matches = difflib.get_close_matches(name.removeprefix(start), candidates, n=1, cutoff=0.6)
    return f"{start}{matches[0]}" if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the fix for an unknown name: the closest known one, or the list of all."""
    names = sorted(known)
    similar = closest_match(name, names)
    return f"did you mean {similar}?" if similar else f"known are {', '.join(names)}" if names else "remove it"
