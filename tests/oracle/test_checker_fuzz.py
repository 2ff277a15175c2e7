"""The bounds checker and the plain one of `tests/oracle/checker.py` refuse the same programs."""

from __future__ import annotations

from typing import Final

import pytest

from manglecp.base.source import Source
from manglecp.mangle.errors import AnalysisError, StratificationError
from manglecp.mangle.parser import parse
from manglecp.mangle.program import Program
from tests.oracle.checker import refusal
from tests.oracle.programs import random_program

BLOCK: Final = 5_000
ACCEPTED: Final = (0.3, 0.7)  # the share of random programs that is accepted; else the generator tests little

KNOWN: Final = {  # programs that were once judged differently, or are easily misjudged, and whether they are refused
    "known rows of a recursion": (
        "e(1, 2). p(X, Y) :- e(X, Y). p(X, Z) :- p(X, Y), e(Y, Z). n(N) :- p(X, Y), N = fn:minus(Y, X).",
        False,
    ),
    "arithmetic inside a recursion": ("p(0). p(Y) :- p(X), Y = fn:plus(X, 1).", True),
    "element of an empty list": ("l([]). Decl p(X) bound [/number]. p(X) :- l(L), :list:member(X, L).", False),
    "value of an empty map": ('m(fn:map()). Decl p(X) bound [/number]. p(V) :- m(M), :match_entry(M, "a", V).', False),
    "constants of two kinds": ('p(1) :- "a" != 1.', True),
    "names of two prefixes": ("Decl a(X) bound [/a]. Decl b(X) bound [/b]. p(X) :- a(X), b(X).", True),
    "prefix without a slash": ("Decl a(X) bound [/ab]. p(X) :- a(X), :match_prefix(X, /a).", False),
    "a struct with more fields": ('s({/x: 1}). s({/x: 1, /y: "a"}). p(V) :- s(S), :match_field(S, /y, V).', False),
    "the second list of a union": (
        "Decl l(X) bound [fn:Union(fn:List(/string), fn:List(/number))]. Decl p(X) bound [/string]. "
        "p(X) :- l(L), :list:member(X, L).",
        True,
    ),
    "a list in a premise": ("p(Y) :- :list:member(X, [1, 2]), Y = fn:plus(X, 1).", False),
}


def is_refused(source: Source) -> bool:
    """Whether the analysis refuses the program."""
    try:
        Program.load([source])
    except AnalysisError:
        return True
    except StratificationError:
        pass
    return False


def verdict(text: str) -> bool:
    """Whether both checkers refuse the program; fails if they disagree."""
    source = Source("a.mg", text)
    refused, reason = is_refused(source), refusal(parse(source))
    assert refused == (reason is not None), f"refused: {refused}; the reference says: {reason or 'accepted'}\n{text}"
    return refused


def judge(seeds: range) -> None:
    accepted = 0
    for seed in seeds:
        try:
            accepted += not verdict(random_program(seed))
        except Exception as failure:
            failure.add_note(f"in random_program({seed})")
            raise
    least, most = ACCEPTED
    assert least < accepted / len(seeds) < most


@pytest.mark.parametrize(("text", "refused"), KNOWN.values(), ids=KNOWN.keys())
def test_known_programs(text: str, refused: bool) -> None:
    assert verdict(text) is refused


def test_random_programs() -> None:
    judge(range(300))


@pytest.mark.soak
@pytest.mark.parametrize("start", range(0, 4 * BLOCK, BLOCK))
def test_many_random_programs(start: int) -> None:
    judge(range(start, start + BLOCK))
