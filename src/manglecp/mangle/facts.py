"""Facts from outside the program: what a server knows, what a request brings."""

from __future__ import annotations

from typing import NamedTuple

from manglecp.mangle.intervals import Interval
from manglecp.mangle.text import fact_text
from manglecp.mangle.values import Value


class Fact(NamedTuple):
    """A fact of ``predicate``. A temporal one without interval holds always."""

    predicate: str
    args: tuple[Value, ...]
    interval: Interval | None = None

    def __str__(self) -> str:
        return fact_text(self.predicate, self.args, self.interval)
