"""Conversations of a chat interface, independent of the provider, as a sequence of prompts and replies.

Two kinds of logs hold a conversation. In *exchanges*, each request repeats the messages so far, and each response is
recorded as received. A *transcript* is one list of messages; a prompt is created from the messages before each reply. A
:class:`Dialect` interprets the messages of one provider.

A log may interleave the conversations (threads) of several agents. A request continues a thread if it starts with the
same message (or names the same session), and has more messages than are known of the thread, or the same ones;
otherwise it starts a new thread. Field names in double backquotes are those of the evidence of the harness.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from manglecp.adapters import records
from manglecp.base.cache import LruCache
from manglecp.base.text import normalize_word
from manglecp.wire import CODES, JSON, Fault, faults_at

CODE_EXECUTION: Final = "code_execution"


@dataclass(frozen=True, slots=True)
class Caller:
    """A program that made a call. The program itself is run by a call of the model."""

    kind: str
    parent: str | None  # the id of the call that runs the program


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    input: JSON
    kind: str = "function"  # ``toolKind``: function, mcp, search, shell, edit or code_execution
    block: str = "tool_use"  # ``sourceBlock``: tool_use or function_call
    is_valid: bool = True  # whether the input has the type that the provider specifies, usually an object
    is_provider_run: bool = False  # whether the provider runs the call and returns the result in a reply
    caller: Caller | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as recorded by the log; a member that was not recorded is None."""

    code: str | None
    message: str | None
    retryable: bool | None = None


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of the call ``id``; ``rendering`` is the block or message of the log that contains the result."""

    id: str
    payload: JSON
    rendering: JSON
    failure: Failure | None = None
    tools: tuple[str, ...] | None = None  # the tools that a search found
    row_members: Mapping[str, Any] = field(default_factory=dict)
    """Further members for the row of ``toolResults``, such as ``observation``."""
    state: Literal["running", "cancelled"] | None = None  # None: completed

    @property
    def status(self) -> str:
        """``status`` of the row of ``toolResults``."""
        return self.state or ("ok" if self.failure is None else "error")


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of a request."""

    documents: Mapping[str, Any]
    """Policy documents, by name: ``toolCatalog``, ``deferPolicy``, ``toolExamples``, ``allowedCallers``."""
    digests: Mapping[str, str]  # the digest of each document
    schemas: Mapping[str, str]  # the digest of each input schema, by the name of the tool
    kinds: Mapping[str, str]  # kinds other than ``function``, by the name of the tool


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A model reply: texts, calls, and results of calls that the provider ran."""

    thread: int
    line: int
    parts: tuple[ReplyPart, ...]
    stop: str | None  # ``stopReason``, as the provider names it if the harness has no word for it; None if not recorded
    model: str | None = None
    offer: OfferedTools | None = None  # the available tools, in a log that has no requests to a model


_REMINDER: Final = re.compile(r"<system-reminder>(.*?)</system-reminder>", re.DOTALL)

Message: TypeAlias = dict[str, Any]
ReplyPart: TypeAlias = str | ToolCall | CallResult
Author: TypeAlias = Literal["system", "user", "model"]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation."""

    author: Author
    texts: Sequence[str] = ()  # texts of the system or the user, without texts in tool results
    results: Sequence[CallResult] = ()  # tool results that the client sends
    parts: Sequence[ReplyPart] = ()  # parts of a reply of the model
    stop: str | None = None  # the stop reason of the model, if the message records it
    model: str | None = None

    @property
    def queue_texts(self) -> list[str]:
        """The texts of a system message, or the reminders that an agent inserted into the text of the user."""
        if self.author == "system":
            return list(self.texts)
        return [reminder.strip() for text in self.texts for reminder in _REMINDER.findall(text)]

    @property
    def has_user_text(self) -> bool:
        """Whether the text of the user has more than reminders."""
        return self.author == "user" and any(_REMINDER.sub("", text).strip() for text in self.texts)


def read_author(message: Message, *roles: str) -> Author:
    """Return the author of a message. Raises :class:`Fault` for a role other than ``roles``: calls would be lost."""
    role = records.kind_of(message, "role")
    if role not in roles:
        raise records.unexpected_value(f"not a message: its role is none of {', '.join(roles)}", message)
    return "model" if role == "assistant" else "system" if role in ("system", "developer") else "user"


