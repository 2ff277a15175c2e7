"""Logs of the OpenAI APIs, Chat Completions and Responses.

A record is one of:

* an exchange, ``{"request": …, "response": …}``, or only one of the two; ``session`` may name the conversation. A
  request with ``input`` belongs to the Responses API, a request with ``messages`` to Chat Completions;
* a completion or a response object, or a chunk of a streamed completion or an event of a streamed response;
* a transcript: ``{"messages": […]}``, a list of messages (Chat Completions) or of items with a ``type`` (Responses),
  or one message or item per line.

Only the first choice of a completion is read; a call in another choice is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, Literal

from manglecp.adapters import conversation, records
from manglecp.adapters.policies import ToolDefinition, offer_tools, read_caller
from manglecp.base.digest import digest_text
from manglecp.base.text import quote
from manglecp.wire import JSON, Fault, faults_at

CHAT_ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
STOP_REASONS: Final = {"tool_calls": "tool_use", "stop": "end_turn", "length": "max_tokens"}
"""The stop reason of the harness for each ``finish_reason`` of Chat Completions; other reasons keep their name."""


class _OpenAIDialect(conversation.Dialect):
    def choice(self, request: conversation.Message) -> JSON:
        """Return ``any`` for ``required``, ``specific`` for a named tool, None for ``none``, and others unchanged."""
        choice = request.get("tool_choice")
        if type(choice) is dict:
            function = choice.get("function")
            name = function.get("name") if type(function) is dict else choice.get("name")
            return {"mode": "specific", "toolName": name} if type(name) is str else None
        return {"required": "any", "none": None}.get(choice, choice) if type(choice) is str else None

    def is_sequential(self, request: conversation.Message) -> bool:
        return request.get("parallel_tool_calls") is False


class ChatMessages(_OpenAIDialect):
    """The dialect of Chat Completions."""

    def read_message(self, message: conversation.Message) -> conversation.ChatMessage:
        author = conversation.read_author(message, *CHAT_ROLES)
        if author == "model":
            stop, model = read_finish_reason(message), records.optional_text(message, "model")
            return conversation.ChatMessage(author, parts=tuple(read_parts(message)), stop=stop, model=model)
        if message["role"] != "tool":
            return conversation.ChatMessage(author, content_texts(message.get("content")))
        call_id = records.required_text(message, "tool_call_id")
        return conversation.ChatMessage(author, results=[read_result(call_id, message.get("content"), message)])

    def system(self, request: conversation.Message) -> list[str]:  # noqa: ARG002  # system messages are in the list
        return []

    def offer(self, request: conversation.Message) -> conversation.OfferedTools:
        return offer_tools(records.read_each(request, "tools", _read_tool))


def read_parts(message: conversation.Message) -> Iterator[conversation.ReplyPart]:
    """Yield the texts and calls of a reply of Chat Completions. Raises :class:`Fault` for unknown forms of calls."""
    if not _REPLY_MEMBERS.intersection(message):
        raise records.unexpected_value("neither content, nor calls", message)
    if message.get("function_call") is not None:
        raise Fault("the call has no id: log tool_calls").inside("function_call")
    yield from _reply_texts(message)
    yield from records.read_each(message, "tool_calls", _read_call)


def read_finish_reason(holder: conversation.Message) -> str | None:
    """Return the stop reason of a message, or of a choice of a completion."""
    reason = records.optional_text(holder, "finish_reason")
    return None if reason is None else STOP_REASONS.get(reason, reason)


_ARGUMENT_MEMBERS: Final = {"function": "arguments", "custom": "input"}
"""The member that holds the arguments of a call, by the type of the call."""


class Chunks:
    """A completion, assembled from its chunks. ``_calls`` has the calls by index; ``pieces`` are texts of arguments."""

    def __init__(self) -> None:
        self._first: dict[str, Any] | None = None
        self._texts: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish_reason: str | None = None

    def belongs_to_another(self, chunk: dict[str, Any]) -> bool:
        """Return whether the chunk has another id than this completion."""
        return self._first is not None and chunk.get("id") != self._first.get("id")

    def add(self, chunk: dict[str, Any]) -> None:
        """Add one chunk. Raises :class:`Fault` for calls in a choice other than the first."""
        self._first = self._first or chunk
        for i, choice in records.each_object(chunk, "choices"):
            if choice.get("index", 0) != 0:
                refuse_calls(records.optional_object(choice, "delta"), i)
                continue
            with faults_at("choices", i):
                self._finish_reason = records.optional_text(choice, "finish_reason") or self._finish_reason
                delta = records.optional_object(choice, "delta") or {}
                with faults_at("delta"):
                    self._texts.append(records.optional_text(delta, "content") or "")
                    for position, piece in records.each_object(delta, "tool_calls"):
                        with faults_at("tool_calls", position):
                            self._add_call_piece(piece)

    def completion(self) -> dict[str, Any] | None:
        """Return the completion with all chunks so far; None if there was no chunk."""
        if self._first is None:
            return None
        calls = [
            {
                "id": call["id"],
                "type": call["type"],
                call["type"]: {"name": call["name"], _ARGUMENT_MEMBERS[call["type"]]: "".join(call["pieces"])},
            }
            for _, call in sorted(self._calls.items())
        ]
        message = {"role": "assistant", "content": "".join(self._texts) or None, "tool_calls": calls or None}
        return {**self._first, "choices": [{"index": 0, "message": message, "finish_reason": self._finish_reason}]}

    def _add_call_piece(self, piece: dict[str, Any]) -> None:
        index = records.stream_index({"index": 0, **piece}, "index")
        call = self._calls.setdefault(index, {"id": None, "type": "function", "name": None, "pieces": []})
        call["id"] = records.optional_text(piece, "id") or call["id"]
        for call_type, argument_member in _ARGUMENT_MEMBERS.items():
            part = records.optional_object(piece, call_type)
            if part is not None:
                call["type"] = call_type
                call["name"] = records.optional_text(part, "name") or call["name"]
                call["pieces"].append(records.optional_text(part, argument_member) or "")


def refuse_calls(message: dict[str, Any] | None, position: int) -> None:
    """Raise :class:`Fault` if choice ``position``, which is not the first, has calls: they would be lost."""
    if message is not None and message.get("tool_calls"):
        raise Fault("calls in a choice other than the first are not supported").inside("choices", position)


_REPLY_MEMBERS: Final = frozenset({"content", "tool_calls", "function_call", "refusal", "audio"})
_REPLY_PARTS: Final = frozenset(
    {"text", "output_text", "refusal", "reasoning", "reasoning_text", "summary_text", "thinking", "image_url", "file"}
)


def _reply_texts(message: conversation.Message) -> list[str]:
    """Return the texts of a reply. Raises :class:`Fault` for an unknown part, which could be a call."""
    content = message.get("content")
    for i, part in enumerate(content if type(content) is list else []):
        if records.kind_of(records.require_object(part, "content", i)) not in _REPLY_PARTS:
            raise records.unexpected_value("the type of the part is unknown", part).inside("content", i)
    return content_texts(content)


def content_texts(content: JSON) -> list[str]:
    """Return the texts of a content, which is one text or a list of parts."""
    if type(content) is str:
        return [content]
    parts = content if type(content) is list else []
    return [text for part in parts if type(part) is dict and type(text := part.get("text")) is str]


def read_result(call_id: str, content: JSON, rendering: JSON) -> conversation.CallResult:
    """Return a result, rendered in a message. The APIs have no error flag: the content shows whether it failed."""
    payload = "" if content is None else content
    text = "\n".join(records.texts_of(payload) if type(payload) is not list else content_texts(payload))
    failure = conversation.read_failure(None, text) if conversation.reports_failure(None, text) else None
    return conversation.CallResult(call_id, payload, rendering, failure)


def _read_call(call: dict[str, Any]) -> conversation.ToolCall:
    call_id, custom = records.required_text(call, "id"), records.optional_object(call, "custom")
    function = records.require_object(call.get("function"), "function") if custom is None else custom
    arguments = function.get("input")
    if custom is None:
        arguments = records.parse_arguments(records.optional_text(function, "arguments"))
    name, is_valid = records.required_text(function, "name"), custom is not None or type(arguments) is dict
    return conversation.ToolCall(call_id, name, arguments, block="function_call", is_valid=is_valid)


def _read_tool(definition: dict[str, Any]) -> ToolDefinition:
    custom = records.optional_object(definition, "custom")
    function = records.optional_object(definition, "function") or custom or definition
    return ToolDefinition(records.required_text(function, "name"), function.get("parameters", function.get("format")))


_CALL_SUFFIX: Final = "_call"  # the end of the type of a call item
_OUTPUT_SUFFIX: Final = "_call_output"
_CLIENT_CALLS: Final = {
    "function_call": "function",
    "custom_tool_call": "function",
    "computer_call": "function",
    "local_shell_call": "shell",
    "shell_call": "shell",
    "apply_patch_call": "edit",
}
"""The types of calls that the client runs, each with its ``toolKind``; the provider runs all others."""
_PROVIDER_KINDS: Final = {"code_interpreter_call": conversation.CODE_EXECUTION, "mcp_call": "mcp"}
# Members with the input or output of a call; the first that is present counts.
_CLIENT_INPUT: Final = ("input", "action", "operation")
_PROVIDER_INPUT: Final = ("arguments", "action", "queries", "code", "input")
_PROVIDER_OUTPUT: Final = ("output", "outputs", "results", "result")
_RUNNING_STATUSES: Final = ("in_progress", "searching", "interpreting", "generating", "calling", "queued")
_OTHER_ITEMS: Final = ("reasoning", "item_reference", "mcp_list_tools", "mcp_approval_request", "compaction")
_VERSION_MARKS: Final = ("_preview", "_20")  # how a version in the type of a tool begins, such as ``_2025_03_11``


class Items(_OpenAIDialect):
    """The dialect of the Responses API, whose messages and calls are items."""

    list_name = "input"
    joins_messages = True

    def read_message(self, message: conversation.Message) -> conversation.ChatMessage:
        kind = _item_type(message)
        if kind == "message":
            author = conversation.read_author(message, "system", "developer", "user", "assistant")
            if author != "model":
                return conversation.ChatMessage(author, content_texts(message.get("content")))
            texts = _reply_texts(message)
            return conversation.ChatMessage(author, parts=texts, model=records.optional_text(message, "model"))
        if kind.endswith(_OUTPUT_SUFFIX):
            call_id = records.required_text(message, "call_id")
            return conversation.ChatMessage("user", results=[read_result(call_id, message.get("output"), message)])
        if kind.endswith(("_output", "_approval_response")):
            return conversation.ChatMessage("user")
        if not kind.endswith(_CALL_SUFFIX) and kind not in _OTHER_ITEMS:
            raise records.unexpected_value(f"the item type {quote(kind)} is unknown", message)
        return conversation.ChatMessage("model", parts=tuple(read_item_parts(message)))

    def system(self, request: conversation.Message) -> list[str]:
        instructions = records.optional_text(request, "instructions")
        return [] if instructions is None else [instructions]

    def offer(self, request: conversation.Message) -> conversation.OfferedTools:
        return offer_tools(records.read_each(request, "tools", _read_item_tool))


def read_item_parts(item: conversation.Message) -> Iterator[conversation.ReplyPart]:
    """Yield the texts, the call, or the call and its result, that an item of a reply consists of."""
    kind = _item_type(item)
    if kind == "message":
        yield from _reply_texts(item)
    elif kind.endswith(_CALL_SUFFIX):
        yield _read_item_call(item)
        if kind not in _CLIENT_CALLS:
            yield _read_provider_result(item)


class ItemStream:
    """A response, assembled from its events. The last event repeats the whole response."""

    def __init__(self) -> None:
        self.has_ended = False
        self._response: dict[str, Any] | None = None
        self._items: dict[int, dict[str, Any]] = {}

    def add(self, event: dict[str, Any]) -> None:
        kind = records.kind_of(event)
        if (response := records.optional_object(event, "response")) is not None:
            self._response = response
            self.has_ended = kind in ("response.completed", "response.incomplete", "response.failed")
        elif kind == "response.output_item.done":
            self._items[records.stream_index(event, "output_index")] = records.require_object(event.get("item"), "item")

    def response(self) -> dict[str, Any] | None:
        """Return the response with all events so far; None if it has not started."""
        if self._response is None or self.has_ended:
            return self._response
        return {**self._response, "output": [self._items[index] for index in sorted(self._items)]}


def read_stop_reason(response: dict[str, Any]) -> str | None:
    """Return the stop reason of a response.

    It is ``tool_use`` or ``end_turn`` if the response is completed, its own reason if it is incomplete, None while it
    is in progress, and otherwise its status.
    """
    status = records.optional_text(response, "status")
    if status == "completed":
        has_calls = any(records.kind_of(item) in _CLIENT_CALLS for _, item in records.each_object(response, "output"))
        return "tool_use" if has_calls else "end_turn"
    if status == "incomplete":
        reason = records.optional_text(records.optional_object(response, "incomplete_details") or {}, "reason")
        return "max_tokens" if reason == "max_output_tokens" else reason
    return None if status == "in_progress" else status


def _item_type(item: dict[str, Any]) -> str:
    """Return the type of an item; messages may omit it."""
    return (records.kind_of(item) or "") if "type" in item else "message"


def _read_item_call(item: dict[str, Any]) -> conversation.ToolCall:
    kind = item["type"]
    is_provider_run = kind not in _CLIENT_CALLS
    has_json_text = kind in ("function_call", "mcp_call")  # whether the arguments are a JSON text of an object
    if has_json_text:
        arguments = records.parse_arguments(records.optional_text(item, "arguments"))
    else:
        members = _PROVIDER_INPUT if is_provider_run else _CLIENT_INPUT
        arguments = next((item[name] for name in members if item.get(name) is not None), None)
    read_name = records.required_text if kind == "function_call" else records.optional_text
    name = read_name(item, "name") or kind.removesuffix(_CALL_SUFFIX)
    return conversation.ToolCall(
        records.required_text(item, "id" if is_provider_run else "call_id"),
        name,
        arguments,
        _PROVIDER_KINDS.get(kind, "function") if is_provider_run else _CLIENT_CALLS[kind],
        "function_call",
        is_valid=not has_json_text or type(arguments) is dict,
        is_provider_run=is_provider_run,
        caller=read_caller(item),
    )


def _read_provider_result(item: dict[str, Any]) -> conversation.CallResult:
    """Return the result of a call that the provider ran, from the item of the call."""
    status = records.optional_text(item, "status") or "completed"
    payload = next((item[name] for name in _PROVIDER_OUTPUT if item.get(name) is not None), None)
    failure: conversation.Failure | None = None
    if item.get("error") is not None or status in ("failed", "incomplete"):
        error = item.get("error")
        payload = error if payload is None else payload
        text = error if type(error) is str else "" if error is None else records.canonical_bytes(error).decode()
        failure = conversation.read_failure({"error": error}, text)
    row_members: dict[str, Any] = {}
    outputs = item.get("outputs")
    if item["type"] == "code_interpreter_call" and type(outputs) is list:
        logs = [out["logs"] for out in outputs if type(out) is dict and type(out.get("logs")) is str]
        # ``logs`` has both standard output and standard error.
        logs_digest = digest_text("\n".join(logs))
        row_members["observation"] = {"stdoutDigest": logs_digest, "stderrDigest": logs_digest}
    state: Literal["running"] | None = "running" if status in _RUNNING_STATUSES else None
    call_id = records.required_text(item, "id")
    return conversation.CallResult(call_id, payload, item, failure, row_members=row_members, state=state)


def _read_item_tool(definition: dict[str, Any]) -> ToolDefinition | None:
    """Return the tool; None for the tools of an MCP server, which the log does not name."""
    if records.kind_of(definition) == "mcp":
        return None
    kind = records.required_text(definition, "type")
    if "name" in definition:
        name = records.required_text(definition, "name")
        schema = definition.get("parameters", definition.get("format"))
        return ToolDefinition(name, schema, is_deferred=definition.get("defer_loading") is True)
    name = kind
    for mark in _VERSION_MARKS:
        name = name.partition(mark)[0]
    name = {"computer_use": "computer"}.get(name, name)
    tool_kind = _CLIENT_CALLS.get(name + _CALL_SUFFIX, "function")
    return ToolDefinition(name, {"type": kind, "digest": records.digest_of(definition)}, tool_kind)


_CHUNK: Final = "chat.completion.chunk"  # the member ``object`` of a chunk


class OpenAILog(conversation.ExchangeLog):
    """Converts records to events, in log order. The two APIs have separate conversations."""

    def __init__(self) -> None:
        self._chat = conversation.Dialogue(ChatMessages())
        self._items = conversation.Dialogue(Items())
        self._chunks = Chunks()
        self._events = ItemStream()

    def read(self, value: JSON, line: int) -> Iterator[conversation.ConversationEvent]:
        if type(value) is list:
            self._set_line(line)
            if any(type(message) is dict and "type" in message for message in value):
                yield from self._items.transcript({"input": value})
            else:
                yield from self._chat.transcript({"messages": value})
            return
        record = records.require_object(value)
        if records.kind_of(record, "object") == _CHUNK:
            if self._chunks.belongs_to_another(record):
                yield from self._end_stream()
            self._set_line(line)
            self._chunks.add(record)
        elif (records.kind_of(record) or "").startswith("response.") or records.kind_of(record) == "error":
            self._set_line(line)
            self._events.add(record)
            if self._events.has_ended:
                yield from self._end_stream()
        else:
            yield from self._end_stream()
            self._set_line(line)
            yield from self._read_complete(record)

    def finish(self) -> Iterator[conversation.ConversationEvent]:
        yield from self._end_stream()
        yield from self._chat.finish()
        yield from self._items.finish()

    def _set_line(self, line: int) -> None:
        self._chat.line = self._items.line = line

    def _read_complete(self, record: dict[str, Any]) -> Iterator[conversation.ConversationEvent]:
        if "request" in record or type(record.get("response")) in (dict, list, str):
            yield from self._exchange(record)
        elif records.kind_of(record, "object") in ("chat.completion", "response"):
            yield from self._complete_response(record)
        elif "messages" in record:
            yield from self._chat.transcript(record, "messages")
        elif "role" in record and "type" not in record:
            yield from self._chat.message(record)
        elif records.kind_of(record) is not None:
            yield from self._items.message(record)
        else:
            raise records.unexpected_value("neither an exchange, nor a message or item, nor a part of a stream", record)

    def _request(self, request: conversation.Message, session: str | None) -> conversation.ConversationEvent:
        if "input" not in request:
            return self._chat.request(request, session)
        if type(request["input"]) is str:
            request = {**request, "input": [{"role": "user", "content": request["input"]}]}
        conversation_id = request.get("conversation")
        if type(conversation_id) is dict:
            conversation_id = records.required_text(conversation_id, "id")
        name = records.optional_text(request, "previous_response_id") or conversation_id
        return self._items.request(request, session) if name is None else self._items.addition(request, str(name))

    def _add_part(self, part: conversation.Message) -> None:
        stream = self._chunks if records.kind_of(part, "object") == _CHUNK else self._events
        stream.add(part)

    def _complete_response(self, response: conversation.Message) -> Iterator[conversation.ConversationEvent]:
        if "choices" in response:
            if records.list_or_empty(response, "choices"):
                yield self._completion_reply(response)
        elif "output" in response:
            items = records.read_each(response, "output", lambda item: list(read_item_parts(item)))
            model, key = records.optional_text(response, "model"), records.optional_text(response, "id")
            yield self._items.reply(chain.from_iterable(items), read_stop_reason(response), model, key)
        elif response.get("error") is None:
            raise records.unexpected_value("neither choices, nor output, nor an error", response)

    def _completion_reply(self, completion: conversation.Message) -> conversation.ConversationEvent:
        (_, choice), *other_choices = records.each_object(completion, "choices")
        for position, other_choice in other_choices:
            refuse_calls(records.optional_object(other_choice, "message"), position)
        with faults_at("choices", 0):
            message = records.require_object(choice.get("message"), "message")
            with faults_at("message"):
                parts = list(read_parts(message))
            return self._chat.reply(parts, read_finish_reason(choice), records.optional_text(completion, "model"))

    def _end_stream(self) -> Iterator[conversation.ConversationEvent]:
        completion, self._chunks = self._chunks.completion(), Chunks()
        if completion is not None:
            yield self._completion_reply(completion)
        response, self._events = self._events.response(), ItemStream()
        if response is not None:
            yield from self._complete_response(response)
