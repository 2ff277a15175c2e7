"""Random programs for the bounds checker, as text; the same seed gives the same program.

Every column of a predicate has a kind, and rules mostly respect it, so that about half of the programs are accepted.
Now and then a term of another kind is taken, or a declaration that does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

__all__ = ["random_program"]

SCALARS: Final = ("number", "number", "number", "string", "name", "name", "float")
KINDS: Final = (*SCALARS, "numbers", "numbers", "strings", "mixed", "names", "pair", "struct", "map")
ELEMENTS: Final = {"numbers": "number", "strings": "string", "names": "name", "mixed": "number"}
NAMES: Final = ("/a", "/a/b", "/a/b/c", "/a/d", "/ab", "/ab/x", "/c", "/c/d", "/e")
TESTED: Final = ("string", "number", "float64", "name", "list", "map", "struct", "pair", "time", "null")
PREFIXES: Final = ("/a", "/a/b", "/ab", "/c", "/e")
CONSTANTS: Final = {
    "number": ("0", "1", "7"),
    "string": ('""', '"s"', '"1"'),
    "name": NAMES,
    "float": ("0.5", "2.0"),
    "numbers": ("[]", "[1]", "[1, 2]"),
    "strings": ("[]", '["s"]'),
    "mixed": ("[]", '[1, "s"]', "[1, /a/b]", "[1, 0.5]", "[[], 1]"),
    "names": ("[]", "[/a]", "[/a/b, /c/d]", "[/a/b, /a/d]"),
    "pair": ("fn:pair(1, 2)", 'fn:pair(1, "s")', "fn:pair(1, [])", "fn:pair(1, /a/b)"),
    "struct": ("{/x: 1}", '{/x: 1, /y: "s"}', "{/x: 2, /z: []}", '{/x: "s"}'),
    "map": ('["s": 1]', "fn:map()", '["s": 1, "t": 2]'),
}
TYPES: Final = {
    "number": ("/number", "/number", "/number", "fn:Union(/number, /string)"),
    "string": ("/string", "/string", "fn:Union(/string, /name)"),
    "name": ("/name", "/name", "/a", "/a/b", "fn:Union(/a, /c)", "fn:Union(/a, /name)"),
    "float": ("/float64", "fn:Union(/number, /float64)"),
    "numbers": (
        *("fn:List(/number)",) * 3,
        "fn:Union(fn:List(/string), fn:List(/number))",
        "fn:Union(fn:List(/number), fn:List(/string))",
        "fn:List(fn:Union(/number, /string))",
        "fn:List(/any)",
    ),
    "strings": ("fn:List(/string)", "fn:Union(fn:List(/string), fn:List(/number))"),
    "mixed": ("fn:List(fn:Union(/number, /string, /name))", "fn:List(/any)", "fn:List(fn:Union(/number, /string))"),
    "names": ("fn:List(/name)", "fn:List(/a)", "fn:List(fn:Union(/a, /c))"),
    "pair": (
        "fn:Pair(/number, /any)",
        "fn:Pair(/number, fn:Union(/number, /string))",
        "fn:Union(fn:Pair(/number, /number), fn:Pair(/string, /number))",
    ),
    "struct": ("fn:Struct(/x, /number)", "fn:Struct(/x, /number, fn:opt(/y, /string))", "fn:Struct(/x, /any)"),
    "map": ("fn:Map(/string, /number)", "fn:Map(/string, /any)"),
}
EXACT_TYPES: Final = {  # for predicates that no rule reads
    "name": ("fn:Singleton(/a)", "fn:Union(fn:Singleton(/a), /c)", "fn:Union(fn:Singleton(/ab), fn:Singleton(/e), /c)"),
    "names": ("fn:List(fn:Union(fn:Singleton(/a), /a, /c))", "fn:List(fn:Singleton(/a))"),
}
ODD_TYPES: Final = (
    "/any",
    "/any",
    "/any",
    "/bot",
    "fn:List(/bot)",
    "fn:Union(/number, fn:List(/number))",
    "/string",
    "/name",
)


@dataclass(frozen=True)
class Predicate:
    name: str
    kinds: tuple[str, ...]


@dataclass
class Body:
    """The premises of a rule, and the variables that they give values to."""

    premises: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)  # name to kind

    def fresh(self, kind: str) -> str:
        name = f"V{len(self.variables)}"
        self.variables[name] = kind
        return name


def random_program(seed: int) -> str:
    """Return a program; two of three are about one predicate only, so that few other reasons to refuse it hide one."""
    writer = _Writer(Random(seed))
    return writer.program() if seed % 3 == 0 else writer.short_program()


class _Writer:
    def __init__(self, random: Random) -> None:
        self.random = random
        names = random.sample("bcdfghjk", random.randint(3, 6))
        self.predicates = [Predicate(name, self.kinds()) for name in names]
        self.read = self.predicates[: random.choice((len(names), len(names) - 1))]
        self.noise = random.choice((0.0, 0.01, 0.03, 0.1))
        self.declared = random.choice((0.0, 0.3, 0.6))

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def kinds(self) -> tuple[str, ...]:
        return tuple(
            self.random.choice(KINDS if self.chance(0.6) else SCALARS)
            for _ in range(self.random.choice((1, 1, 2, 2, 3)))
        )

    def program(self) -> str:
        with_facts = self.random.randint(1, len(self.predicates))
        lines: list[str] = []
        for position, predicate in enumerate(self.predicates):
            if self.chance(self.declared):
                lines.append(self.declaration(predicate))
            if position < with_facts:
                lines.extend(self.fact(predicate) for _ in range(self.random.choice((1, 1, 2, 3))))
            if position > 0 and (position >= with_facts or self.chance(0.4)):
                lines.extend(self.rule(predicate) for _ in range(self.random.choice((1, 1, 2))))
        return "\n".join(lines)

    def short_program(self) -> str:
        """Return facts, often a recursion over them, and one rule that reads the result."""
        names = self.random.sample("bcdfghjk", 4)
        kind = self.random.choice(
            (*KINDS, *("number", "numbers") * 4, *("mixed", "strings", "names", "pair", "map"), *("struct",) * 5)
        )
        kinds = (kind,) * self.random.choice((1, 2, 2))
        source, step, turn = (Predicate(name, kinds) for name in names[:3])
        self.read = [source]
        self.noise = self.random.choice((0.0, 0.0, 0.05))
        lines = [self.declaration(source)] if self.chance(0.4) else []
        if not lines or self.chance(0.5):
            lines.extend(self.fact(source) for _ in range(self.random.choice((1, 2, 3))))
        if self.chance(0.7 if kind in SCALARS else 0.4):
            lines.extend(self.recursion(source, step, turn))
            self.read = [step]
        body = Body()
        (read,) = self.read
        body.premises.append(f"{read.name}({', '.join(map(body.fresh, read.kinds))})")
        if kind not in SCALARS:
            self.taking_apart(body)
        if kind in SCALARS or self.chance(0.4):
            uses = (*(self.arithmetic,) * 4, self.equality, self.inequality, self.comparison, self.taking_apart)
            self.random.choice(uses)(body)
        transform = self.transform(body) if self.chance(0.3) else ""
        newest = list(body.variables)[-1]
        reader = Predicate(names[3], (body.variables[newest],))
        if self.chance(0.6):
            lines.append(self.declaration(reader))
        lines.append(f"{reader.name}({newest}) :- {', '.join(body.premises)}{transform}.")
        return "\n".join(lines)

    def recursion(self, source: Predicate, step: Predicate, turn: Predicate) -> list[str]:
        """Return rules of `step`, which contains `source`; some of them lead back to it, perhaps through `turn`."""
        columns = range(len(source.kinds))
        known, other = [f"V{i}" for i in columns], [f"W{i}" for i in columns]
        other[0] = self.random.choice((known[-1], other[0]))  # a join, or all combinations
        mixed = ", ".join(self.random.choice(pair) for pair in zip(known, other, strict=True))
        back, joined = self.random.choice((step, step, turn)), self.random.choice((source, step))
        row = ", ".join(known)
        lines = [
            f"{step.name}({row}) :- {source.name}({row}).",
            f"{step.name}({mixed}) :- {back.name}({row}), {joined.name}({', '.join(other)}).",
        ]
        if back is turn:
            lines.append(f"{turn.name}({row}) :- {step.name}({row}).")
        return lines

    def declaration(self, predicate: Predicate) -> str:
        rows = [self.bound(predicate) for _ in range(self.random.choice((1, 1, 1, 2)))]
        args = ", ".join(f"A{i}" for i in range(len(predicate.kinds)))
        return f"Decl {predicate.name}({args}) {' '.join(rows)}."

    def bound(self, predicate: Predicate) -> str:
        known = TYPES if predicate in self.read else {**TYPES, **EXACT_TYPES}
        odd = 2 * self.noise + 0.03
        types = [self.random.choice(ODD_TYPES if self.chance(odd) else known[kind]) for kind in predicate.kinds]
        return f"bound [{', '.join(types)}]"

    def constant(self, kind: str) -> str:
        return self.random.choice(CONSTANTS[self.random.choice(KINDS) if self.chance(self.noise) else kind])

    def fact(self, predicate: Predicate) -> str:
        return f"{predicate.name}({', '.join(map(self.constant, predicate.kinds))})."

    # Rules

    def rule(self, predicate: Predicate) -> str:
        body = Body()
        for _ in range(self.random.choice((1, 1, 2))):
            self.atom(body)
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            self.premise(body)
        transform = self.transform(body)
        head = ", ".join(self.head(kind, body) for kind in predicate.kinds)
        if self.chance(0.2):
            self.random.shuffle(body.premises)
        return f"{predicate.name}({head}) :- {', '.join(body.premises)}{transform}."

    def variable(self, kind: str, body: Body) -> str | None:
        """Return a variable with a value, of this kind if there is one."""
        fitting = [name for name, its in body.variables.items() if its == kind]
        if fitting and not self.chance(self.noise):
            return self.random.choice(fitting)
        return self.random.choice(list(body.variables)) if body.variables and self.chance(5 * self.noise) else None

    def value(self, kind: str, body: Body) -> str:
        return (self.variable(kind, body) if self.chance(0.7) else None) or self.constant(kind)

    def scalar(self, kind: str, body: Body) -> str:
        return self.variable(kind, body) or self.constant(kind)

    def head(self, kind: str, body: Body) -> str:
        if kind == "number" and self.chance(0.1):
            return f"fn:plus({self.value(kind, body)}, 1)"
        if kind in ELEMENTS and self.chance(0.1):
            return f"[{self.head(ELEMENTS[kind], body)}]"
        return self.variable(kind, body) or self.constant(kind)

    def atom(self, body: Body) -> None:
        predicate = self.random.choice(self.read)
        before = Body([], dict(body.variables))
        args = []
        for kind in predicate.kinds:
            choice = self.random.random()
            if choice < 0.2:
                args.append(self.value(kind, before))
            elif choice < 0.27:
                args.append("_")
            else:
                args.append(body.fresh(kind))
        body.premises.append(f"{predicate.name}({', '.join(args)})")

    def premise(self, body: Body) -> None:
        write = self.random.choice(
            (
                self.atom,
                self.negation,
                self.comparison,
                self.inequality,
                self.equality,
                self.arithmetic,
                self.arithmetic,
            )
            + (self.taking_apart,) * 4
        )
        write(body)

    def negation(self, body: Body) -> None:
        predicate = self.random.choice(self.read)
        args = ["_" if self.chance(0.3) else self.value(kind, body) for kind in predicate.kinds]
        body.premises.append(f"!{predicate.name}({', '.join(args)})")

    def comparison(self, body: Body) -> None:
        kind = self.random.choice(SCALARS)
        sides = [self.scalar(kind, body), self.value(kind, body)]
        if self.chance(0.2):
            body.premises.append(f"!:lt({', '.join(sides)})")
        else:
            body.premises.append(f" {self.random.choice(('<', '<=', '>', '>='))} ".join(sides))

    def inequality(self, body: Body) -> None:
        kind = self.random.choice(KINDS)
        other = self.random.choice(KINDS) if self.chance(2 * self.noise) else kind
        body.premises.append(f"{self.value(kind, body)} != {self.value(other, body)}")

    def equality(self, body: Body) -> None:
        kind = self.random.choice(KINDS)
        left = self.variable(kind, body)
        if left is not None and self.chance(0.5):
            body.premises.append(f"{left} = {self.value(kind, body)}")
        else:
            right = self.made(kind, body)
            body.premises.append(f"{body.fresh(kind)} = {right}")

    def made(self, kind: str, body: Body) -> str:
        element = ELEMENTS.get(kind)
        if element is None or self.chance(0.3):
            return self.value(kind, body)
        return self.random.choice(
            (
                f"[{self.value(element, body)}]",
                f"[{self.value(element, body)}, {self.value(element, body)}]",
                f"fn:list:cons({self.value(element, body)}, {self.value(kind, body)})",
                f"fn:list:append({self.value(kind, body)}, {self.value(element, body)})",
            )
        )

    def arithmetic(self, body: Body) -> None:
        number = self.scalar("number", body)
        kind, text = self.random.choice(
            (
                ("number", f"fn:plus({number}, 1)"),
                ("number", f"fn:minus({number}, {self.value('number', body)})"),
                ("number", f"fn:plus({number}, 1)"),
                ("number", f"fn:list:len({self.scalar(self.random.choice(('numbers', 'mixed')), body)})"),
                ("float", f"fn:float:plus({self.scalar('float', body)}, 0.5)"),
                ("string", f"fn:string:concat({number}, {self.value('string', body)})"),
                ("string", f"fn:string:lower({self.scalar('string', body)})"),
                ("number", f"fn:string:len({self.scalar('string', body)})"),
                ("name", f"fn:name:root({self.scalar('name', body)})"),
                ("number", f"fn:struct:get({self.scalar('struct', body)}, /x)"),
            )
        )
        body.premises.append(f"{body.fresh(kind)} = {text}")

    def taking_apart(self, body: Body) -> None:
        """Write a premise with a built-in predicate that takes a value apart."""
        kind = self.random.choice(list(dict.fromkeys(body.variables.values())) or ["numbers"])
        source = self.scalar(kind, body)
        if source.startswith("V") and self.chance(0.25):
            own = "list" if kind in ELEMENTS else "float64" if kind == "float" else kind
            tested = own if own in TESTED and self.chance(0.6) else self.random.choice(TESTED)
            body.premises.append(f"{self.random.choice(('', '', '!'))}:is_{tested}({source})")
        elif kind in ELEMENTS:
            element = ELEMENTS[kind]
            text = self.random.choice(
                (
                    *(":list:member({0}, {1})",) * 2,
                    ":list:enumerate({1}, _, {0})",
                    ":match_index({1}, 0, {0})",
                    ":match_path({1}, [0], _)",
                    ":match_cons({1}, {0}, _)",
                    ":match_cons({1}, {0}, {2})",
                    ":match_nil({1})",
                    "!:match_nil({1})",
                )
            )
            outputs = (body.fresh(element) if "{0}" in text else "", body.fresh(kind) if "{2}" in text else "")
            body.premises.append(text.format(outputs[0], source, outputs[1]))
        elif kind == "pair":
            body.premises.append(f":match_pair({source}, {body.fresh('number')}, {body.fresh('number')})")
        elif kind == "struct" and source.startswith("V"):
            label, made = self.random.choice((("/x", "number"), ("/y", "string")))
            body.premises.append(f":match_field({source}, {label}, {body.fresh(made)})")
        elif kind == "map":
            body.premises.append(f":match_entry({source}, {self.value('string', body)}, {body.fresh('number')})")
        elif kind == "name" and source.startswith("V"):
            body.premises.append(
                f"{self.random.choice(('', '', '!'))}:match_prefix({source}, {self.random.choice(PREFIXES)})"
            )
        elif kind == "string":
            body.premises.append(f'{self.random.choice(("", "!"))}:string:contains({source}, "s")')
        else:
            self.comparison(body)

    def transform(self, body: Body) -> str:
        choice = self.random.random()
        if choice > 0.25 or not body.variables:
            return ""
        if choice > 0.1:
            lets = []
            for _ in range(self.random.choice((1, 1, 2))):
                text = self.random.choice(
                    (f"fn:plus({self.scalar('number', body)}, 1)", f"[{self.scalar('number', body)}]")
                )
                if text.startswith("["):
                    text = f"fn:list:cons({self.scalar('number', body)}, [])"
                kind = "number" if text.startswith("fn:plus") else "numbers"
                lets.append(f"let {body.fresh(kind)} = {text}")
            return f" |> {', '.join(lets)}"
        keys = self.random.sample(list(body.variables), self.random.randint(0, min(2, len(body.variables))))
        summed = self.variable("number", body) or self.random.choice(list(body.variables))
        collected = self.random.choice(list(body.variables))
        kept = {key: body.variables[key] for key in keys}
        kind, reducer = self.random.choice(
            (("number", "fn:count()"), ("number", f"fn:sum({summed})"), ("numbers", f"fn:collect({collected})"))
        )
        name = body.fresh(kind)
        body.variables = {**kept, name: kind}
        return f" |> do fn:group_by({', '.join(keys)}), let {name} = {reducer}"
