"""Logs of MCP: JSON-RPC messages between a client and a server, in the order of observation.

A record is a message, a list of messages, or an object of the logger with the message in its member ``message``. MCP
does not transport what the model read or whether it continued, so the evidence lacks both.

Calls that overlap in time form one turn, which ends when no call is open. Client and server choose request ids
independently, so both may have an open request with the same id: a response belongs to the last request with its id.

The result ``input_required`` does not answer a call. The call stays open, and the request that repeats it with the same
``requestState`` belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from manglecp.adapters import conversation, records
from manglecp.adapters.policies import ToolDefinition, offer_tools
from manglecp.wire import JSON, faults_at

_CALL: Final = "tools/call"
_LIST: Final = "tools/list"
_CANCELLED: Final = "notifications/cancelled"
_THREAD: Final = 1  # a log is one conversation


class McpLog:
    """Converts JSON-RPC messages to events, in log order."""

    def __init__(self) -> None:
        self._line = 0
        self._open_methods: dict[str | int, list[str]] = {}  # of requests without a response, by request id
        self._open_call_count = 0
        self._parts: list[conversation.ToolCall | conversation.CallResult] = []  # of the current turn
        self._cancelled: set[str | int] = set()  # ids of cancelled calls whose response may still arrive
        self._suspended: dict[bytes, list[str]] = {}  # ids of calls that wait for input, by name, arguments and state
        self._calls: dict[str | int, tuple[str, dict[str, Any]]] = {}  # call id and params, by the id of its request
        self._catalogue: list[ToolDefinition] = []  # the pages received so far
        self._offer: conversation.OfferedTools | None = None

    def read(self, value: JSON, line: int) -> Iterator[conversation.ConversationEvent]:
        self._line = line
        if type(value) is list:
            for i, message in enumerate(value):
                with faults_at(i):
                    yield from self._message(records.require_object(message))
            return
        record = records.require_object(value)
        if "jsonrpc" in record or "message" not in record:
            yield from self._message(record)
            return
        with faults_at("message"):
            yield from self._message(records.require_object(record["message"]))

    def finish(self) -> Iterator[conversation.ConversationEvent]:
        """Yield the last turn; calls that are still open have no result."""
        if self._parts:
            yield self._end_turn()

    def _message(self, message: dict[str, Any]) -> Iterator[conversation.ConversationEvent]:
        method = records.optional_text(message, "method")
        if method is not None and "id" in message:
            self._request(method, message)
        elif method is not None:
            if method == _CANCELLED:
                self._cancel(records.optional_object(message, "params") or {})
        elif "result" in message or "error" in message:
            self._response(message)
        else:
            raise records.another_format("neither a request, nor a response, nor a notification", message)
        if self._parts and self._open_call_count == 0:
            yield self._end_turn()

    def _end_turn(self) -> conversation.ModelReply:
        parts, self._parts, self._open_call_count = tuple(self._parts), [], 0
        return conversation.ModelReply(_THREAD, self._line, parts, "tool_use", offer=self._offer)

    def _request(self, method: str, message: dict[str, Any]) -> None:
        request_id = records.text_or_number(message, "id")
        params = records.optional_object(message, "params") or {}
        if method == _CALL:
            with faults_at("params"):
                name = records.required_text(params, "name")
            arguments = params.get("arguments")
            is_valid = arguments is None or type(arguments) is dict
            call_input = {} if arguments is None else arguments
            waiting = self._suspended.get(_suspension_key(params, params.get("requestState")), [])
            is_repetition = bool(waiting) and ("requestState" in params or "inputResponses" in params)
            call_id = waiting.pop() if is_repetition else _call_id(request_id)
            self._calls[request_id] = (call_id, params)
            if not is_repetition:
                self._parts.append(conversation.ToolCall(call_id, name, call_input, "mcp", "function_call", is_valid))
                self._open_call_count += 1
            self._cancelled.discard(request_id)
        elif method == _LIST and params.get("cursor") is None:
            self._catalogue = []
        self._open_methods.setdefault(request_id, []).append(method)

    def _response(self, message: dict[str, Any]) -> None:
        request_id = records.text_or_number(message, "id")
        methods = self._open_methods.get(request_id)
        method = methods.pop() if methods else None
        if not methods:
            self._open_methods.pop(request_id, None)
        if method == _LIST:
            self._add_catalogue_page(records.optional_object(message, "result"))
        elif method == _CALL:
            call_id, params = self._calls.pop(request_id)
            result = records.optional_object(message, "result") or {}
            if records.kind_of(result, "resultType") == "input_required":
                key = _suspension_key(params, result.get("requestState"))
                self._suspended.setdefault(key, []).append(call_id)
                return
            self._open_call_count -= 1
            self._parts.append(_read_result(call_id, message))
        elif method is None and request_id in self._cancelled:
            self._cancelled.discard(request_id)  # the late response to a cancelled call is ignored
        elif method is None:
            self._parts.append(_read_result(_call_id(request_id), message))  # the checks report a result without a call

    def _cancel(self, params: dict[str, Any]) -> None:
        request_id = records.text_or_number(params, "requestId")
        methods = self._open_methods.get(request_id)
        if methods and _CALL in methods:
            methods.remove(_CALL)
            if not methods:
                del self._open_methods[request_id]
            self._open_call_count -= 1
            self._cancelled.add(request_id)
            reason = records.optional_text(params, "reason")
            failure = conversation.Failure("cancelled", reason)
            call_id, _ = self._calls.pop(request_id)
            self._parts.append(conversation.CallResult(call_id, reason, params, "cancelled", failure))

    def _add_catalogue_page(self, result: dict[str, Any] | None) -> None:
        """Add a page of the tool list; the last page completes the offer."""
        if result is None:
            return
        with faults_at("result"):
            for i, tool in records.each_object(result, "tools"):
                with faults_at("tools", i):
                    self._catalogue.append(
                        ToolDefinition(records.required_text(tool, "name"), tool.get("inputSchema"), "mcp")
                    )
        if result.get("nextCursor") is None:
            self._offer = offer_tools(self._catalogue)


def _call_id(request_id: str | int) -> str:
    """Return the id as text; a text of digits is quoted, so that it differs from the number."""
    is_digits = type(request_id) is str and request_id.lstrip("-").isdecimal()
    return f'"{request_id}"' if is_digits else str(request_id)


def _suspension_key(params: dict[str, Any], state: JSON) -> bytes:
    """Return the key by which the repetition of a call that waits for input is found."""
    return records.canonical_bytes([params.get("name"), params.get("arguments"), state])


def _read_result(call_id: str, message: dict[str, Any]) -> conversation.CallResult:
    error = records.optional_object(message, "error")
    if error is not None:
        return conversation.CallResult(
            call_id, error, message, "error", conversation.read_failure({"error": error}, "")
        )
    result = records.optional_object(message, "result") or {}
    texts = [text for _, block in records.each_object(result, "content") if type(text := block.get("text")) is str]
    payload = {name: value for name, value in result.items() if name != "_meta"}
    failed = result.get("isError") is True
    return conversation.CallResult(
        call_id,
        payload,
        message,
        "error" if failed else "ok",
        conversation.read_failure(result.get("structuredContent"), "\n".join(texts)) if failed else None,
    )
