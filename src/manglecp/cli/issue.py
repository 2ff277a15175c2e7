"""``manglecp issue``: issue memory from the command line.

Exit status: 0 done, 1 refused (by the state of the memory, a lease, the evidence, or nothing was there to claim; an
audit that found something), 2 the command line or a file was wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal

import click
import msgspec

from manglecp.cli import files
from manglecp.cli import issue_text as text
from manglecp.cli.issue_memory import actor, as_json, database, evidence, opened, opened_store, right
from manglecp.cli.outputs import count, json_text, write_lines
from manglecp.store.chain import Head
from manglecp.store.issues import Issue, Lease, Status, limits
from manglecp.store.issues.events import Add, AddDependency, Close, Discover, RemoveDependency, Update
from manglecp.store.issues.model import EDGE_TYPES

__all__ = ["command"]

_as_of = click.option("--as-of", metavar="N", type=click.IntRange(min=1), help="As it was just after event N.")
_fence = click.option("--fence", metavar="N", type=int, help="The fencing token of the lease, if there is one.")
_ttl = click.option(
    "--ttl", metavar="SECONDS", type=int, default=limits.DEFAULT_TTL, help="How long the lease lasts; 3,600 by default."
)
_id = click.option("--id", "issue", metavar="ID", help="The id of the new issue; by default a fresh one.")
_description = click.option("--description", metavar="TEXT", default="", help="What it is about.")
_priority = click.option(
    "--priority", metavar="0-4", type=int, default=limits.DEFAULT_PRIORITY, help="0 is the most urgent; 2 by default."
)
_labels = click.option("--label", "labels", metavar="LABEL", multiple=True, help="May be given several times.")
_note = click.option("--note", metavar="TEXT", default="", help="Added to the notes.")


@click.group("issue")
def command() -> None:
    """Work that is known of: issues, what they wait for, who is on them.

    update, discover, close and dep change what is known: they take the evidence of a turn, and no other way exists.
    """


# --- questions ------------------------------------------------------------------------------------------------------


@command.command("list")
@click.option("--status", type=click.Choice([status.value for status in Status]), help="Only issues of this status.")
@click.option("--label", metavar="LABEL", help="Only issues with this label.")
@click.option("--assignee", metavar="NAME", help="Only issues of this assignee.")
@_as_of
@as_json
@database
def list_(
    status: str | None, label: str | None, assignee: str | None, as_of: int | None, as_json: bool, db: Path | None
) -> None:
    """Print issues in the order in which they were added."""
    with opened(db) as memory, memory.view(as_of) as view:
        _print_issues(view.list(None if status is None else Status(status), label, assignee), as_json)


@command.command("ready")
@_as_of
@as_json
@database
def ready(as_of: int | None, as_json: bool, db: Path | None) -> None:
    """Print what can be claimed, in the order of claiming.

    Issues that are open, or whose lease ran out, and that wait for no other.
    """
    with opened(db) as memory, memory.view(as_of) as view:
        _print_issues(view.ready(), as_json)


@command.command("blocked")
@_as_of
@as_json
@database
def blocked(as_of: int | None, as_json: bool, db: Path | None) -> None:
    """Print what cannot be begun, and why."""
    with opened(db) as memory, memory.view(as_of) as view:
        found = view.blocked()
    if as_json:
        _print_json([text.blocked_document(one) for one in found])
    else:
        write_lines(map(text.blocked_line, found))


@command.command("show")
@click.argument("issue", metavar="ID")
@_as_of
@as_json
@database
def show(issue: str, as_of: int | None, as_json: bool, db: Path | None) -> None:
    """Print everything about one issue."""
    with opened(db) as memory, memory.view(as_of) as view:
        detail = view.show(issue)
    if as_json:
        _print_json(text.detail_document(detail))
    else:
        write_lines(text.detail_lines(detail))


@command.command("history")
@click.argument("issue", metavar="[ID]", required=False)
@as_json
@database
def history(issue: str | None, as_json: bool, db: Path | None) -> None:
    """Print what happened, to one issue or to all."""
    with opened(db) as memory, memory.view() as view:
        events = view.history(issue)
        if as_json:
            _print_json([msgspec.to_builtins(event) for event in events])
        else:
            write_lines(text.event_line(event) for event in events)


# --- what needs no right ----------------------------------------------------------------------------------------------


@command.command("add")
@click.argument("title")
@_id
@_description
@_priority
@_labels
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
    db: Path | None,
) -> None:
    """Add an issue. The first one makes the memory."""
    change = Add(title=title, description=description, priority=priority, labels=tuple(sorted(set(labels))))
    with opened(db, create=True) as memory:
        added = memory.add(actor, change, issue)
    _print_issue(added, as_json)


@command.command("claim")
@click.argument("issue", metavar="[ID]", required=False)
@click.option("--next", "next_", is_flag=True, help="Claim the first issue that can be claimed.")
@_ttl
@actor
@as_json
@database
def claim(issue: str | None, next_: bool, ttl: int, actor: str, as_json: bool, db: Path | None) -> None:
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
    _print_lease(lease, as_json)


@command.command("renew")
@click.argument("issue", metavar="ID")
@click.option("--fence", metavar="N", type=int, required=True, help="The fencing token of the lease.")
@_ttl
@actor
@as_json
@database
def renew(issue: str, fence: int, ttl: int, actor: str, as_json: bool, db: Path | None) -> None:
    """Make a lease last longer, from now on."""
    with opened(db) as memory:
        lease = memory.renew(actor, issue, fence, ttl)
    _print_lease(lease, as_json)


@command.command("release")
@click.argument("issue", metavar="ID")
@click.option("--fence", metavar="N", type=int, required=True, help="The fencing token of the lease.")
@actor
@as_json
@database
def release(issue: str, fence: int, actor: str, as_json: bool, db: Path | None) -> None:
    """Give an issue back."""
    with opened(db) as memory:
        released = memory.release(actor, issue, fence)
    _print_issue(released, as_json)


# --- what needs evidence ----------------------------------------------------------------------------------------------


@command.command("update")
@click.argument("issue", metavar="ID")
@evidence
@click.option("--title", metavar="TEXT")
@click.option("--description", metavar="TEXT")
@click.option("--status", type=click.Choice(["open", "blocked"]), help="A claim leads to in_progress, close to closed.")
@click.option("--priority", metavar="0-4", type=int)
@click.option("--label", "labels", metavar="LABEL", multiple=True, help="All labels it shall have; one '' takes all.")
@click.option("--assignee", metavar="NAME", help="Who shall do it; '' is nobody.")
@_note
@_fence
@actor
@as_json
@database
def update(
    issue: str,
    evidence_file: str,
    active_policy: str | None,
    title: str | None,
    description: str | None,
    status: Literal["open", "blocked"] | None,
    priority: int | None,
    labels: tuple[str, ...],
    assignee: str | None,
    note: str,
    fence: int | None,
    actor: str,
    as_json: bool,
    db: Path | None,
) -> None:
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
    with opened(db) as memory:
        changed = memory.update(right(evidence_file, active_policy), actor, issue, change)
    _print_issue(changed, as_json)


@command.command("discover")
@click.argument("parent", metavar="PARENT")
@click.argument("title")
@evidence
@_id
@_description
@_priority
@_labels
@actor
@as_json
@database
def discover(
    parent: str,
    title: str,
    evidence_file: str,
    active_policy: str | None,
    issue: str | None,
    description: str,
    priority: int,
    labels: tuple[str, ...],
    actor: str,
    as_json: bool,
    db: Path | None,
) -> None:
    """Add an issue that was found while working on PARENT, on the evidence of that turn."""
    change = Discover(
        parent=parent, title=title, description=description, priority=priority, labels=tuple(sorted(set(labels)))
    )
    with opened(db) as memory:
        found = memory.discover(right(evidence_file, active_policy), actor, change, issue)
    _print_issue(found, as_json)


@command.command("close")
@click.argument("issue", metavar="ID")
@evidence
@_note
@_fence
@actor
@as_json
@database
def close(
    issue: str,
    evidence_file: str,
    active_policy: str | None,
    note: str,
    fence: int | None,
    actor: str,
    as_json: bool,
    db: Path | None,
) -> None:
    """Close an issue, on the evidence of a turn."""
    with opened(db) as memory:
        closed = memory.close(right(evidence_file, active_policy), actor, issue, Close(note=note, fence=fence))
    _print_issue(closed, as_json)


@command.group("dep")
def dep() -> None:
    """Say what an issue depends on, on the evidence of a turn."""


_edge = click.option(
    "--type", "edge", type=click.Choice(sorted(EDGE_TYPES)), default="blocks", help="blocks by default."
)


@dep.command("add")
@click.argument("issue", metavar="ID")
@click.argument("depends_on", metavar="ON")
@_edge
@evidence
@_fence
@actor
@as_json
@database
def dep_add(
    issue: str,
    depends_on: str,
    edge: str,
    evidence_file: str,
    active_policy: str | None,
    fence: int | None,
    actor: str,
    as_json: bool,
    db: Path | None,
) -> None:
    """Let ID depend on ON."""
    change = AddDependency(edge=edge, depends_on=depends_on, fence=fence)
    with opened(db) as memory:
        changed = memory.add_dependency(right(evidence_file, active_policy), actor, issue, change)
    _print_issue(changed, as_json)


@dep.command("remove")
@click.argument("issue", metavar="ID")
@click.argument("depends_on", metavar="ON")
@_edge
@evidence
@_fence
@actor
@as_json
@database
def dep_remove(
    issue: str,
    depends_on: str,
    edge: str,
    evidence_file: str,
    active_policy: str | None,
    fence: int | None,
    actor: str,
    as_json: bool,
    db: Path | None,
) -> None:
    """Let ID no longer depend on ON."""
    change = RemoveDependency(edge=edge, depends_on=depends_on, fence=fence)
    with opened(db) as memory:
        changed = memory.remove_dependency(right(evidence_file, active_policy), actor, issue, change)
    _print_issue(changed, as_json)


# --- the log ----------------------------------------------------------------------------------------------------------


@command.command("export")
@click.argument("file", metavar="[FILE]", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@database
def export(file: str, db: Path | None) -> None:
    """Write the events to FILE, one per line; - is standard output."""
    from manglecp.store.issues.jsonl import export_log

    with opened_store(db) as store:
        lines = export_log(store)
        if file == files.STDIN:
            write_lines(line.decode().removesuffix("\n") for line in lines)
        else:
            _replace(Path(file), lines)


@command.command("import")
@click.argument("file", metavar="FILE", type=files.FILE)
@as_json
@database
def import_(file: str, as_json: bool, db: Path | None) -> None:
    """Fill an empty memory with the events that were exported to FILE.

    All of them, or none: then everything that is wrong with the file is said.
    """
    from manglecp.store.issues.jsonl import BadLog, import_log

    lines = BytesIO(files.read(file))
    with opened_store(db, create=True) as store:
        try:
            head = import_log(store, lines)
        except BadLog as bad:
            for line, problem in bad.problems:
                click.echo(f"{files.source_name(file)}:{line}: {problem}", err=True)
            raise click.exceptions.Exit(2) from None
    if as_json:
        _print_json({"events": head.seq, "head": head.row_hash})
    else:
        write_lines([f"{count(head.seq, 'event')}, head {head.seq}:{head.row_hash}"])


@command.command("verify")
@click.option("--head", metavar="N:HASH", help="An event that the log has to have, as an earlier run printed it.")
@as_json
@database
def verify(head: str | None, as_json: bool, db: Path | None) -> None:
    """Compute the hash chain and the state again from the events, and say what differs.

    Rows that were cut off at the end are found with --head only.
    """
    from manglecp.store.issues.audit import audit

    with opened_store(db) as store:
        result = audit(store, None if head is None else _read_head(head))
    if as_json:
        _print_json(
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


# --- what is printed --------------------------------------------------------------------------------------------------


def _print_json(document: Any) -> None:
    write_lines([json_text(document)])


def _print_issues(issues: Iterable[Issue], as_json: bool) -> None:
    if as_json:
        _print_json([text.issue_document(issue) for issue in issues])
    else:
        write_lines(map(text.issue_line, issues))


def _print_issue(issue: Issue, as_json: bool) -> None:
    if as_json:
        _print_json(text.issue_document(issue))
    else:
        write_lines([text.issue_line(issue)])


def _print_lease(lease: Lease, as_json: bool) -> None:
    if as_json:
        _print_json(text.lease_document(lease))
    else:
        write_lines([text.lease_line(lease)])


def _read_head(given: str) -> Head:
    number, colon, row_hash = given.partition(":")
    if not colon or not number.isascii() or not number.isdecimal() or len(number) > 18:
        raise click.UsageError("--head is a number and a hash, such as 12:sha256:4f53…")
    return Head(int(number), row_hash)


def _replace(path: Path, lines: Iterable[bytes]) -> None:
    """A new file in the place of the old one, whole or not at all. What is no file is written to."""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                out.writelines(lines)
            return
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
            try:
                new.writelines(lines)
                new.flush()
                os.fsync(new.fileno())
                Path(new.name).replace(path)
            except BaseException:
                with suppress(OSError):
                    Path(new.name).unlink()
                raise
    except OSError as error:
        raise click.UsageError(f"cannot write {click.format_filename(path)}: {error.strerror}") from None
