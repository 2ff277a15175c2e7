"""``manglecp issue``: issue memory from the command line.

Exit status: 0 done; 1 refused by the state of the memory, a lease or the evidence, nothing to claim, or a difference
found by verify; 2 the command line or a file is wrong.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import click

from manglecp.cli import files, issue_memory as options
from manglecp.cli.issue_memory import IssueOptions, change_options, database_option, issue_options, requires_evidence
from manglecp.cli.options import read_head
from manglecp.cli.output import ProgressLine, count, fail, print_result
from manglecp.issues import EDGE_TYPES, Add, AddDependency, Close, Discover, RemoveDependency, Status, Update

_lease_fence = files.option("--fence N", type=int, required=True, help="The fencing token of the lease.")


@click.group("issue")
def command() -> None:
    """The issue memory: issues, their dependencies and their leases.

    update, discover, close and dep change issues, and require the evidence of a turn.
    """


@command.command("list")
@files.option("--status", type=click.Choice([status.value for status in Status]), help="Only issues of this status.")
@files.option("--label LABEL", help="Only issues with this label.")
@files.option("--assignee NAME", help="Only issues of this assignee.")
@options.as_of_option
@issue_options
def list_(status: str | None, label: str | None, assignee: str | None, as_of: int | None, issues: IssueOptions) -> None:
    """Print issues in the order in which they were added."""
    with issues.view(as_of) as view:
        issues.print_list(view.list(None if status is None else Status(status), label, assignee))


@command.command("ready")
@options.as_of_option
@issue_options
def ready(as_of: int | None, issues: IssueOptions) -> None:
    """Print the issues that can be claimed, in the order of claiming.

    Such an issue is open, or its lease has expired, and it depends on no open issue.
    """
    with issues.view(as_of) as view:
        issues.print_list(view.ready())


@command.command("blocked")
@options.as_of_option
@issue_options
def blocked(as_of: int | None, issues: IssueOptions) -> None:
    """Print the blocked issues, each with its blockers."""
    with issues.view(as_of) as view:
        issues.print_list(view.blocked())


@command.command("show")
@click.argument("issue", metavar="ID")
@options.as_of_option
@issue_options
def show(issue: str, as_of: int | None, issues: IssueOptions) -> None:
    """Print one issue with its lease and dependencies."""
    with issues.view(as_of) as view:
        issues.print(view.show(issue))


@command.command("history")
@click.argument("issue", metavar="[ID]", required=False)
@issue_options
def history(issue: str | None, issues: IssueOptions) -> None:
    """Print the events of one issue, or of all."""
    with issues.view() as view:
        issues.print_list(view.history(issue))


@command.command("add")
@click.argument("title")
@options.issue_id_option
@options.new_issue_options
@change_options
def add(title: str, issue: str | None, fields: dict[str, Any], issues: IssueOptions) -> None:
    """Add an issue. The first one creates the database."""
    with issues.memory(create=True) as memory:
        issues.print(memory.add(issues.actor, Add(title=title, **fields), issue))


@command.command("claim")
@click.argument("issue", metavar="[ID]", required=False)
@files.option("--next", "next_", is_flag=True, help="Claim the first issue that can be claimed.")
@options.ttl_option
@change_options
def claim(issue: str | None, next_: bool, ttl: int, issues: IssueOptions) -> None:
    """Lease an issue to the actor for a limited time.

    An expired lease is taken over. Pass the printed fencing token to commands that change the issue.
    """
    if (issue is None) is not next_:
        raise click.UsageError("Give an ID or --next.")
    with issues.memory() as memory:
        lease = memory.claim_next(issues.actor, ttl) if issue is None else memory.claim(issues.actor, issue, ttl)
    if lease is None:
        fail("no issue can be claimed")
    issues.print(lease)


@command.command("renew")
@click.argument("issue", metavar="ID")
@_lease_fence
@options.ttl_option
@change_options
def renew(issue: str, fence: int, ttl: int, issues: IssueOptions) -> None:
    """Extend a lease; its new duration starts now."""
    with issues.memory() as memory:
        issues.print(memory.renew(issues.actor, issue, fence, ttl))


@command.command("release")
@click.argument("issue", metavar="ID")
@_lease_fence
@change_options
def release(issue: str, fence: int, issues: IssueOptions) -> None:
    """End the lease of an issue."""
    with issues.memory() as memory:
        issues.print(memory.release(issues.actor, issue, fence))


@command.command("update")
@click.argument("issue", metavar="ID")
@files.option("--title TEXT")
@files.option("--description TEXT")
@files.option("--status", type=click.Choice(["open", "blocked"]), help="A claim sets in_progress, close sets closed.")
@files.option("--priority 0-4", type=int)
@files.option("--label LABEL", "labels", multiple=True, help="Replaces all labels; '' removes them.")
@files.option("--assignee NAME", help="The new assignee; '' removes the assignee.")
@options.note_option
@options.fence_option
@requires_evidence
def update(labels: tuple[str, ...], assignee: str | None, **values: Any) -> Update:
    """Change an issue, on the evidence of a turn."""
    fields = {name: value for name, value in values.items() if value is not None}  # other fields do not change
    if labels:
        fields["labels"] = tuple(sorted(set(labels) - {""}))
    if assignee is not None:
        fields["assignee"] = assignee or None
    return Update(**fields)


@command.command("discover", short_help="Add an issue that was found while working on another.")
@click.argument("parent", metavar="PARENT")
@click.argument("title")
@options.issue_id_option
@options.new_issue_options
@requires_evidence
def discover(parent: str, title: str, fields: dict[str, Any]) -> Discover:
    """Add an issue that was found while working on PARENT, on the evidence of that turn."""
    return Discover(parent=parent, title=title, **fields)


@command.command("close")
@click.argument("issue", metavar="ID")
@options.note_option
@options.fence_option
@requires_evidence
def close(note: str, fence: int | None) -> Close:
    """Close an issue, on the evidence of a turn."""
    return Close(note=note, fence=fence)


@command.group("dep")
def dep() -> None:
    """Add or remove a dependency of an issue, on the evidence of a turn."""


_dependency_options = files.combine(
    click.argument("issue", metavar="ID"),
    click.argument("depends_on", metavar="ON"),
    files.option("--type", "edge", type=click.Choice(sorted(EDGE_TYPES)), default="blocks", help="blocks by default."),
    options.fence_option,
)


@dep.command("add")
@_dependency_options
@requires_evidence
def dep_add(depends_on: str, edge: str, fence: int | None) -> AddDependency:
    """Make ID depend on ON."""
    return AddDependency(edge=edge, depends_on=depends_on, fence=fence)


@dep.command("remove")
@_dependency_options
@requires_evidence
def dep_remove(depends_on: str, edge: str, fence: int | None) -> RemoveDependency:
    """Remove the dependency of ID on ON."""
    return RemoveDependency(edge=edge, depends_on=depends_on, fence=fence)


@command.command("export")
@files.export_argument
@database_option
def export(file: str, db: str | None) -> None:
    """Write the events to FILE, one per line; - is standard output."""
    from manglecp.issues import export_log

    with IssueOptions(as_json=False, db=db).store() as store:
        files.write_export(file, export_log(store))


@command.command("import")
@click.argument("file", metavar="FILE", type=files.FILE)
@issue_options
def import_(file: str, issues: IssueOptions) -> None:
    """Import the events that were exported to FILE into an empty memory.

    An invalid file is not imported, and all its errors are printed.
    """
    from manglecp.issues import InvalidLog, import_log

    lines = BytesIO(files.read(file))
    with issues.store(create=True) as store, ProgressLine("importing"):
        try:
            head = import_log(store, lines)
        except InvalidLog as error:
            fail(*(f"{files.source_name(file)}:{line}: {problem}" for line, problem in error.problems), status=2)
    line = f"{count(head.seq, 'event')}, head {head.seq}:{head.row_hash}"
    print_result({"events": head.seq, "head": head.row_hash}, [line], as_json=issues.as_json)


@command.command("verify", short_help="Verify the hash chain and the stored state.")
@files.option("--head N:HASH", help="A head of an earlier verification, which must be in the log.")
@issue_options
def verify(head: str | None, issues: IssueOptions) -> None:
    """Recompute the hash chain and the state from the events, and print each difference.

    Only --head detects that the last events were removed.
    """
    from manglecp.issues import audit

    with issues.store() as store, ProgressLine("verifying"):
        result = audit(store, None if head is None else read_head("--head", head))
    seq, row_hash, differences = result.head.seq, result.head.row_hash, result.problems
    verdict = count(len(differences), "difference") if differences else "ok"
    summary = f"{count(seq, 'event')}, {count(result.issue_count, 'issue')}, head {seq}:{row_hash}: {verdict}"
    document = {"ok": not differences, "events": seq, "head": row_hash, "issues": result.issue_count}
    document["findings"] = differences
    print_result(document, [*differences, summary], as_json=issues.as_json, ok=not differences)
