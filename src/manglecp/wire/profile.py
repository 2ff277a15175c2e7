"""The facts profile: what clients may say to a program, and how its facts are said to them (companion, section 4.6).

Only predicates that the program's declarations publish are known here. Everything that comes in is a session fact of
the client, whatever it claims to be; everything that goes out can be sent back in unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, cast

from manglecp.base.gc_pause import gc_paused
from manglecp.mangle import Acceptance, Fact, Key, Predicate
from manglecp.mangle.types import STRING
from manglecp.wire.batches import read_batch
from manglecp.wire.checking import Checking
from manglecp.wire.clauses import RefusedClause
from manglecp.wire.errors import Violation, refused_facts, too_many_facts
from manglecp.wire.facts import write_fact
from manglecp.wire.messages.manifest import Direction, PredicateSchema
from manglecp.wire.provenance import Category
from manglecp.wire.publishing import UPGRADE, Published, published
from manglecp.wire.schemas import Schema, Schemas
from manglecp.wire.shapes import Shape

MOST_VIOLATIONS: Final = 1_000
"""Where looking for more ends: nobody reads them, and an answer must not be many times as long as its request."""

_MANY: Final = 500
_UPGRADE: Final = Published(Schema(UPGRADE, (Shape(STRING),), ("macro_id",)), "input", ("string",))


class Profile:
    """What is published of one program. Immutable; made once, asked by every request."""

    def __init__(self, predicates: Mapping[Key, Predicate], entries: Iterable[Published]) -> None:
        self._schemas = Schemas(predicates)
        self._accepts = Acceptance(predicates).accepts
        self._published = tuple(entries)
        self._vocabulary: dict[str, dict[int, Published]] = {UPGRADE: {1: _UPGRADE}}
        for entry in self._published:
            self._vocabulary.setdefault(entry.schema.predicate, {})[entry.schema.arity] = entry
        # Names that stand for one predicate, which is nearly every name, are read in batches.
        alone = {name: next(iter(found.values())) for name, found in self._vocabulary.items() if len(found) == 1}
        self._batched = {name: entry for name, entry in alone.items() if entry.readable}
        self.readable: frozenset[str] = frozenset(
            name for name, found in self._vocabulary.items() if any(entry.readable for entry in found.values())
        )

    @classmethod
    def of(cls, predicates: Mapping[Key, Predicate], kernel: Collection[str] = ()) -> Profile:
        """The profile of a program whose predicates ``kernel`` are nobody's to say."""
        return cls(predicates, published(predicates, kernel))

    def schemas(self) -> tuple[PredicateSchema, ...]:
        """For the manifest, by name."""
        return tuple(entry.described() for entry in self._published)

    def direction(self, name: str) -> Direction | None:
        """None if the predicate is not published."""
        found = {entry.direction for entry in self._vocabulary.get(name, {}).values()}
        return found.pop() if len(found) == 1 else "both" if found else None

    # --- in --------------------------------------------------------------------------------------------------------

    def read(self, facts: list[Any], now: int, *, limit: int | None = None, required: Iterable[str] = ()) -> list[Fact]:
        """The facts of a request, each once, in the order they came; a ``WireError`` that tells all that is wrong.

        ``now`` is the evaluation time, ``limit`` how many facts a request may have, ``required`` the predicates of
        which there must be at least one fact.
        """
        if limit is not None and len(facts) > limit:
            raise too_many_facts(len(facts), limit)
        if len(facts) > _MANY:
            with gc_paused():
                found, violations = self._settled(facts, now)
        else:
            found, violations = self._settled(facts, now)
        missing = _missing(facts, required)
        if violations or missing:
            error = refused_facts(violations, missing)
            if len(violations) >= MOST_VIOLATIONS:
                error.message = f"at least {error.message}"
            raise error
        return list(dict.fromkeys(found))  # DATA-42

    def _settled(self, facts: list[Any], now: int) -> tuple[list[Fact], list[Violation]]:
        """All at once, and one by one what is not plainly right."""
        plain = read_batch(facts, self._batched, self._accepts, now)
        if None not in plain:
            return cast("list[Fact]", plain), []
        checking = Checking(self._vocabulary, self._accepts, now)
        for index, fact in enumerate(plain):
            if fact is None and len(checking.violations) < MOST_VIOLATIONS:
                plain[index] = checking.check(index, facts[index])
        return [fact for fact in plain if fact is not None], checking.violations

    def check(self, facts: Iterable[Any], now: int) -> tuple[list[Fact], list[Violation]]:
        """The facts that are right, and what is wrong with the others: everything, unless there is no end to it."""
        checking = Checking(self._vocabulary, self._accepts, now)
        found = []
        for index, fact in enumerate(facts):
            if len(checking.violations) >= MOST_VIOLATIONS:
                break
            found.append(checking.check(index, fact))
        return [fact for fact in found if fact is not None], checking.violations

    # --- out -------------------------------------------------------------------------------------------------------

    def write(
        self,
        fact: Fact,
        *,
        category: Category | None = None,
        source: Mapping[str, Any] | None = None,
        wildcards: bool = False,
    ) -> dict[str, Any]:
        """What :meth:`read` takes for the same fact. ``wildcards``: the name ``/_`` stands for any value (DELTA-06)."""
        if fact.predicate == UPGRADE:  # the one predicate that no program has
            written: dict[str, Any] = {"pred": UPGRADE, "args": list(fact.args)}
        else:
            written = write_fact(fact, self._schemas, wildcards=wildcards)
        if source is not None:
            written["source"] = dict(source)
        if category is not None:
            written["category"] = category
        return written


def _missing(facts: Iterable[Any], required: Iterable[str]) -> list[str]:
    """A fact that is there and wrong is not missing (OPEN-18)."""
    wanted = list(dict.fromkeys(required))
    if not wanted:
        return []
    present = {name for fact in facts if type(name := _predicate(fact)) is str}
    return [name for name in wanted if name not in present]


def _predicate(fact: Any) -> Any:
    return fact.predicate if isinstance(fact, RefusedClause) else fact.get("pred") if isinstance(fact, dict) else None
