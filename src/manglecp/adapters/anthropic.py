"""Logs of the Anthropic Messages API.

A record is one of:

* an exchange, ``{"request": …, "response": …}``, or only one of the two; ``session`` may name the conversation. The
  response is a message, the list of its events, or the text of its event stream. An ``error`` is skipped, because the
  client then repeats the request;
* a response (``type`` is ``message``), or an event of a streamed response;
* a transcript: ``{"messages": […]}``, a list of messages, or one message per line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from manglecp.adapters import conversation, records
from manglecp.adapters.policies import ToolDefinition, normalize_caller, offer_tools, read_caller
from manglecp.base.digest import digest_text
from manglecp.wire import JSON, Fault, faults_at

STREAM_EVENTS: Final = frozenset(
    {
        *("message_start", "message_delta", "message_stop", "ping", "error"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)
_TEXT_DELTAS: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""The type of a delta, and the member of its block to which the text is appended."""


class Stream:
    """A message, assembled from its events."""

    def __init__(self) -> None:
        self._message: dict[str, Any] | None = None
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}  # texts to append, by block index and member

    def add(self, event: dict[str, Any]) -> None:
        """Add one event. Raises :class:`Fault` if it does not follow from the previous events."""
        kind = records.kind_of(event)
        if kind == "message_start":
            if self._message is not None:
                raise Fault("a message starts within another")
            self._message = dict(records.require_object(event.get("message"), "message"))
        elif kind in ("ping", "error"):
            return
        elif self._message is None:
            raise Fault("a part of a message that has not started")
        elif kind == "content_block_start":
            block = records.require_object(event.get("content_block"), "content_block")
            self._blocks[records.stream_index(event, "index")] = dict(block)
        elif kind == "content_block_delta":
            self._add_delta(records.stream_index(event, "index"), records.require_object(event.get("delta"), "delta"))
        elif kind == "message_delta":
            self._message |= records.optional_object(event, "delta") or {}
        elif kind not in ("content_block_stop", "message_stop"):
            raise Fault("not an event of a stream").inside("type")

    def message(self) -> dict[str, Any] | None:
        """Return the message with all events so far; None before its start."""
        if self._message is None:
            return None
        blocks = {index: dict(block) for index, block in self._blocks.items()}
        for (index, name), pieces in self._pieces.items():
            text = "".join(pieces)
            if name == "input":
                blocks[index]["input"] = records.parse_arguments(text) if text else blocks[index].get("input", {})
            else:
                blocks[index][name] = (records.optional_text(blocks[index], name) or "") + text
        content = records.list_or_empty(self._message, "content")
        return {**self._message, "content": [*content, *(blocks[index] for index in sorted(blocks))]}

    def _add_delta(self, index: int, delta: dict[str, Any]) -> None:
        block = self._blocks.get(index)
        if block is None:
            raise Fault("a part of a block that has not started").inside("index")
        kind = records.kind_of(delta)
        if kind == "input_json_delta":
            self._pieces.setdefault((index, "input"), []).append(records.optional_text(delta, "partial_json") or "")
        elif kind in _TEXT_DELTAS:
            name = _TEXT_DELTAS[kind]
            self._pieces.setdefault((index, name), []).append(records.optional_text(delta, name) or "")
        elif kind == "citations_delta":
            block["citations"] = [*records.list_or_empty(block, "citations"), delta.get("citation")]


_PROVIDER_BLOCKS: Final = ("server_tool_use", "mcp_tool_use")  # calls that the provider runs
_OTHER_BLOCKS: Final = ("thinking", "redacted_thinking", "container_upload", "compaction", "image", "document")
_PROVIDER_KINDS: Final = {  # the kind of a call, by the name of the tool
    "code_execution": conversation.CODE_EXECUTION,
    "bash_code_execution": conversation.CODE_EXECUTION,
    "text_editor_code_execution": "edit",
}
_KINDS_BY_TYPE_PREFIX: Final = {  # the kind of a tool, by the beginning of its ``type``
    "bash_": "shell",
    "text_editor_": "edit",
    "tool_search_": "search",
    conversation.CODE_EXECUTION: conversation.CODE_EXECUTION,
}


