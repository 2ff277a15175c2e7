"""``manglecp schema``: JSON Schema of the messages."""

from __future__ import annotations

import json

import click

from manglecp.cli.files import option
from manglecp.cli.output import write_lines
from manglecp.wire import TYPES, all_schemas, did_you_mean, schema
from manglecp.wire.messages import CLIENT_TYPES


@click.command("schema")
@click.argument("type_", metavar="[TYPE]", required=False)
@option("--all", "everything", is_flag=True, help="Print one schema for all messages.")
def command(type_: str | None, everything: bool) -> None:
    """Print the JSON Schema (draft 2020-12) of a message type; without TYPE, list the types with their senders."""
    if everything and type_ is not None:
        raise click.UsageError("give a TYPE or --all, not both")
    if everything:
        write_lines([_text(all_schemas())])
    elif type_ is None:
        width = max(map(len, TYPES))
        write_lines(f"{name:<{width}}  {'client' if name in CLIENT_TYPES else 'server'}" for name in TYPES)
    elif type_ in TYPES:
        write_lines([_text(schema(type_))])
    else:
        suggestion = did_you_mean(type_, TYPES) or f"Types: {', '.join(TYPES)}."
        raise click.UsageError(f"{type_} is not a message type. {suggestion}")


def _text(document: object) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)
