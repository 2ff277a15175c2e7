"""``manglecp eval``: every fact that follows."""

from __future__ import annotations

import click

from manglecp.cli import inputs
from manglecp.cli.answering import Answer, Bounds, Engine, answer
from manglecp.cli.outputs import report, write_lines, write_text
from manglecp.mangle.engine import show_plan as plan_text
from manglecp.mangle.errors import nearest
from manglecp.mangle.program import Program

__all__ = ["command"]


@click.command("eval")
@inputs.files
@inputs.now
@inputs.limit
@inputs.bounds
@click.option("--pred", metavar="NAME", help="Print only the facts of this predicate.")
@click.option(
    "--engine",
    type=click.Choice(["compiled", "naive"]),
    default="compiled",
    help="Which evaluator; the naive one is slow and simple.",
)
@click.option("--show-plan", is_flag=True, help="Print the compiled rules instead of the facts.")
@click.option("--time", "show_time", is_flag=True, help="Also say what it cost, on standard error.")
def command(
    files: tuple[str, ...],
    now: int,
    limit: int,
    bounds: Bounds,
    pred: str | None,
    engine: Engine,
    show_plan: bool,
    show_time: bool,
) -> None:
    """Evaluate the program in FILEs and print every fact, given and derived.

    Facts come in canonical text, sorted, one per line. On an error nothing is printed but the error.
    """
    found = answer(
        files,
        lambda result: result.facts(pred),
        now=now,
        limit=limit,
        bounds=bounds,
        engine=engine,
        accept=lambda program: _check_predicate(program, pred),
    )
    if show_plan and found.compiled is not None:
        write_text(plan_text(found.compiled))
    else:
        write_lines(found.facts)
    report(found.warnings)
    if show_time:
        _show_cost(found)


def _check_predicate(program: Program, wanted: str | None) -> None:
    known = {name for name, _ in program.predicates}
    if wanted is None or wanted in known:
        return
    similar = nearest(wanted, known)
    hint = f" Did you mean {similar!r}?" if similar else ""
    raise click.BadParameter(f"the program has no predicate {wanted!r}.{hint}", param_hint="'--pred'")


def _show_cost(found: Answer) -> None:
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
