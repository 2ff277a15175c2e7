"""The verbs of ``manglecp issue`` that change what is known, each on the evidence of a turn."""

from __future__ import annotations

from typing import Literal

import click
import msgspec

from manglecp.cli import issue_options as options
from manglecp.cli.issue_gate import Gate, gated
from manglecp.store.issues import EDGE_TYPES, AddDependency, Close, Discover, Issue, RemoveDependency, Update

__all__ = ["close", "dep", "discover", "update"]

_edge = click.option(
    "--type", "edge", type=click.Choice(sorted(EDGE_TYPES)), default="blocks", help="blocks by default."
)


@click.command("update")
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
    return gate.memory.update(gate.right, gate.actor, issue, change)


@click.command("discover", short_help="Add an issue that was found while working on another.")
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
    return gate.memory.discover(gate.right, gate.actor, change, issue)


@click.command("close")
@click.argument("issue", metavar="ID")
@options.note
@options.fence
@gated
def close(gate: Gate, issue: str, note: str, fence: int | None) -> Issue:
    """Close an issue, on the evidence of a turn."""
    return gate.memory.close(gate.right, gate.actor, issue, Close(note=note, fence=fence))


@click.group("dep")
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
    return gate.memory.add_dependency(gate.right, gate.actor, issue, change)


@dep.command("remove")
@click.argument("issue", metavar="ID")
@click.argument("depends_on", metavar="ON")
@_edge
@options.fence
@gated
def dep_remove(gate: Gate, issue: str, depends_on: str, edge: str, fence: int | None) -> Issue:
    """Let ID no longer depend on ON."""
    change = RemoveDependency(edge=edge, depends_on=depends_on, fence=fence)
    return gate.memory.remove_dependency(gate.right, gate.actor, issue, change)
