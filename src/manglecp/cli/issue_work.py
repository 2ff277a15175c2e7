"""The verbs of ``manglecp issue`` that need no evidence: to note that there is work, and to take it on."""

from __future__ import annotations

import click

from manglecp.cli import issue_options as options, issue_text as text
from manglecp.cli.issue_memory import opened
from manglecp.cli.issue_options import actor, as_json, database
from manglecp.store.issues import Add

__all__ = ["add", "claim", "release", "renew"]


@click.command("add")
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


@click.command("claim")
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


@click.command("renew")
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


@click.command("release")
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
