"""One fact, apart from any model: what a server knows, what a request brings, what is asked about."""

from __future__ import annotations

from typing import NamedTuple

from manglecp.mangle.intervals import Interval
from manglecp.mangle.matching import Timed
from manglecp.mangle.packages import Key
from manglecp.mangle.text import fact_text
from manglecp.mangle.values import Value


class Fact(NamedTuple):
    """A fact of ``predicate``. A temporal one without interval holds always."""

    predicate: str
    args: tuple[Value, ...]
    interval: Interval | None = None

    @property
    def key(self) -> Key:
        """Name and arity of its predicate."""
        return self.predicate, len(self.args)

    @property
    def timed(self) -> Timed:
        """The fact without its predicate, as relations keep it."""
        return self.args, self.interval

    @property
    def text(self) -> str:
        """Canonical text."""
        return fact_text(self.predicate, self.args, self.interval)

    def __str__(self) -> str:
        return self.text
