"""A strict TOML reader with the position of every key.

A caller requests each key with a default. An invalid value is reported and replaced by the default, and reading
continues, so that one run finds all errors. A key that was never requested is unknown, and an error. Messages never
quote values, which may be secrets.

The parser of the standard library has no positions. :class:`KeyPositions` parses each statement of a valid text again.
A key of an inline table has the position of the outermost key.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from manglecp.base.suggestions import closest_match, did_you_mean
from manglecp.base.text import find_invisible, replace_invisible
from manglecp.pack.diagnostics import Problems

_PARSER_POSITION: Final = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")
# The search is linear for any text: quantifiers are possessive, and a match begins only where a part of a key begins.
_MANY_DOTS: Final = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){24}"""
)
_TYPE_NAMES: Final = {str: "text", bool: "true or false", int: "a whole number", list: "a list", dict: "a table"}
_DEFAULT = TypeVar("_DEFAULT")
MAX_TEXT: Final = 2_000  # characters


def read_toml(file: str, text: str, problems: Problems) -> TomlTable:
    """Return the document; an empty one, and report a problem, if the text is not TOML."""
    if has_too_many_parts(text):
        problems.add(file, "a key has too many parts")
        return TomlTable(file, {}, (), KeyPositions(""), problems)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for a number with very many digits
        is_syntax_error = isinstance(error, tomllib.TOMLDecodeError)
        reason = str(error) if is_syntax_error else "a value is too large or too deeply nested"
        position = _PARSER_POSITION.search(reason)
        line, column = (int(position[1]), int(position[2])) if position else (None, None)
        problems.add(file, f"not TOML: {_PARSER_POSITION.sub('', reason)[:200]}", line=line, column=column)
        return TomlTable(file, {}, (), KeyPositions(""), problems)
    return TomlTable(file, document, (), KeyPositions(text.replace("\r\n", "\n")), problems)


def has_too_many_parts(text: str) -> bool:
    """Return whether a key may have 24 or more dots: the parser takes time cubic in the parts of a key."""
    return _MANY_DOTS.search(text) is not None


class TomlTable:
    """One table. Each reading method requests a key, and returns its value, or the default if it is missing or invalid.

    ``pattern`` is what a text must match in full; ``takes`` stands in messages for what a text must be: with "a name",
    the message is "not a name".
    """

    def __init__(
        self, file: str, table: dict[str, Any], path: KeyPath, positions: KeyPositions, problems: Problems
    ) -> None:
        self._file = file
        self._table = table
        self._path = path
        self._positions = positions
        self._problems = problems
        self._requested: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    @property
    def line(self) -> int | None:
        return self._positions.of(self._path)[0]

    def report(self, key: str | None, message: str, fix: str | None = None) -> None:
        """Report a problem at this key, or at the table as a whole."""
        path = self._path if key is None else (*self._path, key)
        line, column = self._positions.of(path)
        self._problems.add(self._file, f"{_format_path(path)}: {message}", line=line, column=column, fix=fix)

    def text(
        self,
        key: str,
        default: _DEFAULT,
        *,
        pattern: re.Pattern[str] | None = None,
        takes: str = "",
        longest: int = MAX_TEXT,
        required: bool = False,
        empty: bool = False,
    ) -> str | _DEFAULT:
        """Return text of visible characters, at least one unless ``empty``."""
        value = self._typed(key, str, required=required)
        if value is None:
            return default
        if not value.strip() and not empty:
            self.report(key, "the text is empty")
        elif len(value) > longest:
            self.report(key, f"the text has more than {longest:,} characters")
        elif (hidden := find_invisible(value, running=True)) is not None:
            self.report(key, f"the text holds the invisible character {hidden[1]}", "remove it")
        elif pattern is not None and not pattern.fullmatch(value):
            self.report(key, f"not {takes}")
        else:
            return str(value)
        return default

    def choice(self, key: str, default: _DEFAULT, choices: Collection[str]) -> str | _DEFAULT:
        value = self._typed(key, str)
        if value is None:
            return default
        if value not in choices:
            similar = closest_match(value, choices)
            self.report(key, f"takes one of {', '.join(choices)}", f"did you mean {similar}?" if similar else None)
            return default
        return str(value)

    def flag(self, key: str, default: _DEFAULT) -> bool | _DEFAULT:
        value = self._typed(key, bool)
        return default if value is None else bool(value)

    def number(self, key: str, default: int, minimum: int, maximum: int) -> int:
        value = self._typed(key, int)
        if value is None:
            return default
        if not minimum <= value <= maximum:
            self.report(key, f"has to be from {minimum:,} to {maximum:,}")
            return default
        return int(value)

    def texts(self, key: str, pattern: re.Pattern[str], takes: str, *, unique: bool = True) -> tuple[str, ...]:
        texts: list[str] = []
        for number, item in enumerate(self._typed(key, list) or (), 1):
            if not isinstance(item, str) or not pattern.fullmatch(item):
                self.report(key, f"entry {number} is not {takes}")
            elif unique and item in texts:
                self.report(key, f"entry {number} is a duplicate", "remove it")
            else:
                texts.append(item)
        return tuple(texts)

    def section(self, key: str) -> TomlTable:
        return self._subtable((key,), self._typed(key, dict) or {})

    def sections(self, key: str) -> list[TomlTable]:
        items = self._typed(key, list) or []
        tables = []
        for number, item in enumerate(items):
            if isinstance(item, dict):
                tables.append(self._subtable((key, number), item))
            else:
                self.report(key, f"entry {number + 1} is not a table", f"write [[{key}]]")
        return tables

    def finish(self, table_of: Mapping[str, str] | None = None) -> None:
        """Report the keys that were not requested; ``table_of`` names the right table of keys that may be misplaced."""
        for key in self._table:
            if key not in self._requested:
                table = (table_of or {}).get(key)
                fix = did_you_mean(key, self._requested) if table is None else f"write it below [{table}]"
                self.report(key, "unknown key", fix)

    def _subtable(self, path: KeyPath, table: dict[str, Any]) -> TomlTable:
        return TomlTable(self._file, table, (*self._path, *path), self._positions, self._problems)

    def _typed(self, key: str, kind: type, *, required: bool = False) -> Any:
        """Return the value of a key; None, and report a problem, if it has another type or is required and missing."""
        self._requested.add(key)
        value = self._table.get(key)
        if value is None:
            if required:
                self.report(None, f"{key} is missing", f"add {key} = …")
            return None
        if type(value) is not kind:
            actual = _TYPE_NAMES.get(type(value), f"a {type(value).__name__}")
            self.report(key, f"takes {_TYPE_NAMES[kind]}, not {actual}")
            return None
        return value


