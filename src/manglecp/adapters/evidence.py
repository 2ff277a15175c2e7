"""The evidence document of one turn, from what a log records.

Recorded facts become rows; missing ones stay missing, and the checks report them. Rows with derived content are marked
``derived: true``: a render row at ``tool_response`` for each result in a later request; the state view ``messages``
and the reminder queue ``system`` of that request; a use row per result (``consumed`` with the span that reappears, see
:mod:`.turns`, else ``observed_only``); and ``retryable`` of an error by its code (:mod:`.envelopes`).

:func:`underived` removes them. A turn that continues cannot close without them, so a strict reader rejects it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from manglecp.adapters.conversation import CODE_EXECUTION, Call, Offer, Prompt, Reply, Result
from manglecp.adapters.envelopes import retryable
from manglecp.adapters.policies import DIGEST_FIELDS, UNRECORDED, Binding
from manglecp.adapters.records import canonical_bytes, carried, digest_of
from manglecp.base.digest import digest_bytes, digest_text
from manglecp.base.text import trim
from manglecp.harness import digest_v1 as digest
from manglecp.harness.policy import call_id

_TERMINAL: Final = ("ok", "error", "cancelled")
_EMPTY: Final = digest([])


class Span(NamedTuple):
    """A part of a result that a later reply contains, and the number of that turn."""

    text: str
    turn: int


@dataclass(frozen=True, slots=True)
class Search:
    """A tool search: its query and the tools found."""

    query: str
    tools: tuple[str, ...]


@dataclass(slots=True)
class _Request:
    call: Call
    search: Search | None
    iteration: int


@dataclass(slots=True)
class TurnEvidence:
    """The evidence of a turn collected so far."""

    number: int
    """Its number in the log, from 1."""
    index: int
    """Its number in its conversation, from 1."""
    thread: int
    line: int
    prompt: Prompt | None
    """The request that the turn replies to."""
    offer: Offer | None = None
    model: str | None = None
    stop: str | None = None
    iterations: int = 0
    requests: list[_Request] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    rendered: int = 0
    """How many of the results a later request contains."""
    after: Prompt | None = None
    """The last request that followed a reply of the turn."""
    continues: bool = False
    spans: dict[str, Span] = field(default_factory=dict)
    watched: list[int] = field(default_factory=list)

    def answer(self, reply: Reply) -> None:
        """Add a reply. The last reply determines the stop reason."""
        self.model = reply.model or self.model
        self.offer = reply.offer or (self.prompt.offer if self.prompt else None)
        self.stop = reply.stop
        self.iterations += 1
        self.continues = False

    def request(self, call: Call, search: Search | None) -> None:
        """Add a call of the model, with the search that found its tool."""
        self.requests.append(_Request(call, search, self.iterations))

    def follow(self, prompt: Prompt) -> None:
        """Add the next request. The turn continues if it brings results or resumes the reply without new text."""
        self.after = prompt
        self.continues = bool(prompt.results) or (prompt.echoes and not prompt.speaks)
        self.rendered = len(self.results)

    def has_open_served_calls(self) -> bool:
        """Return whether a call that the provider runs has no result yet."""
        answered = {result.id for result in self.results}
        return any(one.call.served and one.call.id not in answered for one in self.requests)


def write(turn: TurnEvidence, binding: Binding) -> dict[str, Any]:
    """Return the document of a turn: ``evidence``, constraints, and the position in the log."""
    spec, constraints = _bound(turn, binding)
    evidence: dict[str, Any] = {
        "callSpec": spec,
        "toolRequests": _requests(turn, spec, constraints),
        "toolResults": _results(turn),
        "toolUse": [],
        "protocolState": {
            "stopReason": turn.stop or UNRECORDED,
            "continuationAllowed": turn.continues,
            "turnIndex": turn.index,
            "iteration": turn.iterations,
        },
    }
    _derive(turn, evidence)
    return {"turn": {"number": turn.number, "line": turn.line}, "evidence": evidence, **constraints}


def underived(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without derived rows and members."""
    evidence = document.get("evidence")
    if not isinstance(evidence, dict):
        return dict(document)
    kept: dict[str, Any] = {}
    for name, rows in evidence.items():
        if not isinstance(rows, list):
            kept[name] = rows
        elif name == "toolResults":  # the row is recorded; what is derived of it is whether to try again
            kept[name] = [
                {key: value for key, value in row.items() if key not in ("retryable", "derived")}
                if _is_derived(row)
                else row
                for row in rows
            ]
        else:
            kept[name] = [row for row in rows if not _is_derived(row)]
    return {**document, "evidence": kept}


