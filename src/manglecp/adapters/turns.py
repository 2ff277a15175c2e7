"""The turns of a log, assembled from its events, and the evidence document of each turn.

A turn is a reply with its calls, and the results of these calls in the next request. If the provider runs a call and
has not returned its result, the next reply belongs to the same turn, unless the user has sent text in between. A result
whose call is in no reply becomes a row of the latest turn, or of the first turn if none has begun. Turns are emitted in
log order, each after :data:`.MAX_OPEN_TURNS` further turns have begun.

Recorded facts become rows of evidence; the checks of the harness report missing ones. Rows with derived content
(``toolRender``, ``stateViews``, ``reminderQueue``, ``toolUse``, and ``retryable`` looked up by error code) are marked
``derived: true``; :func:`without_derived` removes them, and the harness then cannot close a turn that continues.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from manglecp.adapters import conversation, records
from manglecp.adapters.policies import DIGEST_FIELDS, UNRECORDED, TurnPolicy
from manglecp.adapters.records import as_canonical, canonical_bytes, digest_of, texts_of
from manglecp.base.digest import digest_bytes, digest_text
from manglecp.base.text import trim
from manglecp.harness import digest_v1 as digest
from manglecp.harness.policy import call_id
from manglecp.wire import JSON

_TERMINAL_STATUSES: Final = ("ok", "error", "cancelled")
_NO_MESSAGES_DIGEST: Final = digest([])


@dataclass(frozen=True, slots=True)
class ToolSearch:
    """A call of a tool search, and the names of the tools that it found."""

    query: str
    tools: tuple[str, ...]


@dataclass(slots=True)
class _Request:
    call: conversation.ToolCall
    search: ToolSearch | None  # the search that found the called tool
    iteration: int  # the number of the reply that made the call, from 1 in each turn


@dataclass(slots=True)
class TurnEvidence:
    """The evidence of a turn collected so far."""

    number: int  # the number of the turn in the log, from 1
    index: int  # the number of the turn in its thread, from 1
    thread: int  # the number of its thread (conversation)
    line: int  # the line of the log on which the turn began
    prompt: conversation.Prompt | None  # the request that the turn replies to
    offer: conversation.OfferedTools | None = None
    model: str | None = None
    stop: str | None = None  # the stop reason of the last reply
    reply_count: int = 0
    requests: list[_Request] = field(default_factory=list)
    results: list[conversation.CallResult] = field(default_factory=list)
    rendered_count: int = 0  # how many of the first results a later request contains
    next_prompt: conversation.Prompt | None = None  # the last request that followed a reply of the turn
    continues: bool = False  # whether a request continued the turn after its last reply


def turn_document(turn: TurnEvidence, turn_policy: TurnPolicy) -> dict[str, Any]:
    """Return the document of a turn: ``evidence``, constraints, and the position in the log."""
    spec, constraints = _call_spec(turn, turn_policy)
    evidence: dict[str, Any] = {
        "callSpec": spec,
        "toolRequests": _request_rows(turn, spec, constraints),
        "toolResults": _result_rows(turn),
        "toolUse": [],
        "protocolState": {
            "stopReason": turn.stop or UNRECORDED,
            "continuationAllowed": turn.continues,
            "turnIndex": turn.index,
            "iteration": turn.reply_count,
        },
    }
    _add_derived(turn, evidence)
    return {"turn": {"number": turn.number, "line": turn.line}, "evidence": evidence, **constraints}


def without_derived(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without derived rows and members."""
    evidence = document.get("evidence")
    if not isinstance(evidence, dict):
        return dict(document)
    members: dict[str, Any] = {}
    for name, rows in evidence.items():
        if not isinstance(rows, list):
            members[name] = rows
            continue
        derived_flags = [isinstance(row, dict) and row.get("derived") is True for row in rows]
        if name == "toolResults":  # only ``retryable`` of the row is derived
            members[name] = [
                {key: value for key, value in row.items() if key not in ("retryable", "derived")} if is_derived else row
                for row, is_derived in zip(rows, derived_flags, strict=True)
            ]
        else:
            members[name] = [row for row, is_derived in zip(rows, derived_flags, strict=True) if not is_derived]
    return {**document, "evidence": members}


