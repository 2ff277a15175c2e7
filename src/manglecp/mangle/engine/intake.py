"""Facts on their way in: checked against the declarations, all errors at once, and sorted by predicate.

What is wrong with a fact belongs to the analysis, except an interval that ends before it starts: that belongs to the
evaluation, as in a program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.suggestions import closest_match
from manglecp.mangle.acceptance import Acceptance, is_text
from manglecp.mangle.declarations import Predicate
from manglecp.mangle.engine.views import FactTuple
from manglecp.mangle.errors import AnalysisError, EvalError, Stage
from manglecp.mangle.facts import Fact
from manglecp.mangle.intervals import holds_somewhere
from manglecp.mangle.packages import Key
from manglecp.mangle.text import fact_text
from manglecp.mangle.values import INT_MAX, INT_MIN, KINDS

MOST_ERRORS: Final = 100
_ALWAYS: Final = (INT_MIN, INT_MAX)


class Intake:
    """For one program, asked for the facts of many requests."""

    def __init__(self, predicates: Mapping[Key, Predicate], ids: Mapping[Key, int]) -> None:
        self.predicates = predicates
        self.ids = ids
        self.acceptance = Acceptance(predicates)

    def sort(self, facts: Iterable[Fact], check: bool) -> dict[int, set[FactTuple]]:
        """The facts by number of their predicate; temporal ones with their interval as two more columns."""
        given: dict[int, set[FactTuple]] = {}
        wrong: list[Diagnostic] = []
        backwards: list[Diagnostic] = []
        ids, predicates, accepts = self.ids, self.predicates, self.acceptance.accepts
        for fact in facts:
            if type(fact) is not Fact or type(fact.args) is not tuple:
                raise AnalysisError([_no_fact(fact)])
            name, args, interval = fact
            key = (name, len(args))
            i = ids.get(key)
            if i is None or (check and not accepts(key, args)):
                wrong.append(self._misfit(fact))
            elif not predicates[key].temporal:
                if interval is not None:
                    wrong.append(_problem(fact, f"{name} is not temporal, but the fact has an interval"))
                else:
                    _set(given, i).add(args)
                continue
            else:
                if interval is not None and not _is_interval(interval):
                    raise AnalysisError([_problem(None, f"the interval of a fact of {name} is no pair of integers")])
                start, end = interval or _ALWAYS
                if holds_somewhere(start, end):
                    _set(given, i).add((*args, start, end))
                else:
                    backwards.append(_problem(fact, "the interval ends before it starts", stage="eval"))
            if len(wrong) >= MOST_ERRORS or len(backwards) >= MOST_ERRORS:
                break
        if wrong:
            raise AnalysisError(wrong)
        if backwards:
            raise EvalError(backwards)
        return given

    def _misfit(self, fact: Fact) -> Diagnostic:
        name, args, _ = fact
        arities = sorted(arity for known, arity in self.ids if known == name)
        if not arities:
            similar = closest_match(name, {known for known, _ in self.ids})
            return _problem(fact, f"unknown predicate {name}", f"did you mean {similar}?" if similar else None)
        if len(args) not in arities:
            return _problem(fact, f"{name} takes {' or '.join(map(str, arities))} arguments, not {len(args)}")
        for position, arg in enumerate(args):
            if type(arg) not in KINDS:
                return _problem(
                    None, f"argument {position + 1} of {name} is a Python {type(arg).__name__}, not a value"
                )
            if type(arg) is int and not INT_MIN <= arg <= INT_MAX:
                return _problem(None, f"argument {position + 1} of {name} is a number of more than 64 bits")
            if type(arg) is str and not is_text(arg):
                return _problem(None, f"argument {position + 1} of {name} has half a character (a lone surrogate)")
        types = ", ".join(map(str, self.acceptance.types(args)))
        wanted = " or ".join(f"({', '.join(map(str, row))})" for row in self.predicates[name, len(args)].rows)
        return _problem(fact, f"{name} takes {wanted}, not ({types})")


def _set(given: dict[int, set[FactTuple]], i: int) -> set[Any]:
    found = given.get(i)
    if found is None:
        found = given[i] = set()
    return found


def _is_interval(interval: object) -> bool:
    return type(interval) is tuple and len(interval) == 2 and all(type(end) is int for end in interval)


def _no_fact(given: object) -> Diagnostic:
    fix = 'give facts as Fact("p", (1, "x"))'
    if type(given) is Fact:
        return Diagnostic(
            "analysis", f"the arguments of a fact are a {type(given.args).__name__}, not a tuple", fix=fix
        )
    return Diagnostic("analysis", f"a {type(given).__name__} is no fact", fix=fix)


def _problem(fact: Fact | None, message: str, fix: str | None = None, stage: Stage = "analysis") -> Diagnostic:
    shown = None if fact is None or any(type(arg) not in KINDS for arg in fact.args) else fact_text(*fact)
    return Diagnostic(stage, message, clause=shown, fix=fix)
