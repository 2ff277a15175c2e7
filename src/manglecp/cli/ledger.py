"""``manglecp ledger``: show, verify and export the audit ledger."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from manglecp.cli.files import FILE, STDIN, open_binary, replace
from manglecp.cli.options import as_json, open_existing_store, read_head, store_option
from manglecp.cli.output import ProgressLine, count, json_text, print_json, write_lines

if TYPE_CHECKING:
    from manglecp.store import LedgerEntry, Store, Transaction

_PAGE = 1_000


@click.group("ledger")
def command() -> None:
    """The audit ledger: an append-only hash chain of admissions, turns, steps, ends and decisions.

    Entries contain digests, names and codes, never arguments or results.
    """


@command.command("list", short_help="List entries, by default the newest.")
@click.option("--since", metavar="N", type=click.IntRange(min=0), help="The first entries after number N.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), default=20, help="Maximum of entries; 20 by default.")
@click.option("--kind", metavar="KIND", help="Only entries of this kind, such as step or decision.")
@click.option("--run", metavar="RUN", help="Only entries about this run.")
@click.option("--identity", metavar="NAME", help="Only entries about this identity.")
@as_json
@store_option
def list_(
    since: int | None,
    limit: int,
    kind: str | None,
    run: str | None,
    identity: str | None,
    as_json: bool,
    where: str | None,
) -> None:
    """List entries in their order: by default the newest, with --since the first after a number."""
    import msgspec

    from manglecp.store import KINDS

    if kind is not None and kind not in KINDS:
        raise click.BadParameter(f"choose one of {', '.join(sorted(KINDS))}.", param_hint="'--kind'")
    wanted = {"kind": kind, "run": run, "identity": identity}
    with open_existing_store(where) as store, store.read_transaction() as tx:
        if since is not None:
            entries = store.ledger.rows(tx, since, limit, **wanted)
        else:
            entries = list(deque(_matching(store, tx, limit, wanted), maxlen=limit))
    write_lines([json_text([msgspec.to_builtins(entry) for entry in entries])] if as_json else map(_line, entries))


def _matching(store: Store, tx: Transaction, limit: int, wanted: dict[str, str | None]) -> Iterator[LedgerEntry]:
    """Yield the entries that match; without conditions only those that can be among the last ``limit``."""
    since = 0 if any(wanted.values()) else max(store.ledger.head(tx).seq - limit, 0)
    while page := store.ledger.rows(tx, since, _PAGE, **wanted):
        yield from page
        since = page[-1].seq


@command.command("show")
@click.argument("number", metavar="N", type=click.IntRange(min=1))
@as_json
@store_option
def show(number: int, as_json: bool, where: str | None) -> None:
    """Show all members of entry N."""
    import json

    import msgspec

    with open_existing_store(where) as store, store.read_transaction() as tx:
        entry = store.ledger.entry(tx, number)
        last = store.ledger.head(tx).seq
    if entry is None:
        click.echo(f"error[no_entry]: there is no entry {number}; the last one is {last}", err=True)
        raise click.exceptions.Exit(1)
    if as_json:
        print_json(msgspec.to_builtins(entry))
        return
    body = json.dumps(entry.body, ensure_ascii=True, indent=2).splitlines()
    write_lines(
        [_line(entry), f"  before {entry.prev_hash}", f"  hash   {entry.row_hash}", *(f"  {one}" for one in body)]
    )


@command.command("verify", short_help="Verify the hash chain.")
@click.argument("file", metavar="[FILE]", type=FILE, required=False)
@click.option("--expect", metavar="N:HASH", help="A head of an earlier verification, which must be in the ledger.")
@as_json
@store_option
def verify(file: str | None, expect: str | None, as_json: bool, where: str | None) -> None:
    """Verify the hash chain of the ledger, or of an export in FILE, and print each difference.

    A writer of the database can replace the whole chain. To detect that, store the printed head elsewhere, and pass
    it later with --expect. The exit status is 1 if there is a difference.
    """
    from manglecp.store import verify_export

    head = None if expect is None else read_head("--expect", expect)
    if file is not None:
        with open_binary(file) as lines, ProgressLine("verifying"):
            result = verify_export(lines, expect=head)
    else:
        with open_existing_store(where) as store, store.read_transaction() as tx, ProgressLine("verifying"):
            result = store.ledger.verify(tx, expect=head)
    last = f"{result.head.seq}:{result.head.row_hash}"
    if as_json:
        print_json({"ok": result.sound, "entries": result.entries, "head": last, "findings": result.findings})
    else:
        verdict = "ok" if result.sound else count(len(result.findings), "difference")
        entries = f"{result.entries:,} {'entry' if result.entries == 1 else 'entries'}"
        write_lines([*result.findings, f"{entries}, head {last}: {verdict}"])
    if not result.sound:
        raise click.exceptions.Exit(1)


@command.command("export", short_help="Write the entries to a file, one JSON document per line.")
@click.argument("file", metavar="[FILE]", type=click.Path(dir_okay=False, allow_dash=True), default=STDIN)
@store_option
def export(file: str, where: str | None) -> None:
    """Write the entries to FILE, one JSON document per line; - is standard output."""
    with open_existing_store(where) as store, store.read_transaction() as tx:
        lines = store.ledger.export(tx)
        if file == STDIN:
            write_lines(line.decode().removesuffix("\n") for line in lines)
        else:
            with ProgressLine("exporting"):
                replace(Path(file), lines)


def _line(entry: LedgerEntry) -> str:
    from manglecp.base.text import escape_invisible
    from manglecp.mangle import instant_text

    about = [part for part in (entry.run, entry.identity, _gist(entry.body)) if part]
    return escape_invisible(
        f"{entry.seq:>5}  {instant_text(entry.at_ms * 1_000_000):<24}  {entry.kind:<12}  {'  '.join(about)}"
    ).rstrip()


def _gist(body: dict[str, Any]) -> str:
    parts = [f"step {body['step']}"] if "step" in body else []
    names = ("tool", "event", "action", "verdict", "status", "state", "code")
    parts += [str(body[name]) for name in names if body.get(name)]
    return " ".join(parts)
