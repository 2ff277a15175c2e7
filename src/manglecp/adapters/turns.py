"""Assembles conversation events into turns, and detects which results later replies use.

A turn is a reply with its calls and the results that the next request brings. A reply that leaves a call of the
provider open is continued by the next reply, unless the user has sent text in between. A result that arrives later, or
without a call, is an orphan. Turns are emitted in log order, after :attr:`.LogLimits.horizon` further turns.

A result counts as used if a later reply contains 24 consecutive characters of it (a dozen of them alphanumeric), an id
(a word of 6 to 64 characters with a letter and a digit), or its call id. The index holds 16-grams of results at every
ninth offset, and replies are looked up at every offset: any run of 24 characters contains an indexed 16-gram.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from manglecp.adapters.conversation import Call, Event, Prompt, Reply, Result
from manglecp.adapters.evidence import Search, Span, TurnEvidence, write
from manglecp.adapters.policies import Binding
from manglecp.adapters.records import LogLimits, texts_of

# --- use of results ---------------------------------------------------------------------------------------------------

SHORTEST: Final = 24
LONGEST: Final = 120
_GRAM: Final = 16
_STRIDE: Final = SHORTEST - _GRAM + 1
_ALNUM: Final = 12
_SHORTEST_ID: Final = 6
_LONGEST_ID: Final = 64
_PATIENCE: Final = 16
_HOLDERS: Final = 32  # of one piece; headings and licences stand everywhere
_DIGIT: Final = re.compile(r"[0-9]")
_LETTER: Final = re.compile(r"[A-Za-z]")
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{6,}")


class _Index:
    """Maps pieces of text to the results that contain them, optimised for pieces of a single result."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._shared: dict[str, list[int]] = {}
        """All but the last result of pieces that several results contain."""

    def add(self, key: int, pieces: Iterable[str]) -> None:
        fresh = dict.fromkeys(pieces, key)
        for piece in fresh.keys() & self._last.keys():
            holders = self._shared.setdefault(piece, [])
            if len(holders) < _HOLDERS:
                holders.append(self._last[piece])
        self._last |= fresh

    def __contains__(self, piece: str) -> bool:
        return piece in self._last

    def holders(self, piece: str) -> list[int]:
        last = self._last.get(piece)
        return [] if last is None else [*self._shared.get(piece, ()), last]

    def found(self, text: str) -> list[int]:
        """Return the offsets of known pieces in a text."""
        known = self._last
        return [at for at in range(len(text) - _GRAM + 1) if text[at : at + _GRAM] in known]


class _Result(NamedTuple):
    text: str
    ids: set[str]


class Traces:
    """The results of a thread that no reply has used so far."""

    def __init__(self, searched: int) -> None:
        self._searched = searched
        self._watched: dict[int, _Result] = {}
        self._dropped = 0
        self._grams, self._ids = _Index(), _Index()

    def add(self, key: int, call_id: str, texts: Iterable[str]) -> None:
        """Watch a result; ``key`` identifies it in :meth:`search`."""
        text = "\n".join(texts)[: self._searched]
        self._watched[key] = result = _Result(text, _ids(text))
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
        found: dict[int, str] = {}
        for at in self._grams.found(text):
            for key in self._grams.holders(text[at : at + _GRAM]):
                if key in self._watched and key not in found:
                    run = _common(self._watched[key].text, text, at)
                    if run is not None:
                        found[key] = run
        for word in _WORD.findall(text):
            if word in self._ids:
                found |= {key: word for key in self._ids.holders(word) if key in self._watched and key not in found}
        for key, run in found.items():
            self.drop(key)
            yield key, run

    def _put(self, key: int, result: _Result) -> None:
        text = result.text
        self._grams.add(key, [text[at : at + _GRAM] for at in range(0, len(text) - _GRAM + 1, _STRIDE)])
        self._ids.add(key, result.ids)


def _ids(text: str) -> set[str]:
    return {
        word
        for word in _WORD.findall(text)
        if not word.isalpha() and len(word) <= _LONGEST_ID and _DIGIT.search(word) and _LETTER.search(word)
    }


def _common(result: str, reply: str, at: int) -> str | None:
    """Return the common run around a piece of the reply, if it is long enough."""
    piece = reply[at : at + _GRAM]
    start = result.find(piece)
    for _ in range(_HOLDERS):
        if start < 0:
            return None
        run = _run(result, start, reply, at)
        if len(run) >= SHORTEST and sum(map(str.isalnum, run)) >= _ALNUM:
            return run
        start = result.find(piece, start + 1)
    return None


def _run(result: str, start: int, reply: str, at: int) -> str:
    before = 0
    most = min(start, at, LONGEST - _GRAM)
    while before < most and result[start - before - 1] == reply[at - before - 1]:
        before += 1
    after = _GRAM
    most = min(len(result) - start, len(reply) - at, LONGEST - before)
    while after < most and result[start + after] == reply[at + after]:
        after += 1
    return result[start - before : start + after]


# --- turns ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Thread:
    """The state of a conversation that later turns need."""

    traces: Traces
    turns: int = 0
    latest: TurnEvidence | None = None
    prompt: Prompt | None = None
    resumes: bool = False
    """Whether the next reply belongs to the latest turn."""
    early: list[Result] = field(default_factory=list)
    """Results before the first reply."""
    queries: dict[str, str] = field(default_factory=dict)
    found: dict[str, Search] = field(default_factory=dict)


class Turns:
    """Converts events in log order to documents in turn order."""

    def __init__(self, binding: Binding, limits: LogLimits) -> None:
        self._binding = binding
        self._limits = limits
        self._threads: dict[int, _Thread] = {}
        self._waiting: deque[tuple[int, TurnEvidence]] = deque()
        self._begun = 0
        self._watched = 0
        self._results: dict[int, tuple[TurnEvidence, str]] = {}

    def take(self, event: Event) -> Iterator[dict[str, Any]]:
        """Add one event; yield the oldest turns beyond the horizon."""
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
        """Yield all remaining turns."""
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
