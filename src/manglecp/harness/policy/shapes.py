"""Validation of policy documents: shapes, and the problems they report.

A shape is a function that reads one value: it adds every problem to a :class:`Problems`, continues, and returns the
normalised value. Text is trimmed, words are spelt as in their vocabulary, and lists that are sets are sorted and
deduplicated, so that equivalent documents have the same digest. Defaults are not added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from manglecp.base.diagnostic import Diagnostic, DiagnosticError, FileLocation
from manglecp.base.json import Uncanonical
from manglecp.base.text import normalize_word, trim
from manglecp.harness.canonical_v1 import canonical


class PolicyError(DiagnosticError, ValueError):
    """Invalid policy documents."""


class Problems:
    """The diagnostics of documents, sorted by file and place."""

    def __init__(self) -> None:
        self._diagnostics: list[Diagnostic] = []

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(sorted(self._diagnostics, key=lambda d: (d.file, d.pointer, d.message)))

    def add(self, place: FileLocation, message: str) -> None:
        self._diagnostics.append(Diagnostic("policy", message, place))

    def add_unknown(self, place: FileLocation, what: str, name: str, known: Iterable[str]) -> None:
        """Add the problem that ``name``, the name of a ``what``, is not in ``known``; suggest the closest name."""
        from manglecp.base.suggestions import did_you_mean  # imported only for an error

        self.add(place, f"{what} {name!r} is unknown; {did_you_mean(name, known)}")

    def raise_if_any(self) -> None:
        """Raise :class:`PolicyError` if a problem was added."""
        if self._diagnostics:
            raise PolicyError(tuple(self))


Shape: TypeAlias = Callable[[Any, FileLocation, Problems], Any]
"""Returns the normalised value. If it adds a problem, its return value is not used."""
_NO_MEMBERS: Final[Mapping[str, Shape]] = {}


def text(value: Any, place: FileLocation, problems: Problems) -> Any:
    if not isinstance(value, str):
        problems.add(place, f"a text belongs here, not {_describe_type(value)}")
    elif not trim(value):
        problems.add(place, "the text is blank")
    else:
        return trim(value)
    return value


def flag(value: Any, place: FileLocation, problems: Problems) -> Any:
    """Read a boolean; numbers and texts do not count as booleans."""
    if not isinstance(value, bool):
        problems.add(place, f"true or false belongs here, not {_describe_type(value)}")
    return value


def number(least: float, most: float = math.inf, *, whole: bool = False) -> Shape:
    """Return a shape of a number, or of a ``whole`` number, between two limits."""

    def read(value: Any, place: FileLocation, problems: Problems) -> Any:
        if not isinstance(value, int if whole else int | float) or isinstance(value, bool):
            problems.add(place, f"a {'whole ' if whole else ''}number belongs here, not {_describe_type(value)}")
        elif not least <= value <= most:  # false for NaN
            limits = f"less than {least:g}" if most == math.inf else f"not between {least:g} and {most:g}"
            problems.add(place, f"{value} is {limits}")
        return value

    return read


def integer(least: int) -> Shape:
    return number(least, whole=True)


def any_json(value: Any, place: FileLocation, problems: Problems) -> Any:
    """Read any value with a canonical form."""
    try:
        canonical(value)
    except Uncanonical as error:
        problems.add(FileLocation(place.file, pointer=place.pointer + error.path), error.reason)
    return value


def one_of(vocabulary: Collection[str]) -> Shape:
    """Return a shape of one word of a vocabulary; the shape returns the spelling of the vocabulary."""
    spellings = {normalize_word(word): word for word in vocabulary}

    def read(value: Any, place: FileLocation, problems: Problems) -> Any:
        word = text(value, place, problems)
        if isinstance(word, str) and trim(word):
            if normalize_word(word) in spellings:
                return spellings[normalize_word(word)]
            problems.add_unknown(place, "the word", word, vocabulary)
        return word

    return read


def items(shape: Shape = text, *, least: int = 0) -> Shape:
    """Return a shape of a list that is a set of texts: sorted and deduplicated. ``least`` is 0 or 1."""

    def read(value: Any, place: FileLocation, problems: Problems) -> Any:
        members = _read_list(shape, value, place, problems)
        if len(members) < least:
            problems.add(place, "the list is empty")
        if not all(isinstance(member, str) for member in members):
            return members  # ``shape`` has added the problem
        return sorted(set(members))

    return read


def sequence(shape: Shape) -> Shape:
    """Return a shape of a list whose order matters."""
    return partial(_read_list, shape)


def words(vocabulary: Collection[str], *, least: int = 0) -> Shape:
    return items(one_of(vocabulary), least=least)


def records(shape: Shape, key: str) -> Shape:
    """Return a shape of a list of tables that is sorted by the member ``key``, which must be unique."""

    def read(value: Any, place: FileLocation, problems: Problems) -> Any:
        rows = _read_list(shape, value, place, problems)
        names = [str(row.get(key)) for row in rows if isinstance(row, dict)]
        for name in sorted({name for name in names if names.count(name) > 1}):
            problems.add(place, f"{key} {name!r} is present twice")
        return sorted(rows, key=lambda row: str(row.get(key)) if isinstance(row, dict) else "")

    return read


def table(required: Mapping[str, Shape] = _NO_MEMBERS, *, optional: Mapping[str, Shape] = _NO_MEMBERS) -> Shape:
    """Return a shape of an object with these members only."""
    members = {**required, **optional}
    read_members = _object_shape(members.get, members)

    def read(value: Any, place: FileLocation, problems: Problems) -> Any:
        for name in required:
            if isinstance(value, Mapping) and name not in value:
                problems.add(place, f"{name} is missing")
        return read_members(value, place, problems)

    return read


def table_of(shape: Shape, *, names: Collection[str] | None = None) -> Shape:
    """Return a shape of an object whose values all have one shape; its names must be in ``names``, if given."""
    return _object_shape(lambda name: shape if names is None or name in names else None, names)


def _object_shape(shape_of: Callable[[str], Shape | None], known: Collection[str] | None) -> Shape:
    """Return a shape of an object; ``shape_of`` returns the shape of a member, or None for an unknown name."""

    def read(value: Any, place: FileLocation, problems: Problems) -> Any:
        if not isinstance(value, Mapping):
            problems.add(place, f"a table belongs here, not {_describe_type(value)}")
            return value
        members: dict[str, Any] = {}
        for name, part in value.items():
            shape = shape_of(name)
            if shape is None:
                problems.add_unknown(place / str(name), "the key", str(name), known or ())
            elif not str(name).isascii() or not trim(str(name)):
                problems.add(place / str(name), "a name consists of ASCII characters and is not blank")
            else:
                members[name] = shape(part, place / name, problems)
        return members

    return read


def _read_list(shape: Shape, value: Any, place: FileLocation, problems: Problems) -> list[Any]:
    if not isinstance(value, list | tuple):
        problems.add(place, f"a list belongs here, not {_describe_type(value)}")
        return []
    return [shape(item, place / index, problems) for index, item in enumerate(value)]


_TYPE_NAMES: Final = {bool: "true or false", int: "a number", float: "a number", str: "a text", type(None): "null"}


def _describe_type(value: object) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    return _TYPE_NAMES.get(type(value), f"a {type(value).__name__}")
