"""The verbs of ``manglecp issue`` about the events themselves: out, in, and whether they are what was written."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import click

from manglecp.base.hash_chain import Head
from manglecp.cli import files, issue_text as text
from manglecp.cli.issue_memory import opened_store
from manglecp.cli.issue_options import as_json, database
from manglecp.cli.outputs import Progress, count, write_lines

__all__ = ["export", "import_", "verify"]


@click.command("export")
@click.argument("file", metavar="[FILE]", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@database
def export(file: str, db: str | None) -> None:
    """Write the events to FILE, one per line; - is standard output."""
    from manglecp.store.issues import export_log

    with opened_store(db) as store:
        lines = export_log(store)
        if file == files.STDIN:
            write_lines(line.decode().removesuffix("\n") for line in lines)
        else:
            files.replace(Path(file), lines)


@click.command("import")
@click.argument("file", metavar="FILE", type=files.FILE)
@as_json
@database
def import_(file: str, as_json: bool, db: str | None) -> None:
    """Fill an empty memory with the events that were exported to FILE.

    All of them, or none: then everything that is wrong with the file is said.
    """
    from manglecp.store.issues import BadLog, import_log

    lines = BytesIO(files.read(file))
    with opened_store(db, create=True) as store, Progress("importing"):
        try:
            head = import_log(store, lines)
        except BadLog as bad:
            for line, problem in bad.problems:
                click.echo(f"{files.source_name(file)}:{line}: {problem}", err=True)
            raise click.exceptions.Exit(2) from None
    if as_json:
        text.print_json({"events": head.seq, "head": head.row_hash})
    else:
        write_lines([f"{count(head.seq, 'event')}, head {head.seq}:{head.row_hash}"])


@click.command("verify", short_help="Compute chain and state again, and say what differs.")
@click.option("--head", metavar="N:HASH", help="An event that the log has to have, as an earlier run printed it.")
@as_json
@database
def verify(head: str | None, as_json: bool, db: str | None) -> None:
    """Compute the hash chain and the state again from the events, and say what differs.

    Rows that were cut off at the end are found with --head only.
    """
    from manglecp.store.issues import audit

    with opened_store(db) as store, Progress("verifying"):
        result = audit(store, None if head is None else _read_head(head))
    if as_json:
        text.print_json(
            {
                "ok": not result.findings,
                "events": result.head.seq,
                "head": result.head.row_hash,
                "issues": result.issues,
                "findings": result.findings,
            }
        )
    else:
        verdict = count(len(result.findings), "difference") if result.findings else "ok"
        counted = f"{count(result.head.seq, 'event')}, {count(result.issues, 'issue')}"
        write_lines([*result.findings, f"{counted}, head {result.head.seq}:{result.head.row_hash}: {verdict}"])
    if result.findings:
        raise click.exceptions.Exit(1)


def _read_head(given: str) -> Head:
    number, colon, row_hash = given.partition(":")
    if not colon or not number.isascii() or not number.isdecimal() or len(number) > 18:
        raise click.UsageError("--head is a number and a hash, such as 12:sha256:4f53…")
    return Head(int(number), row_hash)
