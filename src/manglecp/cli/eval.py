"""``manglecp eval``: every fact that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from manglecp.cli.evaluation import Answer, Bounds, Reply, answer, choose, facts
from manglecp.cli.files import bounds_option, facts_option, files_argument, limit_option, now_option
from manglecp.cli.output import report, suggestion, write_text
from manglecp.mangle import Program, show_plan as plan_text

if TYPE_CHECKING:
    from manglecp.pack.factfiles import FactFile


@click.command("eval")
@files_argument
@facts_option
@now_option
@limit_option
@bounds_option
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
    fact_files: tuple[FactFile, ...],
    now: int,
    limit: int,
    bounds: Bounds,
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
    asked = choose(explain, alternatives, why_not, coverage, selector)
    if as_json and show_plan:
        raise click.UsageError("--show-plan prints Python, which is no JSON; leave --json out.")
    if asked is not None and (show_plan or pred is not None):
        raise click.UsageError("--show-plan and --pred are about all facts; leave them out of a question.")
    found = answer(
        files,
        lambda result: facts(result, pred, as_json) if asked is None else asked.ask(result),
        now=now,
        limit=limit,
        bounds=bounds,
        facts=fact_files,
        accept=lambda program: _check_predicate(program, pred) if asked is None else asked.check(program, now),
    )
    reply = found.found
    if show_plan:
        write_text(plan_text(found.compiled))
    else:
        write_text(reply.show(as_json and asked is not None))
    report(found.warnings)
    if show_time:
        _show_cost(found)
    if not reply.answered:
        raise click.exceptions.Exit(1)


def _check_predicate(program: Program, wanted: str | None) -> None:
    known = {name for name, _ in program.predicates}
    if wanted is None or wanted in known:
        return
    message = f"the program has no predicate {wanted!r}.{suggestion(wanted, known)}"
    raise click.BadParameter(message, param_hint="'--pred'")


def _show_cost(found: Answer[Reply]) -> None:
    statistics = found.statistics
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
