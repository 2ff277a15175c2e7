"""The conformance programs: each gives what it should, and goes on doing so when only its form changes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Final, Literal

import pytest

from manglecp.base.source import Source
from manglecp.mangle import printer
from manglecp.mangle.builtins.calendar import parse_rfc3339
from manglecp.mangle.errors import LimitError, MangleError
from manglecp.mangle.model import Limits
from manglecp.mangle.parser import decode, parse
from manglecp.mangle.program import Program
from tests.mangle.naive import evaluate

ALL: Final = Path(__file__).parents[1] / "conformance"
FOLDER: Final = ALL / "mangle"
HEADER_LINES: Final = 8
DEEP: Final = {"700-deep-chain-2000", "701-deep-counting-2000", "702-deep-even-odd-2000"}
"""2,000 rounds take the naive evaluator minutes."""
_HEADER: Final = re.compile(r"# (expect|now|limit|bounds): (.+)")


@dataclass(frozen=True)
class Case:
    """A program and what its header says."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(FOLDER if self.path.is_relative_to(FOLDER) else ALL).with_suffix(""))

    @cached_property
    def header(self) -> dict[str, str]:
        lines = self.path.read_bytes().decode().split("\n")[:HEADER_LINES]
        return {match[1]: match[2] for line in lines if (match := _HEADER.fullmatch(line.rstrip()))}

    @property
    def stage(self) -> str | None:
        """Where it is to be refused; None for a good program."""
        return self.header["expect"].removeprefix("error ") if self.header["expect"] != "ok" else None

    @property
    def now(self) -> int:
        now = parse_rfc3339(self.header.get("now", "1970-01-01T00:00:00Z"))
        assert now is not None
        return now

    @property
    def bounds(self) -> Literal["error", "off"]:
        return "off" if self.header.get("bounds") == "off" else "error"

    @property
    def limits(self) -> Limits:
        return Limits(derived_facts=int(self.header["limit"])) if "limit" in self.header else Limits()

    @property
    def want(self) -> list[str]:
        text = self.path.with_suffix(".want").read_bytes().decode()
        return text.removesuffix("\n").split("\n") if text else []

    @property
    def source(self) -> Source:
        return decode(self.path.name, self.path.read_bytes())

    def load(self, *sources: Source) -> Program:
        return Program.load(sources or [self.source], bounds=self.bounds)

    def facts(self, *sources: Source) -> list[str]:
        return evaluate(self.load(*sources), now=self.now, limits=self.limits).facts()


CASES: Final = [Case(path) for folder in ("language", "mangle") for path in sorted((ALL / folder).glob("*.mg"))]
GOOD: Final = [case for case in CASES if case.stage is None and case.name not in DEEP]
BAD: Final = [case for case in CASES if case.stage is not None]


def name_of(case: Case) -> str:
    return case.name


def test_the_programs_are_there() -> None:
    assert len(CASES) >= 370
    assert {case.header["expect"] for case in CASES} == {
        "ok",
        *(f"error {stage}" for stage in ("parse", "analysis", "stratification", "eval")),
    }


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.soak if case.name in DEEP else (), id=case.name) for case in CASES],
)
def test_conformance(case: Case) -> None:
    if case.stage is None:
        assert case.facts() == case.want
        return
    assert case.want == [f"ERROR {case.stage}"]
    with pytest.raises(MangleError) as raised:
        case.facts()
    assert raised.value.stage == case.stage


@pytest.mark.parametrize("case", BAD, ids=name_of)
def test_errors_say_what_and_where(case: Case) -> None:
    with pytest.raises(MangleError) as raised:
        case.facts()
    error = raised.value
    assert error.diagnostics
    for diagnostic in error.diagnostics:
        assert diagnostic.code == error.stage
        assert diagnostic.severity == "error"
        assert diagnostic.message
        if isinstance(error, LimitError):
            continue  # the whole program passed it
        assert diagnostic.span is not None
        assert diagnostic.span.source.name == case.path.name
        assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(diagnostic.span.source.text)
        line, column = diagnostic.span.line, diagnostic.span.column
        assert diagnostic.render().startswith(f"error[{case.stage}]: {case.path.name}:{line}:{column}: ")
    assert str(error) == error.render()


