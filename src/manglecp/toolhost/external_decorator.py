"""``@external``: a function that answers a predicate, so that rules can ask it.

    @external("similar_failure(Text, Count, Id)", mode="++-", deterministic=False, seconds=2)
    def similar_failure(text: str, count: int) -> Iterable[tuple[str]]:
        '''Failures that were described in nearly the same words.'''

The function gets the values at ``+`` and gives rows of the values at ``-``; where there is one of these, a row may be
the bare value. With ``batch=True`` it gets a list of questions, each a tuple, and gives as many lists of rows. It stays
what it was and can be called as before.

Values are plain: text, whole numbers, fractions, booleans, lists, objects; the declared bounds of the predicate say how
times, names and the like are written (``{"_type": "name", "value": "/x"}`` where there is none).

A host serves it as an action of tier 0 that takes ``inputs``, a list of questions, and gives ``rows``, a list of rows
for each. Rules only ask: an external predicate declares no effects and has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from manglecp.toolhost.action_decorator import Declaration, mark, serve_with

__all__ = ["external"]

_SIGNATURE: Final = re.compile(
    r"([a-z][A-Za-z0-9_]*)\(\s*([A-Z][A-Za-z0-9_]*(?:\s*,\s*[A-Z][A-Za-z0-9_]*)*)\s*\)", re.ASCII
)
_COROUTINE: Final = 0x80 | 0x200
_LONGEST: Final = 3_600
_WHOLE: Final = (str, bytes, bytearray, dict)
F = TypeVar("F", bound=Callable[..., Any])


def external(
    signature: str, *, mode: str, deterministic: bool = True, seconds: float = 5.0, batch: bool = False
) -> Callable[[F], F]:
    """Have a function answer a predicate.

    ``signature`` is the predicate with its variables, ``mode`` a ``+`` for each that is given and a ``-`` for each that
    is found; ``deterministic=False`` says that the same question may have another answer tomorrow; ``seconds`` is the
    time that all questions of one round of an evaluation have together.
    """
    read = _SIGNATURE.fullmatch(signature)
    if read is None:
        raise ValueError(f"{signature!r} is no predicate with variables, such as similar_failure(Text, Id)")
    predicate, arguments = read[1], [word.strip() for word in read[2].split(",")]
    if len(set(arguments)) < len(arguments):
        raise ValueError(f"{signature}: a variable stands twice")
    if len(mode) != len(arguments) or set(mode) - {"+", "-"}:
        raise ValueError(f"{predicate}: mode has a + or - for each of the {len(arguments)} arguments")
    if isinstance(seconds, bool) or not 0 < seconds <= _LONGEST:
        raise ValueError(f"{predicate}: seconds have to be above 0 and at most {_LONGEST}")
    said = {
        "predicate": predicate,
        "arguments": arguments,
        "mode": mode,
        "deterministic": bool(deterministic),
        "seconds": seconds,
    }

    def served(function: F) -> F:
        code = getattr(function, "__code__", None)
        if code is None or code.co_flags & _COROUTINE:
            raise TypeError(f"{predicate}: a plain function answers a predicate")
        answering = _answering(function, mode, batch)
        answering.__name__ = function.__name__
        answering.__module__ = function.__module__
        answering.__doc__ = function.__doc__
        declared = Declaration((), 0, False, True, seconds, False, (), 1, external=said)
        return serve_with(function, mark(answering, declared))

    return served


def _answering(function: Callable[..., Any], mode: str, batch: bool) -> Callable[..., Any]:
    given, found = mode.count("+"), mode.count("-")

    def answer(inputs: list[list[Any]]) -> dict[str, Any]:
        questions = [tuple(question) for question in inputs]
        if any(len(question) != given for question in questions):
            raise ValueError(f"a question has {given} values")
        answers = list(function(questions)) if batch else [function(*question) for question in questions]
        if len(answers) != len(questions):
            raise ValueError(f"{len(answers)} answers to {len(questions)} questions")
        return {"rows": [[_row(row, found) for row in _rows(rows)] for rows in answers]}

    return answer


def _rows(rows: Any) -> Any:
    """Letters, bytes and keys can be gone through one by one as well, and that is never what was meant."""
    if isinstance(rows, _WHOLE):
        raise TypeError(f"an answer is a list of rows, not a {type(rows).__name__}")
    return rows


def _row(row: Any, count: int) -> list[Any]:
    if count != 1 and isinstance(row, _WHOLE):
        raise TypeError(f"a row is a tuple of {count} values, not a {type(row).__name__}")
    values = list(row) if isinstance(row, tuple) or count != 1 else [row]
    if len(values) != count:
        raise ValueError(f"a row has {count} values, not {len(values)}")
    return values