def _call_spec(turn: TurnEvidence, turn_policy: TurnPolicy) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the call specification and the constraints; ``turn_policy`` overrides the offered tools."""
    spec = dict(turn_policy.fields)
    constraints = dict(turn_policy.constraints)
    prompt = turn.prompt
    model = turn.model or (prompt.model if prompt else None) or spec.get("modelRef") or UNRECORDED
    calls = [request.call for request in turn.requests]
    prompt_digest = prompt.view_digest if prompt else _NO_MESSAGES_DIGEST
    spec["callId"] = call_id(f"log/{turn.thread}", turn.index, model, prompt_digest)
    spec["modelRef"] = model
    spec.setdefault("actionMode", "code" if any(call.kind == conversation.CODE_EXECUTION for call in calls) else "json")
    spec.setdefault("executionPattern", "parallel" if _parallel_call_ids(turn) else "single")
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


def _parallel_call_ids(turn: TurnEvidence) -> set[str]:
    """Return the ids of calls that the client runs and that the model made together with others in one reply."""
    by_reply: dict[int, set[str]] = {}
    for request in turn.requests:
        if not request.call.is_provider_run and request.call.caller is None:
            by_reply.setdefault(request.iteration, set()).add(request.call.id)
    return {call_id for call_ids in by_reply.values() if len(call_ids) > 1 for call_id in call_ids}


def _request_rows(turn: TurnEvidence, spec: Mapping[str, Any], constraints: Mapping[str, Any]) -> list[dict[str, Any]]:
    offer = turn.offer
    parallel = _parallel_call_ids(turn)
    group_sizes: Counter[str] = Counter()  # the number of calls so far, by call group
    rows = []
    for index, request in enumerate(turn.requests):
        call = request.call
        # The provider runs its calls one by one, so each call is a group. Calls of a program are not parallel branches.
        suffix = f"/{index}" if call.is_provider_run else "/program" if call.caller else ""
        group = f"{request.iteration}{suffix}"
        row: dict[str, Any] = {
            "toolCallId": call.id,
            "toolName": call.name,
            "toolKind": call.kind if call.kind != "function" or not offer else offer.kinds.get(call.name, call.kind),
            "sourceBlock": call.block,
            "callerId": call.caller.kind if call.caller else "direct",
            "actionIndex": index,
            "callGroupId": group,
            "ordinal": group_sizes[group],
            "input": as_canonical(call.input),
        }
        group_sizes[group] += 1
        if not call.is_valid:
            row["schemaValid"] = False
        if call.id in parallel:
            row["branchId"] = call.id
        if offer is not None and call.name in offer.schemas:
            row["schemaDigest"] = offer.schemas[call.name]
        if request.search is not None:
            tools = sorted(set(request.search.tools))
            ref = {"resultTools": tools, "resultSetDigest": digest(tools), "resolvedToolName": call.name}
            if request.search.query.strip():
                ref["query"] = request.search.query
            if constraints.get("policyDocuments", {}).get("toolCatalog", {}).get("catalogId") == "offered":
                ref["catalogDigest"] = spec["toolCatalogDigest"]
            row |= {"searchRef": ref, "searchRefDigest": digest(ref)}
        rows.append(row)
    return rows


def _result_rows(turn: TurnEvidence) -> list[dict[str, Any]]:
    callers = {request.call.id: request.call.caller for request in turn.requests}
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
            **result.row_members,
        }
        if (caller := callers.get(result.id)) is not None:
            row["callerEdge"] = {"callerKind": caller.kind, "childToolCallId": result.id}
            if caller.parent is not None:
                row["callerEdge"]["parentToolCallId"] = caller.parent
        failure = result.failure or conversation.Failure(None, None)
        if failure.code is not None:
            row["errorCode"] = failure.code
        if failure.message is not None and trim(failure.message):
            row["errorMessageDigest"] = digest_text(trim(failure.message))
        if failure.retryable is not None:
            row["retryable"] = failure.retryable
        elif (retryable := conversation.is_retryable(failure.code)) is not None:
            row |= {"retryable": retryable, "derived": True}
        rows.append(row)
    return rows


def _add_derived(turn: TurnEvidence, evidence: dict[str, Any]) -> None:
    """Add the uses of results and, if a request followed the turn, what that request rendered for the model."""
    spec = evidence["callSpec"]
    digests: dict[str, str] = {}  # the digest of the first result of each call
    for row in evidence["toolResults"]:
        if row["status"] in _TERMINAL_STATUSES:
            digests.setdefault(row["toolCallId"], row["resultDigest"])
    evidence["toolUse"] = [
        {"toolCallId": call_id, "resultDigest": result, "useDisposition": "observed_only", "derived": True}
        for call_id, result in digests.items()
    ]
    if turn.next_prompt is None:
        return
    evidence["toolRender"] = [
        {
            "toolCallId": row["toolCallId"],
            "operatorPayloadDigest": row["resultDigest"],
            "reminderRenderDigest": digest_of(result.rendering),
            "injectionPoint": "tool_response",
            "policyDigest": spec["toolRenderProtocolDigest"],
            "derived": True,
        }
        for row, result in zip(evidence["toolResults"], turn.results[: turn.rendered_count], strict=False)
    ]
    view, queue = turn.next_prompt.view_digest, turn.next_prompt.queue_digest
    policy = spec["reminderQueuePolicyDigest"]
    evidence["stateViews"] = [
        {"viewId": "messages", "viewDigest": view, "policyDigest": spec["stateViewPolicyDigest"], "derived": True}
    ]
    evidence["reminderQueue"] = [{"queueId": "system", "reducedDigest": queue, "policyDigest": policy, "derived": True}]


@dataclass(slots=True)
class _Thread:
    """The state of a thread (conversation) that its later turns need."""

    turn_count: int = 0
    latest_turn: TurnEvidence | None = None
    prompt: conversation.Prompt | None = None  # the request that the next reply belongs to
    resumes: bool = False  # whether the next reply belongs to the latest turn
    early_results: list[conversation.CallResult] = field(default_factory=list)  # received before the first reply
    queries: dict[str, str] = field(default_factory=dict)  # the queries of tool searches, by call id
    searches: dict[str, ToolSearch] = field(default_factory=dict)  # the last search that found a tool, by its name


class LogReader(Protocol):
    """The log format of a provider: converts records to events."""

    def read(self, value: JSON, line: int) -> Iterator[conversation.ConversationEvent]:
        """Yield the events of a record. Raises :class:`Fault` with the path to the problem."""
        ...

    def finish(self) -> Iterator[conversation.ConversationEvent]:
        """Yield the pending events."""
        ...


class TurnAssembler:
    """Converts records, in log order, to the documents of turns, in the order in which the turns began."""

    def __init__(self, reader: LogReader, turn_policy: TurnPolicy) -> None:
        self._reader = reader
        self._turn_policy = turn_policy
        self._threads: dict[int, _Thread] = {}
        self._open_turns: deque[tuple[int, TurnEvidence]] = deque()  # (thread number, turn)
        self._turn_count = 0

    def read(self, value: JSON, line: int) -> Iterator[dict[str, Any]]:
        """Add one record; yield the oldest turns beyond :data:`.MAX_OPEN_TURNS`."""
        yield from self._add_events(self._reader.read(value, line))

    def finish(self) -> Iterator[dict[str, Any]]:
        """Yield all remaining turns."""
        yield from self._add_events(self._reader.finish())
        while self._open_turns:
            yield self._pop_document()

    def _add_events(self, events: Iterable[conversation.ConversationEvent]) -> Iterator[dict[str, Any]]:
        for event in events:
            thread = self._threads.setdefault(event.thread, _Thread())
            if isinstance(event, conversation.Prompt):
                self._add_prompt(thread, event)
            else:
                self._add_reply(thread, event)
            while len(self._open_turns) > records.MAX_OPEN_TURNS:
                yield self._pop_document()

    def _add_prompt(self, thread: _Thread, prompt: conversation.Prompt) -> None:
        thread.prompt = prompt
        turn = thread.latest_turn
        if turn is None:
            thread.early_results += prompt.results
            return
        if prompt.is_repetition:
            return
        is_continued = prompt.follows_reply and not prompt.adds_user_text
        result_ids = {result.id for result in turn.results}
        open_calls = [request.call for request in turn.requests if request.call.id not in result_ids]
        thread.resumes = is_continued and any(call.is_provider_run for call in open_calls)
        for result in prompt.results:
            self._add_result(thread, turn, result)
        turn.next_prompt = prompt
        turn.continues = bool(prompt.results) or is_continued
        turn.rendered_count = len(turn.results)

    def _add_reply(self, thread: _Thread, reply: conversation.ModelReply) -> None:
        turn = thread.latest_turn
        if turn is None or not thread.resumes:
            thread.turn_count += 1
            self._turn_count += 1
            turn = TurnEvidence(self._turn_count, thread.turn_count, reply.thread, reply.line, thread.prompt)
            thread.latest_turn = turn
            self._open_turns.append((reply.thread, turn))
            turn.results += thread.early_results
            thread.early_results.clear()
        thread.prompt, thread.resumes = None, False
        turn.model = reply.model or turn.model
        turn.offer = reply.offer or (turn.prompt.offer if turn.prompt else None)
        turn.stop, turn.continues = reply.stop, False
        turn.reply_count += 1
        for part in reply.parts:
            if isinstance(part, conversation.ToolCall):
                if part.kind == "search":
                    thread.queries[part.id] = "\n".join(texts_of(part.input))
                turn.requests.append(_Request(part, thread.searches.get(part.name), turn.reply_count))
            elif isinstance(part, conversation.CallResult):
                self._add_result(thread, turn, part)

    def _add_result(self, thread: _Thread, turn: TurnEvidence, result: conversation.CallResult) -> None:
        if any((result.id, result.status, result.payload) == (r.id, r.status, r.payload) for r in turn.results):
            return  # a repetition of an earlier result
        turn.results.append(result)
        if result.tools is not None:
            search = ToolSearch(thread.queries.get(result.id, ""), result.tools)
            thread.searches.update(dict.fromkeys(result.tools, search))

    def _pop_document(self) -> dict[str, Any]:
        """Remove the oldest open turn and return its document."""
        thread_number, turn = self._open_turns.popleft()
        if self._threads[thread_number].latest_turn is turn:  # no later turn has begun: treat the thread as ended
            del self._threads[thread_number]
        return turn_document(turn, self._turn_policy)