# --- deep programs, cut short --------------------------------------------------------------------------------------

STEPS: Final = 200


def cut(name: str) -> Source:
    """A program of 2,000 steps with 200."""
    text = decode(name, (FOLDER / f"{name}.mg").read_bytes()).text
    steps = re.compile(r"step\((\d+), \d+\)\.\n")
    text = steps.sub(lambda match: match[0] if int(match[1]) < STEPS else "", text)
    return Source(name, text.replace("2000", str(STEPS)))


def test_deep_chain() -> None:
    want = [f"step({i},{i + 1})" for i in range(STEPS)] + [f"reach({i})" for i in range(STEPS + 1)]
    program = Program.load([cut("700-deep-chain-2000")])
    assert evaluate(program, now=0).facts() == sorted([*want, f"last({STEPS})"])


def test_deep_even_and_odd() -> None:
    want = [f"{'odd' if i % 2 else 'even'}({i})" for i in range(STEPS + 1)]
    program = Program.load([cut("702-deep-even-odd-2000")])
    assert evaluate(program, now=0).facts() == sorted([*want, f"evens({STEPS // 2 + 1})", f"odds({STEPS // 2})"])


# --- what does not matter ------------------------------------------------------------------------------------------


def statements(case: Case) -> tuple[str, list[str]]:
    """The package lines of a program, and the texts of its other statements."""
    unit = parse(case.source)
    uses = [use.span.text for use in unit.uses if use.span is not None]
    package = [] if unit.package is None or unit.package.span is None else [unit.package.span.text]
    items = [item.span.text for item in unit.items if item.span is not None]
    assert len(items) == len(unit.items)
    return "".join(line + "\n" for line in package + uses), items


def order_matters(case: Case) -> bool:
    """An undeclared predicate is temporal if its first clause has an annotation."""
    try:
        predicates = case.load().predicates.values()
    except MangleError:
        return True  # another test says so
    return any(predicate.temporal and predicate.decl is None for predicate in predicates)


FREE: Final = [case for case in GOOD if not order_matters(case)]


def test_most_programs_can_be_shuffled() -> None:
    assert len(FREE) > 0.9 * len(GOOD)


@pytest.mark.parametrize("case", FREE, ids=name_of)
def test_the_order_of_statements_does_not_matter(case: Case) -> None:
    top, items = statements(case)
    shuffled = items.copy()
    Random(case.name).shuffle(shuffled)
    for order in (shuffled, items[::-1]):
        assert case.facts(Source(case.path.name, top + "\n".join(order))) == case.want


@pytest.mark.no_cover
@pytest.mark.parametrize("case", FREE, ids=name_of)
def test_the_number_of_files_does_not_matter(case: Case) -> None:
    top, items = statements(case)
    random = Random(case.name)
    chosen = [random.random() < 0.5 for _ in items]
    parts = [[item for item, first in zip(items, chosen, strict=True) if first == which] for which in (True, False)]
    sources = [Source(f"{number}.mg", top + "\n".join(part)) for number, part in enumerate(parts)]
    assert case.facts(*sources) == case.want
    assert case.facts(*reversed(sources)) == case.want


@pytest.mark.no_cover
@pytest.mark.parametrize("case", GOOD, ids=name_of)
def test_the_printed_program_means_the_same(case: Case) -> None:
    assert case.facts(Source(case.path.name, printer.unit(parse(case.source)))) == case.want


@pytest.mark.no_cover
@pytest.mark.parametrize("case", GOOD, ids=name_of)
def test_the_facts_are_a_program_for_themselves(case: Case) -> None:
    result = evaluate(case.load(), now=case.now, limits=case.limits)
    lines = []
    for (predicate, arity), known in result.program.predicates.items():
        variables = ", ".join(f"X{column}" for column in range(arity))
        lines.append(f"Decl {predicate}({variables}){' temporal' if known.temporal else ''}.")
    lines += [f"{fact}." for fact in result.facts()]
    again = evaluate(Program.load([Source("facts.mg", "\n".join(lines))]), now=0)
    assert again.facts() == case.want
    assert again.statistics.given == sum(map(len, again.relations.values()))
    assert again.statistics.derived == 0
