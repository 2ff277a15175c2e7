"""Load, evaluate and query a program, for ``eval`` and ``query``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import click

from manglecp.base.diagnostic import Diagnostic
from manglecp.cli.files import read_fact_files, read_sources
from manglecp.cli.output import Progress, json_text, refuse, report, suggestion
from manglecp.mangle import (
    CompiledProgram,
    Limits,
    MangleError,
    Program,
    Result,
    Source,
    Statistics,
    evaluate,
    parse_facts,
)
from manglecp.mangle.explain import read_fact

if TYPE_CHECKING:
    from manglecp.pack.factfiles import FactFile


def json_facts(texts: Iterable[str], program: Program) -> Iterator[str]:
    """Encode facts in canonical text as the lines of a ``.jsonl`` fact file."""
    from manglecp.wire import Schemas, write_fact

    schemas = Schemas(program.predicates)
    read = parse_facts(Source("facts", "".join(f"{text}.\n" for text in texts))).facts
    return (json_text(write_fact(fact, schemas)) for fact in read)


_T = TypeVar("_T")
Bounds = Literal["error", "off"]


@dataclass(frozen=True, slots=True)
class Answer(Generic[_T]):
    """The result of a query, with its cost."""

    found: _T
    compiled: CompiledProgram
    warnings: tuple[Diagnostic, ...]
    statistics: Statistics
    load_seconds: float
    evaluation_seconds: float


def answer(
    files: Sequence[str],
    ask: Callable[[Result], _T],
    *,
    now: int,
    limit: int,
    bounds: Bounds,
    facts: Sequence[FactFile] = (),
    accept: Callable[[Program], object] = lambda program: None,  # noqa: ARG005
) -> Answer[_T]:
    """Evaluate the program with the facts of the files, and return ``ask`` of the result; ``accept`` may refuse."""
    warnings: tuple[Diagnostic, ...] = ()
    started = time.perf_counter()
    try:
        with Progress("loading") as progress:
            program = Program.load(read_sources(files), bounds=bounds)
            warnings = program.warnings
            accept(program)
            given = read_fact_files(facts, program, check=bounds == "error") if facts else None
            loaded = time.perf_counter()
            progress.doing = "evaluating"
            limits = Limits(derived_facts=limit)
            if given is not None:
                base = program.base(given, check=bounds == "error", limits=limits)
                compiled = base.compiled
                result = base.evaluate(now=now, limits=limits)
            else:
                compiled = CompiledProgram(program)
                result = evaluate(program, now=now, limits=limits, compiled=compiled)
            progress.doing = "answering"
            found = ask(result)
    except MangleError as error:
        refuse(error, warnings)
    return Answer(found, compiled, warnings, result.statistics, loaded - started, time.perf_counter() - loaded)


@dataclass(frozen=True, slots=True)
class Reply:
    """The text or document to print. ``answered`` is false for "why" of a fact that does not hold, and vice versa."""

    text: str
    document: dict[str, Any] = field(default_factory=dict)
    answered: bool = True

    def show(self, as_json: bool) -> str:
        return json_text(self.document) + "\n" if as_json else self.text


@dataclass(frozen=True, slots=True)
class Question:
    """A question about the result, and the fact or predicate that it is about."""

    ask: Callable[[Result], Reply]
    fact: str | None = None
    selector: str | None = None

    def check(self, program: Program, now: int) -> None:
        """Refuse a wrong fact or predicate before the evaluation."""
        names = {name for name, _ in program.predicates}
        if self.selector is not None and self.selector not in names:
            message = f"the program has no predicate {self.selector!r}.{suggestion(self.selector, names)}"
            raise click.BadParameter(message, param_hint="'--selector'")
        if self.fact is None:
            return
        try:
            read_fact(self.fact, program, now)
        except MangleError as error:
            report(error.diagnostics)
            raise click.exceptions.Exit(2) from None


def choose(
    explain: str | None, alternatives: bool, why_not: str | None, coverage: bool, selector: str | None
) -> Question | None:
    """Return the question of the options; None for the facts."""
    given = {"--explain": explain is not None, "--why-not": why_not is not None, "--coverage": coverage}
    asked = [name for name, is_given in given.items() if is_given]
    if len(asked) > 1:
        raise click.UsageError(f"{asked[0]} and {asked[1]} are two questions; ask one at a time.")
    if alternatives and explain is None:
        raise click.UsageError("--all goes with --explain.")
    if selector is not None and not coverage:
        raise click.UsageError("--selector goes with --coverage.")
    if explain is not None:
        return Question(lambda result: _why(result, explain, alternatives), explain)
    if why_not is not None:
        return Question(lambda result: _why_not(result, why_not), why_not)
    if coverage:
        return Question(lambda result: _coverage(result, selector), selector=selector)
    return None


def facts(result: Result, predicate: str | None, as_json: bool) -> Reply:
    lines: Iterable[str] = result.facts(predicate)
    return Reply("".join(f"{line}\n" for line in (json_facts(lines, result.program) if as_json else lines)))


def _why(result: Result, fact: str, alternatives: bool) -> Reply:
    proof = result.explain(fact)
    if proof is None:
        shown = result.explainer.read(fact).text
        return Reply(f"{shown} does not hold; --why-not says what is missing\n", {"fact": shown, "proof": None}, False)
    document, text = proof.as_json(), proof.text()
    if alternatives:
        others = result.alternatives(fact)
        proofs = [result.explain(fact, using=leaves) for leaves in others.sets]
        found = [one for one in proofs if one is not None]
        document |= {"alternatives": [one.as_json()["proof"] for one in found], "complete": others.complete}
        text = "\n".join(one.text() for one in found) + ("" if others.complete else "\nthere may be other proofs\n")
    return Reply(text, document)


def _why_not(result: Result, fact: str) -> Reply:
    answer = result.why_not(fact)
    return Reply(answer.text(), answer.as_json(), not answer.holds)


def _coverage(result: Result, selector: str | None) -> Reply:
    coverage = result.coverage(selector)
    return Reply(coverage.text(), coverage.as_json())
