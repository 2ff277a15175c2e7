"""Questions that ``eval`` answers instead of printing facts: why, why not, and what the rules did."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import click

from manglecp.base.suggestions import closest_match
from manglecp.cli.json_facts import json_facts
from manglecp.cli.outputs import json_text, report
from manglecp.mangle import MangleError, Program, Result
from manglecp.mangle.explain import read_fact

__all__ = ["Question", "Reply", "choose", "facts"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What is printed, and whether the question made sense: why a fact does not hold cannot be said if it does."""

    text: str
    document: dict[str, Any] = field(default_factory=dict)
    answered: bool = True

    def show(self, as_json: bool) -> str:
        """The text to print, which ends with a line break."""
        return json_text(self.document) + "\n" if as_json else self.text


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the result, and the fact and the predicate that it is asked about, where it is about one."""

    ask: Callable[[Result], Reply]
    fact: str | None = None
    selector: str | None = None

    def check(self, program: Program, now: int) -> None:
        """Refuse a fact that cannot be asked about, before anything is evaluated."""
        names = {name for name, _ in program.predicates}
        if self.selector is not None and self.selector not in names:
            similar = closest_match(self.selector, names)
            hint = f" Did you mean {similar!r}?" if similar else ""
            message = f"the program has no predicate {self.selector!r}.{hint}"
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
    """The question that the options ask; None for the facts."""
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
    """All of them, or those of a predicate."""
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
