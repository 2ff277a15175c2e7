"""Conversations of a chat interface, independent of the provider: prompts and replies.

Two kinds of logs hold a conversation. In *exchanges*, each request repeats the messages so far and each response is
recorded as received. In a *transcript* there is one list of messages, and a prompt is synthesised before each reply. A
:class:`Dialect` interprets the messages of one provider.

Logs of several agents are interleaved. A request continues a thread if it starts with the same message (or names the
same session) and is longer than, or equal to, the known messages of the thread; otherwise it starts a new thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeAlias

from manglecp.adapters.records import LogLimits, RunningDigest, array, canonical_bytes, entry, optional_text, texts_of
from manglecp.base.cache import LruCache
from manglecp.wire import JSON, Fault

# --- events -----------------------------------------------------------------------------------------------------------

CODE_EXECUTION: Final = "code_execution"


@dataclass(frozen=True, slots=True)
class Caller:
    """The program that made a call, if the model did not make it directly."""

    kind: str
    parent: str | None
    """The id of the calling call."""


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    input: JSON
    kind: str = "function"
    block: str = "tool_use"
    valid: bool = True
    """Whether the arguments have the type that the provider promises."""
    served: bool = False
    """Whether the provider runs the call and returns the result in a reply."""
    caller: Caller | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as recorded by the log; None for what is not recorded."""

    code: str | None
    message: str | None
    retryable: bool | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call, and the block or message that contained it."""

    id: str
    payload: JSON
    shown: JSON
    status: str = "ok"
    failure: Failure | None = None
    tools: tuple[str, ...] | None = None
    """The tools that a search found."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Further members of the row recorded in the log, such as ``observation``."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of a request, as documents of the specification, and a digest of each schema."""

    documents: Mapping[str, Any]
    digests: Mapping[str, str]
    """The digest of each document."""
    schemas: Mapping[str, str]
    kinds: Mapping[str, str]
    """Kinds other than ``function``, by the name of the tool."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The additions of one request to a thread."""

    thread: int
    view: str
    """The digest of its message list."""
    queue: str
    """The digest of its system and reminder texts."""
    results: tuple[Result, ...] = ()
    speaks: bool = False
    """Whether the user adds text."""
    echoes: bool = False
    """Whether the request contains the last reply."""
    repeats: bool = False
    """Whether it repeats the previous request unchanged."""
    model: str | None = None
    offer: Offer | None = None
    choice: JSON = None
    """``toolChoice`` in the vocabulary of the specification."""
    transport: Mapping[str, Any] | None = None
    """``toolTransportPolicy``, as far as the request sets it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A model reply: texts, calls, and results of calls that the provider ran."""

    thread: int
    line: int
    parts: tuple[str | Call | Result, ...]
    stop: str | None
    """The stop reason, mapped to the specification if possible; None if not recorded."""
    model: str | None = None
    offer: Offer | None = None
    """The available tools, in logs without requests to a model."""


Event: TypeAlias = Prompt | Reply


# --- threads ----------------------------------------------------------------------------------------------------------

_REMINDER: Final = re.compile(r"<system-reminder>(.*?)</system-reminder>", re.DOTALL)
_MARK: Final = "<system-reminder>"


def reminders(text: str) -> list[str]:
    """Return the reminders that a harness inserted into user text."""
    return [found.strip() for found in _REMINDER.findall(text)] if _MARK in text else []


def has_user_text(text: str) -> bool:
    """Return whether a text contains anything other than reminders."""
    return bool((_REMINDER.sub("", text) if _MARK in text else text).strip())


class History:
    """Running digests of the message list of a request and of its system and reminder texts."""

    def __init__(self, system: Iterable[str] = ()) -> None:
        self.system = list(system)
        self._messages = RunningDigest()
        self._queue = RunningDigest()
        for text in self.system:
            self._queue.append(text)

    def append(self, message: JSON, queued: Iterable[str]) -> None:
        """Add a message and those of its texts that belong to the reminder queue."""
        self._messages.append(message)
        for text in queued:
            self._queue.append(text)

    @property
    def view(self) -> str:
        return self._messages.digest()

    @property
    def queue(self) -> str:
        return self._queue.digest()


@dataclass(slots=True)
class Thread:
    """A conversation, as far as known."""

    number: int
    messages: Sequence[Any] = ()
    history: History = field(default_factory=History)


