"""What an explanation needs of an evaluation that is finished, whoever evaluated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from manglecp.mangle.facts import Fact
from manglecp.mangle.limits import Limits
from manglecp.mangle.matching import Timed
from manglecp.mangle.model import Index, Origin
from manglecp.mangle.packages import Key
from manglecp.mangle.program import Program, Rule


class Model(Protocol):
    """A finished least model. A plain fact has the interval None."""

    @property
    def program(self) -> Program:
        """What was evaluated."""

    @property
    def now(self) -> int:
        """The evaluation time in nanoseconds."""

    @property
    def limits(self) -> Limits:
        """Those of the evaluation."""

    def facts(self, key: Key) -> Iterable[Timed]:
        """The facts of a predicate, each once; temporal ones coalesced."""

    def derived(self, key: Key) -> Iterable[Timed]:
        """The facts as given and derived, before coalescing; for a plain predicate the same as :meth:`facts`.

        For a predicate that merges its facts, given ones that lost may be listed too.
        """

    def index(self, key: Key, positions: tuple[int, ...], *, raw: bool = False) -> Index | None:
        """The facts, or with ``raw`` those before coalescing, by what they have at some positions.

        None where whoever asks has to make an index.
        """

    def count_derived(self, key: Key) -> int | None:
        """How many facts of a predicate with rules were not given; None where whoever asks has to count."""

    def kept_heads(self, rule: Rule) -> dict[int, int] | None:
        """Where to keep how many facts a rule derives, by its id, if every request finds the same; None otherwise."""

    def with_facts(self, added: Iterable[Fact], limits: Limits) -> Model:
        """The same with some facts added, evaluated within other limits; an error if that breaks."""

    def origin(self, fact: Fact) -> Origin | None:
        """Where a given fact came from, with the interval it was given with; None if it was not given."""
