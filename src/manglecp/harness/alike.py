"""Texts that were there before, but for their names.

Many a text comes again and again with other digests and other ids in it, and nobody knows so beforehand. The first time
it is only noticed. From the second time on it is told by what all of them have in common (:class:`.shapes.Filled`), so
that this can be kept once. What was noticed long ago is forgotten, which costs room where texts are kept and nothing
else.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from manglecp.harness.shapes import Filled, Template, spans_of

__all__ = ["Alike"]

_LONGEST: Final = 65_536


class Alike:
    """What was noticed, by marks that texts have in common. Any thread may ask."""

    def __init__(self, most: int) -> None:
        """``most``: how many kinds of texts are remembered."""
        self._most = most
        self._seen: OrderedDict[int, Template | None] = OrderedDict()
        self._lock = Lock()

    def filled(self, text: bytes) -> Filled | None:
        """A JSON text by what it has in common with others; None if it is the first of its kind, or a long one."""
        if len(text) > _LONGEST:
            return None
        numbers: dict[bytes, int] = {}
        between, places, last = [], [], 0
        for start, end in spans_of(text):
            between.append(text[last:start])
            places.append(numbers.setdefault(text[start:end], len(numbers)))
            last = end
        mark = hash((tuple(between), text[last:], tuple(places), tuple(map(len, numbers))))
        with self._lock:
            first = mark not in self._seen
            template = self._seen.setdefault(mark, None)
            self._seen.move_to_end(mark)
            if len(self._seen) > self._most:
                self._seen.popitem(last=False)
            if not first and template is None:
                template = self._seen[mark] = Template(text, numbers)
        if template is None:
            return None
        found = Filled(template, [*numbers])
        return found if found.text == text else None  # it might have the mark of another
