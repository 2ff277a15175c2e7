"""The runtime: did the shell stay within its boundary, and did compaction keep what it had to?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from manglecp.harness.classes import CLASSES
from manglecp.harness.findings import Finding, place
from manglecp.harness.rows import Shell, ToolResult
from manglecp.harness.turn import Turn

__all__ = ["CHECKS"]

_BOUNDARY: Final = CLASSES["runtime.shell_boundary_violation"]
_COMPACTION: Final = CLASSES["runtime.compaction_state_invalid"]


def shell_boundary(turn: Turn) -> Iterator[Finding]:
    """What ran in a shell says where, in which sandbox and what; and it stayed there."""
    policy = turn.call.execution_boundary_policy
    roots = [
        declared
        for declared in (policy and policy.workdir_roots, turn.constraints.runtime_constraints.workdir_roots)
        if declared
    ]
    for row in turn.results.values():
        if not _ran_in_shell(turn, row):
            continue
        where = place("toolResults", row.tool_call_id)
        if row.shell is None:
            yield Finding(_BOUNDARY, where, "a shell row has no shell block")
            continue
        if not _inside(row.shell.workdir, roots):
            yield Finding(_BOUNDARY, where, f"the working directory {row.shell.workdir} is not inside the roots")
        if not _sandboxed(turn, row.shell):
            yield Finding(_BOUNDARY, where, f"the sandbox {row.shell.sandbox_ref} is not the one of the call")
        if row.shell.command_digest is None or not row.shell.command_digest.startswith("sha256:"):
            yield Finding(_BOUNDARY, where, "the command has no typed digest")
        if row.shell.edited_paths and policy is not None and policy.shell_edits_forbidden:
            yield Finding(_BOUNDARY, where, f"the shell edited {', '.join(row.shell.edited_paths)}")


def _ran_in_shell(turn: Turn, row: ToolResult) -> bool:
    request = turn.requests.get(row.tool_call_id)
    return (
        row.shell is not None
        or (request is not None and request.tool_kind == "shell")
        or (row.provenance is not None and row.provenance.kind == "command")
    )


def _inside(workdir: str | None, declared: list[tuple[str, ...]]) -> bool:
    """Absolute, without a way up, and under a root of every declaration: by segments, not by letters."""
    if workdir is None or not workdir.startswith("/") or ".." in workdir:
        return False
    steps = _steps(workdir)
    return all(any(steps[: len(_steps(root))] == _steps(root) for root in roots) for roots in declared)


def _steps(path: str) -> list[str]:
    return [step for step in path.split("/") if step]


def _sandboxed(turn: Turn, shell: Shell) -> bool:
    return shell.sandbox_ref is not None and turn.call.runtime_sandbox_ref in (None, shell.sandbox_ref)


def edit_surface(turn: Turn) -> Iterator[Finding]:
    """Files are edited by the surfaces that the policy lists."""
    policy = turn.call.execution_boundary_policy
    if policy is None or policy.allowed_edit_surfaces is None:
        return
    for row in turn.results.values():
        request = turn.requests.get(row.tool_call_id)
        edits = row.edit_surface is not None or (request is not None and request.tool_kind == "edit")
        if edits and row.edit_surface not in policy.allowed_edit_surfaces:
            where = place("toolResults", row.tool_call_id)
            yield Finding(_BOUNDARY, where, f"the edit surface {row.edit_surface} is not allowed")


def compaction(turn: Turn) -> Iterator[Finding]:
    """Compaction runs under the policy of the call and keeps what has to be carried, open calls included."""
    record, pinned, terms = turn.evidence.compaction, turn.call.compaction_policy_digest, turn.terms.compaction
    continuity = turn.evidence.continuity
    if record is None or not record.invoked:
        if continuity is not None and continuity.mode == "compaction":
            yield Finding(_COMPACTION, "continuity", "goes on from a compaction that is not recorded")
        return
    if pinned is None:
        yield Finding(_COMPACTION, "compaction", "the call has no compaction policy")
    elif record.policy_digest != pinned:
        yield Finding(_COMPACTION, "compaction", "ran under another policy than the call's")
    if terms.enabled is False:
        yield Finding(_COMPACTION, "compaction", "the policy does not enable it")
    lost = set(terms.required_carry_forward_refs or ()).difference(record.carry_forward_refs)
    if lost:
        yield Finding(_COMPACTION, "compaction", f"lost {', '.join(sorted(lost))}")
    if record.summary_digest is None:
        yield Finding(_COMPACTION, "compaction", "the summary has no digest")
    if record.continuity_ref is None:
        yield Finding(_COMPACTION, "compaction", "nothing says what goes on from it")
    dropped = turn.requests.keys() & set(record.dropped_tool_call_ids)
    if dropped:
        yield Finding(_COMPACTION, "compaction", f"dropped the calls {', '.join(sorted(dropped))}")


CHECKS: Final = (shell_boundary, edit_surface, compaction)
