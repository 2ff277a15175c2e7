"""OpenTelemetry traces of generative AI: spans with ``gen_ai.*`` attributes, in OTLP JSON.

A record is an object with ``resourceSpans`` or ``resourceLogs``. Spans are not ordered in such files, so spans are
sorted by their start when the log ends. Two kinds of spans are read, by ``gen_ai.operation.name``:

* a request to a model. ``gen_ai.input.messages`` and ``gen_ai.output.messages``, which are values or JSON texts, are
  attributes of the span, of its event ``gen_ai.client.inference.operation.details``, or of a log record of the span;
* ``execute_tool``: the result of a call, used if no later request contains the result, and whether the call failed.

A request without output messages is an error, because its calls would be overlooked; a request that failed is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from manglecp.adapters import conversation, records
from manglecp.adapters.conversation import CallResult, ConversationEvent, Failure, Message, ToolCall
from manglecp.adapters.openai import CHAT_ROLES, STOP_REASONS, ChatMessages
from manglecp.adapters.records import each_object, kind_of, list_or_empty, optional_text, require_object
from manglecp.wire import JSON, Fault, faults_at

_MODEL_OPERATIONS: Final = ("chat", "generate_content", "text_completion")
_DETAILS: Final = "gen_ai.client.inference.operation.details"  # the name of an event
_ERROR_STATUS: Final = (2, "STATUS_CODE_ERROR")
_STOP_REASONS: Final = {**STOP_REASONS, "tool_call": "tool_use"}
_OTHER_PARTS: Final = ("reasoning", "compaction", "blob", "file", "uri")
_MAX_SPANS: Final = 1_000_000
_T = TypeVar("_T")


class _Messages(ChatMessages):
    """The dialect of the OpenTelemetry conventions: a message has ``parts``."""

    def __init__(self, tool_spans: dict[str, _Span]) -> None:
        self._tool_spans = tool_spans

    def read_message(self, message: Message) -> conversation.ChatMessage:
        author = conversation.read_author(message, *CHAT_ROLES)
        parts = tuple(self.parts(message))
        if author == "model":
            return conversation.ChatMessage(author, parts=parts)
        texts = [part for part in parts if isinstance(part, str)]
        return conversation.ChatMessage(author, texts, [part for part in parts if isinstance(part, CallResult)])

    def parts(self, message: Message) -> Iterator[conversation.ReplyPart]:
        if "parts" not in message:
            raise Fault("the message has no parts")
        for i, part in each_object(message, "parts"):
            kind = kind_of(part)
            with faults_at("parts", i):
                if kind == "text":
                    yield optional_text(part, "content") or ""
                elif kind in ("tool_call", "server_tool_call"):
                    arguments = part.get("arguments", part.get(kind))
                    arguments = records.parse_arguments(arguments) if type(arguments) is str else arguments
                    is_valid = arguments is None or type(arguments) is dict
                    name, provider_runs = records.required_text(part, "name"), kind == "server_tool_call"
                    call_id = records.required_text(part, "id")
                    yield ToolCall(call_id, name, arguments, is_valid=is_valid, is_provider_run=provider_runs)
                elif kind in ("tool_call_response", "server_tool_call_response"):
                    call_id = records.required_text(part, "id")
                    payload = next((part[name] for name in ("response", "result", kind) if name in part), None)
                    yield _read_result(call_id, payload, part, self._tool_spans.get(call_id))
                elif kind not in _OTHER_PARTS:  # an unknown part could be a call
                    raise Fault("the type of the part is unknown")

    def system(self, request: Message) -> list[str]:
        return [part for part in self.parts({"parts": request.get("system")}) if isinstance(part, str)]


@dataclass(slots=True)
class _Span:
    line: int
    path: tuple[str | int, ...]  # the path to the span in its record
    start: int
    id: str
    attributes: dict[str, Any]
    failure: Failure | None = None

    def values(self, name: str) -> list[Any]:
        """Return a list attribute, which may be a JSON text. Raises :class:`Fault`."""
        value = self.attributes.get(name)
        with faults_at(name):
            value = records.parse(value.encode()) if type(value) is str else value
        return list_or_empty({name: value}, name)


class OtelLog:
    """Collects spans, and converts them to events at the end of the log."""

    def __init__(self) -> None:
        self._spans: list[_Span] = []
        self._details: dict[str, dict[str, Any]] = {}  # attributes of log records, by span id
        self._tool_spans: dict[str, _Span] = {}  # execute_tool spans, by call id
        self._dialect = _Messages(self._tool_spans)
        self._dialogue = conversation.Dialogue(self._dialect)

    def read(self, value: JSON, line: int) -> Iterator[ConversationEvent]:
        record = require_object(value)
        if "resourceSpans" not in record and "resourceLogs" not in record:
            raise records.unexpected_value("neither resourceSpans nor resourceLogs", record)
        for path, span in _each_leaf(record, "resourceSpans", "scopeSpans", "spans"):
            with faults_at(*path):
                self._add_span(span, line, path)
        for path, log in _each_leaf(record, "resourceLogs", "scopeLogs", "logRecords"):
            with faults_at(*path):
                if (span_id := optional_text(log, "spanId")) is not None:
                    self._details.setdefault(span_id, {}).update(_read_attributes(log))
        yield from ()  # no event yet: spans are not ordered, so finish() emits all events

    def finish(self) -> Iterator[ConversationEvent]:
        self._spans.sort(key=lambda span: (span.start, span.id))
        for span in self._spans:
            span.attributes |= self._details.get(span.id, {})
        returned_ids = {result.id for span in self._spans for result in _read_at_span(span, self._returned_results)}
        for span in self._spans:
            if span.failure is None:
                yield from _read_at_span(span, lambda span: self._events(span, returned_ids))

    def _add_span(self, span: dict[str, Any], line: int, path: tuple[str | int, ...]) -> None:
        attributes = _read_attributes(span)
        operation = attributes.get("gen_ai.operation.name")
        if operation not in (*_MODEL_OPERATIONS, "execute_tool"):
            return
        if len(self._spans) + len(self._tool_spans) >= _MAX_SPANS:
            raise Fault(f"more than {_MAX_SPANS:,} spans; split the file by trace")
        for i, event in each_object(span, "events"):
            if kind_of(event, "name") == _DETAILS:
                with faults_at("events", i):
                    attributes |= _read_attributes(event)
        start = _read_integer(span.get("startTimeUnixNano", 0), "startTimeUnixNano")
        failure = _read_span_failure(span, attributes)
        item = _Span(line, path, start, optional_text(span, "spanId") or "", attributes, failure)
        if operation != "execute_tool":
            self._spans.append(item)
        elif type(call_id := attributes.get("gen_ai.tool.call.id")) is str:
            self._tool_spans[call_id] = item

    def _returned_results(self, span: _Span) -> list[CallResult]:
        messages = [require_object(message) for message in span.values("gen_ai.input.messages")]
        return [part for message in messages for part in self._dialect.parts(message) if isinstance(part, CallResult)]

    def _events(self, span: _Span, returned_ids: set[str]) -> list[ConversationEvent]:
        """Return the request and the reply of a span. ``returned_ids`` are the calls whose result is in a request."""
        attributes = span.attributes
        choices = [require_object(choice) for choice in span.values("gen_ai.output.messages")]
        if not choices:
            raise Fault("gen_ai.output.messages is missing; record the content of messages")
        request = {
            "messages": span.values("gen_ai.input.messages"),
            "system": span.values("gen_ai.system_instructions"),
            "tools": span.values("gen_ai.tool.definitions"),
            "model": attributes.get("gen_ai.request.model"),
        }
        self._dialogue.line = span.line
        prompt = self._dialogue.request(request, optional_text(attributes, "gen_ai.conversation.id"))
        parts = list(self._dialect.parts(choices[0]))
        if any(isinstance(part, ToolCall) for choice in choices[1:] for part in self._dialect.parts(choice)):
            raise Fault("calls in a choice other than the first are not supported")
        for part in list(parts):
            if isinstance(part, ToolCall) and part.id in self._tool_spans and part.id not in returned_ids:
                tool_span = self._tool_spans[part.id]
                payload = tool_span.attributes.get("gen_ai.tool.call.result")
                if payload is not None or tool_span.failure is not None:
                    parts.append(_read_result(part.id, payload, payload, tool_span))
        reasons = attributes.get("gen_ai.response.finish_reasons")
        first_reason = reasons[0] if type(reasons) is list and reasons else None
        reason = optional_text({"finish_reason": first_reason, **choices[0]}, "finish_reason")
        stop = None if reason is None else _STOP_REASONS.get(reason, reason)
        return [prompt, self._dialogue.reply(parts, stop, optional_text(attributes, "gen_ai.response.model"))]


def _read_at_span(span: _Span, read: Callable[[_Span], _T]) -> _T:
    """Return ``read(span)``. Raises :class:`.LogError` with the line and path of the span."""
    try:
        return read(span)
    except Fault as fault:
        raise records.LogError.at(span.line, fault.inside(*span.path)) from None


def _each_leaf(
    record: dict[str, Any], outer: str, middle: str, inner: str
) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Yield the objects of three nested lists, each with its path."""
    for i, group in each_object(record, outer):
        for j, scope in each_object(group, middle):
            for k, leaf in each_object(scope, inner):
                yield (outer, i, middle, j, inner, k), leaf


