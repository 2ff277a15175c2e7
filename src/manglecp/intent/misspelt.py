"""Words that were probably meant to be the kernel's, and are nobody's.

Whoever writes ``prohibted`` has a predicate of their own that nothing reads, and a pack without that policy. The
language sees nothing wrong with it. So a head that no rule reads and that nobody declared is held against the kernel's
words: in policy a slip is an error, since it would let through what should be forbidden; elsewhere it is a doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from manglecp.base.diagnostic import Diagnostic
from manglecp.intent.kernel import PREDICATES
from manglecp.mangle import Trust
from manglecp.mangle.syntax import Clause, Decl, Literal

__all__ = ["misspelt"]

_ALIKE: Final = 0.8


def misspelt(decls: Iterable[Decl], clauses: Sequence[Clause]) -> Iterator[Diagnostic]:
    """A problem for each predicate that looks like a slip, or that policy derives for nobody."""
    known = {*PREDICATES, *_declared(decls), *_read(clauses)}
    told: set[str] = set()
    for clause in clauses:
        name = clause.head.predicate
        if name in known or name in told or clause.span is None:
            continue
        told.add(name)
        is_policy = clause.span.source.trust <= Trust.POLICY
        word = _alike(name.rpartition(".")[2])
        if word is None and not is_policy:
            continue
        message = f"nothing reads {name}"
        fix = f"did you mean {word}? If not, declare it with Decl" if word else "read it in a rule, or remove it"
        place = clause.head.span
        yield Diagnostic("analysis", message, place, None, fix, "error" if is_policy and word else "warning")


def _declared(decls: Iterable[Decl]) -> Iterator[str]:
    """Predicates that somebody meant to have, and those that their descriptions name."""
    for decl in decls:
        yield decl.atom.predicate
        for described in decl.descr:
            yield from (term for term in described.args if isinstance(term, str))


def _read(clauses: Iterable[Clause]) -> Iterator[str]:
    for clause in clauses:
        yield from (one.atom.predicate for one in clause.premises if isinstance(one, Literal))


def _alike(name: str) -> str | None:
    import difflib  # only needed where a predicate is read by nobody

    found = difflib.get_close_matches(name, sorted(PREDICATES), n=1, cutoff=_ALIKE)
    return found[0] if found else None
