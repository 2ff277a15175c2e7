"""Events to turns, and a turn to its evidence document.

A turn is a reply with its calls and the results that the next request brings. A reply that leaves a call of the
provider open is continued by the next reply, unless the user has sent text in between. A result that arrives later, or
without a call, is an orphan. Turns are emitted in log order, after :attr:`.LogLimits.horizon` further turns.

Recorded facts become rows; missing ones stay missing, and the checks report them. Rows with derived content (renders,
the view ``messages``, the queue ``system``, uses, ``retryable`` by code) are marked ``derived: true``;
:func:`without_derived` removes them. A turn that continues cannot close without them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from manglecp.adapters.conversation import (
    CODE_EXECUTION,
    CallResult,
    ConversationEvent,
    ModelReply,
    OfferedTools,
    Prompt,
    ToolCall,
    is_retryable,
)
from manglecp.adapters.policies import DIGEST_FIELDS, UNRECORDED, Binding
from manglecp.adapters.records import LogLimits, as_canonical, canonical_bytes, digest_of, texts_of
from manglecp.base.digest import digest_bytes, digest_text
from manglecp.base.text import trim
from manglecp.harness import digest_v1 as digest
from manglecp.harness.policy import call_id
from manglecp.wire import JSON

_TERMINAL: Final = ("ok", "error", "cancelled")
_EMPTY: Final = digest([])


class UsedText(NamedTuple):
    """A part of a result that a later reply contains, and the number of that turn."""

    text: str
    turn: int


@dataclass(frozen=True, slots=True)
class ToolSearch:
    query: str
    tools: tuple[str, ...]


@dataclass(slots=True)
class _Request:
    call: ToolCall
    search: ToolSearch | None
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
    offer: OfferedTools | None = None
    model: str | None = None
    stop: str | None = None
    iterations: int = 0
    requests: list[_Request] = field(default_factory=list)
    results: list[CallResult] = field(default_factory=list)
    rendered: int = 0
    """How many of the results a later request contains."""
    after: Prompt | None = None
    """The last request that followed a reply of the turn."""
    continues: bool = False
    spans: dict[str, UsedText] = field(default_factory=dict)
    watched: list[int] = field(default_factory=list)

    def answer(self, reply: ModelReply) -> None:
        """Add a reply. The last reply determines the stop reason."""
        self.model = reply.model or self.model
        self.offer = reply.offer or (self.prompt.offer if self.prompt else None)
        self.stop = reply.stop
        self.iterations += 1
        self.continues = False

    def follow(self, prompt: Prompt) -> None:
        """Add the next request. The turn continues if it brings results or resumes the reply without new text."""
        self.after = prompt
        self.continues = bool(prompt.results) or (prompt.echoes and not prompt.speaks)
        self.rendered = len(self.results)

    def has_open_served_calls(self) -> bool:
        """Return whether a call that the provider runs has no result yet."""
        answered = {result.id for result in self.results}
        return any(one.call.served and one.call.id not in answered for one in self.requests)


def turn_document(turn: TurnEvidence, binding: Binding) -> dict[str, Any]:
    """Return the document of a turn: ``evidence``, constraints, and the position in the log."""
    spec, constraints = _call_spec(turn, binding)
    evidence: dict[str, Any] = {
        "callSpec": spec,
        "toolRequests": _request_rows(turn, spec, constraints),
        "toolResults": _result_rows(turn),
        "toolUse": [],
        "protocolState": {
            "stopReason": turn.stop or UNRECORDED,
            "continuationAllowed": turn.continues,
            "turnIndex": turn.index,
            "iteration": turn.iterations,
        },
    }
    _add_derived(turn, evidence)
    return {"turn": {"number": turn.number, "line": turn.line}, "evidence": evidence, **constraints}


def without_derived(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without derived rows and members."""
    evidence = document.get("evidence")
    if not isinstance(evidence, dict):
        return dict(document)
    kept: dict[str, Any] = {}
    for name, rows in evidence.items():
        if not isinstance(rows, list):
            kept[name] = rows
        elif name == "toolResults":  # only ``retryable`` of the row is derived
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


