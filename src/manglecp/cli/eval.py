"""``manglecp eval``: every fact that follows."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from manglecp.cli.evaluation import Evaluated, EvaluationOptions, evaluation_options, json_facts
from manglecp.cli.files import files_argument
from manglecp.cli.output import json_text, report, suggestion, write_text
from manglecp.mangle import MangleError, Program, Result, show_plan as plan_text
from manglecp.mangle.explain import read_fact


@click.command("eval")
@files_argument
@evaluation_options
@click.option("--pred", metavar="NAME", help="Print only the facts of this predicate.")
@click.option("--show-plan", is_flag=True, help="Print the compiled rules instead of the facts.")
@click.option("--explain", metavar="FACT", help="Print a proof of this fact instead.")
@click.option("--all", "alternatives", is_flag=True, help="With --explain: a proof from every minimal set of facts.")
@click.option("--why-not", metavar="FACT", help="Print why this fact does not hold, and what would make it hold.")
@click.option("--coverage", is_flag=True, help="Print what became of each rule.")
@click.option("--selector", metavar="NAME", help="With --coverage: set rules for other values of this predicate apart.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print facts as JSON, one a line, as a .jsonl file has them; or the answer to a question as one document.",
)
@click.option("--time", "show_time", is_flag=True, help="Also say what it cost, on standard error.")
def command(
    files: tuple[str, ...],
    options: EvaluationOptions,
    pred: str | None,
    show_plan: bool,
    explain: str | None,
    alternatives: bool,
    why_not: str | None,
    coverage: bool,
    selector: str | None,
    as_json: bool,
    show_time: bool,
) -> None:
    """Evaluate the program in FILEs and print every fact, given and derived.

    Facts come in canonical text, sorted, one per line. On an error nothing is printed but the error.

    FACT is canonical text such as 'p(1,/a)', with an annotation if it is temporal. The exit status is 1 if it does not
    hold (--explain), or if it does (--why-not).
    """
    given = {"--explain": explain is not None, "--why-not": why_not is not None, "--coverage": coverage}
    asked = [name for name, is_given in given.items() if is_given]
    if len(asked) > 1:
        raise click.UsageError(f"{asked[0]} and {asked[1]} are two questions; ask one at a time.")
    if alternatives and explain is None:
        raise click.UsageError("--all goes with --explain.")
    if selector is not None and not coverage:
        raise click.UsageError("--selector goes with --coverage.")
    if as_json and show_plan:
        raise click.UsageError("--show-plan prints Python, which is no JSON; leave --json out.")
    if asked and (show_plan or pred is not None):
        raise click.UsageError("--show-plan and --pred are about all facts; leave them out of a question.")

    def accept(program: Program) -> None:
        """Refuse a wrong fact or predicate before the evaluation."""
        _check_predicate(program, "--pred", pred)
        _check_predicate(program, "--selector", selector)
        for fact in (explain, why_not):
            if fact is not None:
                _check_fact(program, fact, options.now)

    with options.evaluated(files, accept) as found:
        result = found.result
        if explain is not None:
            reply = _why(result, explain, alternatives)
        elif why_not is not None:
            denial = result.explainer.why_not(why_not)
            reply = _Reply(denial.text(), denial.as_json(), not denial.holds)
        elif coverage:
            covered = result.explainer.coverage(selector)
            reply = _Reply(covered.text(), covered.as_json())
        else:
            facts = result.facts(pred)
            lines = json_facts(facts, result.program) if as_json else facts
            reply = _Reply("".join(f"{line}\n" for line in lines))
    if show_plan:
        write_text(plan_text(found.compiled))
    else:
        write_text(json_text(reply.document) + "\n" if as_json and asked else reply.text)
    report(found.warnings)
    if show_time:
        _show_cost(found)
    if not reply.answered:
        raise click.exceptions.Exit(1)


class _Reply(NamedTuple):
    """The text or document to print. ``answered`` is false for "why" of a fact that does not hold, and vice versa."""

    text: str
    document: dict[str, Any] | None = None
    answered: bool = True


def _check_predicate(program: Program, option: str, wanted: str | None) -> None:
    known = {name for name, _ in program.predicates}
    if wanted is not None and wanted not in known:
        message = f"the program has no predicate {wanted!r}.{suggestion(wanted, known)}"
        raise click.BadParameter(message, param_hint=f"'{option}'")


def _check_fact(program: Program, fact: str, now: int) -> None:
    try:
        read_fact(fact, program, now)
    except MangleError as error:
        report(error.diagnostics)
        raise click.exceptions.Exit(2) from None


def _why(result: Result, fact: str, alternatives: bool) -> _Reply:
    proof = result.explainer.explain(fact)
    if proof is None:
        shown = result.explainer.read(fact).text
        return _Reply(f"{shown} does not hold; --why-not says what is missing\n", {"fact": shown, "proof": None}, False)
    document, text = proof.as_json(), proof.text()
    if alternatives:
        others = result.explainer.alternatives(fact)
        proofs = [result.explainer.explain(fact, using=leaves) for leaves in others.sets]
        found = [one for one in proofs if one is not None]
        document |= {"alternatives": [one.as_json()["proof"] for one in found], "complete": others.complete}
        text = "\n".join(one.text() for one in found) + ("" if others.complete else "\nthere may be other proofs\n")
    return _Reply(text, document)


def _show_cost(found: Evaluated) -> None:
    statistics = found.result.statistics
    rows = [
        ("given", f"{statistics.given:,}", "facts"),
        ("derived", f"{statistics.derived:,}", "facts"),
        ("strata", f"{statistics.strata:,}", ""),
        ("rounds", f"{statistics.rounds:,}", ""),
        ("load", f"{found.load_seconds:.3f}", "s"),
        ("evaluation", f"{found.evaluation_seconds:.3f}", "s"),
    ]
    if statistics.skipped_inverted:
        rows.insert(
            2, ("skipped", f"{statistics.skipped_inverted:,}", "derivations whose interval ends before it starts")
        )
    for name, number, unit in rows:
        click.echo(f"{name:<10} {number:>12} {unit}".rstrip(), err=True)
