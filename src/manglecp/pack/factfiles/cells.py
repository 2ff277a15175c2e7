"""The text of a table cell to a value, by the declared bound.

Tables repeat themselves, so each distinct text of a column is read once, and equal values are one object. What is
remembered is forgotten when it grows large: a column of keys repeats nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from manglecp.mangle import FALSE, TRUE, Duration, Name, Time, Value, ValueFault, read_literal
from manglecp.wire import (
    READERS,
    Fault,
    Shape,
    duration_of_milliseconds,
    instant_of_milliseconds,
    read_duration,
    read_instant,
    read_name,
    read_number,
)

MOST_REMEMBERED: Final = 100_000
_BOOLEANS: Final = {"true": TRUE, "false": FALSE}


_T = TypeVar("_T", bound=Value)


class Cells(dict[str, _T], Generic[_T]):
    """The values of one column by their text."""

    def __init__(self, read: Callable[[str], _T]) -> None:
        self.read = read

    def __missing__(self, text: str) -> _T:
        if len(self) > MOST_REMEMBERED:
            self.clear()
        value = self[text] = self.read(text)
        return value

    def column(self, texts: Iterable[str]) -> Iterator[_T]:
        """The values of many cells; as they are taken, a :class:`Fault` for the first that has none."""
        return map(self.__getitem__, texts)


class Strings(Cells[str]):
    """A column of strings, where nothing needs to be read."""

    def __init__(self) -> None:
        super().__init__(str)

    def column(self, texts: Iterable[str]) -> Iterator[str]:
        if len(self) > MOST_REMEMBERED:
            self.clear()
        return map(self.setdefault, texts, texts)


def cell_reader(shape: Shape) -> Callable[[str], Value]:
    """How a cell is read where one kind of value is declared; where several are, the text says which."""
    if "any" in shape.kinds:
        return str
    if len(shape.kinds) > 1:
        return literal
    (kind,) = shape.kinds
    return _BY_KIND.get(kind, literal)


def literal(text: str) -> Value:
    """A value as Mangle writes it."""
    try:
        return read_literal(text)
    except ValueFault as fault:
        raise Fault(str(fault), 'write it as Mangle does: "text", 42, /name, [1, 2]') from None


def instant(text: str) -> int:
    """RFC 3339, or digits: milliseconds since 1970; in nanoseconds."""
    return instant_of_milliseconds(read_number(text)) if _is_digits(text) else read_instant(text)


def _time(text: str) -> Time:
    return Time(instant(text))


def _span(text: str) -> Duration:
    return duration_of_milliseconds(read_number(text)) if _is_digits(text) else read_duration(text)


def _is_digits(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit()


def _name(text: str) -> Name:
    return _BOOLEANS.get(text) or read_name(text)


_BY_KIND: Final[Mapping[str, Callable[[str], Value]]] = {**READERS, "name": _name, "time": _time, "duration": _span}