def _call_spec(turn: TurnEvidence, binding: Binding) -> tuple[dict[str, Any], dict[str, Any]]:
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


def _request_rows(turn: TurnEvidence, spec: Mapping[str, Any], constraints: Mapping[str, Any]) -> list[dict[str, Any]]:
    offer = turn.offer
    branches = _branches(turn)
    ordinals: dict[str, int] = {}
    rows = []
    for action, one in enumerate(turn.requests):
        call = one.call
        # The provider runs its calls one by one, and the calls of a program are not branches of the model.
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
            "input": as_canonical(call.input),
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


def _search_ref(
    name: str, search: ToolSearch, spec: Mapping[str, Any], constraints: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the search that found a tool; its catalogue is that of the request, not one pinned by a policy."""
    tools = sorted(set(search.tools))
    ref: dict[str, Any] = {"resultTools": tools, "resultSetDigest": digest(tools), "resolvedToolName": name}
    if search.query.strip():
        ref["query"] = search.query
    catalogue = constraints.get("policyDocuments", {}).get("toolCatalog", {})
    if catalogue.get("catalogId") == "offered":
        ref["catalogDigest"] = spec["toolCatalogDigest"]
    return ref


def _result_rows(turn: TurnEvidence) -> list[dict[str, Any]]:
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


def _envelope(result: CallResult) -> dict[str, Any]:
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
    elif (retryable := is_retryable(failure.code)) is not None:
        row |= {"retryable": retryable, "derived": True}
    return row


def _add_derived(turn: TurnEvidence, evidence: dict[str, Any]) -> None:
    spec = evidence["callSpec"]
    uses: dict[str, dict[str, Any]] = {}
    for row in evidence["toolResults"]:
        if row["status"] in _TERMINAL:
            uses.setdefault(row["toolCallId"], _use_row(row, turn.spans.get(row["toolCallId"])))
    evidence["toolUse"] = list(uses.values())
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


def _use_row(row: Mapping[str, Any], span: UsedText | None) -> dict[str, Any]:
    use: dict[str, Any] = {
        "toolCallId": row["toolCallId"],
        "resultDigest": row["resultDigest"],
        "useDisposition": "observed_only" if span is None else "consumed",
        "derived": True,
    }
    if span is not None:
        use["span"] = {"text": span.text, "turn": span.turn}
    return use


# A result counts as used if a later reply contains 24 consecutive characters of it (12 of them alphanumeric), an id
# (a word of 6 to 64 characters with a letter and a digit), or its call id. The index holds 16-grams of results at every
# ninth offset, and replies are looked up at every offset: any run of 24 characters contains an indexed 16-gram.

SHORTEST: Final = 24
LONGEST: Final = 120
_GRAM: Final = 16
_STRIDE: Final = SHORTEST - _GRAM + 1
_ALNUM: Final = 12
_SHORTEST_ID: Final = 6
_LONGEST_ID: Final = 64
_PATIENCE: Final = 16
_HOLDERS: Final = 32  # results indexed per piece; headings and licences occur in many
_DIGIT: Final = re.compile(r"[0-9]")
_LETTER: Final = re.compile(r"[A-Za-z]")
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{6,}")


class _Index(dict[str, tuple[int, ...]]):
    """The last results that contain a piece of text, by piece."""

    def add(self, key: int, pieces: Iterable[str]) -> None:
        # Most pieces occur in one result only, and share one tuple.
        fresh: dict[str, tuple[int, ...]] = dict.fromkeys(pieces, (key,))
        for piece in fresh.keys() & self.keys():
            fresh[piece] = (*self[piece][-_HOLDERS:], key)
        self.update(fresh)


class _WatchedResult(NamedTuple):
    text: str
    ids: set[str]


class UnusedResults:
    """The results of a thread that no reply has used so far."""

    def __init__(self, searched: int) -> None:
        self._searched = searched
        self._watched: dict[int, _WatchedResult] = {}
        self._dropped = 0
        self._grams, self._ids = _Index(), _Index()

    def add(self, key: int, call_id: str, texts: Iterable[str]) -> None:
        """Watch a result; ``key`` identifies it in :meth:`search`."""
        text = "\n".join(texts)[: self._searched]
        self._watched[key] = result = _WatchedResult(text, _find_ids(text))
        if len(call_id) >= _SHORTEST_ID:
            result.ids.add(call_id)
        self._put(key, result)

    def drop(self, key: int) -> None:
        if self._watched.pop(key, None) is None:
            return
        self._dropped += 1
        if self._dropped > 2 * len(self._watched) + _PATIENCE:
            self._grams, self._ids, self._dropped = _Index(), _Index(), 0
            for left, result in self._watched.items():
                self._put(left, result)

    def search(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the results that reappear in a reply, with the common text, and stop watching them."""
        if not self._watched:
            return
        runs: dict[int, str] = {}
        for at in range(len(text) - _GRAM + 1):
            for key in self._grams.get(text[at : at + _GRAM], ()):
                if key in self._watched and key not in runs:
                    run = _common_text(self._watched[key].text, text, at)
                    if run is not None:
                        runs[key] = run
        for word in _WORD.findall(text):
            for key in self._ids.get(word, ()):
                if key in self._watched:
                    runs.setdefault(key, word)
        for key, run in runs.items():
            self.drop(key)
            yield key, run

    def _put(self, key: int, result: _WatchedResult) -> None:
        text = result.text
        self._grams.add(key, [text[at : at + _GRAM] for at in range(0, len(text) - _GRAM + 1, _STRIDE)])
        self._ids.add(key, result.ids)


def _find_ids(text: str) -> set[str]:
    return {
        word
        for word in _WORD.findall(text)
        if not word.isalpha() and len(word) <= _LONGEST_ID and _DIGIT.search(word) and _LETTER.search(word)
    }


def _common_text(result: str, reply: str, at: int) -> str | None:
    """Return the common run around a piece of the reply, if it is long enough."""
    piece = reply[at : at + _GRAM]
    start = result.find(piece)
    for _ in range(_HOLDERS):
        if start < 0:
            return None
        run = _extend_match(result, start, reply, at)
        if len(run) >= SHORTEST and sum(map(str.isalnum, run)) >= _ALNUM:
            return run
        start = result.find(piece, start + 1)
    return None


def _extend_match(result: str, start: int, reply: str, at: int) -> str:
    before = 0
    most = min(start, at, LONGEST - _GRAM)
    while before < most and result[start - before - 1] == reply[at - before - 1]:
        before += 1
    after = _GRAM
    most = min(len(result) - start, len(reply) - at, LONGEST - before)
    while after < most and result[start + after] == reply[at + after]:
        after += 1
    return result[start - before : start + after]


@dataclass(slots=True)
class _Thread:
    """The state of a conversation that later turns need."""

    traces: UnusedResults
    turns: int = 0
    latest: TurnEvidence | None = None
    prompt: Prompt | None = None
    resumes: bool = False
    """Whether the next reply belongs to the latest turn."""
    early: list[CallResult] = field(default_factory=list)
    """Results before the first reply."""
    queries: dict[str, str] = field(default_factory=dict)
    """The queries of tool searches, by call."""
    searches: dict[str, ToolSearch] = field(default_factory=dict)
    """The last search that found a tool, by tool."""


class LogReader(Protocol):
    """The log format of a provider: converts records to events."""

    def read(self, value: JSON, line: int) -> Iterator[ConversationEvent]:
        """Yield the events of a record. Raises :class:`Fault` with the path to the problem."""
        ...

    def finish(self) -> Iterator[ConversationEvent]:
        """Yield the pending events."""
        ...


class TurnAssembler:
    """Conversion of records in log order to documents in turn order."""

    def __init__(self, adapter: LogReader, binding: Binding, limits: LogLimits) -> None:
        self._adapter = adapter
        self._binding = binding
        self._limits = limits
        self._threads: dict[int, _Thread] = {}
        self._waiting: deque[tuple[int, TurnEvidence]] = deque()
        self._begun = 0
        self._watched = 0
        self._results: dict[int, tuple[TurnEvidence, str]] = {}

    def read(self, value: JSON, line: int) -> Iterator[dict[str, Any]]:
        """Add one record; yield the oldest turns beyond the horizon."""
        yield from self._take(self._adapter.read(value, line))

    def finish(self) -> Iterator[dict[str, Any]]:
        """Yield all remaining turns."""
        yield from self._take(self._adapter.finish())
        while self._waiting:
            yield self._emit()

    def _take(self, events: Iterable[ConversationEvent]) -> Iterator[dict[str, Any]]:
        for event in events:
            thread = self._threads.get(event.thread)
            if thread is None:
                thread = self._threads[event.thread] = _Thread(UnusedResults(self._limits.searched))
            if isinstance(event, Prompt):
                self._prompt(thread, event)
            else:
                self._reply(thread, event)
            while len(self._waiting) > self._limits.horizon:
                yield self._emit()

    def _prompt(self, thread: _Thread, prompt: Prompt) -> None:
        thread.prompt = prompt
        turn = thread.latest
        if turn is None:
            thread.early += prompt.results
            return
        if prompt.repeats:
            return
        thread.resumes = prompt.echoes and not prompt.speaks and turn.has_open_served_calls()
        for result in prompt.results:
            self._result(thread, turn, result)
        turn.follow(prompt)

    def _reply(self, thread: _Thread, reply: ModelReply) -> None:
        turn = thread.latest
        if turn is None or not thread.resumes:
            thread.turns += 1
            self._begun += 1
            turn = thread.latest = TurnEvidence(self._begun, thread.turns, reply.thread, reply.line, thread.prompt)
            self._waiting.append((reply.thread, turn))
            turn.results += thread.early
            thread.early.clear()
        thread.prompt, thread.resumes = None, False
        turn.answer(reply)
        for part in reply.parts:
            for text in [part] if isinstance(part, str) else texts_of(part.input) if isinstance(part, ToolCall) else ():
                for key, run in thread.traces.search(text):
                    used, call_id = self._results[key]
                    used.spans.setdefault(call_id, UsedText(run, turn.number))
        for part in reply.parts:
            if isinstance(part, ToolCall):
                if part.kind == "search":
                    thread.queries[part.id] = "\n".join(texts_of(part.input))
                turn.requests.append(_Request(part, thread.searches.get(part.name), turn.iterations))
            elif isinstance(part, CallResult):
                self._result(thread, turn, part)

    def _result(self, thread: _Thread, turn: TurnEvidence, result: CallResult) -> None:
        if any((result.id, result.status, result.payload) == (one.id, one.status, one.payload) for one in turn.results):
            return  # a repeated result
        turn.results.append(result)
        self._watched += 1
        self._results[self._watched] = (turn, result.id)
        turn.watched.append(self._watched)
        thread.traces.add(self._watched, result.id, texts_of(result.payload))
        if result.tools is not None:
            search = ToolSearch(thread.queries.get(result.id, ""), result.tools)
            thread.searches.update(dict.fromkeys(result.tools, search))

    def _emit(self) -> dict[str, Any]:
        number, turn = self._waiting.popleft()
        thread = self._threads[number]
        for key in turn.watched:
            thread.traces.drop(key)
            del self._results[key]
        if thread.latest is turn:  # no event for longer than the horizon: the thread has ended
            del self._threads[number]
        return turn_document(turn, self._binding)