class Dialect(ABC):
    """Interprets the requests and messages of one provider. The methods raise :class:`Fault`."""

    list_name = "messages"
    """The name of the member of a request that holds its messages."""
    joins_messages = False
    """Whether consecutive messages of the model are one reply."""

    @abstractmethod
    def read_message(self, message: Message) -> ChatMessage:
        """Return a message of the provider. Raises :class:`Fault` for any other object."""

    @abstractmethod
    def system(self, request: Message) -> list[str]:
        """Return the instructions outside of the message list."""

    @abstractmethod
    def offer(self, request: Message) -> OfferedTools:
        """Return the tools of a request, which has at least one."""

    @abstractmethod
    def choice(self, request: Message) -> JSON:
        """Return ``toolChoice`` in the words of the harness."""

    @abstractmethod
    def is_sequential(self, request: Message) -> bool:
        """Return whether the request forbids parallel tool calls."""


class Thread:
    """A conversation, as far as known, with running digests of its messages and of its system and reminder texts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.messages: Sequence[Any] = ()
        self.restart(())

    def restart(self, system: Iterable[str]) -> None:
        """Reset the digests to a conversation without messages, with these instructions of the operator."""
        self.view = records.RunningDigest()
        self.queue = records.RunningDigest(system)

    def append(self, raw_message: JSON, message: ChatMessage) -> None:
        """Add a message, and its system and reminder texts, to the digests."""
        self.view.append(raw_message)
        for text in message.queue_texts:
            self.queue.append(text)


class Threads:
    """The last threads of a log, by session, by the texts of the first message, or by name."""

    def __init__(self) -> None:
        self._count = 0
        self._by_key: LruCache[bytes, Thread] = LruCache(records.MAX_OPEN_TURNS)

    def begin(self) -> Thread:
        self._count += 1
        return Thread(self._count)

    def find_or_begin(self, messages: Sequence[Any], session: str | None) -> tuple[Thread, int]:
        """Return the thread that a request continues or starts, and how many of its messages are already known."""
        first_texts = records.texts_of(messages[0]) if messages else None
        key = records.canonical_bytes(first_texts if session is None else session)
        thread = self._by_key.get(key)
        known_count = 0 if thread is None else len(thread.messages)
        if thread is None or (len(messages) <= known_count and messages != thread.messages):
            thread, known_count = self.begin(), 0
        self._by_key.put(key, thread)
        return thread, known_count

    def find_or_begin_named(self, name: str) -> tuple[Thread, bool]:
        """Return the thread with this name, created if necessary, and whether it existed before."""
        existing = self._by_key.get(records.canonical_bytes(name))
        thread = existing or self.begin()
        self.set_name(name, thread)
        return thread, existing is not None

    def set_name(self, name: str, thread: Thread) -> None:
        self._by_key.put(records.canonical_bytes(name), thread)


@dataclass(slots=True)
class Prompt:
    """One request to a model. ``results`` and ``adds_user_text`` are about the messages that it adds to the thread."""

    follows_reply: bool  # whether the request follows a reply of the thread; it may repeat the reply
    thread: int = 0
    view_digest: str = ""  # the digest of the whole message list
    queue_digest: str = ""  # the digest of all system and reminder texts
    results: list[CallResult] = field(default_factory=list)
    adds_user_text: bool = False
    is_repetition: bool = False  # whether it repeats the previous request unchanged
    model: str | None = None
    offer: OfferedTools | None = None
    choice: JSON = None  # ``toolChoice``
    transport: Mapping[str, Any] | None = None  # ``toolTransportPolicy``, as far as the request sets it
    has_client_message: bool = False
    unlogged_call_ids: set[str] = field(default_factory=set)
    """Ids of calls in replies that the request repeats but the log never recorded; their results are ignored."""

    def add(self, message: ChatMessage) -> None:
        """Add a message that the request adds to its thread."""
        if message.author != "model":
            self.has_client_message = True
            self.adds_user_text = self.adds_user_text or message.has_user_text
            self.results += [result for result in message.results if result.id not in self.unlogged_call_ids]
        elif not self.follows_reply or self.has_client_message:
            self.unlogged_call_ids |= {part.id for part in message.parts if isinstance(part, ToolCall)}


ConversationEvent: TypeAlias = Prompt | ModelReply


@dataclass(slots=True)
class _Transcript:
    thread: Thread
    request: Message  # an object with the other members of a request, such as ``model``; may be empty
    prompt: Prompt = field(default_factory=lambda: Prompt(follows_reply=False))
    """A request with the messages since the last reply."""
    reply: list[ChatMessage] = field(default_factory=list)  # messages of the model that form the current reply
    line: int = 0  # the line on which the reply began


class Dialogue:
    """Converts the requests, replies and transcripts of a log to events."""

    def __init__(self, dialect: Dialect) -> None:
        self.line = 0
        """The line of the events emitted next."""
        self._dialect = dialect
        self._threads = Threads()
        self._thread: Thread | None = None  # the thread of the last request
        self._last_offer: tuple[object, OfferedTools | None] = (None, None)  # the cache of _offer(): key and value
        self._line_transcript: _Transcript | None = None  # the transcript of messages on lines of their own

    @property
    def has_request(self) -> bool:
        """Whether there was a request, so that a reply can follow."""
        return self._thread is not None

    def request(self, request: Message, session: str | None = None) -> Prompt:
        """Return the prompt of a request that repeats its conversation."""
        messages = records.list_or_empty(request, self._dialect.list_name)
        thread, known_count = self._threads.find_or_begin(messages, session)
        prompt = self._read_request(thread, request, messages, known_count, follows_reply=known_count > 0)
        prompt.is_repetition = 0 < known_count == len(messages)
        return prompt

    def addition(self, request: Message, name: str) -> Prompt:
        """Return the prompt of a request that holds only the new messages of the conversation with this name."""
        thread, is_known = self._threads.find_or_begin_named(name)
        messages = records.list_or_empty(request, self._dialect.list_name)
        prompt = self._read_request(thread, request, messages, 0, follows_reply=is_known)
        if not is_known:
            prompt.results.clear()  # results of calls from before the log began
        return prompt

    def reply(
        self, parts: Iterable[ReplyPart], stop: str | None, model: str | None, name: str | None = None
    ) -> ModelReply:
        """Return the reply to the last request. Its thread gets a ``name``, by which :meth:`addition` continues it."""
        if self._thread is None:
            self._thread = self._threads.begin()
        if name is not None:
            self._threads.set_name(name, self._thread)
        return ModelReply(self._thread.number, self.line, tuple(parts), stop, model)

    def _read_request(
        self, thread: Thread, request: Message, messages: Sequence[Any], known_count: int, *, follows_reply: bool
    ) -> Prompt:
        """Return the prompt of a request; its first ``known_count`` messages are known from the request before."""
        thread.restart(self._dialect.system(request))
        prompt = Prompt(follows_reply)
        for i, raw_message in enumerate(messages):
            with faults_at(self._dialect.list_name, i):
                message = self._dialect.read_message(records.require_object(raw_message))
            thread.append(raw_message, message)
            if i >= known_count:
                prompt.add(message)
        thread.messages = messages
        self._thread = thread
        return self._complete(prompt, thread, request)

    def transcript(self, request: Message, *steps: str) -> Iterator[ConversationEvent]:
        """Yield the events of a whole conversation; ``steps`` is the path to it in its record."""
        transcript = _Transcript(self._threads.begin(), request)
        transcript.thread.restart(self._dialect.system(request))
        for i, message in enumerate(records.list_or_empty(request, self._dialect.list_name)):
            with faults_at(*steps, i):
                yield from self._add_message(transcript, records.require_object(message))
        yield from self._end_transcript(transcript)

    def message(self, message: Message) -> Iterator[ConversationEvent]:
        """Yield the events of a message that is a whole line; all such messages form one transcript."""
        if self._line_transcript is None:
            self._line_transcript = _Transcript(self._threads.begin(), {})
        yield from self._add_message(self._line_transcript, message)

    def finish(self) -> Iterator[ConversationEvent]:
        """Yield the events that are pending at the end of the log."""
        if self._line_transcript is not None:
            yield from self._end_transcript(self._line_transcript)

    def _add_message(self, transcript: _Transcript, raw_message: Message) -> Iterator[ConversationEvent]:
        message = self._dialect.read_message(raw_message)
        is_reply = message.author == "model"
        if transcript.reply and not (is_reply and self._dialect.joins_messages):
            yield self._end_reply(transcript)
        if not is_reply:
            transcript.prompt.add(message)
        else:
            if not transcript.reply:
                yield self._complete(transcript.prompt, transcript.thread, transcript.request)
                transcript.prompt = Prompt(follows_reply=True)
                transcript.line = self.line
            transcript.reply.append(message)
        transcript.thread.append(raw_message, message)

    def _end_transcript(self, transcript: _Transcript) -> Iterator[ConversationEvent]:
        """Yield the last reply, and a prompt for the messages after it, which may contain results."""
        if transcript.reply:
            yield self._end_reply(transcript)
        if transcript.prompt.has_client_message:
            yield self._complete(transcript.prompt, transcript.thread, transcript.request)

    def _end_reply(self, transcript: _Transcript) -> ModelReply:
        messages, transcript.reply = transcript.reply, []
        parts = tuple(part for message in messages for part in message.parts)
        model = messages[-1].model or records.optional_text(transcript.request, "model")
        return ModelReply(transcript.thread.number, transcript.line, parts, messages[-1].stop, model)

    def _complete(self, prompt: Prompt, thread: Thread, request: Message) -> Prompt:
        """Set the fields of a prompt that follow from its thread and its request, and return it."""
        prompt.thread = thread.number
        prompt.view_digest, prompt.queue_digest = thread.view.digest(), thread.queue.digest()
        prompt.model = records.optional_text(request, "model")
        prompt.offer = self._offer(request)
        prompt.choice = self._dialect.choice(request)
        prompt.transport = {"parallelToolCalls": False} if self._dialect.is_sequential(request) else None
        return prompt

    def _offer(self, request: Message) -> OfferedTools | None:
        """Return the offered tools. The last offer is cached, because most requests offer the same tools."""
        tools = records.list_or_empty(request, "tools")
        if not tools:
            return None
        key = (tools, bool(request.get("mcp_servers")))  # Dialect.offer() reads no other members
        if self._last_offer[0] != key:
            self._last_offer = (key, self._dialect.offer(request))
        return self._last_offer[1]


class ExchangeLog(ABC):
    """The base of readers for logs with exchanges, ``{"request": …, "response": …}``."""

    @abstractmethod
    def _request(self, request: Message, session: str | None) -> ConversationEvent:
        """Return the prompt of a request."""

    @abstractmethod
    def _complete_response(self, response: Message) -> Iterator[ConversationEvent]:
        """Yield the reply of a response that was not streamed; nothing for an error, after which the client retries."""

    @abstractmethod
    def _add_part(self, part: Message) -> None:
        """Add a part (chunk or event) of a streamed response."""

    @abstractmethod
    def _end_stream(self) -> Iterator[ConversationEvent]:
        """Yield the reply of the parts added so far, if there are any, and begin the next response."""

    def _exchange(self, record: Message) -> Iterator[ConversationEvent]:
        session = records.optional_text(record, "session")
        if record.get("request") is not None:
            with faults_at("request"):
                request, steps = records.unwrap_body(record["request"])
                with faults_at(*steps):
                    yield self._request(request, session)
        if record.get("response") is not None:
            with faults_at("response"):
                yield from self._response(record["response"])

    def _response(self, response: JSON) -> Iterator[ConversationEvent]:
        """Yield the reply of a response, recorded as an object, the list of its parts, or the text of a stream."""
        if type(response) is str:
            response = records.read_stream(response)
        if type(response) is list:
            for i, part in enumerate(response):
                with faults_at(i):
                    self._add_part(records.require_object(part))
            yield from self._end_stream()
            return
        body, steps = records.unwrap_body(response)
        with faults_at(*steps):
            yield from self._complete_response(body)


# Logs rarely record whether a retry of a failed call can help, so it is looked up by the error code.

_RETRYABLE_CODES: Final = (
    # HTTP
    "408", "425", "429", "500", "502", "503", "504", "529",
    # JSON-RPC and MCP: connection closed, request timed out
    "-32000", "-32001",
    # providers
    "api_error", "overloaded", "overloaded_error", "rate_limit", "rate_limit_error", "rate_limit_exceeded",
    "server_error", "timeout", "timeout_error", "too_many_requests", "unavailable",
    # runtimes
    "busy", "connection_refused", "connection_reset", "deadline_exceeded", "econnrefused", "econnreset", "etimedout",
    "network_error", "rate_limited", "service_unavailable", "temporarily_unavailable", "timed_out", "transient",
)  # fmt: skip
_FINAL_CODES: Final = (
    # HTTP
    "400", "401", "402", "403", "404", "405", "409", "410", "413", "415", "422",
    # JSON-RPC and MCP: not JSON, no request, no such method, bad arguments, internal, no such resource, cancelled
    "-32700", "-32600", "-32601", "-32602", "-32603", "-32002", "-32800", "cancelled",
    # providers
    "authentication_error", "billing_error", "content_filter", "container_expired", "execution_time_exceeded",
    "file_not_found", "insufficient_quota", "invalid_input", "invalid_pattern", "invalid_prompt", "invalid_request",
    "invalid_request_error", "invalid_tool_input", "max_uses_exceeded", "not_found_error", "output_file_too_large",
    "permission_error", "query_too_long", "request_too_large", "string_not_found", "unsupported_content_type",
    "url_not_accessible", "url_not_allowed", "url_too_long",
    # runtimes
    "already_exists", "conflict", "denied", "eacces", "enoent", "eperm", "forbidden", "invalid_argument",
    "invalid_arguments", "not_found", "outcome_unknown", "permission_denied", "unauthorized", "unsupported",
    "validation_error",
)  # fmt: skip
RETRYABLE: Final = {
    **{code: row.recoverable for code, row in CODES.items()},  # the codes of MangleCP
    **dict.fromkeys(_FINAL_CODES, False),
    **dict.fromkeys(_RETRYABLE_CODES, True),
}
"""Whether a retry can help, by lower-case error code."""

_CODE_MEMBERS: Final = ("errorCode", "error_code", "code", "type")
_MESSAGE_MEMBERS: Final = ("errorMessage", "error_message", "message")


def is_retryable(code: str | None) -> bool | None:
    """Return whether a retry can help; None if the code is unknown."""
    return None if code is None else RETRYABLE.get(normalize_word(code))


def read_failure(payload: JSON, text: str) -> Failure:
    """Return the code, message and retryability that a failed result records; ``text`` is what the model read."""
    error = _result_object(payload, text)
    inner = error.get("error")
    if type(inner) is dict:
        error = inner
    elif type(inner) is str:
        error = {"message": inner, **error}
    # Outside of an ``error`` object, ``type`` is the type of a content block and not a code.
    code_members = _CODE_MEMBERS if error is inner else _CODE_MEMBERS[:-1]
    retryable = error.get("retryable", error.get("recoverable"))  # MangleCP writes ``recoverable``
    return Failure(
        code=next((str(error[name]) for name in code_members if _is_code(error.get(name))), None),
        message=next((error[name] for name in _MESSAGE_MEMBERS if type(error.get(name)) is str), text) or None,
        retryable=retryable if type(retryable) is bool else None,
    )


def reports_failure(payload: JSON, text: str) -> bool:
    """Return whether the content of a result describes an error, for providers without an error flag."""
    result = _result_object(payload, text)
    inner = result.get("error")
    return (
        result.get("isError") is True
        or result.get("is_error") is True
        or _is_code(result.get("errorCode"))
        or _is_code(result.get("error_code"))
        or (type(inner) is dict and any(_is_code(inner.get(name)) for name in _CODE_MEMBERS))
    )


def _result_object(payload: JSON, text: str) -> dict[str, Any]:
    """Return the payload if it is an object, or else the object in ``text``; ``{}`` if neither is an object.

    An error message of MangleCP is returned as an object with an ``error``.
    """
    value = payload
    if type(value) is not dict and text.lstrip().startswith("{"):
        with suppress(Fault):
            value = records.parse(text.encode())
    if type(value) is not dict:
        return {}
    error = value.get("payload")
    return {"error": error} if value.get("type") == "error" and type(error) is dict else value


def _is_code(value: object) -> bool:
    return (type(value) is str and bool(value.strip())) or type(value) is int
