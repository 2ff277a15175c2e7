"""Who may add to a predicate, beyond the rule files that the language looks at: fact files, the server, clients.

A predicate belongs to the level that the kernel or its declaration names, else to that of its most trusted clause. What
comes as facts speaks for the domain at most, and what comes from clients for nobody (EVAL-41); so none of it may touch
what policy, or anybody above it, decides by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from manglecp.base.diagnostic import Diagnostic
from manglecp.intent.kernel import OWNERS, PREDICATES
from manglecp.mangle import Key, Program, Trust
from manglecp.wire import direction_of

__all__ = ["owners", "published_above"]


def owners(program: Program) -> Mapping[Key, Trust]:
    """The level of every predicate that does not belong to the domain."""
    found: dict[Key, Trust] = {}
    for clause in (*(rule.clause for rule in program.rules), *(fact.clause for fact in program.facts)):
        if clause.span is not None:
            key = clause.head.key
            found[key] = min(found.get(key, Trust.DOMAIN), clause.span.source.trust)
    for key, predicate in program.predicates.items():
        said = OWNERS.get(key[0], predicate.owner)
        if said is not None:
            found[key] = said
    return {key: owner for key, owner in found.items() if owner < Trust.DOMAIN}


def published_above(program: Program, owned: Mapping[Key, Trust]) -> Iterator[Diagnostic]:
    """Predicates that clients may state although somebody above the domain decides by them."""
    for key, owner in sorted(owned.items()):
        predicate = program.predicates[key]
        if key[0] in PREDICATES or predicate.decl is None or direction_of(predicate) not in ("input", "both"):
            continue
        descriptor = next(one for one in predicate.decl.descr if one.predicate == "direction")
        message = f"{key[0]} belongs to {owner.label}, so that no client may state it"
        fix = 'write direction("output"), or let clients state another predicate that policy reads'
        yield Diagnostic("analysis", message, descriptor.span, None, fix)
