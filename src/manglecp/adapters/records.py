"""A log as numbered JSON records, with typed access to their members and digests of their values.

A log is bytes or lines. It holds JSON lines, server-sent events (the ``data:`` of each event is a record; other fields
and ``[DONE]`` are skipped), a mixture of both, or one JSON document over several lines, detected by a first line that
is only ``{`` or ``[``. Records are parsed lazily, one line at a time.

An absent or null member counts as missing; a member of the wrong type raises :class:`Fault` with the path to it. A
value without a canonical form in the harness (a number such as ``1e-7``, a non-ASCII key) is replaced by its JSON text,
with keys sorted and non-ASCII characters escaped, so that it does not invalidate the whole turn.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from manglecp.base.digest import digest_bytes
from manglecp.base.json import Uncanonical
from manglecp.base.strict_json import JSON, Fault, brackets, decode, faults_at, is_deeper_than
from manglecp.harness import canonical

T = TypeVar("T")

MAX_LINE_BYTES: Final = 64 << 20  # the limit of a line, and of a document over several lines
MAX_LOG_BYTES: Final = 8 << 30
MAX_NESTING: Final = 100  # the depth of JSON, including arguments and results given as text
MAX_OPEN_TURNS: Final = 64  # the most open turns, whose results may follow later; also the most remembered threads
_BOM: Final = b"\xef\xbb\xbf"
_DATA: Final = b"data:"  # the field of a server-sent event that has the record
_OTHER_FIELDS: Final = (b"event:", b"id:", b"retry:", b":")  # fields that are skipped
_DONE: Final = b"[DONE]"
_MAX_STREAM_PARTS: Final = 10_000  # blocks, calls or items of one reply


class LogError(ValueError):
    """A log that cannot be read, with line, path and reason."""

    def __init__(self, line: int, path: str, message: str) -> None:
        super().__init__(f"line {line}: {path}: {message}")
        self.line = line
        self.path = path
        self.message = message

    @classmethod
    def at(cls, line: int, fault: Fault) -> LogError:
        """Return the error for a fault in the record on this line."""
        return cls(line, fault.path, fault.message)


class LogRecord(NamedTuple):
    """A JSON value and the line on which it began, counted from 1."""

    line: int
    value: JSON


def read_records(log: bytes | str | Iterable[bytes | str]) -> Iterator[LogRecord]:
    """Yield the records of a log. Raises :class:`LogError` at a damaged line, after yielding the records before."""
    lines = ((number, line) for number, line in _numbered_lines(log) if line)
    first_line = next(lines, None)
    if first_line is None:
        return
    if first_line[1] in (b"{", b"["):
        yield _read_document(first_line, lines)
    else:
        yield from _read_lines(chain([first_line], lines))


def read_stream(text: str) -> list[JSON]:
    """Return the records of an event stream that is a text inside a record. Raises :class:`Fault`."""
    try:
        return [record.value for record in read_records(text)]
    except LogError as error:
        raise Fault(f"line {error.line} of the stream: {error.message}") from None


def parse(data: bytes) -> JSON:
    """Parse strict JSON of bounded depth. Raises :class:`Fault`."""
    value = decode(data)
    if is_deeper_than(MAX_NESTING, brackets(data)):
        raise Fault(f"nested more than {MAX_NESTING} deep")
    return value


def _read_document(first: tuple[int, bytes], rest: Iterable[tuple[int, bytes]]) -> LogRecord:
    first_number, first_line = first
    size, lines = len(first_line), [first_line]
    for _, line in rest:
        size += len(line) + 1
        if size > MAX_LINE_BYTES:
            raise LogError(first_number, "$", f"a document of more than {MAX_LINE_BYTES:,} bytes")
        lines.append(line)
    return LogRecord(first_number, _parse_line(b"\n".join(lines), first_number))


def _read_lines(lines: Iterable[tuple[int, bytes]]) -> Iterator[LogRecord]:
    """Yield a record per line or per ``data:`` field; providers send no multi-line events."""
    for number, line in lines:
        if line.startswith(_DATA):
            data = line[len(_DATA) :].strip()
            if data and data != _DONE:
                yield LogRecord(number, _parse_line(data, number))
        elif not line.startswith(_OTHER_FIELDS):
            yield LogRecord(number, _parse_line(line, number))


def _parse_line(data: bytes, line: int) -> JSON:
    try:
        return parse(data)
    except Fault as fault:
        raise LogError.at(line, fault) from None


def _numbered_lines(log: bytes | str | Iterable[bytes | str]) -> Iterator[tuple[int, bytes]]:
    """Yield each line, stripped, with its number from 1.

    Raises :class:`LogError` for a line or a log that is too long, and for a lone surrogate.
    """
    lines = log.split("\n") if isinstance(log, str) else io.BytesIO(log) if isinstance(log, bytes) else log
    total = 0
    for number, line in enumerate(lines, 1):
        try:
            data = line.encode() if isinstance(line, str) else line
        except UnicodeEncodeError:
            raise LogError(number, "$", "a lone surrogate") from None
        total += len(data)
        if len(data) > MAX_LINE_BYTES:
            raise LogError(number, "$", f"a line of more than {MAX_LINE_BYTES:,} bytes")
        if total > MAX_LOG_BYTES:
            raise LogError(number, "$", f"a log of more than {MAX_LOG_BYTES:,} bytes")
        yield number, (data.removeprefix(_BOM) if number == 1 else data).strip()


def require_object(value: JSON, *steps: str | int) -> dict[str, Any]:
    """Return the value if it is an object. Raises :class:`Fault` with the path ``steps``."""
    if type(value) is not dict:
        raise unexpected_value("an object belongs here", value).inside(*steps)
    return value


_FORMATS: Final = (  # the members that identify a format, and its name with advice for the user
    ({"resourceSpans"}, "OpenTelemetry traces: use --from otel"),
    ({"jsonrpc"}, "JSON-RPC: use --from mcp"),
    ({"evidence"}, "evidence: use --from jsonl"),
    ({"choices"}, "an OpenAI completion: use --from openai"),
    ({"role", "tool_calls"}, "an OpenAI message: use --from openai"),
    ({"stop_reason", "content"}, "an Anthropic message: use --from anthropic"),
    ({"id", "name", "input"}, "an Anthropic message: use --from anthropic"),
    ({"tool_use_id"}, "an Anthropic message: use --from anthropic"),
    ({"role", "parts"}, "a Gemini message: log OpenTelemetry spans, and use --from otel"),
    ({"toolCallId"}, "an AI SDK message: log the requests and responses of the provider"),
    ({"traj"}, "a tau-bench result: log its `traj` as `messages`, with --from openai"),
    ({"kind", "parts"}, "a Pydantic AI dump: log the requests and responses of the provider"),
    ({"eval", "samples"}, "an Inspect log: log the requests and responses of the provider"),
    ({"type", "data"}, "a LangChain dump: convert it with convert_to_openai_messages"),
    ({"type", "response_metadata"}, "a LangChain dump: convert it with convert_to_openai_messages"),
    ({"type", "additional_kwargs"}, "a LangChain dump: convert it with convert_to_openai_messages"),
)


def unexpected_value(problem: str, value: JSON) -> Fault:
    """Return the fault with this problem of a value; if the value looks like another format, the message names it."""
    first_item = value[0] if type(value) is list and value else value
    members = first_item.keys() if type(first_item) is dict else ()
    format_name = next((name for marks, name in _FORMATS if marks <= set(members)), None)
    return Fault(problem if format_name is None else f"{problem}; this looks like {format_name}")


def unwrap_body(value: JSON) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the body of a request or response (its member ``body`` or the value itself), and the path to the body."""
    outer = require_object(value)
    return (require_object(outer["body"], "body"), ("body",)) if "body" in outer else (outer, ())


