"""Random programs with everything the engine has to get right.

Recursion, negation with wildcards, transforms, functions that may fail, comparisons, built-ins, time; in some also
merged, deferred, external and constrained predicates. A program is a list of statements, so that one that fails can be
shrunk by leaving statements out. Half of the programs declare the kinds of their columns; the others say nothing, and
some of their columns hold values of several kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal

from manglecp.base.source import Source
from manglecp.mangle.errors import MangleError
from manglecp.mangle.program import Program
from tests.mangle.engine import special

NOW: Final = 1_768_478_400 * 10**9  # 2026-01-15T12:00:00Z
CONSTANTS: Final = {
    "name": ("/a", "/b", "/c", "/a/d"),
    "number": ("-1", "0", "1", "2", "3"),
    "string": ('"a"', '"ab"', '"b"', '""'),
    "float64": ("0.0", "-0.0", "1.5", "2.0"),
    "list": ("[]", "[1]", "[1, 2]", "[2, 0, 2]"),
    "pair": ("fn:pair(/a, 1)", "fn:pair(/b, 0)", "fn:pair(/a, 2)"),
    "time": tuple(f'fn:time:parse_rfc3339("2026-01-{day}T00:00:00Z")' for day in ("05", "10", "15", "20")),
}
TYPES: Final = {"list": "fn:List(/number)", "pair": "fn:Pair(/name, /number)", "any": "/any"}
STAMPS: Final = ("2026-01-05", "2026-01-10", "2026-01-15T12:00:00", "2026-01-15T12:00:01", "2026-01-20", "2026-01-25")
OFFSETS: Final = ("0s", "1s", "5d", "10d", "12h")
KINDS: Final = ("name", "name", "name", "number", "number", "number", "string", "float64", "list", "pair", "any")
ORDERED: Final = ("name", "number", "string", "float64", "time")


@dataclass(frozen=True)
class Predicate:
    name: str
    kinds: tuple[str, ...]
    stratum: int
    temporal: bool = False
    form: Literal["stored", "merged", "deferred", "external"] = "stored"
    inputs: int = 0  # leading columns that must have a value
    merge: str = ""  # the predicate that merges its last column


@dataclass(frozen=True)
class Made:
    """A program as statements: declarations, facts, rules."""

    statements: tuple[str, ...]
    bounds: Literal["error", "off"]

    @property
    def text(self) -> str:
        return "\n".join(self.statements) + "\n"

    def load(self) -> Program:
        return Program.load([Source("made.mg", self.text)], bounds=self.bounds)

    def loaded(self) -> Program | None:
        """The program, unless the analysis refuses it."""
        try:
            return self.load()
        except MangleError:
            return None


def made(seed: int) -> Made:
    """The same seed gives the same program."""
    return _Maker(Random(seed)).program()


def shrunk(program: Made, fails: Callable[[Made], bool]) -> Made:
    """A program with fewer statements and premises that fails as well."""
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(program):
            if fails(smaller):
                program, progress = smaller, True
                break
    return program


def _smaller(program: Made) -> Sequence[Made]:
    found: list[Made] = []
    size = len(program.statements)
    step = max(1, size // 2)
    while True:
        for at in range(0, size, step):
            found.append(Made(program.statements[:at] + program.statements[at + step :], program.bounds))
        if step == 1:
            break
        step //= 2
    for at, statement in enumerate(program.statements):
        head, arrow, body = statement.partition(" :- ")
        parts = body.removesuffix(" .").split(" , ")
        for leave in range(len(parts)) if arrow and len(parts) > 1 else ():
            left = " , ".join(part for i, part in enumerate(parts) if i != leave)
            changed = f"{head} :- {left} ."
            found.append(Made((*program.statements[:at], changed, *program.statements[at + 1 :]), program.bounds))
    return found


class _Maker:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.typed = random.random() < 0.5
        self.special = random.random() < 0.4
        self.variables = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # --- the whole -------------------------------------------------------------------------------------------------

    def program(self) -> Made:
        random = self.random
        timed = 0.3 if self.chance(0.5) else 0.0
        given = [Predicate(f"e{i}", self.kinds(1, 3), 0, self.chance(timed)) for i in range(random.randint(2, 4))]
        derived = [
            Predicate(f"p{stratum}_{i}", self.kinds(0, 2), stratum, self.chance(timed))
            for stratum in range(1, random.randint(2, 5))
            for i in range(random.randint(1, 3))
        ]
        derived = [self.formed(predicate) for predicate in derived]
        if self.special:
            given += self.external()
        statements = [self.decl(predicate, given) for predicate in (*given, *derived)]
        for merge in sorted({predicate.merge for predicate in derived} - {""}):
            statements += special.merge_statements(merge, typed=self.typed)
        for predicate in given:
            statements += [self.fact(predicate) for _ in range(random.randint(0, 8 if not predicate.inputs else 1))]
        for predicate in derived:
            below = [p for p in (*given, *derived) if p.stratum < predicate.stratum]
            beside = [p for p in derived if p.stratum == predicate.stratum and p.form != "deferred"]
            if predicate.temporal:
                beside = [predicate]  # others would be mutual recursion through time
            elif any(p.temporal for p in beside):
                beside = [p for p in beside if not p.temporal]
            if predicate.form == "deferred":
                beside = below
                if predicate.kinds[0] == "number" and self.chance(0.5):
                    statements.append(self.countdown(predicate))
            for _ in range(random.randint(1, 3)):
                statements.append(self.rule(predicate, below, beside or below))
            statements += [self.fact(predicate) for _ in range(random.choice((0, 0, 1, 2)))]
        return Made(tuple(dict.fromkeys(statements)), "error" if self.typed else "off")

    def formed(self, predicate: Predicate) -> Predicate:
        """The same predicate, or one that is merged or deferred in its place."""
        if not self.special or predicate.temporal or self.chance(0.5):
            return predicate
        if self.chance(0.5):
            kinds = (*predicate.kinds[:1], "number")
            return replace(predicate, kinds=kinds, form="merged", merge=special.any_merge(self.random))
        kinds = predicate.kinds or ("number",)
        return replace(predicate, kinds=kinds, form="deferred", inputs=self.random.randint(1, len(kinds)))

    def external(self) -> list[Predicate]:
        chosen = self.random.sample(sorted(special.SHAPES), self.random.randint(0, 2))
        return [Predicate(name, special.SHAPES[name], 0, form="external", inputs=1) for name in chosen]

    def countdown(self, predicate: Predicate) -> str:
        others = [f"Y{column}" for column in range(1, len(predicate.kinds))]
        again = ", ".join(["fn:minus(X, 1)", *others])
        return f"{predicate.name}({', '.join(['X', *others])}) :- X > 0 , {predicate.name}({again}) ."

    def kinds(self, least: int, most: int) -> tuple[str, ...]:
        kinds = KINDS if self.chance(0.3) else ("name", "number")
        return tuple(self.random.choice(kinds) for _ in range(self.random.randint(least, most)))

    def decl(self, predicate: Predicate, given: list[Predicate]) -> str:
        names = [f"X{column}" for column in range(len(predicate.kinds))]
        temporal = " temporal" if predicate.temporal else ""
        descr = self.descr(predicate, names)
        bound = ", ".join(TYPES.get(kind, f"/{kind}") for kind in predicate.kinds)
        return (
            f"Decl {predicate.name}({', '.join(names)}){temporal}"
            + (f" descr [{', '.join(descr)}]" if descr else "")
            + (f" bound [{bound}]" if self.typed and bound else "")
            + self.inclusion(predicate, given)
            + "."
        )

    def descr(self, predicate: Predicate, names: list[str]) -> list[str]:
        found = []
        if predicate.inputs:
            modes = ['"+"' if column < predicate.inputs else '"-"' for column in range(len(names))]
            found += [f"mode({', '.join(modes)})", f"{predicate.form}()"]
        if predicate.form == "merged":
            key = ", ".join(names[:-1])
            found += [f"fundep([{key}], [{names[-1]}])", f'merge([{names[-1]}], "{predicate.merge}")']
        elif self.special and predicate.form == "stored" and len(names) > 1 and self.chance(0.05):
            found.append(f"fundep([{names[0]}], [{names[-1]}])")
        return found

    def inclusion(self, predicate: Predicate, given: list[Predicate]) -> str:
        """Sometimes: whatever stands in the first column has to be known elsewhere."""
        if not self.special or not predicate.kinds or predicate.form in ("deferred", "external") or self.chance(0.93):
            return ""
        known = [other for other in given if other.kinds[0] == predicate.kinds[0]]
        if not known:
            return ""
        other = self.random.choice(known)
        return f" inclusion [{other.name}({', '.join(['X0', *['_'] * (len(other.kinds) - 1)])})]"

    def fact(self, predicate: Predicate) -> str:
        args = ", ".join(self.constant(kind) for kind in predicate.kinds)
        return f"{predicate.name}({args}){self.given_interval() if predicate.temporal else ''}."

    def given_interval(self) -> str:
        if self.chance(0.05):
            return "@[now]"
        if self.chance(0.2):
            return f"@[{self.random.choice(STAMPS)}]"
        start, end = sorted((self.random.choice(STAMPS), self.random.choice(STAMPS)))
        return f"@[{'_' if self.chance(0.15) else start}, {'_' if self.chance(0.15) else end}]"

    def constant(self, kind: str) -> str:
        if kind not in CONSTANTS or (not self.typed and self.chance(0.02)):
            kind = self.random.choice(("name", "number", "number", "string", "list"))
        return self.random.choice(CONSTANTS[kind])

    # --- a rule ----------------------------------------------------------------------------------------------------

    def rule(self, head: Predicate, below: list[Predicate], beside: list[Predicate]) -> str:
        random = self.random
        bound: dict[str, str] = {}
        self.variables = 0
        known = [
            self.fresh(bound, kind) if self.chance(0.8) else self.constant(kind) for kind in head.kinds[: head.inputs]
        ]
        aggregates = not known and self.chance(0.25)
        recursive = False
        body: list[str] = []
        for _ in range(random.choice((1, 1, 2, 2, 3))):
            own = not aggregates and self.chance(0.35)
            recursive |= own
            body.append(self.atom(random.choice(beside if own else below), bound, future=not own))
        for _ in range(random.choice((0, 0, 1, 2))):
            body += self.extra(bound, below, recursive)
        if self.chance(0.5):
            random.shuffle(body)
        transforms = ""
        if aggregates:
            transforms, bound = self.aggregate(bound)
        elif not recursive and self.chance(0.1):
            numbers = self.of_kind(bound, "number")
            if numbers:
                function = random.choice(("fn:plus", "fn:div"))
                transforms = f" |> let W = {function}(1, {random.choice(numbers)})"
                bound = {**bound, "W": "number"}
        args = known + [self.head_argument(kind, bound, recursive, body) for kind in head.kinds[head.inputs :]]
        interval = self.head_interval(bound) if head.temporal else ""
        return f"{head.name}({', '.join(args)}){interval} :- {' , '.join(body)}{transforms} ."

    def of_kind(self, bound: dict[str, str], *kinds: str) -> list[str]:
        return [name for name, kind in bound.items() if kind in kinds]

    def fresh(self, bound: dict[str, str], kind: str) -> str:
        self.variables += 1
        name = f"V{self.variables}"
        bound[name] = kind
        return name

    def atom(self, predicate: Predicate, bound: dict[str, str], *, future: bool = True) -> str:
        before = dict(bound)  # an expression cannot wait for its own premise
        args = [
            self.known_argument(kind, bound) if column < predicate.inputs else self.argument(kind, bound, before)
            for column, kind in enumerate(predicate.kinds)
        ]
        text = f"{predicate.name}({', '.join(args)})"
        if not predicate.temporal:
            return text
        choice = self.random.random()
        if choice < 0.25:
            return f"{self.operator(bound, future=future)} {text}"
        return text + self.premise_interval(bound)

    def known_argument(self, kind: str, bound: dict[str, str]) -> str:
        known = self.of_kind(bound, kind)
        return self.random.choice(known) if known and self.chance(0.9) else self.constant(kind)

    def argument(self, kind: str, bound: dict[str, str], before: dict[str, str]) -> str:
        choice = self.random.random()
        if choice < 0.1:
            return "_"
        if choice < 0.2:
            return self.constant(kind)
        numbers = self.of_kind(before, "number")
        if kind == "number" and numbers and choice < 0.26:
            return f"fn:{self.random.choice(('plus', 'div'))}(2, {self.random.choice(numbers)})"
        known = self.of_kind(bound, kind)
        return self.random.choice(known) if known and choice < 0.65 else self.fresh(bound, kind)

    def premise_interval(self, bound: dict[str, str]) -> str:
        ends = []
        for _ in range(1 if self.chance(0.2) else 2):
            choice = self.random.random()
            times = self.of_kind(bound, "time")
            if choice < 0.1:
                ends.append("now")
            elif choice < 0.2:
                ends.append(self.random.choice(STAMPS))
            elif choice < 0.35 and len(ends) < 2:
                ends.append("_")
            elif times and choice < 0.6:
                ends.append(self.random.choice(times))
            else:
                ends.append(self.fresh(bound, "time"))
        return f"@[{', '.join(ends)}]"

    def operator(self, bound: dict[str, str], *, future: bool = True) -> str:
        kind = self.random.choice(("<-", "[-", "<+", "[+") if future else ("<-", "[-"))
        ends = []
        times = self.of_kind(bound, "time")
        for _ in range(self.random.randint(1, 2)):
            choice = self.random.random()
            ends.append(
                self.random.choice(STAMPS)
                if choice < 0.15
                else self.random.choice(times)
                if times and choice < 0.3
                else self.random.choice(OFFSETS)
            )
        return f"{kind}[{', '.join(ends)}]"

    def head_interval(self, bound: dict[str, str]) -> str:
        times = self.of_kind(bound, "time")
        ends = []
        for _ in range(2):
            choice = self.random.random()
            ends.append(
                "now"
                if choice < 0.05
                else "_"
                if choice < 0.15
                else self.random.choice(times)
                if times and choice < 0.9
                else self.random.choice(STAMPS)
            )
        return f"@[{', '.join(ends)}]"

    def head_argument(self, kind: str, bound: dict[str, str], recursive: bool, body: list[str]) -> str:
        known = list(bound) if kind == "any" else self.of_kind(bound, kind)
        if not known or self.chance(0.1):
            return self.constant(kind)
        chosen = self.random.choice(known)
        if kind == "number" and self.chance(0.25):
            if not recursive:
                other = self.random.choice(known)
                forms = (f"fn:plus({chosen}, 1)", f"fn:mult({chosen}, {other})", f"fn:div({other}, {chosen})")
                return self.random.choice(forms)
            if f"V{chosen[1:]}" == chosen and not any("|>" in premise for premise in body):
                body.insert(self.random.randint(0, len(body)), f"{chosen} < 5")
                return f"fn:plus({chosen}, 1)"
        return chosen

    # --- other premises --------------------------------------------------------------------------------------------

    def extra(self, bound: dict[str, str], below: list[Predicate], recursive: bool) -> list[str]:
        makers = [self.comparison, self.comparison, self.equality, self.inequality, self.builtin, self.risky]
        if not recursive:
            makers += [self.arithmetic, self.arithmetic]
        choice = self.random.randrange(len(makers) + 3)
        if choice >= len(makers):
            return [self.negation(self.random.choice(below), bound)]
        return makers[choice](bound)

    def negation(self, predicate: Predicate, bound: dict[str, str]) -> str:
        args = [self.known_argument(kind, bound) for kind in predicate.kinds[: predicate.inputs]]
        for kind in predicate.kinds[predicate.inputs :]:
            known = self.of_kind(bound, kind)
            choice = self.random.random()
            args.append(
                "_" if choice < 0.3 else self.random.choice(known) if known and choice < 0.9 else self.constant(kind)
            )
        text = f"{predicate.name}({', '.join(args)})"
        if predicate.temporal and self.chance(0.6):
            if self.chance(0.5):
                return f"!{self.operator(bound)} {text}"
            times = [*self.of_kind(bound, "time"), "now", "_", *STAMPS[:3]]
            return f"!{text}@[{self.random.choice(times)}, {self.random.choice(times)}]"
        return f"!{text}"

    def comparison(self, bound: dict[str, str]) -> list[str]:
        left = self.of_kind(bound, *ORDERED, "any")
        if not left:
            return []
        name = self.random.choice(left)
        kind = bound[name]
        others = [other for other in self.of_kind(bound, kind) if other != name]
        right = self.random.choice(others) if others and self.chance(0.6) else self.constant(kind)
        return [f"{name} {self.random.choice(('<', '<=', '>', '>='))} {right}"]

    def equality(self, bound: dict[str, str]) -> list[str]:
        if not bound:
            return []
        name = self.random.choice(list(bound))
        kind = bound[name]
        choice = self.random.random()
        known = self.of_kind(bound, kind)
        other = (
            self.fresh(bound, kind)
            if choice < 0.4
            else self.random.choice(known)
            if choice < 0.7
            else self.constant(kind)
        )
        sides = [name, other]
        self.random.shuffle(sides)
        found = [" = ".join(sides)]
        if choice < 0.15:  # a chain
            found.insert(0, f"{self.fresh(bound, kind)} = {other}")
        return found

    def inequality(self, bound: dict[str, str]) -> list[str]:
        if not bound:
            return []
        name = self.random.choice(list(bound))
        known = self.of_kind(bound, bound[name])
        other = self.random.choice(known) if self.chance(0.6) else self.constant(bound[name])
        return [f"{name} != {other}"]

    def arithmetic(self, bound: dict[str, str]) -> list[str]:
        numbers = self.of_kind(bound, "number", "any") if self.chance(0.2) else self.of_kind(bound, "number")
        if not numbers:
            return []
        left, right = self.random.choice(numbers), self.random.choice([*numbers, "2"])
        function = self.random.choice(("fn:plus", "fn:minus", "fn:mult", "fn:div", "fn:div"))
        guard = [f"{right} != 0"] if function == "fn:div" and self.chance(0.6) else []
        expression = f"{function}({left}, {right})"
        if self.chance(0.3):
            return [*guard, f"{expression} {self.random.choice(('<', '>', '!='))} {self.constant('number')}"]
        return [*guard, f"{self.fresh(bound, 'number')} = {expression}"]

    def risky(self, bound: dict[str, str]) -> list[str]:
        """A function that fails on some values, whose result is tested or just there."""
        found = [f"fn:{name}(6, {n})" for name in ("div", "mod") for n in self.of_kind(bound, "number", "any")]
        found += [f"fn:list:get({v}, {n})" for v in self.of_kind(bound, "list") for n in self.of_kind(bound, "number")]
        found += [f"fn:list:len({v})" for v in self.of_kind(bound, "list", "any")]
        found += [f"fn:string:{f}({v})" for f in ("len", "upper") for v in self.of_kind(bound, "string", "any")]
        found += [f'fn:string:split({v}, "a")' for v in self.of_kind(bound, "string")]
        found += [f"fn:name:root({v})" for v in self.of_kind(bound, "name", "any")]
        found += [f"fn:time:parse_rfc3339({v})" for v in self.of_kind(bound, "string")]
        found += [f"fn:float:div(1.0, {v})" for v in self.of_kind(bound, "float64")]
        if not found:
            return []
        expression = self.random.choice(found)
        choice = self.random.random()
        if choice < 0.3:
            return [f"{expression} != 2"]
        return [f"_ = {expression}" if choice < 0.4 else f"{self.fresh(bound, 'other')} = {expression}"]

    def builtin(self, bound: dict[str, str]) -> list[str]:
        found: list[str] = []
        for name in self.of_kind(bound, "list", "any")[:2]:
            found.append(f":match_cons({name}, {self.probe(bound)}, {self.probe(bound)})")
            found += [f":list:member({self.probe(bound)}, {name})", f":match_nil({name})", f"!:match_nil({name})"]
            found.append(f":list:enumerate({name}, {self.probe(bound)}, {self.probe(bound)})")
            found.append(f":match_index({name}, {self.random.choice(('0', '1'))}, {self.probe(bound)})")
            found.append(f":match_path({name}, [{self.random.choice(('0', '1, 0'))}], {self.probe(bound)})")
        for name in self.of_kind(bound, "any")[:2]:
            kind = self.random.choice(("string", "number", "float64", "name", "list", "map", "pair", "time", "null"))
            found.append(f"{self.random.choice(('', '!'))}:is_{kind}({name})")
        found += [
            f":is_{kind}({name})" for kind in ("number", "string", "list") for name in self.of_kind(bound, kind)[:1]
        ]
        for name in self.of_kind(bound, "pair")[:2]:
            found.append(f":match_pair({name}, {self.probe(bound)}, {self.probe(bound)})")
        for name in self.of_kind(bound, "name")[:2]:
            found += [f":match_prefix({name}, /a)", f"!:match_prefix({name}, /a)"]
        for name in self.of_kind(bound, "string", "any")[:2]:
            found += [f':string:starts_with({name}, "a")', f'!:string:contains({name}, "b")']
            found += [f':string:has_word({name}, "A")', f'!:string:matches({name}, "^[ab]")']
            found.append(f":string:matches({name}, {self.random.choice(self.of_kind(bound, 'string', 'any'))})")
            found.append(f":string:ends_with({name}, {self.random.choice(self.of_kind(bound, 'string', 'any'))})")
        return [self.random.choice(found)] if found else []

    def probe(self, bound: dict[str, str]) -> str:
        """A place that is bound by a built-in: new, known, or of no interest."""
        choice = self.random.random()
        if choice < 0.2:
            return "_"
        self.variables += 1
        names = self.of_kind(bound, "name", "number")
        return self.random.choice(names) if names and choice < 0.5 else f"U{self.variables}"

    # --- transforms ------------------------------------------------------------------------------------------------

    def aggregate(self, bound: dict[str, str]) -> tuple[str, dict[str, str]]:
        random = self.random
        keys = [name for name in bound if self.chance(0.4)]
        after = {key: bound[key] for key in keys}
        lets = []
        for position in range(random.randint(1, 2)):
            result = f"R{position}"
            reducer, kind = self.reducer(bound)
            lets.append(f"let {result} = {reducer}")
            after[result] = kind
        text = f" |> do fn:group_by({', '.join(keys)}), {', '.join(lets)}"
        numbers = [name for name, kind in after.items() if kind == "number"]
        if numbers and self.chance(0.25):
            text += f" |> let Q = fn:plus({random.choice(numbers)}, 1)"
            after["Q"] = "number"
        if self.chance(0.15):
            again = [name for name in after if self.chance(0.5)]
            text += f" |> do fn:group_by({', '.join(again)}), let C = fn:count()"
            after = {**{name: after[name] for name in again}, "C": "number"}
        return text, after

    def reducer(self, bound: dict[str, str]) -> tuple[str, str]:
        random = self.random
        numbers = self.of_kind(bound, "number")
        choice = random.random()
        if numbers and choice < 0.5:
            return f"fn:{random.choice(('sum', 'min', 'max'))}({random.choice(numbers)})", "number"
        if bound and choice < 0.65:
            function = random.choice(("fn:collect", "fn:collect_distinct"))
            return f"{function}({random.choice(list(bound))})", "any" if not numbers else "other"
        if choice < 0.75:
            return "fn:count_distinct()", "number"
        return "fn:count()", "number"
