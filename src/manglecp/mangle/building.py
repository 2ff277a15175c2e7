"""How much the values take up that rules build.

A limit on derived facts says how many there may be, not how large they are: a list that grows by one element per fact
takes memory by the square of their number. So the parts of values are counted as well, in the columns that are *built*:
those where some rule for the predicate puts the result of a function without a fixed size. What a rule only hands on is
shared and costs nothing.

The count belongs to the facts, not to the way they were derived, so every evaluation of the same facts agrees on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from manglecp.mangle.builtins import FUNCTIONS, REDUCERS
from manglecp.mangle.packages import Key
from manglecp.mangle.program import Rule
from manglecp.mangle.syntax import Apply, Equality, Premise, Term, Variable
from manglecp.mangle.values import Value, part_size

_MAKES: Final = ("/string", "fn:List", "fn:Map", "fn:Struct", "fn:Pair", "/any")
"""How the results of functions that make values of any size are declared."""
_HANDS_ON: Final = ("fn:Option", "V", "X", "Y")
"""Those of functions that give a part of what they get."""


def built_columns(rules: Iterable[Rule]) -> dict[Key, tuple[int, ...]]:
    """The built columns of each predicate that has any."""
    found: dict[Key, set[int]] = {}
    for rule in rules:
        made = _built_variables(rule)
        for column, arg in enumerate(rule.head.args):
            if _builds(arg, made):
                found.setdefault(rule.head.key, set()).add(column)
    return {key: tuple(sorted(columns)) for key, columns in found.items()}


def parts(facts: Iterable[tuple[Value, ...]], columns: tuple[int, ...]) -> int:
    """The parts of the values in some columns, together."""
    return sum(part_size(fact[column]) for fact in facts for column in columns)


def _built_variables(rule: Rule) -> set[str]:
    made: set[str] = set()
    for premise in rule.premises:
        made |= _built_by(premise, made)
    for transform in rule.clause.transforms:
        for let in transform.lets:
            if _builds(let.expression, made):
                made.add(let.variable.name)
    return made


def _built_by(premise: Premise, made: set[str]) -> set[str]:
    if isinstance(premise, Equality):
        sides = ((premise.left, premise.right), (premise.right, premise.left))
        return {one.name for one, other in sides if isinstance(one, Variable) and _builds(other, made)}
    if premise.atom.predicate == ":match_cons":
        return {arg.name for arg in premise.atom.args[2:] if isinstance(arg, Variable)}  # the rest is a list of its own
    return set()


def _builds(term: Term, made: set[str]) -> bool:
    if isinstance(term, Variable):
        return term.name in made
    if not isinstance(term, Apply):
        return False
    function = FUNCTIONS.get(term.function) or REDUCERS.get(term.function)
    if function is None or function.result.startswith(_MAKES):
        return True
    return function.result.startswith(_HANDS_ON) and any(_builds(arg, made) for arg in term.args)
