"""The intents that the rules of a pack can match."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Final

from manglecp.mangle import Base, Key
from manglecp.mangle.syntax import Literal, Premise, Term

_INTENT: Final[Key] = ("intent", 1)
_RELEVANT: Final[Key] = ("relevant", 2)
_SELECTING: Final[tuple[Key, ...]] = (("mandatory", 1), _RELEVANT)


def matched_intents(base: Base, open_names: Set[str], general: Set[str] = frozenset()) -> frozenset[str | None]:
    """Return the intents that rules name, and None if every intent can match: a rule reads any, or needs none.

    Predicates in ``open_names`` may get facts from clients and generators. The tools in ``general`` are relevant for
    each of these intents; their facts do not make every intent match.
    """
    rules = [
        (rule.head.key, [each for each in rule.clause.premises if not each.negated]) for rule in base.program.rules
    ]
    named_intents = frozenset(name for _, premises in rules for name in intents_of(premises))

    def has_rows(key: Key) -> bool:
        return any(key != _RELEVANT or row[0] not in general for row in base.rows(key))

    intent_bound = {key for key, _ in rules if key[0] not in open_names and not has_rows(key)} | {_INTENT}
    count = 0
    while count != len(intent_bound):  # when the loop ends, no fact of these predicates is derivable without an intent
        count = len(intent_bound)
        for key, premises in rules:
            if intent_bound.isdisjoint(premise.atom.key for premise in premises if isinstance(premise, Literal)):
                intent_bound.discard(key)
    selects_any = any(key not in intent_bound and (has_rows(key) or key in dict(rules)) for key in _SELECTING)
    return named_intents | {None} if selects_any else named_intents


def intents_of(premises: Sequence[Premise]) -> Iterable[str | None]:
    """Yield the intents that the premises of a clause name; None for a premise that is true for any intent."""
    for premise in premises:
        if isinstance(premise, Literal) and premise.atom.key == _INTENT:
            (name,) = premise.atom.args
            yield from (name,) if isinstance(name, str) else _texts_equal_to(name, premises)


def _texts_equal_to(term: Term, premises: Iterable[Premise]) -> Iterable[str | None]:
    """Return the texts that premises such as ``T = "a"`` equate with the term; [None] if there are none."""
    texts: list[str | None] = []
    for premise in premises:
        if not isinstance(premise, Literal) and not premise.negated and term in premise.terms:
            texts += [side for side in premise.terms if isinstance(side, str)]
    return texts or [None]
