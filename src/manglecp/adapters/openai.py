"""Logs of the OpenAI APIs, Chat Completions and Responses.

A record is one of:

* an exchange, ``{"request": …, "response": …}``, or one of both; ``session`` may name the conversation. A request with
  ``input`` belongs to the Responses API, one with ``messages`` to Chat Completions;
* a completion, a response object, or a chunk or event of a streamed one;
* a transcript: ``{"messages": […]}``, a list, or one message or item per line (items have a type). It
  has no stop reasons.

Only the first choice is read; a call in another choice is an error. Stop reasons are mapped by ``STOP_REASONS``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from manglecp.adapters.conversation import (
    CODE_EXECUTION,
    CallResult,
    ConversationEvent,
    Dialect,
    Dialogue,
    ExchangeLog,
    Failure,
    Message,
    OfferedTools,
    ReplyPart,
    ToolCall,
    read_failure,
    reports_failure,
)
from manglecp.adapters.policies import ToolDefinition, offer_tools, read_caller
from manglecp.adapters.records import (
    LogLimits,
    array,
    canonical_bytes,
    digest_of,
    each_object,
    identifier,
    inside,
    kind_of,
    mapping,
    optional_text,
    parse_arguments,
    position,
    read_each,
    require_object,
    texts_of,
)
from manglecp.base.digest import digest_text
from manglecp.wire import JSON, Fault

STOP_REASONS: Final = {"tool_calls": "tool_use", "stop": "end_turn", "length": "max_tokens"}


class _OpenAIDialect(Dialect):
    def choice(self, request: Message) -> JSON:
        """Map ``required`` to ``any``, a named function to ``specific`` and ``none`` to None."""
        choice = request.get("tool_choice")
        if type(choice) is dict:
            inner = choice.get("function")
            name = inner.get("name") if type(inner) is dict else choice.get("name")
            return {"mode": "specific", "toolName": name} if type(name) is str else None
        return {"required": "any", "none": None}.get(choice, choice) if type(choice) is str else None

    def is_sequential(self, request: Message) -> bool:
        return request.get("parallel_tool_calls") is False


class ChatMessages(_OpenAIDialect):
    """The dialect of Chat Completions."""

    def texts(self, message: Message) -> list[str]:
        return [] if kind_of(message, "role") == "tool" else content_texts(message.get("content"))

    def results(self, message: Message) -> list[CallResult]:
        if kind_of(message, "role") != "tool":
            return []
        return [read_result(identifier(message, "tool_call_id"), message.get("content"), message)]

    def parts(self, message: Message) -> Iterator[ReplyPart]:
        yield from content_texts(message.get("content"))
        yield from read_each(message, "tool_calls", _read_call)

    def stop(self, message: Message) -> str | None:
        """Return the stop reason of a message or choice, mapped to the specification if possible."""
        reason = optional_text(message, "finish_reason")
        return None if reason is None else STOP_REASONS.get(reason, reason)

    def system(self, request: Message) -> list[str]:  # noqa: ARG002  # system messages are in the list
        return []

    def offer(self, request: Message) -> OfferedTools:
        return offer_tools(read_each(request, "tools", _read_tool))


_ARGUMENT_MEMBER: Final = {"function": "arguments", "custom": "input"}
"""The member that holds the arguments, by kind of call."""


class Chunks:
    """A completion, assembled from its chunks."""

    def __init__(self) -> None:
        self._first: dict[str, Any] | None = None
        self._texts: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: str | None = None

    def belongs_to_another(self, chunk: dict[str, Any]) -> bool:
        return self._first is not None and chunk.get("id") != self._first.get("id")

    def add(self, chunk: dict[str, Any]) -> None:
        """Add one chunk. Only the first choice is read; calls in another one raise :class:`Fault`."""
        self._first = self._first or chunk
        for i, choice in each_object(chunk, "choices"):
            if choice.get("index", 0) != 0:
                refuse_calls(mapping(choice, "delta"), i)
                continue
            with inside("choices", i):
                self._finish = optional_text(choice, "finish_reason") or self._finish
                delta = mapping(choice, "delta") or {}
                with inside("delta"):
                    self._texts.append(optional_text(delta, "content") or "")
                    for n, piece in each_object(delta, "tool_calls"):
                        with inside("tool_calls", n):
                            self._piece(piece)

    def completion(self) -> dict[str, Any] | None:
        """Return the completion as far as received; None if there was no chunk."""
        if self._first is None:
            return None
        calls = [
            {
                "id": call["id"],
                "type": call["type"],
                call["type"]: {"name": call["name"], _ARGUMENT_MEMBER[call["type"]]: "".join(call["pieces"])},
            }
            for _, call in sorted(self._calls.items())
        ]
        message = {"role": "assistant", "content": "".join(self._texts) or None, "tool_calls": calls or None}
        return {**self._first, "choices": [{"index": 0, "message": message, "finish_reason": self._finish}]}

    def _piece(self, piece: dict[str, Any]) -> None:
        index = position({"index": 0, **piece}, "index")
        call = self._calls.setdefault(index, {"id": None, "type": "function", "name": None, "pieces": []})
        call["id"] = optional_text(piece, "id") or call["id"]
        for kind, name in _ARGUMENT_MEMBER.items():
            part = mapping(piece, kind)
            if part is not None:
                call["type"] = kind
                call["name"] = optional_text(part, "name") or call["name"]
                call["pieces"].append(optional_text(part, name) or "")


def refuse_calls(message: dict[str, Any] | None, i: int) -> None:
    """Raise :class:`Fault` for calls in a choice other than the first: they would be lost."""
    if message is not None and message.get("tool_calls"):
        raise Fault("calls in a choice other than the first cannot be distinguished from it").inside("choices", i)


def content_texts(content: JSON) -> list[str]:
    if type(content) is str:
        return [content]
    parts = content if type(content) is list else []
    return [text for part in parts if type(part) is dict and type(text := part.get("text")) is str]


def read_result(call_id: str, content: JSON, shown: JSON) -> CallResult:
    """Return a result. The API has no error flag, so a failure is detected from the content."""
    payload = "" if content is None else content
    text = "\n".join(texts_of(payload) if type(payload) is not list else content_texts(payload))
    failed = reports_failure(None, text)
    return CallResult(
        call_id, payload, shown, "error" if failed else "ok", read_failure(None, text) if failed else None
    )


def _read_call(call: dict[str, Any]) -> ToolCall:
    if (custom := mapping(call, "custom")) is not None:
        return ToolCall(identifier(call, "id"), identifier(custom, "name"), custom.get("input"), block="function_call")
    function = require_object(call.get("function"), "function")
    arguments = parse_arguments(optional_text(function, "arguments"))
    valid = type(arguments) is dict
    return ToolCall(identifier(call, "id"), identifier(function, "name"), arguments, block="function_call", valid=valid)


def _read_tool(definition: dict[str, Any]) -> ToolDefinition:
    function = mapping(definition, "function") or mapping(definition, "custom") or definition
    return ToolDefinition(identifier(function, "name"), function.get("parameters", function.get("format")))


_CALL: Final = "_call"
_OUTPUT: Final = "_call_output"
_CLIENT: Final = {
    "function_call": "function",
    "custom_tool_call": "function",
    "computer_call": "function",
    "local_shell_call": "shell",
    "shell_call": "shell",
    "apply_patch_call": "edit",
}
"""Calls that the client runs, and their kinds."""
_SERVED_KINDS: Final = {"code_interpreter_call": CODE_EXECUTION, "mcp_call": "mcp"}
_SERVED_INPUT: Final = ("arguments", "action", "queries", "code", "input")
_SERVED_OUTPUT: Final = ("output", "outputs", "results", "result")
_RUNNING: Final = ("in_progress", "searching", "interpreting", "generating", "calling", "queued")
_SUFFIXES: Final = ("_preview", "_20")


class Items(_OpenAIDialect):
    """The dialect of the Responses API."""

    list_name = "input"
    joined = True

    def is_reply(self, message: Message) -> bool:
        kind = _type(message)
        if kind == "message":
            return kind_of(message, "role") == "assistant"
        return not kind.endswith("_output") and kind != "mcp_approval_response"

    def texts(self, message: Message) -> list[str]:
        return content_texts(message.get("content")) if _type(message) == "message" else []

    def results(self, message: Message) -> list[CallResult]:
        if not _type(message).endswith(_OUTPUT):
            return []
        return [read_result(identifier(message, "call_id"), message.get("output"), message)]

    def parts(self, message: Message) -> Iterator[ReplyPart]:
        kind = _type(message)
        if kind == "message":
            yield from content_texts(message.get("content"))
        elif kind in _CLIENT:
            yield _client_call(message)
        elif kind.endswith(_CALL):
            yield _served_call(message)
            yield _served_result(message)

    def stop(self, message: Message) -> str | None:  # noqa: ARG002  # of the response, not of its items
        return None

    def system(self, request: Message) -> list[str]:
        instructions = optional_text(request, "instructions")
        return [] if instructions is None else [instructions]

    def offer(self, request: Message) -> OfferedTools:
        return offer_tools(read_each(request, "tools", _item_tool))


class ItemStream:
    """A response, assembled from its events. The last event repeats the whole response."""

    def __init__(self) -> None:
        self.ended = False
        self._response: dict[str, Any] | None = None
        self._items: dict[int, dict[str, Any]] = {}

    def add(self, event: dict[str, Any]) -> None:
        kind = kind_of(event)
        if (response := mapping(event, "response")) is not None:
            self._response = response
            self.ended = kind in ("response.completed", "response.incomplete", "response.failed")
        elif kind == "response.output_item.done":
            self._items[position(event, "output_index")] = require_object(event.get("item"), "item")

    def response(self) -> dict[str, Any] | None:
        """Return the response as far as received; None if it has not started."""
        if self._response is None or self.ended:
            return self._response
        return {**self._response, "output": [self._items[index] for index in sorted(self._items)]}


def read_stop_reason(response: dict[str, Any]) -> str | None:
    """Return ``tool_use`` for a completed response with calls; an incomplete one has its own reason."""
    status = optional_text(response, "status")
    if status == "completed":
        calls = any(kind_of(item) in _CLIENT for _, item in each_object(response, "output"))
        return "tool_use" if calls else "end_turn"
    if status == "incomplete":
        reason = optional_text(mapping(response, "incomplete_details") or {}, "reason")
        return "max_tokens" if reason == "max_output_tokens" else reason
    return None if status == "in_progress" else status


def _type(item: dict[str, Any]) -> str:
    """Return the type of an item; messages may omit it."""
    return (kind_of(item) or "") if "type" in item else "message"


def _client_call(item: dict[str, Any]) -> ToolCall:
    kind = item["type"]
    if kind == "function_call":
        arguments = parse_arguments(optional_text(item, "arguments"))
        name = identifier(item, "name")
    else:
        arguments = item.get("input", item.get("action", item.get("operation")))
        name = optional_text(item, "name") or kind.removesuffix(_CALL)
    valid = kind != "function_call" or type(arguments) is dict
    return ToolCall(
        identifier(item, "call_id"), name, arguments, _CLIENT[kind], "function_call", valid, caller=read_caller(item)
    )


def _served_call(item: dict[str, Any]) -> ToolCall:
    kind = item["type"]
    if kind == "mcp_call":
        arguments = parse_arguments(optional_text(item, "arguments"))
    else:
        arguments = next((item[name] for name in _SERVED_INPUT if item.get(name) is not None), None)
    return ToolCall(
        identifier(item, "id"),
        optional_text(item, "name") or kind.removesuffix(_CALL),
        arguments,
        _SERVED_KINDS.get(kind, "function"),
        "function_call",
        valid=kind != "mcp_call" or type(arguments) is dict,
        served=True,
        caller=read_caller(item),
    )


def _served_result(item: dict[str, Any]) -> CallResult:
    status = optional_text(item, "status") or "completed"
    payload = next((item[name] for name in _SERVED_OUTPUT if item.get(name) is not None), None)
    failure: Failure | None = None
    if item.get("error") is not None or status in ("failed", "incomplete"):
        error = item.get("error")
        payload = error if payload is None else payload
        text = error if type(error) is str else "" if error is None else canonical_bytes(error).decode()
        failure = read_failure({"error": error}, text)
    evidence: dict[str, Any] = {}
    outputs = item.get("outputs")
    if item["type"] == "code_interpreter_call" and type(outputs) is list:
        logs = [out["logs"] for out in outputs if type(out) is dict and type(out.get("logs")) is str]
        # The log has one stream for standard output and standard error.
        both = digest_text("\n".join(logs))
        evidence["observation"] = {"stdoutDigest": both, "stderrDigest": both}
    state = "running" if status in _RUNNING else "ok" if failure is None else "error"
    return CallResult(identifier(item, "id"), payload, item, state, failure, None, evidence)


def _item_tool(definition: dict[str, Any]) -> ToolDefinition | None:
    """Return the tool; None for a server, which names its tools."""
    if kind_of(definition) == "mcp":
        return None
    kind = identifier(definition, "type")
    if "name" in definition:
        name = identifier(definition, "name")
        schema = definition.get("parameters", definition.get("format"))
        return ToolDefinition(name, schema, deferred=definition.get("defer_loading") is True)
    name = kind
    for suffix in _SUFFIXES:
        name = name.partition(suffix)[0]
    name = {"computer_use": "computer"}.get(name, name)
    return ToolDefinition(name, {"type": kind, "digest": digest_of(definition)}, _CLIENT.get(name + _CALL, "function"))


_CHUNK: Final = "chat.completion.chunk"


class OpenAILog(ExchangeLog):
    """Converts records to events, in log order. The two APIs have separate conversations."""

    def __init__(self, limits: LogLimits) -> None:
        super().__init__(limits)
        self._chat_dialect, self._item_dialect = ChatMessages(), Items()
        self._chat = Dialogue(self._chat_dialect, limits)
        self._items = Dialogue(self._item_dialect, limits)
        self._chunks = Chunks()
        self._events = ItemStream()

    def read(self, value: JSON, line: int) -> Iterator[ConversationEvent]:
        if type(value) is list:
            self._set_line(line)
            if any(type(message) is dict and "type" in message for message in value):
                yield from self._items.transcript({"input": value})
            else:
                yield from self._chat.transcript({"messages": value})
            return
        record = require_object(value)
        if kind_of(record, "object") == _CHUNK:
            if self._chunks.belongs_to_another(record):
                yield from self._streamed()
            self._set_line(line)
            self._chunks.add(record)
        elif (kind_of(record) or "").startswith("response.") or kind_of(record) == "error":
            self._set_line(line)
            self._events.add(record)
            if self._events.ended:
                yield from self._streamed()
        else:
            yield from self._streamed()
            self._set_line(line)
            yield from self._read_complete(record)

    def finish(self) -> Iterator[ConversationEvent]:
        yield from self._streamed()
        yield from self._chat.finish()
        yield from self._items.finish()

    def _set_line(self, line: int) -> None:
        self._chat.line = self._items.line = line

    def _read_complete(self, record: dict[str, Any]) -> Iterator[ConversationEvent]:
        if "request" in record or type(record.get("response")) in (dict, list, str):
            yield from self._exchange(record)
        elif kind_of(record, "object") in ("chat.completion", "response"):
            yield from self._answer(record)
        elif "messages" in record:
            yield from self._chat.transcript(record, "messages")
        elif "role" in record and "type" not in record:
            yield from self._chat.message(record)
        elif kind_of(record) is not None:
            yield from self._items.message(record)
        else:
            raise Fault("neither an exchange, nor a message or item, nor a part of a stream")

    def _request(self, request: Message, session: str | None) -> ConversationEvent:
        if "input" not in request:
            return self._chat.request(request, session)
        if type(request["input"]) is str:
            request = {**request, "input": [{"role": "user", "content": request["input"]}]}
        previous = optional_text(request, "previous_response_id")
        conversation = request.get("conversation")
        if type(conversation) is dict:
            conversation = identifier(conversation, "id")
        key = previous or conversation
        return self._items.request(request, session) if key is None else self._items.addition(request, str(key))

    def _add_part(self, part: Message) -> None:
        (self._chunks if kind_of(part, "object") == _CHUNK else self._events).add(part)

    def _answer(self, answer: Message) -> Iterator[ConversationEvent]:
        if "choices" in answer:
            if array(answer, "choices"):
                yield self._completion(answer)
        elif "output" in answer:
            parts = chain.from_iterable(read_each(answer, "output", lambda item: list(self._item_dialect.parts(item))))
            model, key = optional_text(answer, "model"), optional_text(answer, "id")
            yield self._items.reply(parts, read_stop_reason(answer), model, key)
        elif answer.get("error") is None:
            raise Fault("neither choices, nor output, nor an error")

    def _completion(self, answer: Message) -> ConversationEvent:
        first, *others = each_object(answer, "choices")
        for i, other in others:
            refuse_calls(mapping(other, "message"), i)
        with inside("choices", 0):
            _, choice = first
            parts = self._chat_dialect.parts(require_object(choice.get("message"), "message"))
            return self._chat.reply(parts, self._chat_dialect.stop(choice), optional_text(answer, "model"))

    def _streamed(self) -> Iterator[ConversationEvent]:
        completion, self._chunks = self._chunks.completion(), Chunks()
        if completion is not None:
            yield self._completion(completion)
        response, self._events = self._events.response(), ItemStream()
        if response is not None:
            yield from self._answer(response)
