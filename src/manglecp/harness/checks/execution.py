"""Execution checks: stop reasons, transport order, shell and edits, compaction, context, roles and decomposition."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from manglecp.harness import classes
from manglecp.harness.classes import Finding, row_pointer
from manglecp.harness.constraints import (
    AUTONOMOUS_PATTERNS,
    HANDLED_STOP_REASONS,
    PATTERNS,
    ROLES,
    UNDIVIDED_PATTERNS,
    RoleScope,
)
from manglecp.harness.evidence import (
    Artifact,
    ContextAccess,
    ReminderQueue,
    StateView,
    TokenUsage,
    ToolRender,
    ToolRequest,
)
from manglecp.harness.turn import Turn


def check_stop_reason(turn: Turn) -> Iterator[Finding]:
    """Check that the policy handles the stop reason and, if the turn continues, permits a continuation."""
    state, policy = turn.evidence.protocol_state, turn.call.protocol_state_policy
    if state is None:
        return
    handled_reasons = None if policy is None else policy.handled_stop_reasons
    if state.stop_reason not in (HANDLED_STOP_REASONS if handled_reasons is None else handled_reasons):
        yield classes.STOP_REASON.at("protocolState", f"the stop reason {state.stop_reason} is not handled")
    continuation = (policy and policy.continuation) or {}
    if turn.continues and continuation.get(state.stop_reason) == "stop":
        yield classes.STOP_REASON.at("protocolState", f"the turn continues after {state.stop_reason}, which ends it")


def check_stop_policy(turn: Turn) -> Iterator[Finding]:
    """Check that the limits of turns and iterations are kept, and that a due checkpoint is recorded."""
    state, policy = turn.evidence.protocol_state, turn.call.stop_policy
    if state is None or policy is None:
        return
    index = state.turn_index
    if policy.max_turns is not None and index is not None:
        if index > policy.max_turns:
            yield classes.STOP_REASON.at("protocolState", f"turn {index} of {policy.max_turns}")
        if index == policy.max_turns and turn.continues:
            yield classes.STOP_REASON.at("protocolState", f"the last of {policy.max_turns} turns continues")
    if policy.max_iterations is not None and state.iteration is not None and state.iteration > policy.max_iterations:
        yield classes.STOP_REASON.at("protocolState", f"iteration {state.iteration} of {policy.max_iterations}")
    if policy.require_checkpoint and turn.continues and state.checkpoint_ref is None:
        period = policy.checkpoint_every_turns or 0
        # With an invalid period, a checkpoint is due after every turn.
        if period < 1 or (index is not None and index % period == 0):
            yield classes.STOP_REASON.at("protocolState", "the checkpoint that is due after this turn is not recorded")


def check_transport(turn: Turn) -> Iterator[Finding]:
    """Check that outputs have the order of their calls, and that no calls are parallel if the policy forbids that."""
    if turn.constraints.protocol_constraints.parallel_transport_order_valid is False:
        yield classes.ORDER.at("protocolConstraints", "the runtime reports that the order was broken")
    policy = turn.call.tool_transport_policy
    if policy is None:
        return
    if policy.parallel_tool_calls is False:
        direct = list(turn.direct_requests)
        groups = Counter(row.call_group_id for row in direct)
        for row in direct:
            if groups[row.call_group_id] > 1:
                yield classes.ORDER.at(row.where, f"one of {groups[row.call_group_id]} calls at once; one is allowed")
    if policy.ordering not in (None, "any"):  # an unknown word requires the strict order
        by_group: dict[str | None, list[ToolRequest]] = defaultdict(list)
        for row in turn.evidence.tool_requests:
            by_group[row.call_group_id].append(row)
        for rows in by_group.values():
            yield from _check_order(turn, rows)


def _check_order(turn: Turn, rows: list[ToolRequest]) -> Iterator[Finding]:
    """Check that every call and output of a call group has a position, and that both have the same order."""
    positions = []  # (ordinal of the call, sequence of its output, call id)
    for row in rows:
        result = turn.results.get(row.tool_call_id)
        if row.ordinal is None:
            yield classes.ORDER.at(row.where, "the call has no position")
        elif result is not None and result.sequence is not None:
            positions.append((row.ordinal, result.sequence, row.tool_call_id))
        if result is not None and result.sequence is None:
            yield classes.ORDER.at(result.where, "the output has no position")
    positions.sort()
    for (ordinal, sequence, _), (next_ordinal, next_sequence, call_id) in pairwise(positions):
        if ordinal == next_ordinal or sequence >= next_sequence:
            yield classes.ORDER.at(row_pointer("toolResults", call_id), "the output is not in the order of its call")


def check_shell_boundary(turn: Turn) -> Iterator[Finding]:
    """Check that the row of a shell command has directory, sandbox and command, all within the boundary."""
    policy = turn.call.execution_boundary_policy
    declared_roots = (policy and policy.workdir_roots, turn.constraints.runtime_constraints.workdir_roots)
    root_sets = [roots for roots in declared_roots if roots]
    for row in turn.results.values():
        request = turn.requests.get(row.tool_call_id)
        if row.shell is None:
            is_command = row.provenance is not None and row.provenance.kind == "command"
            if is_command or (request is not None and request.tool_kind == "shell"):
                yield classes.BOUNDARY.at(row.where, "a shell row has no shell block")
            continue
        if not _is_inside(row.shell.workdir, root_sets):
            yield classes.BOUNDARY.at(row.where, f"the working directory {row.shell.workdir} is not inside the roots")
        if row.shell.sandbox_ref is None or turn.call.runtime_sandbox_ref not in (None, row.shell.sandbox_ref):
            yield classes.BOUNDARY.at(row.where, f"the sandbox {row.shell.sandbox_ref} is not the one of the call")
        if row.shell.command_digest is None or not row.shell.command_digest.startswith("sha256:"):
            yield classes.BOUNDARY.at(row.where, "the command has no typed digest")
        if row.shell.edited_paths and policy is not None and policy.shell_edits_forbidden:
            yield classes.BOUNDARY.at(row.where, f"the shell edited {', '.join(row.shell.edited_paths)}")


def _is_inside(workdir: str | None, root_sets: list[tuple[str, ...]]) -> bool:
    """Return whether the path is absolute, without ``..``, and inside a root of every set."""
    if workdir is None or not workdir.startswith("/") or ".." in workdir:
        return False
    return all(_clean_path(workdir).startswith(tuple(map(_clean_path, roots))) for roots in root_sets)


def _clean_path(path: str) -> str:
    """Return the path with one slash before, between and after its segments."""
    return "/".join(["", *filter(None, path.split("/")), ""])


def check_edit_surface(turn: Turn) -> Iterator[Finding]:
    """Check that files are edited only by the surfaces that the policy lists."""
    policy = turn.call.execution_boundary_policy
    if policy is None or policy.allowed_edit_surfaces is None:
        return
    for row in turn.results.values():
        request = turn.requests.get(row.tool_call_id)
        edits = row.edit_surface is not None or (request is not None and request.tool_kind == "edit")
        if edits and row.edit_surface not in policy.allowed_edit_surfaces:
            yield classes.BOUNDARY.at(row.where, f"the edit surface {row.edit_surface} is not allowed")


def check_compaction(turn: Turn) -> Iterator[Finding]:
    """Check that compaction follows the policy of the call and keeps required references and open calls."""
    record, continuity, terms = turn.evidence.compaction, turn.evidence.continuity, turn.terms.compaction
    if record is None or not record.invoked:
        if continuity is not None and continuity.mode == "compaction":
            yield classes.COMPACTION.at("continuity", "continues from a compaction that is not recorded")
        return
    if turn.call.compaction_policy_digest is None:
        yield classes.COMPACTION.at("compaction", "the call has no compaction policy")
    elif record.policy_digest != turn.call.compaction_policy_digest:
        yield classes.COMPACTION.at("compaction", "ran under another policy than that of the call")
    if terms.enabled is False:
        yield classes.COMPACTION.at("compaction", "the policy does not enable it")
    lost_refs = set(terms.required_carry_forward_refs or ()).difference(record.carry_forward_refs)
    if lost_refs:
        yield classes.COMPACTION.at("compaction", f"lost {', '.join(sorted(lost_refs))}")
    if record.summary_digest is None:
        yield classes.COMPACTION.at("compaction", "the summary has no digest")
    if record.continuity_ref is None:
        yield classes.COMPACTION.at("compaction", "continuityRef is missing")
    dropped_ids = turn.requests.keys() & set(record.dropped_tool_call_ids)
    if dropped_ids:
        yield classes.COMPACTION.at("compaction", f"dropped the calls {', '.join(sorted(dropped_ids))}")


def check_context(turn: Turn) -> Iterator[Finding]:
    """Check that each result was rendered, and a queue and a view exist, if the turn continues or consumed a result."""
    if not turn.needs_context:
        return
    evidence, call = turn.evidence, turn.call
    rendered_ids = {row.tool_call_id for row in evidence.tool_render}
    for call_id, result in turn.results.items():
        if call_id not in rendered_ids:
            yield classes.INJECTION.at(result.where, "the result was never rendered for the model")
    if not evidence.state_views:
        yield classes.INJECTION.at("stateViews", "the state view is missing")
    if not evidence.reminder_queue:
        yield classes.QUEUE.at("reminderQueue", "no queue was reduced")
    rows_by_policy: tuple[tuple[str, tuple[ToolRender | ReminderQueue | StateView, ...]], ...] = (
        (call.tool_render_protocol_digest, evidence.tool_render),
        (call.reminder_queue_policy_digest, evidence.reminder_queue),
        (call.state_view_policy_digest, evidence.state_views),
    )
    for policy_digest, rows in rows_by_policy:
        for row in rows:
            if row.policy_digest != policy_digest:
                yield classes.QUEUE.at(row.where, "has another policy than the call")


def check_queues(turn: Turn) -> Iterator[Finding]:
    """Check that required queues and views exist, and that reminders keep the limits and the injection points."""
    constraints, evidence = turn.constraints.context_constraints, turn.evidence
    for name in set(constraints.required_queue_ids).difference(row.queue_id for row in evidence.reminder_queue):
        yield classes.QUEUE.at(row_pointer("reminderQueue", name), "the required queue is absent")
    for name in set(constraints.required_state_view_ids).difference(row.view_id for row in evidence.state_views):
        yield classes.INJECTION.at(row_pointer("stateViews", name), "the required view is absent")
    for queue in evidence.reminder_queue:
        reminders = [entry.reminder_digest for entry in queue.entries if entry.reminder_digest is not None]
        if constraints.dedup and len(set(reminders)) < len(reminders):
            yield classes.QUEUE.at(queue.where, "a reminder is in the queue twice")
        count, limit = len(queue.entries), constraints.max_batch_size
        if limit is not None and count > limit:
            yield classes.QUEUE.at(queue.where, f"{count} reminders; at most {limit} are allowed")
    points = constraints.allowed_injection_points
    for row in evidence.tool_render:
        if points is not None and row.injection_point not in points:
            yield classes.INJECTION.at(row.where, f"the injection point {row.injection_point} is not allowed")


def check_context_filter(turn: Turn) -> Iterator[Finding]:
    """Check that results are filtered if the policy requires that, and not filtered if it forbids that."""
    policy = turn.call.pre_context_filter_policy
    if policy is None or policy.mode in (None, "allowed"):
        return
    for row in turn.results.values():
        request = turn.requests.get(row.tool_call_id)
        if policy.tools and (request is None or request.tool_name not in policy.tools):
            continue
        usage = row.token_usage or TokenUsage()
        if policy.mode == "required":
            if usage.unfiltered_tokens is None or usage.filtered_tokens is None:
                yield classes.QUEUE.at(row.where, "the result must be filtered, and no token counts show it")
        elif usage.filter_applied:
            yield classes.QUEUE.at(row.where, "the result was filtered, and must not be")


def check_scope(turn: Turn) -> Iterator[Finding]:
    """Check that a role reads and writes only under its prefixes, and does not act for another role."""
    role = turn.call.orchestration_role
    if role is not None and role not in ROLES:
        yield classes.SCOPE.at("callSpec/orchestrationRole", f"the role {role} is unknown")
    scopes = turn.terms.role_scopes
    rows: tuple[ContextAccess | Artifact, ...] = (*turn.evidence.context_access, *turn.evidence.artifacts)
    for row in rows:
        if role is not None and row.role not in (None, role):
            yield classes.SCOPE.at(row.where, f"{row.role} acts in a turn of {role}")
        if ".." in row.ref:
            yield classes.SCOPE.at(row.where, "the reference leads upwards")
    for access in turn.evidence.context_access if scopes is not None else ():
        scope = (scopes or {}).get(access.role or role or "", RoleScope())
        # An access counts as a write unless it is declared a read.
        if not access.ref.startswith(scope.read if access.access == "read" else scope.write):
            message = f"{access.ref} is outside of what {access.role or role} may {access.access}"
            yield classes.SCOPE.at(access.where, message)
    for artifact in turn.evidence.artifacts:
        if role is not None and artifact.written and artifact.owner_role not in (None, role):
            yield classes.SCOPE.at(artifact.where, f"{role} wrote what {artifact.owner_role} owns")


def check_pattern(turn: Turn) -> Iterator[Finding]:
    """Check that the pattern is known, expected and allowed, and that an autonomous pattern has a trigger."""
    terms, call = turn.terms.decomposition, turn.call
    if terms.admissible is False:
        yield classes.DECOMPOSITION.at("decompositionConstraints", "the runtime reports that it is not admissible")
    where = "callSpec/executionPattern"
    if call.execution_pattern not in PATTERNS:
        yield classes.DECOMPOSITION.at(where, f"the pattern {call.execution_pattern} is unknown")
    if terms.expected_execution_pattern not in (None, call.execution_pattern):
        yield classes.DECOMPOSITION.at(where, f"the pattern {terms.expected_execution_pattern} is expected")
    if terms.allowed_patterns is not None and call.execution_pattern not in terms.allowed_patterns:
        yield classes.DECOMPOSITION.at(where, f"the pattern {call.execution_pattern} is not allowed")
    if terms.require_escalation_trigger and call.execution_pattern in AUTONOMOUS_PATTERNS:
        decomposition = turn.evidence.decomposition
        if decomposition is None or decomposition.escalation_trigger_ref is None:
            yield classes.DECOMPOSITION.at("decomposition", "the pattern is autonomous without a measured trigger")


def check_fan_out(turn: Turn) -> Iterator[Finding]:
    """Check that a loop has one worker, that the pattern permits a split, and that the fan-out is within its limit."""
    decomposition, limit = turn.evidence.decomposition, turn.terms.decomposition.max_fan_out
    if decomposition is None:
        return
    if decomposition.mode == "loop" and decomposition.width > 1:
        yield classes.DECOMPOSITION.at("decomposition", f"a loop with {decomposition.width} workers")
    # An unknown mode counts as a split.
    if decomposition.mode not in (None, "loop") and turn.call.execution_pattern in UNDIVIDED_PATTERNS:
        yield classes.DECOMPOSITION.at("decomposition", f"the pattern {turn.call.execution_pattern} does not split")
    if limit is not None and decomposition.width > limit:
        yield classes.DECOMPOSITION.at("decomposition", f"{decomposition.width} workers; at most {limit} are allowed")
