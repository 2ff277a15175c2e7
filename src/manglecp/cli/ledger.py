"""``manglecp ledger``: show, verify and export the audit ledger."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from manglecp.base.text import escape_invisible
from manglecp.cli.files import FILE, export_argument, open_binary, option, write_export
from manglecp.cli.options import document_option, open_existing_store, read_head, store_option
from manglecp.cli.output import ProgressLine, count, fail, print_result
from manglecp.mangle import instant_text
from manglecp.store import KINDS, LedgerEntry, Store, Transaction, verify_export

_PAGE_ROWS: Final = 1_000


@click.group("ledger")
def command() -> None:
    """The audit ledger: an append-only hash chain of admissions, turns, steps, ends and decisions.

    Entries contain digests, names and codes, never arguments or results.
    """


@command.command("list", short_help="List entries, by default the newest.")
@option("--since N", type=click.IntRange(min=0), help="The first entries after number N.")
@option("--limit N", type=click.IntRange(min=1), default=20, help="Maximum of entries; 20 by default.")
@option("--kind KIND", help="Only entries of this kind, such as step or decision.")
@option("--run RUN", help="Only entries about this run.")
@option("--identity NAME", help="Only entries about this identity.")
@document_option
@store_option
def list_(
    since: int | None, limit: int, kind: str | None, as_json: bool, location: str | None, **filters: str | None
) -> None:
    """List entries in their order: by default the newest, with --since the first after a number."""
    if kind is not None and kind not in KINDS:
        raise click.BadParameter(f"choose one of {', '.join(sorted(KINDS))}.", param_hint="'--kind'")
    filters["kind"] = kind
    with open_existing_store(location) as store, store.read_transaction() as tx:
        if since is not None:
            entries = store.ledger.rows(tx, since, limit, **filters)
        else:
            entries = list(deque(_read_matching(store, tx, limit, filters), maxlen=limit))
    print_result(list(map(msgspec.to_builtins, entries)), map(_line, entries), as_json=as_json)


def _read_matching(store: Store, tx: Transaction, limit: int, filters: dict[str, str | None]) -> Iterator[LedgerEntry]:
    """Yield the entries that match ``filters``; without filters only the last ``limit`` entries."""
    since = 0 if any(filters.values()) else max(store.ledger.head(tx).seq - limit, 0)
    while page := store.ledger.rows(tx, since, _PAGE_ROWS, **filters):
        yield from page
        since = page[-1].seq


@command.command("show")
@click.argument("number", metavar="N", type=click.IntRange(min=1))
@document_option
@store_option
def show(number: int, as_json: bool, location: str | None) -> None:
    """Show all members of entry N."""
    with open_existing_store(location) as store, store.read_transaction() as tx:
        entry = store.ledger.entry(tx, number)
        last_number = store.ledger.head(tx).seq
    if entry is None:
        fail(f"error[no_entry]: there is no entry {number}; the last one is {last_number}")
    body = (f"  {line}" for line in json.dumps(entry.body, ensure_ascii=True, indent=2).splitlines())
    lines = [_line(entry), f"  before {entry.prev_hash}", f"  hash   {entry.row_hash}", *body]
    print_result(msgspec.to_builtins(entry), lines, as_json=as_json)


@command.command("verify", short_help="Verify the hash chain.")
@click.argument("file", metavar="[FILE]", type=FILE, required=False)
@option("--expect N:HASH", help="A head of an earlier verification, which must be in the ledger.")
@document_option
@store_option
def verify(file: str | None, expect: str | None, as_json: bool, location: str | None) -> None:
    """Verify the hash chain of the ledger and the decisions that it covers, or an export in FILE.

    Each difference is printed. An export has no decisions, only their digests.

    A writer of the database can replace the whole chain. To detect that, store the printed head elsewhere, and pass
    it later with --expect. The exit status is 1 if there is a difference.
    """
    head = None if expect is None else read_head("--expect", expect)
    if file is not None:
        with open_binary(file) as lines, ProgressLine("verifying"):
            result = verify_export(lines, expect=head)
    else:
        with open_existing_store(location) as store, store.read_transaction() as tx, ProgressLine("verifying"):
            result = store.ledger.verify(tx, expect=head)
            result = result._replace(findings=[*result.findings, *store.decisions.verify(tx)])
    head_text = f"{result.head.seq}:{result.head.row_hash}"
    document = {"ok": result.sound, "entries": result.entries, "head": head_text, "findings": result.findings}
    verdict = "ok" if result.sound else count(len(result.findings), "difference")
    entries = f"{result.entries:,} {'entry' if result.entries == 1 else 'entries'}"
    summary = f"{entries}, head {head_text}: {verdict}"
    print_result(document, [*result.findings, summary], as_json=as_json, ok=result.sound)


@command.command("export", short_help="Write the entries to a file, one JSON document per line.")
@export_argument
@store_option
def export(file: str, location: str | None) -> None:
    """Write the entries to FILE, one JSON document per line; - is standard output."""
    with open_existing_store(location) as store, store.read_transaction() as tx:
        write_export(file, store.ledger.export(tx))


def _line(entry: LedgerEntry) -> str:
    about = "  ".join(part for part in (entry.run, entry.identity, _summary(entry.body)) if part)
    time = instant_text(entry.at_ms * 1_000_000)
    return escape_invisible(f"{entry.seq:>5}  {time:<24}  {entry.kind:<12}  {about}").rstrip()


def _summary(body: dict[str, Any]) -> str:
    parts = [f"step {body['step']}"] if "step" in body else []
    names = ("tool", "event", "action", "verdict", "status", "state", "code")
    parts += [str(body[name]) for name in names if body.get(name)]
    return " ".join(parts)
