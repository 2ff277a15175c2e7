"""Issues, leases and events as JSON documents and as lines for people, and how they are printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from manglecp.cli.outputs import json_text, write_lines
from manglecp.store.issues import Blocked, Detail, Event, Issue, Lease

__all__ = [
    "blocked_document",
    "blocked_line",
    "detail_document",
    "detail_lines",
    "event_line",
    "print_issue",
    "print_issues",
    "print_json",
    "print_lease",
]


def issue_document(issue: Issue) -> dict[str, Any]:
    """The issue with all of its members, as ``--json`` prints it."""
    row: dict[str, Any] = msgspec.to_builtins(issue)
    return row


def issue_line(issue: Issue) -> str:
    """Id, priority, status and title; labels and assignee where there are any."""
    parts = [f"{issue.id}  P{issue.priority} {issue.status:<11}  {issue.title}"]
    if issue.labels:
        parts.append(f"[{', '.join(issue.labels)}]")
    if issue.assignee is not None:
        parts.append(f"@{issue.assignee}")
    return "  ".join(parts)


def lease_document(lease: Lease) -> dict[str, Any]:
    """The lease with the id that a holder gives back."""
    return {"lease_id": lease.lease_id, **msgspec.structs.asdict(lease)}


def lease_line(lease: Lease) -> str:
    """Who holds which issue until when, and the fence."""
    return f"{lease.issue}  fence {lease.fence}  {lease.owner}  until {lease.expires_at}"


def blocked_document(blocked: Blocked) -> dict[str, Any]:
    """The issue, and under ``blockers`` what it waits for."""
    return issue_document(blocked.issue) | {"blockers": _blockers(blocked)}


def blocked_line(blocked: Blocked) -> str:
    """The issue, and on a second line what it waits for, where it waits for anything."""
    reasons = [f"{edge.depends_on} ({edge.type}, {end.status})" for edge, end in blocked.blockers]
    if blocked.issue.status == "blocked":
        reasons.append("set aside by hand")
    return f"{issue_line(blocked.issue)}\n    waits for {', '.join(reasons)}" if reasons else issue_line(blocked.issue)


def detail_document(detail: Detail) -> dict[str, Any]:
    """The issue with its lease, its edges in both directions and what it waits for."""
    return issue_document(detail.issue) | {
        "lease": None if detail.lease is None else lease_document(detail.lease),
        "depends_on": [{"type": edge.type, "issue": edge.depends_on} for edge in detail.depends_on],
        "dependents": [{"type": edge.type, "issue": edge.issue} for edge in detail.dependents],
        "blockers": _blockers(detail),
        "snapshot": detail.snapshot,
    }


def detail_lines(detail: Detail) -> Iterator[str]:
    """The same for people, description and notes at the end."""
    issue = detail.issue
    yield issue_line(issue)
    yield f"  added {issue.created_at}, changed {issue.updated_at}" + (
        "" if issue.closed_at is None else f", closed {issue.closed_at}"
    )
    if detail.lease is not None:
        yield f"  leased to {detail.lease.owner} until {detail.lease.expires_at}, fence {detail.lease.fence}"
    for edge in detail.depends_on:
        yield f"  depends on {edge.depends_on} ({edge.type})"
    for edge in detail.dependents:
        yield f"  {edge.issue} depends on it ({edge.type})"
    for edge, end in detail.blockers:
        yield f"  waits for {edge.depends_on}, which is {end.status}"
    yield f"  issue://{issue.id}@{detail.snapshot}"
    for name, text in (("description", issue.description), ("notes", issue.notes)):
        if text:
            yield f"  {name}:"
            yield from (f"    {line}" for line in text.split("\n"))


def event_line(event: Event) -> str:
    """Number, time, what was done to which issue, by whom, and the witness that allowed it."""
    why = "" if event.mutation is None else f"  by {event.mutation.witness_id}"
    return f"{event.seq}  {event.at}  {event.action} {event.issue}  {event.actor}{why}"


def print_json(document: Any) -> None:
    """One document on one line of standard output."""
    write_lines([json_text(document)])


def print_issues(issues: Iterable[Issue], as_json: bool) -> None:
    """A line an issue, or one JSON list of them all."""
    if as_json:
        print_json([issue_document(issue) for issue in issues])
    else:
        write_lines(map(issue_line, issues))


def print_issue(issue: Issue, as_json: bool) -> None:
    """One line, or one JSON object."""
    if as_json:
        print_json(issue_document(issue))
    else:
        write_lines([issue_line(issue)])


def print_lease(lease: Lease, as_json: bool) -> None:
    """One line, or one JSON object."""
    if as_json:
        print_json(lease_document(lease))
    else:
        write_lines([lease_line(lease)])


def _blockers(what: Blocked | Detail) -> list[dict[str, str]]:
    return [{"type": edge.type, "issue": end.id, "status": end.status.value} for edge, end in what.blockers]
