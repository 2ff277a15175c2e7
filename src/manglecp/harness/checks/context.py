"""The context: was the model shown what it is owed, as the policies say, and did every role stay in its scope?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from manglecp.harness.classes import CLASSES
from manglecp.harness.constraints import RoleScope
from manglecp.harness.findings import Finding, place
from manglecp.harness.turn import Turn

__all__ = ["CHECKS"]

_QUEUE: Final = CLASSES["context.queue_policy_violation"]
_INJECTION: Final = CLASSES["context.injection_point_missing"]
_SCOPE: Final = CLASSES["context.scope_violation"]

_ROLES: Final = ("orchestrator", "specialist")


def owed_context(turn: Turn) -> Iterator[Finding]:
    """Whoever goes on, or has consumed something, has shown the model every result, a queue and a view."""
    if not turn.context_owed:
        return
    evidence, call = turn.evidence, turn.call
    rendered = {row.tool_call_id for row in evidence.tool_render}
    for name in turn.results:
        if name not in rendered:
            yield Finding(_INJECTION, place("toolResults", name), "the result was never rendered for the model")
    if not evidence.state_views:
        yield Finding(_INJECTION, "stateViews", "there is no state view")
    if not evidence.reminder_queue:
        yield Finding(_QUEUE, "reminderQueue", "no queue was reduced")
    bound = (
        *((place("toolRender", row.tool_call_id), row.policy_digest, call.tool_render_protocol_digest)
          for row in evidence.tool_render),
        *((place("reminderQueue", row.queue_id), row.policy_digest, call.reminder_queue_policy_digest)
          for row in evidence.reminder_queue),
        *((place("stateViews", row.view_id), row.policy_digest, call.state_view_policy_digest)
          for row in evidence.state_views),
    )  # fmt: skip
    for where, digest, pinned in bound:
        if digest != pinned:
            yield Finding(_QUEUE, where, "was made under another policy than the call's")


def queues(turn: Turn) -> Iterator[Finding]:
    """Required queues and views are there, without repetitions, in batches of the right size, at allowed points."""
    wanted, evidence = turn.constraints.context_constraints, turn.evidence
    for name in set(wanted.required_queue_ids).difference(row.queue_id for row in evidence.reminder_queue):
        yield Finding(_QUEUE, place("reminderQueue", name), "the required queue is absent")
    for name in set(wanted.required_state_view_ids).difference(row.view_id for row in evidence.state_views):
        yield Finding(_INJECTION, place("stateViews", name), "the required view is absent")
    for queue in evidence.reminder_queue:
        where = place("reminderQueue", queue.queue_id)
        reminders = [entry.reminder_digest for entry in queue.entries if entry.reminder_digest is not None]
        if wanted.dedup and len(set(reminders)) < len(reminders):
            yield Finding(_QUEUE, where, "a reminder is in the queue twice")
        if wanted.max_batch_size is not None and len(queue.entries) > wanted.max_batch_size:
            yield Finding(
                _QUEUE, where, f"{len(queue.entries)} reminders; at most {wanted.max_batch_size} are admitted"
            )
    if wanted.allowed_injection_points is not None:
        for row in evidence.tool_render:
            if row.injection_point not in wanted.allowed_injection_points:
                where = place("toolRender", row.tool_call_id)
                yield Finding(_INJECTION, where, f"the injection point {row.injection_point} is not allowed")


def context_filter(turn: Turn) -> Iterator[Finding]:
    """Results are filtered before the model sees them where the policy demands it, and nowhere where it forbids it."""
    policy = turn.call.pre_context_filter_policy
    if policy is None or policy.mode in (None, "allowed"):
        return
    for row in turn.results.values():
        request = turn.requests.get(row.tool_call_id)
        if policy.tools and (request is None or request.tool_name not in policy.tools):
            continue
        where, usage = place("toolResults", row.tool_call_id), row.token_usage
        metered = usage is not None and usage.unfiltered_tokens is not None and usage.filtered_tokens is not None
        if policy.mode == "required":
            if not metered:
                yield Finding(_QUEUE, where, "the result had to be filtered, and no meter shows it")
        elif usage is not None and usage.filter_applied:
            yield Finding(_QUEUE, where, "the result was filtered, and must not be")


def scope(turn: Turn) -> Iterator[Finding]:
    """A role reads and writes under its own prefixes, and nothing acts for another role."""
    call, role = turn.call, turn.call.orchestration_role
    if role is not None and role not in _ROLES:
        yield Finding(_SCOPE, "callSpec/orchestrationRole", f"the role {role} is not known")
    if turn.constraints.context_constraints.expected_scope_digest not in (None, call.context_scope_digest):
        yield Finding(_SCOPE, "callSpec/contextScopeDigest", "another scope is expected")
    scopes = turn.terms.role_scopes
    for row in turn.evidence.context_access:
        where = place("contextAccess", row.ref)
        if role is not None and row.role not in (None, role):
            yield Finding(_SCOPE, where, f"{row.role} acts in a turn of {role}")
        if ".." in row.ref:
            yield Finding(_SCOPE, where, "the reference leads upwards")
        if scopes is not None:
            own = scopes.get(row.role or role or "", RoleScope())
            # Whatever is not said to be reading may write.
            prefixes = own.read if row.access == "read" else own.write
            if not row.ref.startswith(prefixes):
                yield Finding(_SCOPE, where, f"{row.ref} is outside of what {row.role or role} may {row.access}")
    for artifact in turn.evidence.artifacts:
        where = place("artifacts", artifact.ref)
        if ".." in artifact.ref:
            yield Finding(_SCOPE, where, "the reference leads upwards")
        if role is None:
            continue
        if artifact.role not in (None, role):
            yield Finding(_SCOPE, where, f"{artifact.role} acts in a turn of {role}")
        if artifact.written and artifact.owner_role not in (None, role):
            yield Finding(_SCOPE, where, f"{role} wrote what {artifact.owner_role} owns")


CHECKS: Final = (owed_context, queues, context_filter, scope)
