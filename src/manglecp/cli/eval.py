"""``manglecp eval``: evaluate a program, or explain one fact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import click

from manglecp.cli.evaluation import EvaluationOptions, TimedResult, evaluation_options, json_facts
from manglecp.cli.files import files_argument, option
from manglecp.cli.output import json_text, refuse, report, suggestion, table, write_text
from manglecp.mangle import MangleError, Program, Result, RuleCost, RuleProfile, show_plan as plan_text
from manglecp.mangle.explain import read_fact


@click.command("eval")
@files_argument
@evaluation_options
@option("--pred NAME", help="Print only the facts of this predicate.")
@option("--show-plan", is_flag=True, help="Print the compiled rules instead of the facts.")
@option("--profile", "is_profiled", is_flag=True, help="Print time and rows of each rule instead of the facts.")
@option("--explain FACT", help="Print a proof of this fact instead.")
@option("--all", "alternatives", is_flag=True, help="With --explain: a proof from every minimal set of facts.")
@option("--why-not FACT", help="Print why this fact does not hold, and what would make it hold.")
@option("--coverage", is_flag=True, help="Print for each rule whether it fired.")
@option("--selector NAME", help="With --coverage: separate rules for other values of this predicate.")
@option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print facts as JSON, one per line, as in .jsonl files; or an explanation as one document.",
)
@option("--time", "show_time", is_flag=True, help="Also print times and counts on standard error.")
def command(
    files: tuple[str, ...],
    options: EvaluationOptions,
    pred: str | None,
    show_plan: bool,
    is_profiled: bool,
    explain: str | None,
    alternatives: bool,
    why_not: str | None,
    coverage: bool,
    selector: str | None,
    as_json: bool,
    show_time: bool,
) -> None:
    """Evaluate the program in FILEs and print every fact, given and derived.

    Facts are printed in canonical text, sorted, one per line. After an error only the error is printed.

    FACT is canonical text such as 'p(1,/a)', with an annotation if it is temporal. The exit status is 1 if FACT does
    not hold (--explain), or if it holds (--why-not).
    """
    flags = {"--explain": explain is not None, "--why-not": why_not is not None, "--coverage": coverage}
    explanations = [name for name, is_given in flags.items() if is_given]
    if len(explanations) > 1:
        raise click.UsageError(f"give either {explanations[0]} or {explanations[1]}.")
    if alternatives and explain is None:
        raise click.UsageError("--all goes with --explain.")
    if selector is not None and not coverage:
        raise click.UsageError("--selector goes with --coverage.")
    if as_json and show_plan:
        raise click.UsageError("--show-plan prints Python, not JSON; leave --json out.")
    if explanations and (show_plan or is_profiled or pred is not None):
        message = f"--show-plan, --profile and --pred are for all facts; leave them out with {explanations[0]}."
        raise click.UsageError(message)
    if is_profiled and show_plan:
        raise click.UsageError("give either --profile or --show-plan.")
    profile = RuleProfile() if is_profiled else None

    def check(program: Program) -> None:
        """Raise an error for an option with an invalid fact or predicate."""
        _check_predicate(program, "--pred", pred)
        _check_predicate(program, "--selector", selector)
        try:
            for fact in (explain, why_not):
                if fact is not None:
                    read_fact(fact, program, options.now)
        except MangleError as error:
            refuse(error, status=2)

    with options.evaluate(files, check, profile) as timed_result:
        result = timed_result.result
        if explain is not None:
            output = _explain(result, explain, alternatives)
        elif why_not is not None:
            explanation = result.explainer.why_not(why_not)
            output = _Output(explanation.text(), explanation.as_json(), ok=not explanation.holds)
        elif coverage:
            rule_coverage = result.explainer.coverage(selector)
            output = _Output(rule_coverage.text(), rule_coverage.as_json())
        elif profile is not None:
            output = _profile_output(profile.costs())
        else:
            facts = result.facts(pred)
            lines = json_facts(facts, result.program) if as_json else facts
            output = _Output("".join(f"{line}\n" for line in lines))
    if show_plan:
        write_text(plan_text(timed_result.compiled))
    else:
        write_text(json_text(output.document) + "\n" if as_json and output.document else output.text)
    report(timed_result.warnings)
    if show_time:
        _print_cost(timed_result)
    if not output.ok:
        raise click.exceptions.Exit(1)


class _Output(NamedTuple):
    """The text or document to print. Without ``ok``, the exit status is 1."""

    text: str
    document: dict[str, Any] | None = None
    ok: bool = True


def _check_predicate(program: Program, option: str, name: str | None) -> None:
    names = {predicate for predicate, _ in program.predicates}
    if name is not None and name not in names:
        message = f"the program has no predicate {name!r}.{suggestion(name, names)}"
        raise click.BadParameter(message, param_hint=f"'{option}'")


def _explain(result: Result, fact: str, alternatives: bool) -> _Output:
    """Return a proof of the fact; with ``alternatives`` one proof from each minimal set of given facts."""
    proof = result.explainer.explain(fact)
    if proof is None:
        canonical = result.explainer.read(fact).text
        text = f"{canonical} does not hold; --why-not prints what is missing\n"
        return _Output(text, {"fact": canonical, "proof": None}, ok=False)
    document, text = proof.as_json(), proof.text()
    if alternatives:
        minimal_sets = result.explainer.alternatives(fact)
        candidates = (result.explainer.explain(fact, using=facts) for facts in minimal_sets.sets)
        proofs = [candidate for candidate in candidates if candidate is not None]
        document |= {"alternatives": [proof.as_json()["proof"] for proof in proofs], "complete": minimal_sets.complete}
        note = "" if minimal_sets.complete else "\nthere may be other proofs\n"
        text = "\n".join(proof.text() for proof in proofs) + note
    return _Output(text, document)


def _profile_output(costs: Sequence[RuleCost]) -> _Output:
    rows = [
        (f"{cost.seconds * 1_000:,.2f} ms", f"{cost.runs:,}", f"{cost.rows:,}", cost.place, cost.text) for cost in costs
    ]
    lines = table(("TIME", "RUNS", "ROWS", "PLACE", "RULE"), rows, empty="No rule was applied.")
    document = {"rules": [asdict(cost) for cost in costs]}
    return _Output("".join(f"{line}\n" for line in lines), document)


def _print_cost(timed_result: TimedResult) -> None:
    statistics = timed_result.result.statistics
    rows = [
        ("given", f"{statistics.given:,}", "facts"),
        ("derived", f"{statistics.derived:,}", "facts"),
        ("strata", f"{statistics.strata:,}", ""),
        ("rounds", f"{statistics.rounds:,}", ""),
        ("load", f"{timed_result.load_seconds:.3f}", "s"),
        ("evaluation", f"{timed_result.evaluation_seconds:.3f}", "s"),
    ]
    for name, number, unit in rows:
        click.echo(f"{name:<10} {number:>12} {unit}".rstrip(), err=True)
