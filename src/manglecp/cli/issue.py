"""``manglecp issue``: issue memory from the command line.

Exit status: 0 done, 1 refused (by the state of the memory, a lease or the evidence, nothing to claim, an audit with
findings), 2 the command line or a file is wrong.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Literal

import click
import msgspec

from manglecp.cli import files, issue_memory as options, issue_text as text
from manglecp.cli.issue_memory import Gate, actor, database, gated, opened, opened_store
from manglecp.cli.options import as_json, read_head
from manglecp.cli.output import Progress, count, json_text, print_json, write_lines
from manglecp.issues import EDGE_TYPES, Add, AddDependency, Close, Discover, Issue, RemoveDependency, Status, Update


@click.group("issue")
def command() -> None:
    """Work that is known of: issues, what they wait for, who is on them.

    update, discover, close and dep change what is known: they take the evidence of a turn, and no other way exists.
    """


# --- questions -------------------------------------------------------------------------------------------------------


@command.command("list")
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


@command.command("ready")
@options.as_of
@as_json
@database
def ready(as_of: int | None, as_json: bool, db: str | None) -> None:
    """Print what can be claimed, in the order of claiming.

    Issues that are open, or whose lease ran out, and that wait for no other.
    """
    with opened(db) as memory, memory.view(as_of) as view:
        text.print_issues(view.ready(), as_json)


@command.command("blocked")
@options.as_of
@as_json
@database
def blocked(as_of: int | None, as_json: bool, db: str | None) -> None:
    """Print what cannot be begun, and why."""
    with opened(db) as memory, memory.view(as_of) as view:
        found = view.blocked()
    write_lines(
        [json_text([text.blocked_document(one) for one in found])] if as_json else map(text.blocked_line, found)
    )


@command.command("show")
@click.argument("issue", metavar="ID")
@options.as_of
@as_json
@database
def show(issue: str, as_of: int | None, as_json: bool, db: str | None) -> None:
    """Print everything about one issue."""
    with opened(db) as memory, memory.view(as_of) as view:
        detail = view.show(issue)
    write_lines([json_text(text.detail_document(detail))] if as_json else text.detail_lines(detail))


@command.command("history")
@click.argument("issue", metavar="[ID]", required=False)
@as_json
@database
def history(issue: str | None, as_json: bool, db: str | None) -> None:
    """Print what happened, to one issue or to all."""
    with opened(db) as memory, memory.view() as view:
        events = view.history(issue)
        if as_json:
            print_json([msgspec.to_builtins(event) for event in events])
        else:
            write_lines(text.event_line(event) for event in events)


# --- work, which needs no evidence ------------------------------------------------------------------------------------


@command.command("add")
@click.argument("title")
@options.issue_id
@options.description
@options.priority
@options.labels
@actor
@as_json
@database
def add(
    title: str,
    issue: str | None,
    description: str,
    priority: int,
    labels: tuple[str, ...],
    actor: str,
    as_json: bool,
    db: str | None,
) -> None:
    """Add an issue. The first one makes the memory."""
    change = Add(title=title, description=description, priority=priority, labels=tuple(sorted(set(labels))))
    with opened(db, create=True) as memory:
        added = memory.add(actor, change, issue)
    text.print_issue(added, as_json)


@command.command("claim")
@click.argument("issue", metavar="[ID]", required=False)
@click.option("--next", "next_", is_flag=True, help="Claim the first issue that can be claimed.")
@options.ttl
@actor
@as_json
@database
def claim(issue: str | None, next_: bool, ttl: int, actor: str, as_json: bool, db: str | None) -> None:
    """Become the only one who works on an issue, for a time.

    A lease that ran out is taken over. The fencing token that is printed has to be shown to change the issue.
    """
    if (issue is None) is not next_:
        raise click.UsageError("Name an issue, or say --next.")
    with opened(db) as memory:
        lease = memory.claim_next(actor, ttl) if issue is None else memory.claim(actor, issue, ttl)
    if lease is None:
        click.echo("nothing can be claimed", err=True)
        raise click.exceptions.Exit(1)
    text.print_lease(lease, as_json)


@command.command("renew")
@click.argument("issue", metavar="ID")
@click.option("--fence", metavar="N", type=int, required=True, help="The fencing token of the lease.")
@options.ttl
@actor
@as_json
@database
def renew(issue: str, fence: int, ttl: int, actor: str, as_json: bool, db: str | None) -> None:
    """Make a lease last longer, from now on."""
    with opened(db) as memory:
        lease = memory.renew(actor, issue, fence, ttl)
    text.print_lease(lease, as_json)


@command.command("release")
@click.argument("issue", metavar="ID")
@click.option("--fence", metavar="N", type=int, required=True, help="The fencing token of the lease.")
@actor
@as_json
@database
def release(issue: str, fence: int, actor: str, as_json: bool, db: str | None) -> None:
    """Give an issue back."""
    with opened(db) as memory:
        released = memory.release(actor, issue, fence)
    text.print_issue(released, as_json)


# --- changes, each on the evidence of a turn --------------------------------------------------------------------------


_edge = click.option(
    "--type", "edge", type=click.Choice(sorted(EDGE_TYPES)), default="blocks", help="blocks by default."
)


@command.command("update")
@click.argument("issue", metavar="ID")
@click.option("--title", metavar="TEXT")
@click.option("--description", metavar="TEXT")
@click.option("--status", type=click.Choice(["open", "blocked"]), help="A claim leads to in_progress, close to closed.")
@click.option("--priority", metavar="0-4", type=int)
@click.option("--label", "labels", metavar="LABEL", multiple=True, help="All labels it shall have; one '' takes all.")
@click.option("--assignee", metavar="NAME", help="Who shall do it; '' is nobody.")
@options.note
@options.fence
@gated
def update(
    gate: Gate,
    issue: str,
    title: str | None,
    description: str | None,
    status: Literal["open", "blocked"] | None,
    priority: int | None,
    labels: tuple[str, ...],
    assignee: str | None,
    note: str,
    fence: int | None,
) -> Issue:
    """Change an issue, on the evidence of a turn."""
    change = Update(
        title=msgspec.UNSET if title is None else title,
        description=msgspec.UNSET if description is None else description,
        status=msgspec.UNSET if status is None else status,
        priority=msgspec.UNSET if priority is None else priority,
        labels=tuple(sorted(set(labels) - {""})) if labels else msgspec.UNSET,
        assignee=msgspec.UNSET if assignee is None else assignee or None,
        note=note,
        fence=fence,
    )
    return gate.memory.mutate(gate.right, gate.actor, issue, change)


@command.command("discover", short_help="Add an issue that was found while working on another.")
@click.argument("parent", metavar="PARENT")
@click.argument("title")
@options.issue_id
@options.description
@options.priority
@options.labels
@gated
def discover(
    gate: Gate, parent: str, title: str, issue: str | None, description: str, priority: int, labels: tuple[str, ...]
) -> Issue:
    """Add an issue that was found while working on PARENT, on the evidence of that turn."""
    change = Discover(
        parent=parent, title=title, description=description, priority=priority, labels=tuple(sorted(set(labels)))
    )
    return gate.memory.mutate(gate.right, gate.actor, issue, change)


@command.command("close")
@click.argument("issue", metavar="ID")
@options.note
@options.fence
@gated
def close(gate: Gate, issue: str, note: str, fence: int | None) -> Issue:
    """Close an issue, on the evidence of a turn."""
    return gate.memory.mutate(gate.right, gate.actor, issue, Close(note=note, fence=fence))


@command.group("dep")
def dep() -> None:
    """Say what an issue depends on, on the evidence of a turn."""


@dep.command("add")
@click.argument("issue", metavar="ID")
@click.argument("depends_on", metavar="ON")
@_edge
@options.fence
@gated
def dep_add(gate: Gate, issue: str, depends_on: str, edge: str, fence: int | None) -> Issue:
    """Let ID depend on ON."""
    change = AddDependency(edge=edge, depends_on=depends_on, fence=fence)
    return gate.memory.mutate(gate.right, gate.actor, issue, change)


@dep.command("remove")
@click.argument("issue", metavar="ID")
@click.argument("depends_on", metavar="ON")
@_edge
@options.fence
@gated
def dep_remove(gate: Gate, issue: str, depends_on: str, edge: str, fence: int | None) -> Issue:
    """Let ID no longer depend on ON."""
    change = RemoveDependency(edge=edge, depends_on=depends_on, fence=fence)
    return gate.memory.mutate(gate.right, gate.actor, issue, change)


# --- the event log ----------------------------------------------------------------------------------------------------


@command.command("export")
@click.argument("file", metavar="[FILE]", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@database
def export(file: str, db: str | None) -> None:
    """Write the events to FILE, one per line; - is standard output."""
    from manglecp.issues import export_log

    with opened_store(db) as store:
        lines = export_log(store)
        if file == files.STDIN:
            write_lines(line.decode().removesuffix("\n") for line in lines)
        else:
            files.replace(Path(file), lines)


@command.command("import")
@click.argument("file", metavar="FILE", type=files.FILE)
@as_json
@database
def import_(file: str, as_json: bool, db: str | None) -> None:
    """Fill an empty memory with the events that were exported to FILE.

    All of them, or none: then everything that is wrong with the file is said.
    """
    from manglecp.issues import BadLog, import_log

    lines = BytesIO(files.read(file))
    with opened_store(db, create=True) as store, Progress("importing"):
        try:
            head = import_log(store, lines)
        except BadLog as bad:
            for line, problem in bad.problems:
                click.echo(f"{files.source_name(file)}:{line}: {problem}", err=True)
            raise click.exceptions.Exit(2) from None
    write_lines(
        [json_text({"events": head.seq, "head": head.row_hash})]
        if as_json
        else [f"{count(head.seq, 'event')}, head {head.seq}:{head.row_hash}"]
    )


@command.command("verify", short_help="Compute chain and state again, and say what differs.")
@click.option("--head", metavar="N:HASH", help="An event that the log has to have, as an earlier run printed it.")
@as_json
@database
def verify(head: str | None, as_json: bool, db: str | None) -> None:
    """Compute the hash chain and the state again from the events, and say what differs.

    Rows that were cut off at the end are found with --head only.
    """
    from manglecp.issues import audit

    with opened_store(db) as store, Progress("verifying"):
        result = audit(store, None if head is None else read_head("--head", head))
    head_, found = result.head, result.findings
    if as_json:
        about = {"events": head_.seq, "head": head_.row_hash, "issues": result.issues}
        print_json({"ok": not found, **about, "findings": found})
    else:
        verdict = count(len(found), "difference") if found else "ok"
        counted = f"{count(head_.seq, 'event')}, {count(result.issues, 'issue')}"
        write_lines([*found, f"{counted}, head {head_.seq}:{head_.row_hash}: {verdict}"])
    if result.findings:
        raise click.exceptions.Exit(1)
