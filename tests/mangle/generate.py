"""Random programs from a seed, in a form that can be written as Mangle and as answer set programming.

They are stratified and use no functions: a few given predicates over a small domain of names and numbers, and derived
predicates in strata. Rules have recursion (also mutual), negation of lower strata, wildcards (also under negation),
repeated variables, constants, equations and inequalities between variables, comparisons of numbers, and premises in
any order. Every column has a kind, so that comparisons make sense and the programs pass the type checker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["name", "number"]

KINDS: Final[tuple[Kind, ...]] = ("name", "number")
NAMES: Final = ("/a", "/b", "/c", "/d/e")
NUMBERS: Final = (-1, 0, 1, 2, 3)
WILDCARD: Final = "_"


@dataclass(frozen=True)
class Predicate:
    name: str
    kinds: tuple[Kind, ...]
    stratum: int = 0


@dataclass(frozen=True)
class Variable:
    name: str
    kind: Kind


Term: TypeAlias = Variable | str | int
"""A variable, a name or ``_``, or a number."""


@dataclass(frozen=True)
class Atom:
    predicate: Predicate
    args: tuple[Term, ...]
    negated: bool = False


@dataclass(frozen=True)
class Comparison:
    left: Term
    sign: str
    right: Term


Premise: TypeAlias = Atom | Comparison


@dataclass(frozen=True)
class Rule:
    head: Atom
    body: tuple[Premise, ...] = ()


@dataclass(frozen=True)
class Generated:
    predicates: tuple[Predicate, ...]
    rules: tuple[Rule, ...]

    def mangle(self, *, declared: bool = True) -> str:
        """One statement per line. Without declarations a predicate without clauses still has one."""
        heads = {rule.head.predicate for rule in self.rules}
        decls = [_decl(p) for p in self.predicates if declared or p not in heads]
        return "\n".join([*decls, *(_written(rule, _mangle) for rule in self.rules)]) + "\n"

    def asp(self) -> str:
        return "\n".join(_written(rule, _asp) for rule in self.rules) + "\n"

    def shuffled(self, random: Random) -> Generated:
        """The same program: clauses, and premises in them, in another order."""
        rules = [Rule(rule.head, tuple(random.sample(rule.body, len(rule.body)))) for rule in self.rules]
        return Generated(self.predicates, tuple(random.sample(rules, len(rules))))


# --- writing -------------------------------------------------------------------------------------------------------


def _decl(predicate: Predicate) -> str:
    variables = ", ".join(f"X{column}" for column in range(len(predicate.kinds)))
    types = ", ".join(f"/{kind}" for kind in predicate.kinds)
    return f"Decl {predicate.name}({variables}) bound [{types}]."


def _mangle(premise: Premise) -> str:
    if isinstance(premise, Comparison):
        return f"{_mangle_term(premise.left)} {premise.sign} {_mangle_term(premise.right)}"
    negation = "!" if premise.negated else ""
    return f"{negation}{premise.predicate.name}({', '.join(map(_mangle_term, premise.args))})"


def _mangle_term(term: Term) -> str:
    return term.name if isinstance(term, Variable) else str(term)


def _asp(premise: Premise) -> str:
    if isinstance(premise, Comparison):
        return f"{asp_term(premise.left)} {premise.sign} {asp_term(premise.right)}"
    negation = "not " if premise.negated else ""
    args = ", ".join(map(asp_term, premise.args))
    return f"{negation}{premise.predicate.name}" + (f"({args})" if args else "")


def asp_term(term: Term) -> str:
    if isinstance(term, str) and term != WILDCARD:
        return "n" + term.replace("/", "_")
    return _mangle_term(term)


def _written(rule: Rule, write: Callable[[Premise], str]) -> str:
    body = ", ".join(map(write, rule.body))
    return write(rule.head) + (f" :- {body} ." if body else ".")


# --- making --------------------------------------------------------------------------------------------------------


def program(seed: int) -> Generated:
    """The same seed gives the same program."""
    return _Maker(Random(seed)).program()


class _Maker:
    def __init__(self, random: Random) -> None:
        self.random = random

    def program(self) -> Generated:
        random = self.random
        given = [Predicate(f"e{i}", self.kinds(1)) for i in range(random.randint(1, 4))]
        strata = random.randint(1, 4)
        derived = [
            Predicate(f"p{stratum}_{i}", self.kinds(0), stratum)
            for stratum in range(1, strata + 1)
            for i in range(random.randint(1, 3))
        ]
        facts = [Rule(self.fact(predicate)) for predicate in given for _ in range(random.choice((0, *range(2, 12))))]
        rules: list[Rule] = []
        for predicate in derived:
            below = [p for p in (*given, *derived) if p.stratum < predicate.stratum]
            beside = [p for p in derived if p.stratum == predicate.stratum]
            rules.append(self.rule(predicate, below, below))  # something to recurse from
            rules += [self.rule(predicate, below, beside) for _ in range(random.randint(0, 3))]
            facts += [Rule(self.fact(predicate)) for _ in range(random.choice((0, 0, 0, 1)))]
        return Generated((*given, *derived), tuple(dict.fromkeys((*facts, *rules))))

    def kinds(self, least: int) -> tuple[Kind, ...]:
        return tuple(self.random.choice(KINDS) for _ in range(self.random.choice((least, 1, 1, 2, 2, 2, 3))))

    def fact(self, predicate: Predicate) -> Atom:
        return Atom(predicate, tuple(map(self.constant, predicate.kinds)))

    def constant(self, kind: Kind) -> Term:
        return self.random.choice(NAMES) if kind == "name" else self.random.choice(NUMBERS)

    def rule(self, head: Predicate, below: list[Predicate], beside: list[Predicate]) -> Rule:
        """Positive atoms first, then what their variables allow; the order is shuffled at the end."""
        random = self.random
        pool = [Variable(f"{letter}{kind[:2]}".title(), kind) for kind in KINDS for letter in "uvxyz"]
        body: list[Premise] = []
        for _ in range(random.choice((0, 1, 1, 1, 2, 2, 2, 3))):
            source = beside if random.random() < 0.45 else below
            body.append(self.atom(random.choice(source), pool))
        bound = _variables(body)
        for _ in range(random.choice((0, 0, 1))):
            body.append(self.equation(bound, pool))
            bound = _variables(body)
        for _ in range(random.choice((0, 0, 1, 2))):
            body.append(self.atom(random.choice(below), bound, negated=True))
        for _ in range(random.choice((0, 0, 0, 1))):
            body += self.comparison(bound)
        args = tuple(self.argument(kind, bound, wildcard=0.0) for kind in head.kinds)
        random.shuffle(body)
        return Rule(Atom(head, args), tuple(body))

    def atom(self, predicate: Predicate, pool: Iterable[Variable], *, negated: bool = False) -> Atom:
        args = tuple(self.argument(kind, pool, wildcard=0.25 if negated else 0.15) for kind in predicate.kinds)
        return Atom(predicate, args, negated)

    def argument(self, kind: Kind, pool: Iterable[Variable], *, wildcard: float) -> Term:
        fitting = [variable for variable in pool if variable.kind == kind]
        choice = self.random.random()
        if choice < wildcard:
            return WILDCARD
        return self.random.choice(fitting) if fitting and choice < 0.9 else self.constant(kind)

    def equation(self, bound: list[Variable], pool: list[Variable]) -> Premise:
        """``X = Y`` or ``X = c``, in either direction; one side may be new."""
        variable = self.random.choice(pool)
        known = [other for other in bound if other.kind == variable.kind and other != variable]
        other = self.random.choice(known) if known and self.random.random() < 0.7 else self.constant(variable.kind)
        sides: list[Term] = [variable, other]
        self.random.shuffle(sides)
        return Comparison(sides[0], "=", sides[1])

    def comparison(self, bound: list[Variable]) -> list[Premise]:
        if not bound:
            return []
        left = self.random.choice(bound)
        right = self.argument(left.kind, [v for v in bound if v != left], wildcard=0.0)
        signs = ("!=", "!=", "<", "<=", ">", ">=") if left.kind == "number" else ("!=",)
        return [Comparison(left, self.random.choice(signs), right)]


def _variables(body: list[Premise]) -> list[Variable]:
    found: dict[Variable, None] = {}
    for premise in body:
        terms = premise.args if isinstance(premise, Atom) else (premise.left, premise.right)
        found.update(dict.fromkeys(term for term in terms if isinstance(term, Variable)))
    return list(found)