def _format_path(path: KeyPath) -> str:
    """Return a path such as ``intents[2].name``, with indices from 1."""
    text = ""
    for step in path:
        part = f"[{step + 1}]" if isinstance(step, int) else replace_invisible(step[:80])
        text += f".{part}" if text and isinstance(step, str) else part
    return text or "the file"


KeyPath: TypeAlias = tuple[str | int, ...]

_MAX_STATEMENT_LINES: Final = 200  # the keys after a longer statement have no position


class KeyPositions:
    """The positions of keys by path: names of tables and keys, and indices of array elements."""

    def __init__(self, text: str) -> None:
        self._positions: dict[KeyPath, tuple[int, int]] = {}
        self._lengths: dict[KeyPath, int] = {}  # the lengths so far of arrays of tables
        table: KeyPath = ()
        for line, statement, document in _statements(text):
            is_header = statement.lstrip().startswith("[")
            key, value = _key_and_value(document)
            is_array = is_header and isinstance(value, list)
            path = self._absolute_path(() if is_header else table, key[:-1] if is_array else key)
            if is_array:  # [[key]] begins the next element of an array
                path = (*path, key[-1])
                self._lengths[path] = self._lengths.get(path, 0) + 1
                path = (*path, self._lengths[path] - 1)
            if is_header:
                table = path
            for length in range(1, len(path) + 1):  # and the position of parents that have none yet
                self._positions.setdefault(path[:length], (line, len(statement) - len(statement.lstrip()) + 1))

    def of(self, path: KeyPath) -> tuple[int, int] | tuple[None, None]:
        """Return line and column of a key, or of the nearest enclosing key with a position."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._positions:
                return self._positions[path[:length]]
        return None, None

    def _absolute_path(self, table: KeyPath, key: KeyPath) -> KeyPath:
        """Return the path of a key in a table; a key of an array of tables means its last element so far."""
        path = table
        for part in key:
            path = (*path, part)
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
        return path


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield line, text and content of each statement of a valid document: the shortest runs of lines that are valid."""
    lines = text.split("\n")
    start = 0
    for end in range(1, len(lines) + 1):
        statement = "\n".join(lines[start:end])
        try:
            document = tomllib.loads(statement)
        except ValueError:
            if end - start >= _MAX_STATEMENT_LINES:
                return
            continue
        if document:  # neither a comment nor an empty line
            yield start + 1, statement, document
        start = end


def _key_and_value(document: dict[str, Any]) -> tuple[tuple[str, ...], Any]:
    """Return the path of a statement's key, and its value; for ``a = {b = 1}`` these are ``("a", "b")`` and 1."""
    key: list[str] = []
    node: Any = document
    while isinstance(node, dict) and len(node) == 1:
        ((name, node),) = node.items()
        key.append(name)
    return tuple(key), node
