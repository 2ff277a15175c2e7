"""A log as numbered JSON records.

A log comes as bytes or as lines, and holds one of three things, or a mixture of the first two:

* JSON lines: one record on each line;
* server-sent events: the ``data:`` of each event is a record, other fields are skipped, and so is ``[DONE]``;
* one JSON document over several lines, known by a first line that is only ``{`` or ``[``.

Reading is lazy: a record is there before the next line is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from manglecp.adapters.limits import NESTING, LogLimits
from manglecp.wire import JSON, Fault, decode

__all__ = ["LogError", "Record", "parse", "records", "stream_records"]

_BOM: Final = b"\xef\xbb\xbf"
_DATA: Final = b"data:"
_OTHER_FIELDS: Final = (b"event:", b"id:", b"retry:", b":")
_DONE: Final = b"[DONE]"


class LogError(ValueError):
    """A log that cannot be read: on which line, where in its JSON, and why."""

    def __init__(self, line: int, path: str, message: str) -> None:
        super().__init__(f"line {line}: {path}: {message}")
        self.line = line
        self.path = path
        self.message = message

    @classmethod
    def at(cls, line: int, fault: Fault) -> LogError:
        """What is wrong with the record on this line."""
        return cls(line, fault.path, fault.message)


class Record(NamedTuple):
    """A JSON value and the line that it began on."""

    line: int
    value: JSON


def records(log: bytes | str | Iterable[bytes | str], limits: LogLimits) -> Iterator[Record]:
    """The records of a log, or a :class:`LogError` where it is damaged."""
    lines = ((number, line) for number, line in _lines(log, limits) if line)
    first = next(lines, None)
    if first is None:
        return
    if first[1] in (b"{", b"["):
        yield _document(first, lines, limits)
    else:
        yield from _events(chain([first], lines), limits)


def stream_records(text: str, limits: LogLimits) -> list[JSON]:
    """The records of a stream that a log holds as one text."""
    try:
        return [record.value for record in records(text, limits)]
    except LogError as error:
        raise Fault(f"line {error.line} of the stream: {error.message}") from None


def parse(data: bytes, nesting: int = NESTING) -> JSON:
    """Strict JSON of bounded depth, or a :class:`Fault`."""
    value = decode(data)
    level: list[Any] = [value]
    for _ in range(nesting):
        level = [
            part
            for item in level
            if type(item) is dict or type(item) is list
            for part in (item.values() if type(item) is dict else item)
            if type(part) is dict or type(part) is list
        ]
        if not level:
            return value
    raise Fault(f"nested more than {nesting} deep")


def _document(first: tuple[int, bytes], rest: Iterable[tuple[int, bytes]], limits: LogLimits) -> Record:
    """One value over several lines."""
    number, line = first
    size = 0
    parts = [line]
    for _, more in rest:
        size += len(more) + 1
        if size > limits.line:
            raise LogError(number, "$", f"a document of more than {limits.line:,} bytes")
        parts.append(more)
    return Record(number, _value(b"\n".join(parts), number, limits))


def _events(lines: Iterable[tuple[int, bytes]], limits: LogLimits) -> Iterator[Record]:
    """Each line a record, or a field of an event. Each ``data:`` field is a record: providers send no other kind."""
    for number, line in lines:
        if line.startswith(_DATA):
            data = line[len(_DATA) :].strip()
            if data and data != _DONE:
                yield Record(number, _value(data, number, limits))
        elif not line.startswith(_OTHER_FIELDS):
            yield Record(number, _value(line, number, limits))


def _value(data: bytes, line: int, limits: LogLimits) -> JSON:
    try:
        return parse(data, limits.nesting)
    except Fault as fault:
        raise LogError.at(line, fault) from None


def _lines(log: bytes | str | Iterable[bytes | str], limits: LogLimits) -> Iterator[tuple[int, bytes]]:
    """Numbered lines without the white space around them."""
    total = 0
    for number, line in enumerate(_split(log), 1):
        try:
            data = line.encode() if isinstance(line, str) else line
        except UnicodeEncodeError:
            raise LogError(number, "$", "a surrogate stands alone") from None
        total += len(data)
        if len(data) > limits.line:
            raise LogError(number, "$", f"a line of more than {limits.line:,} bytes")
        if total > limits.total:
            raise LogError(number, "$", f"a log of more than {limits.total:,} bytes")
        yield number, (data.removeprefix(_BOM) if number == 1 else data).strip()


def _split(log: bytes | str | Iterable[bytes | str]) -> Iterator[bytes | str]:
    if isinstance(log, str):
        yield from log.split("\n")
    elif isinstance(log, bytes):
        start = 0
        while start < len(log):
            end = log.find(b"\n", start) + 1 or len(log)
            yield log[start:end]
            start = end
    else:
        yield from log
