"""The forms of evidence that comes more than once.

To make a form costs as much as to make the evidence a few times. So the first of a kind is made the plain way.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, Literal

from manglecp.harness import Form, Make, Unclear

__all__ = ["Forms"]

_MOST: Final = 32
"""Kinds that are remembered at the same time."""


class Forms:
    """Some forms, by the kind of evidence that they are of. Any thread may ask."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Form | Literal["seen", "none"]] = {}

    def of(self, kind: Hashable, make: Make, words: Sequence[str]) -> Form | None:
        """The form of a kind, if it came before and has one. ``make`` makes evidence of that kind of any words.

        Words of one kind may be more or fewer. Those of a form are as many as it was made of: otherwise one of several
        lines could pass for two.
        """
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[kind] = "seen"
        elif known == "seen":
            try:
                known = self._known[kind] = Form(make, words)
            except Unclear:
                self._known[kind] = "none"
        return known if isinstance(known, Form) and known.words == len(words) else None
