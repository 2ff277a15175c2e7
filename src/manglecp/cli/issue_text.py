"""Issues, leases and events as JSON documents and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from manglecp.issues import BlockedIssue, Issue, IssueDetail, IssueEvent, Lease

IssueResult: TypeAlias = Issue | BlockedIssue | IssueDetail | IssueEvent | Lease


def to_document(result: IssueResult) -> Any:
    """Return the result as a JSON document."""
    match result:
        case Lease():
            return {"lease_id": result.lease_id, **msgspec.structs.asdict(result)}
        case BlockedIssue():
            return msgspec.to_builtins(result.issue) | {"blockers": _blocker_documents(result)}
        case IssueDetail():
            return msgspec.to_builtins(result.issue) | {
                "lease": None if result.lease is None else to_document(result.lease),
                "depends_on": [{"type": edge.type, "issue": edge.depends_on} for edge in result.depends_on],
                "dependents": [{"type": edge.type, "issue": edge.issue} for edge in result.dependents],
                "blockers": _blocker_documents(result),
                "snapshot": result.snapshot,
            }
        case _:
            return msgspec.to_builtins(result)


def to_lines(result: IssueResult) -> Iterator[str]:
    """Yield the result as text."""
    match result:
        case Issue():
            yield _issue_line(result)
        case Lease():
            yield f"{result.issue}  fence {result.fence}  {result.owner}  until {result.expires_at}"
        case IssueEvent():
            witness = "" if result.mutation is None else f"  by {result.mutation.witness_id}"
            yield f"{result.seq}  {result.at}  {result.action} {result.issue}  {result.actor}{witness}"
        case BlockedIssue():
            yield _issue_line(result.issue)
            reasons = [f"{edge.depends_on} ({edge.type}, {blocker.status})" for edge, blocker in result.blockers]
            if result.issue.status == "blocked":
                reasons.append("an update of its status")
            if reasons:
                yield f"    waits for {', '.join(reasons)}"
        case IssueDetail():
            yield from _detail_lines(result)


def _issue_line(issue: Issue) -> str:
    parts = [f"{issue.id}  P{issue.priority} {issue.status:<11}  {issue.title}"]
    if issue.labels:
        parts.append(f"[{', '.join(issue.labels)}]")
    if issue.assignee is not None:
        parts.append(f"@{issue.assignee}")
    return "  ".join(parts)


def _detail_lines(detail: IssueDetail) -> Iterator[str]:
    issue = detail.issue
    yield _issue_line(issue)
    closed_text = "" if issue.closed_at is None else f", closed {issue.closed_at}"
    yield f"  added {issue.created_at}, changed {issue.updated_at}{closed_text}"
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


def _blocker_documents(issue: BlockedIssue | IssueDetail) -> list[dict[str, str]]:
    return [{"type": edge.type, "issue": other.id, "status": other.status.value} for edge, other in issue.blockers]