def _is_derived(row: object) -> bool:
    return isinstance(row, dict) and row.get("derived") is True


# --- what is recorded ------------------------------------------------------------------------------------------------


def _bound(turn: TurnEvidence, binding: Binding) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the call spec and the constraints of the turn."""
    spec = dict(binding.fields)
    constraints = dict(binding.constraints)
    prompt = turn.prompt
    model = turn.model or (prompt.model if prompt else None) or spec.get("modelRef") or UNRECORDED
    calls = [one.call for one in turn.requests]
    spec["callId"] = call_id(f"log/{turn.thread}", turn.index, model, prompt.view if prompt else _EMPTY)
    spec["modelRef"] = model
    spec.setdefault("actionMode", "code" if any(call.kind == CODE_EXECUTION for call in calls) else "json")
    spec.setdefault("executionPattern", "parallel" if _branches(turn) else "single")
    if prompt is not None:
        if prompt.choice is not None:
            spec["toolChoice"] = prompt.choice
        if prompt.transport is not None:
            spec.setdefault("toolTransportPolicy", prompt.transport)
    if turn.offer is not None:
        documents = dict(constraints.get("policyDocuments", {}))
        for name, document in turn.offer.documents.items():
            if DIGEST_FIELDS[name] not in spec and name not in documents:
                spec[DIGEST_FIELDS[name]] = turn.offer.digests[name]
                documents[name] = document
        constraints["policyDocuments"] = documents
    return spec, constraints


def _branches(turn: TurnEvidence) -> set[str]:
    """Return the calls that the model made in parallel and that the provider does not run sequentially."""
    groups: dict[int, set[str]] = {}
    for one in turn.requests:
        if not one.call.served and one.call.caller is None:
            groups.setdefault(one.iteration, set()).add(one.call.id)
    return {call for group in groups.values() if len(group) > 1 for call in group}


def _requests(turn: TurnEvidence, spec: Mapping[str, Any], constraints: Mapping[str, Any]) -> list[dict[str, Any]]:
    offer = turn.offer
    branches = _branches(turn)
    ordinals: dict[str, int] = {}
    rows = []
    for action, one in enumerate(turn.requests):
        call = one.call
        # What the provider runs itself it runs one by one; what a program calls is no branch of the model.
        group = f"{one.iteration}/{action}" if call.served else f"{one.iteration}/program" if call.caller else None
        group = group or str(one.iteration)
        row: dict[str, Any] = {
            "toolCallId": call.id,
            "toolName": call.name,
            "toolKind": call.kind if call.kind != "function" or not offer else offer.kinds.get(call.name, call.kind),
            "sourceBlock": call.block,
            "callerId": call.caller.kind if call.caller else "direct",
            "actionIndex": action,
            "callGroupId": group,
            "ordinal": ordinals.setdefault(group, 0),
            "input": carried(call.input),
        }
        ordinals[group] += 1
        if not call.valid:
            row["schemaValid"] = False
        if call.id in branches:
            row["branchId"] = call.id
        if offer is not None and call.name in offer.schemas:
            row["schemaDigest"] = offer.schemas[call.name]
        if one.search is not None:
            row["searchRef"] = _search_ref(call.name, one.search, spec, constraints)
            row["searchRefDigest"] = digest(row["searchRef"])
        rows.append(row)
    return rows


def _search_ref(name: str, search: Search, spec: Mapping[str, Any], constraints: Mapping[str, Any]) -> dict[str, Any]:
    """A search covers the tools of its request; the log records nothing about a catalogue pinned by policy."""
    tools = sorted(set(search.tools))
    ref: dict[str, Any] = {"resultTools": tools, "resultSetDigest": digest(tools), "resolvedToolName": name}
    if search.query.strip():
        ref["query"] = search.query
    catalogue = constraints.get("policyDocuments", {}).get("toolCatalog", {})
    if catalogue.get("catalogId") == "offered":
        ref["catalogDigest"] = spec["toolCatalogDigest"]
    return ref


def _results(turn: TurnEvidence) -> list[dict[str, Any]]:
    callers = {one.call.id: one.call.caller for one in turn.requests}
    rows = []
    for sequence, result in enumerate(turn.results, 1):
        data = canonical_bytes(result.payload)
        size = len(result.payload.encode()) if isinstance(result.payload, str) else len(data)
        row: dict[str, Any] = {
            "toolCallId": result.id,
            "status": result.status,
            "resultDigest": digest_bytes(data),
            "payloadBytes": size,
            "sequence": sequence,
            **result.evidence,
        }
        if (caller := callers.get(result.id)) is not None:
            row["callerEdge"] = {"callerKind": caller.kind, "childToolCallId": result.id}
            if caller.parent is not None:
                row["callerEdge"]["parentToolCallId"] = caller.parent
        row |= _envelope(result)
        rows.append(row)
    return rows


def _envelope(result: Result) -> dict[str, Any]:
    failure = result.failure
    if failure is None:
        return {}
    row: dict[str, Any] = {}
    if failure.code is not None:
        row["errorCode"] = failure.code
    if failure.message is not None and trim(failure.message):
        row["errorMessageDigest"] = digest_text(trim(failure.message))
    if failure.retryable is not None:
        row["retryable"] = failure.retryable
    elif (known := retryable(failure.code)) is not None:
        row |= {"retryable": known, "derived": True}
    return row


# --- what is derived -------------------------------------------------------------------------------------------------


def _derive(turn: TurnEvidence, evidence: dict[str, Any]) -> None:
    """Add the derived rows to the recorded ones."""
    spec = evidence["callSpec"]
    used: dict[str, dict[str, Any]] = {}
    for row in evidence["toolResults"]:
        if row["status"] in _TERMINAL:
            used.setdefault(row["toolCallId"], _use(row, turn.spans.get(row["toolCallId"])))
    evidence["toolUse"] = list(used.values())
    if turn.after is None:
        return
    evidence["toolRender"] = [
        {
            "toolCallId": row["toolCallId"],
            "operatorPayloadDigest": row["resultDigest"],
            "reminderRenderDigest": digest_of(result.shown),
            "injectionPoint": "tool_response",
            "policyDigest": spec["toolRenderProtocolDigest"],
            "derived": True,
        }
        for row, result in zip(evidence["toolResults"], turn.results[: turn.rendered], strict=False)
    ]
    evidence["stateViews"] = [
        {
            "viewId": "messages",
            "viewDigest": turn.after.view,
            "policyDigest": spec["stateViewPolicyDigest"],
            "derived": True,
        }
    ]
    evidence["reminderQueue"] = [
        {
            "queueId": "system",
            "reducedDigest": turn.after.queue,
            "policyDigest": spec["reminderQueuePolicyDigest"],
            "derived": True,
        }
    ]


def _use(row: Mapping[str, Any], span: Span | None) -> dict[str, Any]:
    use: dict[str, Any] = {
        "toolCallId": row["toolCallId"],
        "resultDigest": row["resultDigest"],
        "useDisposition": "observed_only" if span is None else "consumed",
        "derived": True,
    }
    if span is not None:
        use["span"] = {"text": span.text, "turn": span.turn}
    return use
