"""Logs of MCP: JSON-RPC messages between a client and a server, in the order of observation.

A record is a message, a list of messages, or an object that a logger wrote, with the message in its member ``message``.
MCP does not transport what the model read, and whether the model continued, so the evidence lacks both.

Calls that overlap in time form one turn, which ends when no call is open. Client and server choose request ids
independently, so both may have an open request with the same id: a response belongs to the latest such request.

A result of another type than ``complete``, such as ``input_required``, does not answer a call. The call stays open, and
the request that repeats it with the same ``requestState`` belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from manglecp.adapters import conversation, records
from manglecp.adapters.policies import ToolDefinition, offer_tools
from manglecp.wire import JSON, faults_at

_CALL: Final = "tools/call"
_LIST: Final = "tools/list"
_CANCELLED: Final = "notifications/cancelled"
_THREAD: Final = 1  # a log is one conversation


class _OpenRequest(NamedTuple):
    """A request without a response."""

    method: str | None
    params: dict[str, Any]
    call_id: str  # the id of the tool call, if the request is one


class McpLog:
    """Converts JSON-RPC messages to events, in log order."""

    def __init__(self) -> None:
        self._line = 0
        self._open_requests: dict[str | int, list[_OpenRequest]] = {}  # requests without a response, by id
        self._open_call_count = 0
        self._parts: list[conversation.ToolCall | conversation.CallResult] = []  # calls and results of this turn
        self._cancelled_ids: set[str | int] = set()  # ids of cancelled calls whose response may still arrive
        self._suspended_ids: dict[bytes, list[str]] = {}  # ids of calls that wait for input, by _suspension_key()
        self._catalogue: list[ToolDefinition] = []  # the tools on the pages received so far
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
            raise records.unexpected_value("neither a request, nor a response, nor a notification", message)
        if self._parts and self._open_call_count == 0:
            yield self._end_turn()

    def _end_turn(self) -> conversation.ModelReply:
        parts, self._parts, self._open_call_count = tuple(self._parts), [], 0
        return conversation.ModelReply(_THREAD, self._line, parts, "tool_use", offer=self._offer)

    def _request(self, method: str, message: dict[str, Any]) -> None:
        request_id = records.text_or_number(message, "id")
        params = records.optional_object(message, "params") or {}
        call_id = ""
        if method == _CALL:
            with faults_at("params"):
                name = records.required_text(params, "name")
            arguments = params.get("arguments")
            is_valid = arguments is None or type(arguments) is dict
            call_input = {} if arguments is None else arguments
            waiting_ids = self._suspended_ids.get(_suspension_key(params, params.get("requestState")), [])
            is_repetition = bool(waiting_ids) and ("requestState" in params or "inputResponses" in params)
            call_id = waiting_ids.pop() if is_repetition else _call_id(request_id)
            if not is_repetition:
                self._parts.append(conversation.ToolCall(call_id, name, call_input, "mcp", "function_call", is_valid))
                self._open_call_count += 1
            self._cancelled_ids.discard(request_id)
        elif method == _LIST and params.get("cursor") is None:
            self._catalogue = []
        self._open_requests.setdefault(request_id, []).append(_OpenRequest(method, params, call_id))

    def _response(self, message: dict[str, Any]) -> None:
        request_id = records.text_or_number(message, "id")
        open_requests = self._open_requests.get(request_id)
        method, params, call_id = open_requests.pop() if open_requests else _OpenRequest(None, {}, _call_id(request_id))
        if method == _LIST:
            self._add_catalogue_page(records.optional_object(message, "result"))
        elif method == _CALL:
            result = records.optional_object(message, "result") or {}
            if result.get("resultType") not in (None, "complete"):
                key = _suspension_key(params, result.get("requestState"))
                self._suspended_ids.setdefault(key, []).append(call_id)
                return
            self._open_call_count -= 1
            self._parts.append(_read_result(call_id, message))
        elif method is None and request_id in self._cancelled_ids:
            self._cancelled_ids.discard(request_id)  # the late response to a cancelled call is ignored
        elif method is None:
            self._parts.append(_read_result(call_id, message))  # reported later if it has no call

    def _cancel(self, params: dict[str, Any]) -> None:
        request_id = records.text_or_number(params, "requestId")
        for open_request in self._open_requests.get(request_id, ()):
            if open_request.method == _CALL:
                self._open_requests[request_id].remove(open_request)
                self._open_call_count -= 1
                self._cancelled_ids.add(request_id)
                reason = records.optional_text(params, "reason")
                failure = conversation.Failure("cancelled", reason)
                result = conversation.CallResult(open_request.call_id, reason, params, failure, state="cancelled")
                self._parts.append(result)
                return

    def _add_catalogue_page(self, result: dict[str, Any] | None) -> None:
        """Add a page of the tool list; the last page completes the offer."""
        if result is None:
            return
        with faults_at("result"):
            for i, tool in records.each_object(result, "tools"):
                with faults_at("tools", i):
                    name = records.required_text(tool, "name")
                    self._catalogue.append(ToolDefinition(name, tool.get("inputSchema"), "mcp"))
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
        return conversation.CallResult(call_id, error, message, conversation.read_failure({"error": error}, ""))
    result = records.optional_object(message, "result") or {}
    texts = [text for _, block in records.each_object(result, "content") if type(text := block.get("text")) is str]
    payload = {name: value for name, value in result.items() if name != "_meta"}
    failure = None
    if result.get("isError") is True:
        failure = conversation.read_failure(result.get("structuredContent"), "\n".join(texts))
    return conversation.CallResult(call_id, payload, message, failure)
