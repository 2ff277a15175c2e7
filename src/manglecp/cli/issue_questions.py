"""The verbs of ``manglecp issue`` that only ask."""

from __future__ import annotations

import click
import msgspec

from manglecp.cli import issue_options as options, issue_text as text
from manglecp.cli.issue_memory import opened
from manglecp.cli.issue_options import as_json, database
from manglecp.cli.outputs import write_lines
from manglecp.store.issues import Status

__all__ = ["blocked", "history", "list_", "ready", "show"]


@click.command("list")
@click.option("--status", type=click.Choice([status.value for status in Status]), help="Only issues of this status.")
@click.option("--label", metavar="LABEL", help="Only issues with this label.")
@click.option("--assignee", metavar="NAME", help="Only issues of this assignee.")
@options.as_of
@as_json
@database
def list_(
    status: str | None, label: str | None, assignee: str | None, as_of: int | None, as_json: bool, db: str | None
) -> None:
    """Print issues in the order in which they were added."""
    with opened(db) as memory, memory.view(as_of) as view:
        text.print_issues(view.list(None if status is None else Status(status), label, assignee), as_json)


@click.command("ready")
@options.as_of
@as_json
@database
def ready(as_of: int | None, as_json: bool, db: str | None) -> None:
    """Print what can be claimed, in the order of claiming.

    Issues that are open, or whose lease ran out, and that wait for no other.
    """
    with opened(db) as memory, memory.view(as_of) as view:
        text.print_issues(view.ready(), as_json)


@click.command("blocked")
@options.as_of
@as_json
@database
def blocked(as_of: int | None, as_json: bool, db: str | None) -> None:
    """Print what cannot be begun, and why."""
    with opened(db) as memory, memory.view(as_of) as view:
        found = view.blocked()
    if as_json:
        text.print_json([text.blocked_document(one) for one in found])
    else:
        write_lines(map(text.blocked_line, found))


@click.command("show")
@click.argument("issue", metavar="ID")
@options.as_of
@as_json
@database
def show(issue: str, as_of: int | None, as_json: bool, db: str | None) -> None:
    """Print everything about one issue."""
    with opened(db) as memory, memory.view(as_of) as view:
        detail = view.show(issue)
    if as_json:
        text.print_json(text.detail_document(detail))
    else:
        write_lines(text.detail_lines(detail))


@click.command("history")
@click.argument("issue", metavar="[ID]", required=False)
@as_json
@database
def history(issue: str | None, as_json: bool, db: str | None) -> None:
    """Print what happened, to one issue or to all."""
    with opened(db) as memory, memory.view() as view:
        events = view.history(issue)
        if as_json:
            text.print_json([msgspec.to_builtins(event) for event in events])
        else:
            write_lines(text.event_line(event) for event in events)
