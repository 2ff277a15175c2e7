"""``manglecp facts``: push facts to a source, and list the sources of a store."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from manglecp import invoke
from manglecp.base.text import age_text
from manglecp.cli import target
from manglecp.cli.files import FILE, option, read, source_name
from manglecp.cli.options import (
    PackFolder,
    RuntimeOptions,
    degrade_option,
    document_option,
    key_option,
    open_existing_store,
    set_option,
    store_option,
)
from manglecp.cli.output import fail, print_result, table
from manglecp.cli.tool_text import wire_error_lines
from manglecp.intent import Identity
from manglecp.wire import Fault, WireError, decode, messages

_MAX_FILE_BYTES: Final = 1 << 28


@click.group("facts")
def command() -> None:
    """Push facts to a source that pack.toml declares as [facts.NAME], and list the sources of a store."""


@command.command("push")
@click.argument("source")
@click.argument("file", type=FILE)
@option("--server URL", "url", help="The server of the source.")
@target.token_option
@option("--pack FOLDER", "folder", type=PackFolder(), help="The pack of the source, instead of a server.")
@set_option
@degrade_option
@store_option
@key_option
@document_option
def push(
    source: str, file: str, url: str | None, token: str | None, folder: Path | None, as_json: bool, **runtime: Any
) -> None:
    """Replace all facts of SOURCE.

    FILE, or standard input (-), has a JSON array of facts, one JSON fact per line, or facts in Mangle. If one fact is
    refused, nothing changes. A token needs the permission push_facts or push_facts:SOURCE.
    """
    facts = _read_facts(file)
    try:
        if url is not None and folder is None:
            result = target.run_with_client(url, token, lambda client: client.push_facts(source, facts))
        elif folder is not None and url is None:
            options = RuntimeOptions(programs=(), cache=True, **runtime)
            result = asyncio.run(_push_locally(folder, options, source, facts))
        else:
            raise click.UsageError("give --server URL, or --pack FOLDER to write into the store of this machine")
    except WireError as error:
        violations = (error.details or {}).get("violations", ())
        fail(*wire_error_lines(error), *(f"  {each.get('path', '$')}: {each['message']}" for each in violations))
    change = f"{result.added} added, {result.removed} removed" if result.changed else "unchanged"
    line = f"{result.source}: version {result.version}, {result.facts} facts, {change}"
    print_result(msgspec.to_builtins(result), [line], as_json=as_json)


async def _push_locally(
    folder: Path, runtime: RuntimeOptions, source: str, facts: str | list[Any]
) -> messages.FactsResult:
    operator = Identity("local", frozenset({invoke.PUSH_FACTS}), "local")
    with closing(runtime.open_store()) as store:
        async with invoke.PackRuntime.open(runtime.for_pack(folder), store) as pack:
            if pack.facts is None:
                raise click.UsageError("pack.toml declares no source: write [facts.NAME] push = true")
            return await asyncio.to_thread(pack.facts.push, source, facts, operator)


def _read_facts(file: str) -> str | list[Any]:
    data = read(file, _MAX_FILE_BYTES)
    start = data.lstrip()[:1]
    try:
        if start == b"[":
            facts = decode(data)
            return facts if isinstance(facts, list) else []
        if start == b"{":
            return [decode(line) for line in data.splitlines() if line.strip()]
        return data.decode()
    except (Fault, UnicodeDecodeError) as error:
        raise click.UsageError(f"{click.format_filename(source_name(file))}: {error}") from None


@command.command("list")
@document_option
@store_option
@key_option
def list_(as_json: bool, location: str | None, store_key: bytes | None) -> None:
    """List the sources of a store.

    AGE is the time since the last push or successful poll; ERROR is the error of the last poll.
    """
    with open_existing_store(location, store_key) as store, store.read_transaction() as tx:
        now_ms = tx.now_ms()
        stored_sources = [
            (pack, row) for pack in store.fact_sources.packs(tx) for row in store.fact_sources.list(tx, pack).values()
        ]
    rows = [
        (
            *(pack, row.source, str(row.version), str(row.facts)),
            age_text((now_ms - row.confirmed_ms) * 1_000_000) if row.version else "-",
            row.principal or "-",
            row.error or "-",
        )
        for pack, row in stored_sources
    ]
    headings = ("PACK", "SOURCE", "VERSION", "FACTS", "AGE", "BY", "ERROR")
    documents = [{"pack": pack, **row._asdict()} for pack, row in stored_sources]
    print_result(documents, table(headings, rows, empty="No pack of this store has a source."), as_json=as_json)
