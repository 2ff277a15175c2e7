"""What the first request would otherwise pay for: the vocabulary of the token counter, time zones, generated code.

Measured on the incident example, five fresh processes on two cores: the first request takes 63 to 69 ms without this
and 0.9 to 1.2 ms after it, and warming up takes 67 to 71 ms. Most of it is the vocabulary, which is loaded once for a
process. On a busy machine all of these are a few times as long.

A server warms up each domain before it listens. Loading does not do it by itself: whoever checks a pack, asks one
question from a shell or reads a manifest would pay for what is never used.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from manglecp.intent.identity import ANONYMOUS
from manglecp.intent.responding import answer_bytes
from manglecp.intent.tokens import counter
from manglecp.mangle import zone
from manglecp.mangle.syntax import Apply, Clause, Equality, Term
from manglecp.wire.messages import VERSION

if TYPE_CHECKING:
    from manglecp.intent.domain import Domain

__all__ = ["warm_up"]

SECONDS: Final = 2.0
"""No request is begun later than this."""
_NOBODY: Final = "x-warm-up"
"""An intent that no pack has, for a pack that lists none."""


def warm_up(domain: Domain) -> None:
    """Ask what anybody may ask, and forget the answers. What a request brings ends with it, so no answer changes.

    External predicates are not asked: where a pack has some, rules are not run.
    """
    counter(domain.pack.settings.disclosure.tokens).count(b"warm")
    for name in _zones(domain):
        zone(name)
    if domain.pack.externals:
        return
    begun = monotonic()
    for intent in [one.name for one in domain.pack.settings.intents] or [_NOBODY]:
        if monotonic() - begun < SECONDS:
            answer_bytes(domain, _request(intent), ANONYMOUS)


def _request(intent: str) -> bytes:
    payload = {"intent": {"name": intent}, "facts": []}
    return msgspec.json.encode({"type": "intent_request", "id": _NOBODY, "manglecp": VERSION, "payload": payload})


def _zones(domain: Domain) -> Iterator[str]:
    """Texts that rules hand to functions of time: the names of zones are among them, and others are none."""
    for rule in domain.program.rules:
        for term in _terms(rule.clause):
            if isinstance(term, Apply) and term.function.startswith("fn:time:"):
                yield from (arg for arg in term.args if isinstance(arg, str))


def _terms(clause: Clause) -> Iterator[Term]:
    work: list[Term] = [*clause.head.args, *(let.expression for one in clause.transforms for let in one.lets)]
    for premise in clause.premises:
        work += (premise.left, premise.right) if isinstance(premise, Equality) else premise.atom.args
    while work:
        term = work.pop()
        yield term
        if isinstance(term, Apply):
            work += term.args