class Threads:
    """The conversations of a log, as an LRU cache."""

    def __init__(self, most: int) -> None:
        self._begun = 0
        self._open: LruCache[bytes, Thread] = LruCache(max(1, most))

    def begin(self) -> Thread:
        """Return a new thread without a key."""
        self._begun += 1
        return Thread(self._begun)

    def continued(self, messages: Sequence[Any], session: str | None) -> tuple[Thread, int]:
        """Return the thread of a request, and how many of its messages are already known."""
        key = canonical_bytes(session if session is not None else texts_of(messages[0]) if messages else None)
        thread = self._open.get(key)
        known = 0 if thread is None else len(thread.messages)
        if thread is None or len(messages) < known or (len(messages) == known and messages != thread.messages):
            thread, known = self.begin(), 0
        self._open.put(key, thread)
        return thread, known

    def named(self, name: str) -> tuple[Thread, bool]:
        """Return the thread with this name, and whether it existed."""
        key = canonical_bytes(name)
        thread = self._open.get(key)
        known = thread is not None
        thread = thread or self.begin()
        self._open.put(key, thread)
        return thread, known

    def name(self, name: str, thread: Thread) -> None:
        """Add a name for :meth:`named`."""
        self._open.put(canonical_bytes(name), thread)


# --- exchanges and transcripts ----------------------------------------------------------------------------------------

Message: TypeAlias = dict[str, Any]
Part: TypeAlias = str | Call | Result


class Dialect(Protocol):
    """Interprets the requests and messages of one provider."""

    list_name: str
    """The member of a request that holds its messages."""
    joined: bool
    """Whether consecutive messages of the model are one reply."""

    def is_reply(self, message: Message) -> bool:
        """Return whether the model wrote the message."""

    def is_system(self, message: Message) -> bool:
        """Return whether the message holds instructions of the operator."""

    def texts(self, message: Message) -> list[str]:
        """Return its texts, except those in tool results."""

    def results(self, message: Message) -> list[Result]:
        """Return the tool results in a message of the client."""

    def parts(self, message: Message) -> Iterable[Part]:
        """Return the parts of a message of the model."""

    def stop(self, message: Message) -> str | None:
        """Return the stop reason, if the message records it."""

    def system(self, request: Message) -> list[str]:
        """Return the instructions outside of the message list."""

    def offer(self, request: Message) -> Offer:
        """Return the tools of a request that has some."""

    def choice(self, request: Message) -> JSON:
        """Return ``toolChoice`` in the vocabulary of the specification."""

    def transport(self, request: Message) -> Mapping[str, Any] | None:
        """Return ``toolTransportPolicy``, as far as the request sets it."""


@dataclass(slots=True)
class _Additions:
    echoes: bool
    """Whether the messages follow a reply, and may repeat it first."""
    results: list[Result] = field(default_factory=list)
    speaks: bool = False
    taken: int = 0
    echoing: bool = field(init=False)
    past: set[str] = field(default_factory=set)
    """Calls of replies from before the log began; their results are ignored."""

    def __post_init__(self) -> None:
        self.echoing = self.echoes

    def take(self, message: Message, dialect: Dialect, texts: Iterable[str]) -> None:
        self.taken += 1
        if dialect.is_reply(message):
            if not self.echoing:
                self.past |= {part.id for part in dialect.parts(message) if isinstance(part, Call)}
            return
        self.echoing = False
        self.speaks = self.speaks or (not dialect.is_system(message) and any(map(has_user_text, texts)))
        self.results += [result for result in dialect.results(message) if result.id not in self.past]


@dataclass(slots=True)
class _Transcript:
    thread: Thread
    request: Message
    additions: _Additions
    reply: list[Message] = field(default_factory=list)
    """Messages of the model that form the current reply."""
    line: int = 0
    """The line on which the reply began."""


