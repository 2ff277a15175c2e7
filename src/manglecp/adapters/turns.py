"""Events of conversations to turns, and turns to evidence.

A turn is a reply of the model with everything that belongs to it: the calls it makes, the results that the next request
brings, what later replies do with them. A reply may leave a call open that the provider itself runs: the model paused,
or a program waits for the result of a call it made. Then the reply that follows belongs to the same turn, unless the
user has spoken in between.

Results belong to the turn before the request that brings them. One that comes later than that, or that nobody asked
for, is an orphan there, and the call it may have been meant for stays unanswered.

A turn is given away when enough others have followed it (:attr:`.LogLimits.horizon`), in the order of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from manglecp.adapters.conversation import Call, Event, Prompt, Reply, Result
from manglecp.adapters.evidence import Search, TurnEvidence, write
from manglecp.adapters.fields import texts_of
from manglecp.adapters.limits import LogLimits
from manglecp.adapters.policies import Binding
from manglecp.adapters.traces import Span, Traces

__all__ = ["Turns"]


@dataclass(slots=True)
class _Thread:
    """What is known of a conversation that later turns need."""

    traces: Traces
    turns: int = 0
    latest: TurnEvidence | None = None
    prompt: Prompt | None = None
    resumes: bool = False
    """Whether the next reply belongs to the latest turn."""
    early: list[Result] = field(default_factory=list)
    """Results in front of the first reply."""
    queries: dict[str, str] = field(default_factory=dict)
    found: dict[str, Search] = field(default_factory=dict)


class Turns:
    """Takes events in the order of the log and gives documents in the order of the turns."""

    def __init__(self, binding: Binding, limits: LogLimits) -> None:
        self._binding = binding
        self._limits = limits
        self._threads: dict[int, _Thread] = {}
        self._waiting: deque[tuple[int, TurnEvidence]] = deque()
        self._begun = 0
        self._watched = 0
        self._results: dict[int, tuple[TurnEvidence, str]] = {}

    def take(self, event: Event) -> Iterator[dict[str, Any]]:
        """Add one event; gives the oldest turns once more are waiting than the horizon lets wait."""
        thread = self._threads.get(event.thread)
        if thread is None:
            thread = self._threads[event.thread] = _Thread(Traces(self._limits.searched))
        if isinstance(event, Prompt):
            self._prompt(thread, event)
        else:
            self._reply(thread, event)
        while len(self._waiting) > self._limits.horizon:
            yield self._give()

    def finish(self) -> Iterator[dict[str, Any]]:
        """The log has ended: what has not come will not come."""
        while self._waiting:
            yield self._give()

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

    def _reply(self, thread: _Thread, reply: Reply) -> None:
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
            for text in [part] if isinstance(part, str) else texts_of(part.input) if isinstance(part, Call) else ():
                self._trace(thread, turn, text)
        for part in reply.parts:
            if isinstance(part, Call):
                self._call(thread, turn, part)
            elif isinstance(part, Result):
                self._result(thread, turn, part)

    def _call(self, thread: _Thread, turn: TurnEvidence, call: Call) -> None:
        if call.kind == "search":
            thread.queries[call.id] = "\n".join(texts_of(call.input))
        turn.request(call, thread.found.get(call.name))

    def _result(self, thread: _Thread, turn: TurnEvidence, result: Result) -> None:
        if any((result.id, result.status, result.payload) == (one.id, one.status, one.payload) for one in turn.results):
            return  # the same answer once more
        turn.results.append(result)
        self._watched += 1
        self._results[self._watched] = (turn, result.id)
        turn.watched.append(self._watched)
        thread.traces.add(self._watched, result.id, texts_of(result.payload))
        if result.tools is not None:
            search = Search(thread.queries.get(result.id, ""), result.tools)
            thread.found.update(dict.fromkeys(result.tools, search))

    def _trace(self, thread: _Thread, turn: TurnEvidence, text: str) -> None:
        for key, run in thread.traces.search(text):
            used, call_id = self._results[key]
            used.spans.setdefault(call_id, Span(run, turn.number))

    def _give(self) -> dict[str, Any]:
        number, turn = self._waiting.popleft()
        thread = self._threads[number]
        for key in turn.watched:
            thread.traces.drop(key)
            del self._results[key]
        if thread.latest is turn:  # nothing has come for so long that nothing will
            del self._threads[number]
        return write(turn, self._binding)