class AnthropicLog(conversation.ExchangeLog):
    """Converts records to events, in log order."""

    def __init__(self) -> None:
        self._dialogue = conversation.Dialogue(_Messages())
        self._stream = Stream()

    def read(self, value: JSON, line: int) -> Iterator[conversation.ConversationEvent]:
        if type(value) is list:
            self._dialogue.line = line
            yield from self._dialogue.transcript({"messages": value})
            return
        record = records.require_object(value)
        kind = records.kind_of(record)
        if kind in STREAM_EVENTS and kind != "message_start":
            self._stream.add(record)
            return
        yield from self._end_stream()
        self._dialogue.line = line
        if kind == "message_start":
            self._stream.add(record)
        elif "request" in record or "response" in record:
            yield from self._exchange(record)
        elif "messages" in record:
            yield from self._dialogue.transcript(record, "messages")
        elif kind == "message" and self._dialogue.has_request:
            yield self._reply(record)
        elif "role" in record:
            yield from self._dialogue.message(record)
        else:
            raise records.unexpected_value("neither an exchange, nor a message, nor an event of a stream", record)

    def finish(self) -> Iterator[conversation.ConversationEvent]:
        yield from self._end_stream()
        yield from self._dialogue.finish()

    def _request(self, request: conversation.Message, session: str | None) -> conversation.ConversationEvent:
        return self._dialogue.request(request, session)

    def _complete_response(self, response: conversation.Message) -> Iterator[conversation.ConversationEvent]:
        if records.kind_of(response) == "error" or "error" in response:
            return
        if type(response.get("content")) not in (list, str):
            raise records.unexpected_value("neither a message with content, nor an error", response)
        yield self._reply(response)

    def _add_part(self, part: conversation.Message) -> None:
        self._stream.add(part)

    def _end_stream(self) -> Iterator[conversation.ConversationEvent]:
        message, self._stream = self._stream.message(), Stream()
        if message is not None:
            yield self._reply(message)

    def _reply(self, message: dict[str, Any]) -> conversation.ModelReply:
        stop, model = records.optional_text(message, "stop_reason"), records.optional_text(message, "model")
        return self._dialogue.reply(_read_parts(message), stop, model)


class _Messages(conversation.Dialect):
    """The dialect of the Messages API."""

    def read_message(self, message: conversation.Message) -> conversation.ChatMessage:
        author = conversation.read_author(message, "system", "user", "assistant")
        if message.get("tool_calls") or "content" not in message:  # in this API, calls are only in the content
            raise records.unexpected_value("not a message of the Messages API", message)
        if author == "model":
            stop, model = records.optional_text(message, "stop_reason"), records.optional_text(message, "model")
            return conversation.ChatMessage(author, parts=tuple(_read_parts(message)), stop=stop, model=model)
        texts, results = [], []
        for i, block in _blocks(message):
            if type(text := block.get("text")) is str:
                texts.append(text)
            if records.kind_of(block) == "tool_result":
                with faults_at("content", i):
                    results.append(_read_result(block, is_provider_run=False))
        return conversation.ChatMessage(author, texts, results)

    def system(self, request: conversation.Message) -> list[str]:
        system = request.get("system")
        if type(system) is str:
            return [system]
        return [text for _, block in records.each_object(request, "system") if type(text := block.get("text")) is str]

    def offer(self, request: conversation.Message) -> conversation.OfferedTools:
        # The log does not contain the tool names of an MCP server.
        return offer_tools(records.read_each(request, "tools", _read_tool), is_complete=not request.get("mcp_servers"))

    def choice(self, request: conversation.Message) -> JSON:
        """Return ``specific`` for ``tool``, None for ``none``, and other choices as they are."""
        choice = records.optional_object(request, "tool_choice") or {}
        if records.kind_of(choice) == "tool":
            return {"mode": "specific", "toolName": choice.get("name")}
        return None if records.kind_of(choice) == "none" else records.kind_of(choice)

    def is_sequential(self, request: conversation.Message) -> bool:
        return (records.optional_object(request, "tool_choice") or {}).get("disable_parallel_tool_use") is True


