"""Tool checks: the shape of calls and results, allowed tools and callers, tool search, width, join and truncation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from manglecp.harness import classes
from manglecp.harness.call_spec import ToolPolicy
from manglecp.harness.canonical_v1 import digest_v1 as digest
from manglecp.harness.classes import Finding, row_pointer
from manglecp.harness.evidence import Truncation
from manglecp.harness.turn import PROGRAM, Turn

_ACTION_MODES: Final = ("code", "json", "text")
_TOOL_CHOICES: Final = ("auto", "any", "specific")
_PROVENANCE_KINDS: Final = ("command", "api", "runtime_route")
_STRUCTURED_BLOCKS: Final = ("tool_use", "function_call", "code_block", "adapter")


def check_call_shape(turn: Turn) -> Iterator[Finding]:
    """Check that mode and tool choice are known words, and that a required call was made."""
    call = turn.call
    if call.action_mode not in _ACTION_MODES:
        yield classes.SCHEMA.at("callSpec/actionMode", f"the mode {call.action_mode} is unknown")
    choice = call.tool_choice
    if choice is None:
        return
    if choice.mode not in _TOOL_CHOICES:
        yield classes.SCHEMA.at("callSpec/toolChoice", f"the tool choice {choice.mode} is unknown")
    if choice.mode == "specific" and choice.tool_name is None:
        yield classes.SCHEMA.at("callSpec/toolChoice", "a specific tool is required, and none is named")
    if choice.mode == "any" and not turn.requests:
        yield classes.SCHEMA.at("callSpec/toolChoice", "a call is required, and none was made")


def check_request_shape(turn: Turn) -> Iterator[Finding]:
    """Check that every request comes from a structured block and matches the pinned schemas of its tool."""
    policy, constraints = turn.call.tool_policy or ToolPolicy(), turn.constraints.tool_constraints
    pins: dict[str, set[str]] = defaultdict(set)  # schema digests, by the name of the tool
    for tool in policy.allowed_tools or ():
        if tool.schema_digest is not None:
            pins[tool.tool_name].add(tool.schema_digest)
    for name, schema_digest in (constraints.schema_digests or {}).items():
        pins[name].add(schema_digest)
    for row in turn.evidence.tool_requests:
        if row.schema_valid is False:
            yield classes.SCHEMA.at(row.where, "the runtime's validator refused the arguments")
        if row.schema_digest is not None and pins.get(row.tool_name, {row.schema_digest}) != {row.schema_digest}:
            yield classes.SCHEMA.at(row.where, f"{row.tool_name} was called under another schema than the pinned one")
        if turn.schema_verdicts.get(row.tool_call_id) is False:
            yield classes.SCHEMA.at(row.where, f"the arguments do not fit the schema of {row.tool_name}")
        if row.source_block not in (None, *_STRUCTURED_BLOCKS):
            yield classes.SCHEMA.at(row.where, f"the call is from {row.source_block}, which is not a structured block")
        profiles = {row.parser_profile_id, policy.parser_profile_id} - {None}
        is_registered = constraints.parser_profiles is None or profiles.issubset(constraints.parser_profiles)
        if turn.call.action_mode == "text" and (len(profiles) != 1 or not is_registered):
            yield classes.SCHEMA.at(row.where, "a call in text mode has no registered parser profile")


def check_one_call_per_action(turn: Turn) -> Iterator[Finding]:
    """Check that an action has several calls only in code mode."""
    if turn.call.action_mode not in ("json", "text"):
        return
    rows = [row for row in turn.evidence.tool_requests if row.action_index is not None]
    call_counts = Counter(row.action_index for row in rows)
    for row in rows:
        if call_counts[row.action_index] > 1:
            yield classes.SCHEMA.at(row.where, f"action {row.action_index} holds {call_counts[row.action_index]} calls")


def check_result_shape(turn: Turn) -> Iterator[Finding]:
    """Check that errors are typed, programs record their output, token counts add up, required provenance exists."""
    for row in turn.results.values():
        if row.error is not None and row.error.gaps:
            yield classes.SCHEMA.at(row.where, f"the error lacks {', '.join(row.error.gaps)}")
        request = turn.requests.get(row.tool_call_id)
        if request is not None and request.tool_kind == PROGRAM and turn.call.action_mode == "code":
            observation = row.observation
            if observation is None or observation.stdout_digest is None or observation.stderr_digest is None:
                yield classes.SCHEMA.at(row.where, "a program has no digests of its standard output and error")
        usage = row.token_usage
        if usage is not None and usage.delta_tokens is not None:
            before, after = usage.unfiltered_tokens, usage.filtered_tokens
            if before is None or after is None or usage.delta_tokens != before - after:
                yield classes.SCHEMA.at(row.where, "the token delta is not what the filter saved")
        if turn.constraints.tool_constraints.require_result_provenance:
            source = row.provenance
            if source is None or source.kind not in _PROVENANCE_KINDS or source.ref is None:
                yield classes.SCHEMA.at(row.where, "the result has no valid provenance")


def check_use_shape(turn: Turn) -> Iterator[Finding]:
    """Check that a discarded result has a reason, and only retryable errors are retried."""
    for row in turn.evidence.tool_use:
        if row.disposition == "discarded_with_reason" and row.reason_code is None:
            yield classes.SCHEMA.at(row.where, "the result was discarded without a reason")
        if row.disposition == "retry_scheduled" and row.tool_call_id in turn.results:
            error = turn.results[row.tool_call_id].error
            if error is None or not error.retryable:
                yield classes.SCHEMA.at(row.where, "a retry is scheduled for a result that is not a retryable error")


def check_allowed_tools(turn: Turn) -> Iterator[Finding]:
    """Check that every called tool is on each allow-list, in the catalogue, and the required tool, if there is one."""
    policy = turn.call.tool_policy
    lists = []  # (title, tool names)
    if policy is not None and policy.allowed_tools is not None:
        lists.append(("allow-list of the call", {tool.tool_name for tool in policy.allowed_tools}))
    if turn.constraints.tool_constraints.allowed_tools is not None:
        lists.append(("allow-list in force", set(turn.constraints.tool_constraints.allowed_tools)))
    if turn.terms.catalog_tools is not None:
        lists.append(("catalogue", set(turn.terms.catalog_tools)))
    choice = turn.call.tool_choice
    required_tool = choice.tool_name if choice is not None and choice.mode == "specific" else None
    if not lists and required_tool is None:
        return
    for row in turn.evidence.tool_requests:
        for title, names in lists:
            if row.tool_name not in names:
                yield classes.TOOL_DISALLOWED.at(row.where, f"{row.tool_name} is not in the {title}")
        if required_tool is not None and row.tool_name != required_tool:
            yield classes.TOOL_DISALLOWED.at(row.where, f"{row.tool_name} was called where {required_tool} is required")


def check_blocked_calls(turn: Turn) -> Iterator[Finding]:
    """Check that a call that a guardrail blocked has no result ``ok``. A block without a call id blocks all calls."""
    for decision in turn.evidence.guardrail_decisions or ():
        if decision.stage != "pre_flight" or decision.outcome != "block":
            continue
        for row in turn.results.values():
            if row.status == "ok" and decision.tool_call_id in (None, row.tool_call_id):
                message = f"{row.tool_call_id} was blocked before it ran, and came back ok"
                yield classes.TOOL_DISALLOWED.at(row.where, message)
                yield classes.TOOL_DISALLOWED.at(decision.where, message)


def check_expected_digests(turn: Turn) -> Iterator[Finding]:
    """Check that the call spec has the digests that the constraints expect."""
    call, tool = turn.call, turn.constraints.tool_constraints
    scope_digest = turn.constraints.context_constraints.expected_scope_digest
    contract_digest = turn.terms.handoff.expected_contract_digest
    policy_digest = turn.terms.decomposition.expected_policy_digest
    for failure, member, expected_digest, call_digest in (
        (classes.DISCOVERY_MISMATCH, "toolCatalogDigest", tool.expected_tool_catalog_digest, call.tool_catalog_digest),
        (classes.DISCOVERY_MISMATCH, "deferPolicyDigest", tool.expected_defer_policy_digest, call.defer_policy_digest),
        (classes.EXAMPLES, "toolExampleDigest", tool.expected_tool_example_digest, call.tool_example_digest),
        (classes.CALLER, "allowedCallersDigest", tool.expected_allowed_callers_digest, call.allowed_callers_digest),
        (classes.SCOPE, "contextScopeDigest", scope_digest, call.context_scope_digest),
        (classes.TARGET_DISALLOWED, "handoffContractDigest", contract_digest, call.handoff_contract_digest),
        (classes.DECOMPOSITION, "decompositionPolicyDigest", policy_digest, call.decomposition_policy_digest),
    ):
        if expected_digest not in (None, call_digest):
            yield failure.at(f"callSpec/{member}", f"another {member} is expected")


def check_discovery(turn: Turn) -> Iterator[Finding]:
    """Check that a search of the pinned catalogue found each deferred tool, and that the call has the resolved name."""
    for row in turn.evidence.tool_requests:
        search = row.search_ref
        if search is None:
            if row.tool_name in turn.terms.deferred_tools and row.search_ref_digest is None:
                yield classes.DISCOVERY_UNRESOLVED.at(row.where, f"{row.tool_name} is deferred, and no search found it")
            continue
        if search.catalog_digest not in (None, turn.call.tool_catalog_digest):
            yield classes.DISCOVERY_MISMATCH.at(row.where, "the search ran over another catalogue")
        if search.result_tools is not None:
            if search.result_set_digest not in (None, digest(list(search.result_tools))):
                yield classes.DISCOVERY_MISMATCH.at(row.where, "resultSetDigest is not the digest of the results")
            if row.tool_name not in search.result_tools:
                yield classes.DISCOVERY_UNRESOLVED.at(row.where, f"the search did not find {row.tool_name}")
        if row.search_fits is False:
            yield classes.DISCOVERY_MISMATCH.at(row.where, "searchRefDigest is not the digest of the search")
        if search.resolved_tool_name not in (None, row.tool_name):
            yield classes.DISCOVERY_UNRESOLVED.at(row.where, f"the search resolved to {search.resolved_tool_name}")


def check_examples(turn: Turn) -> Iterator[Finding]:
    """Check that tools are shown with their pinned examples."""
    pins = turn.constraints.tool_constraints.example_digests or {}
    for row in turn.evidence.tool_requests:
        if row.tool_name in pins and row.example_digest != pins[row.tool_name]:
            yield classes.EXAMPLES.at(row.where, f"{row.tool_name} was shown with other examples than the pinned ones")


def check_callers(turn: Turn) -> Iterator[Finding]:
    """Check that the caller of a tool with a caller list is on that list."""
    for row in turn.evidence.tool_requests:
        allowed_callers = turn.terms.allowed_callers.get(row.tool_name)
        if allowed_callers is not None and turn.caller_kind(row) not in allowed_callers:
            yield classes.CALLER.at(row.where, f"{turn.caller_kind(row)} is not an allowed caller of {row.tool_name}")


def check_caller_edges(turn: Turn) -> Iterator[Finding]:
    """Check that each caller edge leads from a requested program to the call of its row, and no edge is missing."""
    for call_id, edge in turn.caller_edges.items():
        where, parent = row_pointer("toolResults", call_id), edge.parent_tool_call_id
        if parent == call_id or parent not in turn.requests or turn.requests[parent].tool_kind != PROGRAM:
            yield classes.CALLER_EDGE.at(where, f"the parent {parent} is not a requested program")
        if edge.child_tool_call_id not in (None, call_id):
            yield classes.CALLER_EDGE.at(where, f"the edge leads to {edge.child_tool_call_id}")
    for row in turn.evidence.tool_requests:
        result = turn.results.get(row.tool_call_id)
        if turn.caller_kind(row) == PROGRAM and result is not None and row.tool_call_id not in turn.caller_edges:
            yield classes.CALLER_EDGE.at(result.where, "a program made the call, and the edge to it is missing")


def check_width(turn: Turn) -> Iterator[Finding]:
    """Check that the turn has at most the allowed number of parallel branches, and at its end the expected number."""
    policy = turn.call.parallel_policy
    if policy is None:
        return
    direct = list(turn.direct_requests)
    branches = {row.branch_id for row in direct if row.branch_id is not None}
    groups = Counter(row.call_group_id for row in direct)
    width = len(branches) or max(groups.values(), default=0)
    where = "callSpec/parallelPolicy"
    if policy.allowed is False and width > 1:
        yield classes.PARALLEL.at(where, f"{width} branches, and parallel calls are forbidden")
    if policy.allowed is False and turn.call.execution_pattern == "parallel":
        yield classes.PARALLEL.at(where, "the pattern is parallel, and parallel calls are forbidden")
    if policy.max_branches is not None and width > policy.max_branches:
        yield classes.PARALLEL.at(where, f"{width} branches; at most {policy.max_branches} are allowed")
    expected_width = policy.expected_branches
    if expected_width is not None and (width > expected_width or (turn.has_ended and width < expected_width)):
        yield classes.PARALLEL.at(where, f"{width} branches; {expected_width} are expected")


def check_join(turn: Turn) -> Iterator[Finding]:
    """Check that requests, terminal results and uses match one another, and every branch is closed."""
    for finding in _find_unmatched(turn):
        yield finding
        yield replace(finding, failure=classes.JOIN_INCOMPLETE)
    for row in turn.evidence.branch_joins:
        if row.join_closed is not True:
            yield classes.JOIN_INCOMPLETE.at(row.where, "the branch is not closed")


def _find_unmatched(turn: Turn) -> Iterator[Finding]:
    for call_id, request in turn.requests.items():
        if call_id not in turn.results:
            state = "is still under way" if call_id in turn.unfinished_ids else "has no result"
            yield classes.RESULT_MISSING.at(request.where, f"the call {state}")
    for call_id, result in turn.results.items():
        if call_id not in turn.requests:
            yield classes.RESULT_ORPHAN.at(result.where, "the call was not requested")
        if call_id not in turn.uses:
            yield classes.USE_MISSING.at(result.where, "the result has no use row")
    for call_id, use in turn.uses.items():
        if call_id in turn.results:
            if use.result_digest not in (None, turn.results[call_id].result_digest):
                yield classes.USE_UNKNOWN_RESULT.at(use.where, "the digest is not that of the result")
        elif call_id in turn.unfinished_ids:
            yield classes.USE_UNKNOWN_RESULT.at(use.where, "the result is not terminal")
        else:
            yield classes.USE_WITHOUT_RESULT.at(use.where, "the call has no result")


def check_truncation(turn: Turn) -> Iterator[Finding]:
    """Check that payloads are within the budget, and that truncations are recorded as the policy requires."""
    constraints = turn.constraints.truncation_constraints
    call_policy = turn.call.tool_response_truncation_policy
    limits = [
        terms
        for terms in (constraints, call_policy)
        if terms is not None and (terms.max_bytes, terms.marker, terms.strategy) != (None, None, None)
    ]
    # If the constraints set limits, and the runtime does not attest validity, the checks below decide.
    checks_decide = constraints in limits and constraints.valid is None
    if constraints.required and constraints.valid is not True and not checks_decide:
        yield classes.TRUNCATION.at("truncationConstraints", "valid truncation is required, and not attested")
    budget = min((terms.max_bytes for terms in limits if terms.max_bytes is not None), default=None)
    for row in turn.results.values():
        cut = row.truncation
        if cut is None or cut.truncated is False:
            if budget is not None and row.payload_bytes is not None and row.payload_bytes > budget:
                yield classes.TRUNCATION.at(row.where, f"{row.payload_bytes} bytes, uncut; the budget is {budget}")
            continue
        if not limits:
            yield classes.TRUNCATION.at(row.where, "the payload was cut without a truncation policy")
        if not _sizes_agree(cut):
            yield classes.TRUNCATION.at(row.where, "the sizes of the cut are absent or do not agree")
        elif budget is not None and cut.kept_bytes is not None and cut.kept_bytes > budget:
            yield classes.TRUNCATION.at(row.where, f"{cut.kept_bytes} bytes were kept; the budget is {budget}")
        if any(terms.marker not in (None, cut.marker) for terms in limits):
            yield classes.TRUNCATION.at(row.where, "the marker of the cut is not that of the policy")
        if any(terms.strategy not in (None, cut.strategy) for terms in limits):
            yield classes.TRUNCATION.at(row.where, "the strategy of the cut is not that of the policy")


def _sizes_agree(cut: Truncation) -> bool:
    original, kept, head, tail = cut.original_bytes, cut.kept_bytes, cut.head_bytes or 0, cut.tail_bytes or 0
    if original is None or kept is None or not 0 <= kept < original or cut.omitted_bytes not in (None, original - kept):
        return False
    # A middle cut keeps bytes on both sides.
    return cut.strategy != "middle" or (head > 0 and tail > 0 and head + tail == kept)
