"""A strict TOML reader with the position of every key.

A caller requests each key with a default. An invalid value is reported and replaced by the default, and reading
continues, so that one run finds all errors. A key that was never requested is unknown, and an error. Messages never
quote values, which may be secrets.

The parser of the standard library has no positions. :class:`KeyPositions` scans text that the parser has accepted, so
it only has to find where statements begin and end. A key of an inline table has the position of the outermost key.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from manglecp.base.source import Source
from manglecp.base.suggestions import closest_match, did_you_mean
from manglecp.base.text import find_invisible, replace_invisible
from manglecp.pack.diagnostics import Problems

_PARSER_POSITION: Final = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")
# Possessive, and anchored where a part begins: it must run in linear time on any text.
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
        return TomlTable(file, {}, (), KeyPositions(file, ""), problems)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for a number with very many digits
        is_syntax_error = isinstance(error, tomllib.TOMLDecodeError)
        reason = str(error) if is_syntax_error else "a value is too large or too deeply nested"
        position = _PARSER_POSITION.search(reason)
        line, column = (int(position[1]), int(position[2])) if position else (None, None)
        problems.add(file, f"not TOML: {_PARSER_POSITION.sub('', reason)[:200]}", line=line, column=column)
        return TomlTable(file, {}, (), KeyPositions(file, ""), problems)
    return TomlTable(file, document, (), KeyPositions(file, text.replace("\r\n", "\n")), problems)


def has_too_many_parts(text: str) -> bool:
    """Return whether a key may have 24 or more dots: the parser takes time cubic in the parts of a key."""
    return _MANY_DOTS.search(text) is not None


class TomlTable:
    """One table. Each reading method requests a key, and returns its value, or the default if it is missing or invalid.

    ``pattern`` is what a text must match in full; ``takes`` describes that in messages, as in "not a name".
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

    def texts(self, key: str, pattern: re.Pattern[str], takes: str) -> tuple[str, ...]:
        texts: dict[str, None] = {}  # an ordered set
        for number, item in enumerate(self._typed(key, list) or (), 1):
            if not isinstance(item, str) or not pattern.fullmatch(item):
                self.report(key, f"entry {number} is not {takes}")
            elif item in texts:
                self.report(key, f"entry {number} is a duplicate", "remove it")
            else:
                texts[item] = None
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

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_KEY_PART: Final = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
# The tokens of a value, as far as needed to find its end.
_TOKEN: Final = re.compile(
    r'"""(?:[^\\]|\\[\s\S])*?"{3,5}(?!")'
    r"|'''[\s\S]*?'{3,5}(?!')"
    r"""|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*|[\[\]{}\n]|[^"'#\[\]{}\n]+"""
)


class KeyPositions:
    """The positions of keys by path: names of tables and keys, and indices of array elements."""

    def __init__(self, name: str, text: str) -> None:
        self._source = Source(name, text)
        self._offsets: dict[KeyPath, int] = {}
        self._lengths: dict[KeyPath, int] = {}  # of arrays of tables, so far
        self._scan(text)

    def of(self, path: KeyPath) -> tuple[int, int] | tuple[None, None]:
        """Return line and column of a key, or of the nearest enclosing one."""
        for length in range(len(path), 0, -1):
            offset = self._offsets.get(path[:length])
            if offset is not None:
                return self._source.position(offset)
        return None, None

    def _scan(self, text: str) -> None:
        table: KeyPath = ()
        offset = _skip(_BLANK, text, 0)
        while offset < len(text):
            start = offset
            brackets = 2 if text.startswith("[[", offset) else 1 if text[offset] == "[" else 0
            key, offset = _read_key(text, offset + brackets)
            if not key:
                return  # not a statement: no position rather than a wrong one
            if brackets:
                table = self._table_path(key, is_array=brackets == 2)
                self._record(table, start)
            else:
                self._record(self._absolute_path(table, key), start)
            offset = _skip(_BLANK, text, _statement_end(text, offset, brackets))

    def _table_path(self, key: KeyPath, *, is_array: bool) -> KeyPath:
        """Return the path of the table that a header begins; ``[[key]]`` begins the next element of an array."""
        if not is_array:
            return self._absolute_path((), key)
        path = (*self._absolute_path((), key[:-1]), key[-1])
        index = self._lengths.get(path, 0)
        self._lengths[path] = index + 1
        return (*path, index)

    def _absolute_path(self, table: KeyPath, key: KeyPath) -> KeyPath:
        """Return the path of a key in a table; a key of an array of tables means its last element so far."""
        path = table
        for part in key:
            path = (*path, part)
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
        return path

    def _record(self, path: KeyPath, offset: int) -> None:
        """Record the offset for the path and for its parents that have none yet."""
        for length in range(1, len(path) + 1):
            self._offsets.setdefault(path[:length], offset)


def _read_key(text: str, offset: int) -> tuple[KeyPath, int]:
    """Return the parts of the dotted key at an offset, none if it is not a key, and the offset behind it."""
    parts: list[str] = []
    while True:
        offset = _skip(_SPACE, text, offset)
        match = _KEY_PART.match(text, offset)
        if match is None:
            return (), offset
        part = match[0]
        is_quoted = part[0] in "\"'"
        parts.append(next(iter(tomllib.loads(f"{part} = 0"))) if is_quoted else part)  # the parser unquotes it
        offset = _skip(_SPACE, text, match.end())
        if not text.startswith(".", offset):
            return tuple(parts), offset
        offset += 1


def _statement_end(text: str, offset: int, depth: int) -> int:
    """Return the offset behind the statement; ``depth`` is the number of open brackets."""
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            return len(text)
        token = match[0]
        offset = match.end()
        if token in ("[", "{"):
            depth += 1
        elif token in ("]", "}"):
            depth -= 1
        elif token == "\n" and depth <= 0:
            return offset
    return offset


def _skip(pattern: re.Pattern[str], text: str, offset: int) -> int:
    """Return the offset behind the match at ``offset``, or ``offset`` if there is none."""
    match = pattern.match(text, offset)
    return offset if match is None else match.end()
