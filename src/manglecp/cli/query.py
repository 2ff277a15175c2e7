"""``manglecp query``: the facts that match one atom."""

from __future__ import annotations

from pathlib import Path

import click

from manglecp.cli.evaluation import EvaluationOptions, evaluation_options, json_facts
from manglecp.cli.files import DASH, FILE, option
from manglecp.cli.output import report, write_lines
from manglecp.mangle import read_query


@click.command("query")
@click.argument("files", metavar="FILE...", nargs=-1, type=FILE)
@click.argument("query", metavar="QUERY")
@evaluation_options
@option("--json", "as_json", is_flag=True, help="Print facts as JSON, one per line, as in .jsonl files.")
def command(files: tuple[str, ...], query: str, options: EvaluationOptions, as_json: bool) -> None:
    """Evaluate the program in FILEs and print the facts that match QUERY.

    QUERY is an atom such as 'p(X, _)'. All occurrences of a variable must match the same value; _ matches any value.
    Facts are printed in canonical text, sorted, one per line; without a match the output is empty.
    """
    if query == DASH or Path(query).is_file():
        raise click.UsageError(f"{query!r} is a file, and the last argument is the query, such as 'p(X, _)'.")
    if not files:
        raise click.UsageError("Missing argument 'FILE...' in front of the query.")
    with options.evaluate(files, lambda program: read_query(query, program.predicates)) as timed_result:
        facts = timed_result.result.query(query)
        lines = list(json_facts(facts, timed_result.result.program)) if as_json else facts
    write_lines(lines)
    report(timed_result.warnings)
