"""Issues, leases and events as JSON documents and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from manglecp.issues import BlockedIssue, Issue, IssueDetail, IssueEvent, Lease


def issue_line(issue: Issue) -> str:
    parts = [f"{issue.id}  P{issue.priority} {issue.status:<11}  {issue.title}"]
    if issue.labels:
        parts.append(f"[{', '.join(issue.labels)}]")
    if issue.assignee is not None:
        parts.append(f"@{issue.assignee}")
    return "  ".join(parts)


def lease_document(lease: Lease) -> dict[str, Any]:
    return {"lease_id": lease.lease_id, **msgspec.structs.asdict(lease)}


def blocked_document(blocked: BlockedIssue) -> Any:
    return msgspec.to_builtins(blocked.issue) | {"blockers": _blocker_documents(blocked)}


def blocked_line(blocked: BlockedIssue) -> str:
    reasons = [f"{edge.depends_on} ({edge.type}, {blocker.status})" for edge, blocker in blocked.blockers]
    if blocked.issue.status == "blocked":
        reasons.append("an update of its status")
    return issue_line(blocked.issue) + (f"\n    waits for {', '.join(reasons)}" if reasons else "")


def detail_document(detail: IssueDetail) -> Any:
    return msgspec.to_builtins(detail.issue) | {
        "lease": None if detail.lease is None else lease_document(detail.lease),
        "depends_on": [{"type": edge.type, "issue": edge.depends_on} for edge in detail.depends_on],
        "dependents": [{"type": edge.type, "issue": edge.issue} for edge in detail.dependents],
        "blockers": _blocker_documents(detail),
        "snapshot": detail.snapshot,
    }


def detail_lines(detail: IssueDetail) -> Iterator[str]:
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
    for edge, blocker in detail.blockers:
        yield f"  waits for {edge.depends_on}, which is {blocker.status}"
    yield f"  issue://{issue.id}@{detail.snapshot}"
    for name, text in (("description", issue.description), ("notes", issue.notes)):
        if text:
            yield f"  {name}:"
            yield from (f"    {line}" for line in text.split("\n"))


def event_line(event: IssueEvent) -> str:
    witness = "" if event.mutation is None else f"  by {event.mutation.witness_id}"
    return f"{event.seq}  {event.at}  {event.action} {event.issue}  {event.actor}{witness}"


def lease_line(lease: Lease) -> str:
    return f"{lease.issue}  fence {lease.fence}  {lease.owner}  until {lease.expires_at}"


def _blocker_documents(issue: BlockedIssue | IssueDetail) -> list[dict[str, str]]:
    return [{"type": edge.type, "issue": other.id, "status": other.status.value} for edge, other in issue.blockers]
