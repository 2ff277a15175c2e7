"""``manglecp decisions``: list, show, explain and delete recorded decisions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from manglecp.base.text import escape_invisible, parse_age
from manglecp.cli import options
from manglecp.cli.files import OUTPUT_FILE, combine, option_group, write_file
from manglecp.cli.output import ProgressLine, count, json_text, print_result, table, write_lines
from manglecp.mangle import instant_text, parse_rfc3339
from manglecp.store import Unusable

if TYPE_CHECKING:
    from manglecp.invoke import DecisionDetails, Explanation
    from manglecp.store import Store, StoredDecision

LAST: Final = "last"
_COLUMNS: Final = ("DECISION", "VERDICT", "FOR", "TOOL", "PRINCIPAL", "TIME", "REASON")


@click.group("decisions")
def command() -> None:
    """List, show and explain decisions about calls, as the decision log records them.

    Every verdict is recorded: of `manglecp decide`, of admissions, and before each effect of a run.
    """


@command.command("list")
@click.option("--principal", metavar="NAME", help="Only decisions about this principal.")
@click.option("--tool", metavar="TOOL", help="Only decisions about this tool.")
@click.option("--verdict", type=click.Choice(["allow", "ask", "deny"]), help="Only decisions with this verdict.")
@click.option("--run", metavar="RUN", help="Only decisions about this run.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), default=20, help="Maximum; 20 by default.")
@options.json_option("Print one JSON document per line.")
@options.store_option
@options.key_option
def list_(limit: int, as_json: bool, location: str | None, store_key: bytes | None, **filters: str | None) -> None:
    """List decisions, the newest first."""
    from manglecp.invoke import record_document

    with options.open_existing_store(location, store_key) as store, store.read_transaction() as tx:
        records = [(stored, _details(store, stored)) for stored in store.decisions.newest(tx, limit, **filters)]
    if not as_json:
        write_lines(table(_COLUMNS, map(_row, records), empty="No such decisions."))
        return
    for stored, details in records:
        document = record_document(stored, details if not isinstance(details, str) else None)
        document.pop("inputs", None)
        write_lines([json_text(document)])


@command.command("show", short_help="Show one decision: its inputs, reasons and rules.")
@click.argument("decision", metavar="ID")
@options.document_option
@options.store_option
@options.key_option
def show(decision: str, as_json: bool, location: str | None, store_key: bytes | None) -> None:
    """Show one decision: its inputs, its reasons, and the rules that decided. The ID `last` is the newest one."""
    from manglecp.invoke import Explanation, record_document

    stored, details = _find(location, store_key, decision)
    lines = map(escape_invisible, _record_lines(Explanation(stored, details)))
    print_result(record_document(stored, details), lines, as_json=as_json)


explain_options: Final = combine(
    click.argument("folder", metavar="[PACK]", type=options.PACK, required=False),
    click.option("--html", "page", metavar="FILE", type=OUTPUT_FILE, help="Write a page with the proofs as pictures."),
    option_group("runtime", options.RuntimeOptions, options.store_option, options.key_option, *options.PACK_OPTIONS),
    options.document_option,
)
"""The options that supply the keyword arguments of :func:`explain_records`."""


@command.command("explain", short_help="Make a decision again, and prove it.")
@click.argument("decision", metavar="ID")
@explain_options
def explain(decision: str, **arguments: Any) -> None:
    """Make a decision again from its recorded inputs, and print the proof of its verdict.

    The ID `last` is the newest decision. PACK is the folder of the pack. Its revision and its generated facts must be
    those of the decision. Otherwise the differences are printed, with the recorded rules and reasons.

    The exit status is 0 if the second decision is equal, else 1; without PACK it is 0.
    """
    runtime: options.RuntimeOptions = arguments["runtime"]
    record = _find(runtime.location, runtime.store_key, decision)
    explain_records(f"Decision {record[0].id}", [record], **arguments)


@command.command("prune")
@click.option("--before", metavar="TIME|AGE", required=True, help="A time in RFC 3339, or an age such as 90d.")
@options.document_option
@options.store_option
def prune(before: str, as_json: bool, location: str | None) -> None:
    """Delete the decisions that were made before a time.

    Batches are deleted as a whole, the oldest first. The ledger records the deletion, so its verification succeeds.
    """
    from manglecp.invoke import prune_decisions

    age = parse_age(before)
    at = parse_rfc3339(before) if age is None else time.time_ns() - age
    if at is None:
        raise click.BadParameter(f"{before!r} is neither a time nor an age.", param_hint="'--before'")
    with options.open_existing_store(location) as store:
        deleted = prune_decisions(store, at // 1_000_000)
    print_result({"deleted": deleted}, [f"{count(deleted, 'decision')} deleted"], as_json=as_json)


def explain_records(
    title: str,
    records: Sequence[tuple[StoredDecision, DecisionDetails]],
    *,
    folder: Path | None,
    page: Path | None,
    runtime: options.RuntimeOptions,
    as_json: bool,
) -> None:
    """Print the explanations of records, and write them as a page. Exits with status 1 if one is not confirmed."""
    from manglecp.invoke import explain_decision, load_domain, with_stored_facts

    with ExitStack() as hosts, ProgressLine("explaining"):
        domain = None
        if folder is not None:
            domain, _ = load_domain(runtime.for_pack(folder), hosts, shares_facts=True)
            if domain.pack.settings.fact_sources:
                with options.open_existing_store(runtime.location, runtime.store_key) as store:
                    domain = with_stored_facts(domain, store)
        explanations = [explain_decision(stored, details, domain) for stored, details in records]
    if page is not None:
        from manglecp.base.proof_page import render_page

        html = render_page(title, [explanation.section() for explanation in explanations])
        write_file(page, [html.encode(errors="backslashreplace")])
    documents = [explanation.document() for explanation in explanations]
    texts = ("\n".join(map(escape_invisible, _lines(explanation))) for explanation in explanations)
    is_confirmed = folder is None or not any(explanation.differences for explanation in explanations)
    lines = "\n\n".join(texts).splitlines()
    print_result(documents[0] if len(documents) == 1 else documents, lines, as_json=as_json, ok=is_confirmed)


def read_records(store: Store, records: Sequence[StoredDecision]) -> Iterator[tuple[StoredDecision, DecisionDetails]]:
    """Yield the records with their contents. Raises :class:`.Unusable` without the key that sealed them."""
    from manglecp.invoke import DecisionDetails

    for stored in records:
        yield stored, msgspec.json.decode(store.decisions.content(stored), type=DecisionDetails)


def _find(location: str | None, key: bytes | None, decision: str) -> tuple[StoredDecision, DecisionDetails]:
    """Return a record with its content; the id ``last`` is the newest record."""
    with options.open_existing_store(location, key) as store, store.read_transaction() as tx:
        newest = store.decisions.newest(tx, 1) if decision == LAST else []
        return next(read_records(store, newest or [store.decisions.find(tx, decision)]))


def _details(store: Store, stored: StoredDecision) -> DecisionDetails | str:
    """Return the content of a record; without the key that sealed it, the text of the error."""
    try:
        return next(read_records(store, [stored]))[1]
    except Unusable as error:
        return str(error)


def _row(record: tuple[StoredDecision, DecisionDetails | str]) -> tuple[str, ...]:
    stored, details = record
    reason = "(sealed)" if isinstance(details, str) else next(iter((*details.reasons, *details.public_reasons)), "-")
    time_text = instant_text(stored.at_ms * 1_000_000)
    return (stored.id, stored.verdict, stored.operation, stored.tool or "-", stored.principal, time_text, reason)


def _record_lines(explanation: Explanation) -> Iterator[str]:
    rows = list(explanation.rows())
    width = max(len(name) for name, _ in rows)
    yield f"{explanation.stored.verdict} {explanation.stored.tool or 'intent'}"
    yield from (f"  {name:<{width}}  {value}" for name, value in rows)


def _lines(explanation: Explanation) -> Iterator[str]:
    yield from _record_lines(explanation)
    yield from explanation.differences
    if explanation.proofs or explanation.notes:
        yield "made again with the same verdict and reasons, because"
    for proof in explanation.proofs:
        yield from proof.lines("  ")
    yield from (f"  {note}" for note in explanation.notes)
    if explanation.silent:
        yield "rules that derived nothing"
    for rule in explanation.silent:
        yield from rule.lines("  ")