def optional_object(holder: dict[str, Any], key: str) -> dict[str, Any] | None:
    value = holder.get(key)
    return None if value is None else require_object(value, key)


def list_or_empty(holder: dict[str, Any], key: str) -> list[Any]:
    value = holder.get(key)
    if value is None:
        return []
    if type(value) is not list:
        raise Fault("a list belongs here").inside(key)
    return value


def each_object(holder: dict[str, Any], key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a list with their indices."""
    for i, value in enumerate(list_or_empty(holder, key)):
        yield i, require_object(value, key, i)


def read_each(holder: dict[str, Any], key: str, read: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """Yield what ``read`` returns for each object of a list."""
    for i, value in each_object(holder, key):
        with faults_at(key, i):
            yield read(value)


def required_text(holder: dict[str, Any], key: str) -> str:
    """Return the text under this key. Raises :class:`Fault` if it is missing or blank."""
    value = holder.get(key)
    if type(value) is not str or not value.strip():
        raise Fault(f"{key} is missing, or not a text").inside(key)
    return value


def text_or_number(holder: dict[str, Any], key: str) -> str | int:
    """Return a whole number, or a text that is not blank, such as an id. Raises :class:`Fault` for any other value."""
    value = holder.get(key)
    if type(value) is int or (type(value) is str and value.strip()):
        return value
    raise Fault(f"{key} is neither a text nor a whole number").inside(key)


def stream_index(holder: dict[str, Any], key: str) -> int:
    """Return the index of a part of a stream. Raises :class:`Fault` if it is missing or too large."""
    index = holder.get(key)
    if type(index) is not int or not 0 <= index < _MAX_STREAM_PARTS:
        raise Fault(f"a whole number from 0 to {_MAX_STREAM_PARTS - 1} belongs here").inside(key)
    return index


def parse_arguments(text: str | None) -> JSON:
    """Return the JSON arguments of a call; a text that is not JSON, or None, is returned as it is."""
    try:
        return parse((text or "").encode())
    except (Fault, UnicodeEncodeError):
        return text


def kind_of(holder: dict[str, Any], key: str = "type") -> str | None:
    """Return the member that names the type of an object, or None if it is not a text."""
    value = holder.get(key)
    return value if type(value) is str else None


def optional_text(holder: dict[str, Any], key: str) -> str | None:
    value = holder.get(key)
    if value is not None and type(value) is not str:
        raise Fault("a text belongs here").inside(key)
    return value


def texts_of(value: JSON) -> list[str]:
    """Return every text in a value, in order, without keys."""
    texts: list[str] = []
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if type(item) is str:
            texts.append(item)
        elif type(item) is dict:
            pending += reversed(item.values())
        elif type(item) is list:
            pending += reversed(item)
    return texts


def as_canonical(value: JSON) -> JSON:
    """Return the value, or its JSON text if it has no canonical form."""
    try:
        canonical(value)
    except Uncanonical:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    return value


def canonical_bytes(value: JSON) -> bytes:
    """Return the canonical JSON of the value, or of its JSON text if it has no canonical form."""
    try:
        return canonical(value)
    except Uncanonical:
        return canonical(as_canonical(value))


def digest_of(value: JSON) -> str:
    """Return the digest of :func:`canonical_bytes`."""
    return digest_bytes(canonical_bytes(value))


class RunningDigest:
    """The digest of a growing JSON list; each item is hashed once."""

    def __init__(self, items: Iterable[JSON] = ()) -> None:
        self._hash = hashlib.sha256(b"[")
        self._empty = True
        for item in items:
            self.append(item)

    def append(self, item: JSON) -> None:
        if not self._empty:
            self._hash.update(b",")
        self._hash.update(canonical_bytes(item))
        self._empty = False

    def digest(self) -> str:
        complete_hash = self._hash.copy()
        complete_hash.update(b"]")
        return "sha256:" + complete_hash.hexdigest()
