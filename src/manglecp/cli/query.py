"""``manglecp query``: the facts that match one atom."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from manglecp.cli.evaluation import Bounds, answer, json_facts
from manglecp.cli.files import FILE, STDIN, bounds_option, facts_option, limit_option, now_option
from manglecp.cli.output import report, write_lines
from manglecp.mangle import Result, read_query

if TYPE_CHECKING:
    from manglecp.pack.factfiles import FactFile


@click.command("query")
@click.argument("files", metavar="FILE...", nargs=-1, type=FILE)
@click.argument("query", metavar="QUERY")
@facts_option
@now_option
@limit_option
@bounds_option
@click.option("--json", "as_json", is_flag=True, help="Print facts as JSON, one a line, as a .jsonl file has them.")
def command(
    files: tuple[str, ...],
    query: str,
    fact_files: tuple[FactFile, ...],
    now: int,
    limit: int,
    bounds: Bounds,
    as_json: bool,
) -> None:
    """Evaluate the program in FILEs and print the facts that match QUERY.

    QUERY is an atom such as 'p(X, _)'. A variable that stands twice must match the same value, _ matches anything.
    Facts come in canonical text, sorted, one per line; if nothing matches, nothing is printed.
    """
    if query == STDIN or Path(query).is_file():
        raise click.UsageError(f"{query!r} is a file, and the last argument is the query, such as 'p(X, _)'.")
    if not files:
        raise click.UsageError("Missing argument 'FILE...' in front of the query.")
    found = answer(
        files,
        lambda result: _found(result, query, as_json),
        now=now,
        limit=limit,
        bounds=bounds,
        facts=fact_files,
        accept=lambda program: read_query(query, program.predicates),
    )
    write_lines(found.found)
    report(found.warnings)


def _found(result: Result, query: str, as_json: bool) -> list[str]:
    found = result.query(query)
    return list(json_facts(found, result.program)) if as_json else found
