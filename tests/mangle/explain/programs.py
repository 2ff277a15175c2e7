"""Small random programs to be explained, from a seed.

A few given predicates over three names and three numbers, and derived ones in layers, with recursion, negation,
wildcards, comparisons, arithmetic, aggregation, deferred and merged predicates and premises about time. Some are
refused or break when they are evaluated; whoever uses them skips those.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from manglecp.base.source import Source
from manglecp.mangle.builtins.calendar import parse_rfc3339
from manglecp.mangle.engine import evaluate
from manglecp.mangle.errors import MangleError
from manglecp.mangle.model import Limits
from manglecp.mangle.program import Program
from manglecp.mangle.result import Result

NOW_TEXT: Final = "2026-01-15T12:00:00Z"
_now = parse_rfc3339(NOW_TEXT)
assert _now is not None
NOW: Final[int] = _now

NAMES: Final = ("/a", "/b", "/c")
NUMBERS: Final = ("1", "2", "3")
DAYS: Final = ("2026-01-10", "2026-01-14", "2026-01-15", "2026-01-16", "2026-01-20")
LIMITS: Final = Limits(derived_facts=500)


def load(text: str) -> Program:
    return Program.load([Source("random.mg", text)])


def run(text: str) -> Result | None:
    """The model; None if the program is refused or breaks."""
    try:
        return evaluate(load(text), now=NOW, limits=LIMITS)
    except MangleError:
        return None


@dataclass(frozen=True)
class Signature:
    name: str
    kinds: tuple[str, ...]
    temporal: bool = False

    @property
    def decl(self) -> str:
        args = ", ".join(f"A{i}" for i in range(len(self.kinds)))
        kinds = ", ".join(self.kinds)
        return f"Decl {self.name}({args}){' temporal' if self.temporal else ''} bound [{kinds}]."


GIVEN: Final = (
    Signature("p", ("/name",)),
    Signature("q", ("/name",)),
    Signature("e", ("/name", "/name")),
    Signature("n", ("/name", "/number")),
    Signature("t", ("/name",), temporal=True),
)


class Writer:
    """Writes one random program."""

    def __init__(self, seed: int, *, features: frozenset[str], declared: bool = True) -> None:
        self.random = Random(seed)
        self.features = features
        self.declared = declared
        self.given = [s for s in GIVEN if s.name != "t" or "time" in features]
        if "small" in features:
            self.given = self.random.sample(self.given, min(3, len(self.given)))
        self.known: list[Signature] = list(self.given)
        self.lines: list[str] = [s.decl for s in self.given] if declared else []

    def text(self) -> str:
        for signature in self.given:
            self._facts(signature)
        for layer in range(self.random.randint(2, 4)):
            self._layer(f"d{layer}")
        return "\n".join(self.lines) + "\n"

    def _facts(self, signature: Signature) -> None:
        for _ in range(self.random.randint(0 if self.declared else 1, 3)):
            args = ", ".join(self._constant(kind) for kind in signature.kinds)
            at = ""
            if signature.temporal:
                start, end = sorted(self.random.choices(DAYS, k=2))
                at = f"@[{start}, {end}]" if self.random.random() < 0.8 else f"@[{start}, _]"
            self.lines.append(f"{signature.name}({args}){at}.")

    def _constant(self, kind: str) -> str:
        return self.random.choice(NAMES if kind == "/name" else NUMBERS)

    def _layer(self, name: str) -> None:
        kinds = self.random.choice((("/name",), ("/name",), ("/name", "/name"), ("/name", "/number")))
        signature = Signature(name, kinds)
        if "aggregate" in self.features and self.random.random() < 0.4:
            self._aggregate(Signature(name, ("/name", "/number")))
            return
        if "merge" in self.features and self.random.random() < 0.4:
            self._merge(Signature(name, ("/name", "/number")))
            return
        if "deferred" in self.features and self.random.random() < 0.4:
            self._deferred(name)
            return
        if "time" in self.features and self.random.random() < 0.3:
            self._temporal(Signature(name, ("/name",), temporal=True))
            return
        rules = self.random.randint(1, 3)
        for number in range(rules):
            recursive = number > 0 and "recursion" in self.features and self.random.random() < 0.5
            self._rule(signature, recursive)
        self.known.append(signature)

    def _rule(self, head: Signature, recursive: bool) -> None:
        variables = {"/name": ["X", "Y", "Z"], "/number": ["N", "M"]}
        body: list[str] = []
        bound: dict[str, str] = {}
        premises = self.random.randint(1, 3)
        sources = [*self.known, head] if recursive else self.known
        for i in range(premises):
            signature = head if recursive and i == 0 else self.random.choice(sources)
            body.append(self._atom(signature, variables, bound))
        if "negation" in self.features and self.random.random() < 0.5:
            signature = self.random.choice(self.known)
            body.append("!" + self._negated(signature, bound))
        numbers = [v for v, kind in bound.items() if kind == "/number"]
        names = [v for v, kind in bound.items() if kind == "/name"]
        if "comparison" in self.features and numbers and self.random.random() < 0.6:
            right = self.random.choice([*numbers, *NUMBERS])
            body.append(f"{self.random.choice(numbers)} {self.random.choice(('<', '<=', '>', '>=', '!='))} {right}")
        if len(names) > 1 and self.random.random() < 0.2:
            body.append(f"{names[0]} != {names[1]}")
        args = []
        for kind in head.kinds:
            choices = [v for v, k in bound.items() if k == kind]
            if not choices:
                args.append(self._constant(kind))
            elif kind == "/number" and "arithmetic" in self.features and self.random.random() < 0.4:
                variable = self.random.choice(choices)
                if recursive or self.random.random() < 0.5:
                    body += [f"{variable} < 3", f"K = fn:plus({variable}, 1)"]
                    args.append("K")
                else:
                    args.append(f"fn:plus({variable}, 1)")
            else:
                args.append(self.random.choice(choices))
        if self.random.random() < 0.3:
            self.random.shuffle(body)
        self.lines.append(f"{head.name}({', '.join(args)}) :- {', '.join(body)}.")

    def _atom(self, signature: Signature, variables: dict[str, list[str]], bound: dict[str, str]) -> str:
        args = []
        for kind in signature.kinds:
            roll = self.random.random()
            if roll < 0.12:
                args.append(self._constant(kind))
            elif roll < 0.2:
                args.append("_")
            else:
                variable = self.random.choice(variables[kind])
                bound[variable] = kind
                args.append(variable)
        atom = f"{signature.name}({', '.join(args)})"
        return self._timed(atom) if signature.temporal else atom

    def _negated(self, signature: Signature, bound: dict[str, str]) -> str:
        args = []
        for kind in signature.kinds:
            choices = [v for v, k in bound.items() if k == kind]
            roll = self.random.random()
            args.append("_" if roll < 0.2 else self.random.choice(choices) if choices else self._constant(kind))
        atom = f"{signature.name}({', '.join(args)})"
        return self._timed(atom) if signature.temporal and self.random.random() < 0.7 else atom

    def _timed(self, atom: str) -> str:
        first, second = self.random.choice(("0s", "1d", "2d")), self.random.choice(("3d", "5d"))
        kind = self.random.choice(("now", "now", "diamond", "box", "day", "ahead", "days"))
        return {
            "now": f"{atom}@[now]",
            "diamond": f"<-[{first}, {second}] {atom}",
            "box": f"[-[{first}, {second}] {atom}",
            "ahead": f"<+[{first}, {second}] {atom}",
            "day": f"{atom}@[{self.random.choice(DAYS)}]",
            "days": f"{atom}@[2026-01-14, 2026-01-16]",
        }[kind]

    def _aggregate(self, head: Signature) -> None:
        variables = {"/name": ["X", "Y"], "/number": ["N"]}
        bound: dict[str, str] = {}
        body = [self._atom(self.random.choice(self.known), variables, bound) for _ in range(self.random.randint(1, 2))]
        names = [v for v, kind in bound.items() if kind == "/name"]
        if not names:
            body.append(self._atom(self.given[0], {"/name": ["X"], "/number": ["N"]}, bound))
            names = [v for v, kind in bound.items() if kind == "/name"] or ["X"]
        numbers = [v for v, kind in bound.items() if kind == "/number"]
        if "negation" in self.features and self.random.random() < 0.3:
            body.append("!" + self._negated(self.random.choice(self.known), bound))
        reducer = self.random.choice(("fn:count()", *(f"fn:{f}({v})" for f in ("sum", "max", "min") for v in numbers)))
        group = self.random.choice(names)
        self.lines.append(
            f"{head.name}({group}, C) :- {', '.join(body)} |> do fn:group_by({group}), let C = {reducer}."
        )
        self.known.append(head)

    def _merge(self, head: Signature) -> None:
        self.lines.append(
            f'Decl {head.name}(A, B) descr [fundep([A], [B]), merge([B], "better")] bound [/name, /number].'
        )
        if not any(line.startswith("Decl better") for line in self.lines):
            self.lines += [
                'Decl better(A, B, C) descr [mode("+", "+", "-"), deferred()] bound [/number, /number, /number].',
                "better(A, B, A) :- A <= B.",
                "better(A, B, B) :- B < A.",
            ]
        for _ in range(self.random.randint(1, 2)):
            self._rule(head, recursive=self.random.random() < 0.4)
        self.known.append(head)

    def _deferred(self, name: str) -> None:
        self.lines.append(f'Decl {name}(A, B) descr [mode("+", "-"), deferred()] bound [/name, /name].')
        for _ in range(self.random.randint(1, 2)):
            bound = {"X": "/name"}
            source = self.random.choice([s for s in self.known if not s.temporal])
            body = ["e(X, Y)"] if self.random.random() < 0.6 else ["q(Y)"]
            bound["Y"] = "/name"
            body.append(self._atom(source, {"/name": ["X", "Y"], "/number": ["N"]}, bound))
            if "negation" in self.features and self.random.random() < 0.4:
                body.append("!" + self._negated(self.random.choice(self.known), bound))
            self.lines.append(f"{name}(X, Y) :- {', '.join(body)}.")
        caller = Signature(f"{name}c", ("/name", "/name"))
        self.lines.append(f"{caller.name}(X, Y) :- p(X), {name}(X, Y).")
        self.known.append(caller)

    def _temporal(self, head: Signature) -> None:
        self.lines.append(head.decl)
        for _ in range(self.random.randint(1, 2)):
            bound: dict[str, str] = {}
            body = [self._atom(self.random.choice(self.known), {"/name": ["X"], "/number": ["N"]}, bound)]
            at = "@[now]"
            if any(s.name == "t" for s in self.given) and self.random.random() < 0.5:
                body, at = [f"t({'X' if self.random.random() < 0.8 else '/a'})@[S, E]"], "@[S, E]"
                bound = {"X": "/name"} if "X" in body[0] else {}
            elif self.random.random() < 0.6:
                start, end = sorted(self.random.choices(DAYS, k=2))
                at = f"@[{start}, {end}]"
            arg = "X" if "X" in bound else "/b"
            self.lines.append(f"{head.name}({arg}){at} :- {', '.join(body)}.")
        self.known.append(head)


FAMILIES: Final = {
    "positive": frozenset({"recursion", "small"}),
    "negation": frozenset({"recursion", "negation", "small"}),
    "numbers": frozenset({"comparison", "arithmetic", "recursion", "small"}),
    "aggregate": frozenset({"aggregate", "comparison", "negation", "small"}),
    "time": frozenset({"time", "negation", "small"}),
    "merge": frozenset({"merge", "comparison", "recursion", "small"}),
    "deferred": frozenset({"deferred", "negation"}),
    "all": frozenset({"recursion", "negation", "comparison", "arithmetic", "aggregate", "time"}),
}


def write(family: str, seed: int) -> str:
    return Writer(seed, features=FAMILIES[family], declared=seed % 4 != 3).text()
