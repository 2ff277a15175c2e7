"""Predicates of random programs that are more than stored facts: merged, deferred, answered by Python, constrained.

Merges are lattices, or parts of one whose values stay apart, so that the result is one whatever the order. Deferred
rules count down, if they recurse at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Final

from manglecp.mangle.externals import External, Externals
from manglecp.mangle.values import Name

NUMBERS: Final = range(-1, 5)
MERGES: Final = {
    "least": ("least(A, B, A) :- A <= B .", "least(A, B, B) :- B < A ."),
    "most": ("most(A, B, B) :- A <= B .", "most(A, B, A) :- B < A ."),
    # numbers below two and the others have no common value
    "apart": (
        "apart(A, B, A) :- A < 2 , B < 2 , A <= B .",
        "apart(A, B, B) :- A < 2 , B < A .",
        "apart(A, B, A) :- A >= 2 , B >= 2 , A <= B .",
        "apart(A, B, B) :- B >= 2 , B < A .",
    ),
}
"""How the values of a merged column become one; asked when they meet."""
STORED_MERGE: Final = "known"


def merge_statements(name: str, *, typed: bool) -> list[str]:
    """The declaration and the clauses of a merge predicate."""
    bound = " bound [/number, /number, /number]" if typed else ""
    if name == STORED_MERGE:
        facts = [f"{name}({a}, {b}, {max(a, b)})." for a in NUMBERS for b in NUMBERS]
        return [f"Decl {name}(A, B, C){bound}.", *facts]
    return [f'Decl {name}(A, B, C) descr [mode("+", "+", "-"), deferred()]{bound}.', *MERGES[name]]


def any_merge(random: Random) -> str:
    return random.choice((*MERGES, "least", "most", STORED_MERGE))


# --- answered by Python --------------------------------------------------------------------------------------------


def _twice(question: tuple[Any, ...]) -> Iterable[tuple[int]]:
    (number,) = question
    return [(2 * number,)] if isinstance(number, int) and abs(number) < 3 else []


def _parts(questions: list[tuple[Any, ...]]) -> list[list[tuple[Name]]]:
    return [[(Name("/a"),), (Name("/b"),), (Name("/a"),)] if number != 0 else [] for (number,) in questions]


def _even(question: tuple[Any, ...]) -> Iterable[tuple[()]]:
    return [()] if isinstance(question[0], int) and question[0] % 2 == 0 else []


def _moody(question: tuple[Any, ...]) -> Iterable[tuple[int]]:
    if question == (3,):
        raise RuntimeError("not today")
    return [(1,)]


EXTERNALS: Final[Externals] = {
    "twice": External(_twice),
    "parts": External(_parts, batch=True),
    "even": External(_even),
    "moody": External(_moody),
}
SHAPES: Final = {
    "twice": ("number", "number"),
    "parts": ("number", "name"),
    "even": ("number",),
    "moody": ("number", "number"),
    "nobody": ("number", "name"),  # no answer is registered for it: facts are all there is
}
"""The kinds of the columns of external predicates; the first is what they are asked with."""