def _blocks(message: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the content blocks; plain text counts as one text block."""
    content = message.get("content")
    if type(content) is str:
        yield 0, {"type": "text", "text": content}
    else:
        yield from records.each_object(message, "content")


def _read_parts(message: dict[str, Any]) -> Iterator[conversation.ReplyPart]:
    """Yield the texts, calls and results of a reply; thinking blocks are skipped."""
    for i, block in _blocks(message):
        kind = records.kind_of(block)
        with faults_at("content", i):
            if kind == "text":
                yield records.optional_text(block, "text") or ""
            elif kind == "tool_use" or kind in _PROVIDER_BLOCKS:
                yield _read_call(block, is_provider_run=kind in _PROVIDER_BLOCKS)
            elif kind is not None and kind.endswith("_tool_result"):
                yield _read_result(block, is_provider_run=True)
            elif kind not in _OTHER_BLOCKS:  # not skipped, because an unknown block could be a call
                raise records.unexpected_value("the type of the block is unknown", block)


def _read_call(block: dict[str, Any], *, is_provider_run: bool) -> conversation.ToolCall:
    name = records.required_text(block, "name")
    arguments = block.get("input")
    kind = "mcp" if block["type"] == "mcp_tool_use" else "function"
    if block["type"] == "server_tool_use":
        kind = _PROVIDER_KINDS.get(name, "search" if name.startswith("tool_search_") else "function")
    return conversation.ToolCall(
        records.required_text(block, "id"),
        name,
        arguments,
        kind=kind,
        is_valid=type(arguments) is dict,
        is_provider_run=is_provider_run,
        caller=read_caller(block),
    )


def _read_result(block: dict[str, Any], *, is_provider_run: bool) -> conversation.CallResult:
    """Return the result of a tool. A result of the provider is an object, with an ``error_code`` after a failure."""
    content = block.get("content")
    provider_content = content if is_provider_run and type(content) is dict else {}
    has_failed = block.get("is_error") is True or "error_code" in provider_content
    failure: conversation.Failure | None = None
    row_members: dict[str, Any] = {}
    if has_failed:
        if provider_content:  # an error object without a message gets its JSON as the message
            text = records.canonical_bytes(content).decode()
        else:
            blocks = content if type(content) is list else [{"text": content}]
            text = "\n".join(records.texts_of([block.get("text") for block in blocks if type(block) is dict]))
        failure = conversation.read_failure(provider_content or None, text)
    elif type(provider_content.get("stdout")) is str and type(provider_content.get("stderr")) is str:
        row_members["observation"] = {
            "stdoutDigest": digest_text(provider_content["stdout"]),
            "stderrDigest": digest_text(provider_content["stderr"]),
        }
    return conversation.CallResult(
        records.required_text(block, "tool_use_id"),
        "" if content is None and not is_provider_run else content,
        block,
        failure,
        _read_found_tools(content),
        row_members,
    )


def _read_found_tools(content: JSON) -> tuple[str, ...] | None:
    """Return the names of the tools that a search found; None without a search, or if it found no tool."""
    if type(content) is dict and type(content.get("tool_references")) is list:
        content = content["tool_references"]
    if type(content) is not list:
        return None
    names = [
        block["tool_name"]
        for block in content
        if type(block) is dict and records.kind_of(block) == "tool_reference" and type(block.get("tool_name")) is str
    ]
    return tuple(names) or None


def _read_tool(definition: dict[str, Any]) -> ToolDefinition | None:
    """Return the tool; None for the tools of an MCP server, which the log does not name."""
    if "name" not in definition:
        return None
    name = records.required_text(definition, "name")
    type_ = records.optional_text(definition, "type") or "custom"
    kind = next((kind for prefix, kind in _KINDS_BY_TYPE_PREFIX.items() if type_.startswith(prefix)), "function")
    allowed_callers = records.list_or_empty(definition, "allowed_callers")
    callers = [normalize_caller(caller) for caller in allowed_callers if type(caller) is str]
    return ToolDefinition(
        name,
        definition.get("input_schema", {"type": type_, "name": name}),
        kind,
        definition.get("defer_loading") is True,
        tuple(dict.fromkeys(callers)) or None,
        tuple(records.list_or_empty(definition, "input_examples")),
        ("bash_code_execution", "text_editor_code_execution") if kind == conversation.CODE_EXECUTION else (),
    )