class Dialogue:
    """Converts the requests, replies and transcripts of a log to events."""

    def __init__(self, dialect: Dialect, limits: LogLimits) -> None:
        self.line = 0
        """The line of the events emitted next."""
        self._dialect = dialect
        self._threads = Threads(limits.horizon)
        self._thread: Thread | None = None
        self._offers: tuple[object, Offer | None] = (None, None)
        self._loose: _Transcript | None = None

    # --- exchanges ---------------------------------------------------------------------------------------------------

    @property
    def has_request(self) -> bool:
        """Return whether a request precedes, so that a reply can follow."""
        return self._thread is not None

    def request(self, request: Message, session: str | None = None) -> Prompt:
        """Return the prompt of a request that repeats its conversation."""
        messages = array(request, self._dialect.list_name)
        thread, known = self._threads.continued(messages, session)
        prompt = self._read_request(thread, request, messages, known, echoes=known > 0)
        return replace(prompt, repeats=True) if 0 < known == len(messages) else prompt

    def addition(self, request: Message, key: str) -> Prompt:
        """Return the prompt of a request that holds only new messages for the conversation of this key."""
        thread, known = self._threads.named(key)
        thread.messages = ()
        prompt = self._read_request(thread, request, array(request, self._dialect.list_name), 0, echoes=known)
        # Results in an unknown conversation belong to calls from before the log began.
        return prompt if known else replace(prompt, results=())

    def reply(self, parts: Iterable[Part], stop: str | None, model: str | None, key: str | None = None) -> Reply:
        """Return the reply to the last request; additions may reference it by ``key``."""
        if self._thread is None:
            self._thread = self._threads.begin()
        if key is not None:
            self._threads.name(key, self._thread)
        return Reply(self._thread.number, self.line, tuple(parts), stop, model)

    def _read_request(
        self, thread: Thread, request: Message, messages: Sequence[Any], known: int, *, echoes: bool
    ) -> Prompt:
        """Read a request. The first ``known`` messages are read again only if they or the instructions changed."""
        system = self._dialect.system(request)
        unchanged = thread.history.system == system and list(thread.messages) == messages[:known]
        if not unchanged or known == 0:
            thread.history = History(system)
        additions = _Additions(echoes)
        for i in range(known if unchanged else 0, len(messages)):
            try:
                message = entry(messages[i])
                texts = self._dialect.texts(message)
                thread.history.append(message, self._queued(message, texts))
                if i >= known:
                    additions.take(message, self._dialect, texts)
            except Fault as fault:
                raise fault.inside(self._dialect.list_name, i) from None
        thread.messages = messages
        self._thread = thread
        return self._prompt(thread, request, additions)

    # --- transcripts -------------------------------------------------------------------------------------------------

    def transcript(self, request: Message, *steps: str) -> Iterator[Event]:
        """Yield the events of a whole conversation; ``steps`` is the path to it in its record."""
        thread = self._threads.begin()
        thread.history = History(self._dialect.system(request))
        transcript = _Transcript(thread, request, _Additions(echoes=False))
        for i, message in enumerate(array(request, self._dialect.list_name)):
            try:
                yield from self._add_message(transcript, entry(message))
            except Fault as fault:
                raise fault.inside(*steps, i) from None
        yield from self._end_transcript(transcript)

    def message(self, message: Message) -> Iterator[Event]:
        """Yield the events of a message on a line of its own."""
        if self._loose is None:
            self._loose = _Transcript(self._threads.begin(), {}, _Additions(echoes=False))
        yield from self._add_message(self._loose, message)

    def finish(self) -> Iterator[Event]:
        """Yield the events that are pending at the end of the log."""
        if self._loose is not None:
            yield from self._end_transcript(self._loose)

    def _add_message(self, transcript: _Transcript, message: Message) -> Iterator[Event]:
        is_reply = self._dialect.is_reply(message)
        if transcript.reply and not (is_reply and self._dialect.joined):
            yield self._end_reply(transcript)
        texts = self._dialect.texts(message)
        if not is_reply:
            transcript.additions.take(message, self._dialect, texts)
        elif transcript.reply:
            transcript.reply.append(message)
        else:
            yield self._prompt(transcript.thread, transcript.request, transcript.additions)
            transcript.additions = _Additions(echoes=True)
            transcript.reply, transcript.line = [message], self.line
        transcript.thread.history.append(message, self._queued(message, texts))

    def _end_transcript(self, transcript: _Transcript) -> Iterator[Event]:
        """Messages after the last reply have no reply, but may bring results."""
        if transcript.reply:
            yield self._end_reply(transcript)
        if transcript.additions.taken:
            yield self._prompt(transcript.thread, transcript.request, transcript.additions)

    def _end_reply(self, transcript: _Transcript) -> Reply:
        messages, transcript.reply = transcript.reply, []
        last = messages[-1]
        parts = [part for message in messages for part in self._dialect.parts(message)]
        model = optional_text(last, "model") or optional_text(transcript.request, "model")
        return Reply(transcript.thread.number, transcript.line, tuple(parts), self._dialect.stop(last), model)

    # --- both --------------------------------------------------------------------------------------------------------

    def _queued(self, message: Message, texts: list[str]) -> list[str]:
        if self._dialect.is_system(message):
            return texts
        return [] if self._dialect.is_reply(message) else [found for text in texts for found in reminders(text)]

    def _prompt(self, thread: Thread, request: Message, additions: _Additions) -> Prompt:
        return Prompt(
            thread.number,
            thread.history.view,
            thread.history.queue,
            tuple(additions.results),
            additions.speaks,
            additions.echoes,
            model=optional_text(request, "model"),
            offer=self._offer(request),
            choice=self._dialect.choice(request),
            transport=self._dialect.transport(request),
        )

    def _offer(self, request: Message) -> Offer | None:
        """Return the offered tools, cached for the previous request: most requests offer the same."""
        tools = array(request, "tools")
        if not tools:
            return None
        key = (tools, bool(request.get("mcp_servers")))
        if self._offers[0] != key:
            self._offers = (key, self._dialect.offer(request))
        return self._offers[1]
