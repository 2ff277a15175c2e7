"""``manglecp query``: the facts that match one atom."""

from __future__ import annotations

from pathlib import Path

import click

from manglecp.cli import inputs
from manglecp.cli.answering import Bounds, answer
from manglecp.cli.outputs import report, write_lines

__all__ = ["command"]


@click.command("query")
@inputs.files
@click.argument("query", metavar="QUERY")
@inputs.now
@inputs.limit
@inputs.bounds
def command(files: tuple[str, ...], query: str, now: int, limit: int, bounds: Bounds) -> None:
    """Evaluate the program in FILEs and print the facts that match QUERY.

    QUERY is an atom such as 'p(X, _)'. A variable that stands twice must match the same value, _ matches anything.
    Facts come in canonical text, sorted, one per line; if nothing matches, nothing is printed.
    """
    if query == inputs.STDIN or Path(query).is_file():
        raise click.UsageError(f"the last argument is the query, such as 'p(X, _)', and {query!r} is a file")
    found = answer(files, lambda result: result.query(query), now=now, limit=limit, bounds=bounds)
    write_lines(found.facts)
    report(found.warnings)