def _read_attributes(holder: dict[str, Any], name: str = "attributes") -> dict[str, Any]:
    return {records.required_text(row, "key"): _read_value(row.get("value")) for _, row in each_object(holder, name)}


def _read_value(value: JSON) -> Any:
    """Return the JSON value of an OTLP ``AnyValue``."""
    kind, inner = next(iter(value.items()), ("", None)) if type(value) is dict else ("", None)
    if kind == "intValue":
        return _read_integer(inner, kind)
    if kind == "arrayValue":
        return [_read_value(item) for item in list_or_empty(require_object(inner), "values")]
    return _read_attributes(require_object(inner), "values") if kind == "kvlistValue" else inner


def _read_integer(value: JSON, name: str) -> int:
    """Return a whole number, which OTLP writes as a text."""
    text = str(value) if type(value) in (int, str) else ""
    if not text.removeprefix("-").isdecimal() or len(text) > 20:
        raise Fault("a whole number belongs here").inside(name)
    return int(text)


def _read_span_failure(span: dict[str, Any], attributes: dict[str, Any]) -> Failure | None:
    """Return the failure of the operation of a span; None if it succeeded."""
    status = records.optional_object(span, "status") or {}
    error_type = attributes.get("error.type")
    if error_type is None and status.get("code") not in _ERROR_STATUS:
        return None
    code = error_type if type(error_type) is str and error_type else None
    return Failure(code, optional_text(status, "message") or code)


def _read_result(call_id: str, payload: JSON, rendering: JSON, span: _Span | None) -> CallResult:
    text = payload if type(payload) is str else ""
    failure = None if span is None else span.failure
    if conversation.reports_failure(payload, text):
        failure = conversation.read_failure(payload, text)
    return CallResult(call_id, "" if payload is None else payload, rendering, failure)
