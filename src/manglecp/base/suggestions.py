"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_MAX_LENGTH_DIFFERENCE: Final = 4  # characters; names whose lengths differ more are not similar
_MAX_CANDIDATES: Final = 200  # a comparison is slow, and an input may have many misspelt names


def closest_match(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to ``name``, or None if no name is similar.

    A name that starts with ``fn:`` or ``:`` is compared only with names that start in the same way; the comparison
    ignores these prefixes.
    """
    import difflib  # late: needed for misspelt names only

    prefix = next((p for p in ("fn:", ":") if name.startswith(p)), "")
    bare_name = name.removeprefix(prefix)
    same_kind = (
        candidate.removeprefix(prefix)
        for candidate in known
        if candidate.startswith(prefix) and abs(len(candidate) - len(name)) <= _MAX_LENGTH_DIFFERENCE
    )
    # Names with the same first letter come first, so that they are within the limit.
    candidates = sorted(same_kind, key=lambda candidate: (candidate[:1] != bare_name[:1], candidate))[:_MAX_CANDIDATES]
    matches = difflib.get_close_matches(bare_name, candidates, n=1, cutoff=0.6)
    return f"{prefix}{matches[0]}" if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the fix for an unknown name: the closest known name, the list of all known names, or its removal."""
    names = sorted(known)
    similar = closest_match(name, names)
    return f"did you mean {similar}?" if similar else f"known are {', '.join(names)}" if names else "remove it"
