"""A strict TOML reader with the position of every key.

A caller requests each key with a default, which is also returned for an invalid value: that is reported and reading
continues, so that one run finds all errors. A key that was never requested is unknown, and an error. Messages never
quote values, which may be secrets.

The parser of the standard library has no positions. :class:`KeyPositions` scans text that the parser has accepted, so
it only finds where statements begin and end. A key of an inline table has the position of the outermost key.
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

_PLACE: Final = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")
# Possessive, and anchored where a part begins: it must run in linear time on any text.
_MANY_DOTS: Final = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){24}"""
)
_KINDS: Final = {str: "text", bool: "true or false", int: "a whole number", list: "a list", dict: "a table"}
_DEFAULT = TypeVar("_DEFAULT")
MAX_TEXT: Final = 2_000


def read_toml(file: str, text: str, problems: Problems) -> TomlTable:
    """Return the document; an empty one, and a problem, if the text is not TOML."""
    if has_too_many_parts(text):
        problems.add(file, "a key has too many parts")
        return TomlTable(file, {}, (), KeyPositions(file, ""), problems)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for a number with very many digits
        decoding = isinstance(error, tomllib.TOMLDecodeError)
        reason = str(error) if decoding else "a value is too large or too deeply nested"
        place = _PLACE.search(reason)
        line, column = (int(place[1]), int(place[2])) if place else (None, None)
        problems.add(file, f"not TOML: {_PLACE.sub('', reason)[:200]}", line=line, column=column)
        return TomlTable(file, {}, (), KeyPositions(file, ""), problems)
    return TomlTable(file, document, (), KeyPositions(file, text.replace("\r\n", "\n")), problems)


def has_too_many_parts(text: str) -> bool:
    """Return whether a key may have very many parts: the parser takes time cubic in them."""
    return _MANY_DOTS.search(text) is not None


class TomlTable:
    """One table. Each method takes a known key, and returns its value or the default."""

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
        most: int = MAX_TEXT,
        required: bool = False,
        empty: bool = False,
    ) -> str | _DEFAULT:
        """Return text of visible characters, at least one unless ``empty``."""
        value = self._typed(key, str, required=required)
        if value is None:
            return default
        if not value.strip() and not empty:
            self.report(key, "the text is empty")
        elif len(value) > most:
            self.report(key, f"the text has more than {most:,} characters")
        elif (hidden := find_invisible(value, running=True)) is not None:
            self.report(key, f"the text holds the invisible character {hidden[1]}", "remove it")
        elif pattern is not None and not pattern.fullmatch(value):
            self.report(key, f"not {takes}")
        else:
            return str(value)
        return default

    def choice(self, key: str, default: _DEFAULT, known: Collection[str]) -> str | _DEFAULT:
        value = self._typed(key, str)
        if value is None:
            return default
        if value not in known:
            similar = closest_match(value, known)
            self.report(key, f"takes one of {', '.join(known)}", f"did you mean {similar}?" if similar else None)
            return default
        return str(value)

    def flag(self, key: str, default: _DEFAULT) -> bool | _DEFAULT:
        value = self._typed(key, bool)
        return default if value is None else bool(value)

    def number(self, key: str, default: int, least: int, most: int) -> int:
        value = self._typed(key, int)
        if value is None:
            return default
        if not least <= value <= most:
            self.report(key, f"has to be from {least:,} to {most:,}")
            return default
        return int(value)

    def texts(self, key: str, pattern: re.Pattern[str], takes: str) -> tuple[str, ...]:
        texts: dict[str, None] = {}
        for number, item in enumerate(self._typed(key, list) or (), 1):
            if not isinstance(item, str) or not pattern.fullmatch(item):
                self.report(key, f"entry {number} is not {takes}")
            elif item in texts:
                self.report(key, f"entry {number} is a duplicate", "remove it")
            else:
                texts[item] = None
        return tuple(texts)

    def section(self, key: str) -> TomlTable:
        return self._at((key,), self._typed(key, dict) or {})

    def sections(self, key: str) -> list[TomlTable]:
        items = self._typed(key, list) or []
        tables = []
        for number, item in enumerate(items):
            if isinstance(item, dict):
                tables.append(self._at((key, number), item))
            else:
                self.report(key, f"entry {number + 1} is not a table", f"write [[{key}]]")
        return tables

    def finish(self, of_tables: Mapping[str, str] | None = None) -> None:
        """Report the keys that were not requested; ``of_tables`` maps keys to the table that they belong to."""
        for key in self._table:
            if key not in self._requested:
                table = (of_tables or {}).get(key)
                fix = did_you_mean(key, self._requested) if table is None else f"write it below [{table}]"
                self.report(key, "unknown key", fix)

    def _at(self, path: KeyPath, table: dict[str, Any]) -> TomlTable:
        return TomlTable(self._file, table, (*self._path, *path), self._positions, self._problems)

    def _typed(self, key: str, kind: type, *, required: bool = False) -> Any:
        self._requested.add(key)
        value = self._table.get(key)
        if value is None:
            if required:
                self.report(None, f"{key} is missing", f"add {key} = …")
            return None
        if type(value) is not kind:
            self.report(key, f"takes {_KINDS[kind]}, not {_KINDS.get(type(value), 'a ' + type(value).__name__)}")
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
_PART: Final = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
# The tokens of a value, as far as needed to find its end.
_PIECE: Final = re.compile(
    r'"""(?:[^\\]|\\[\s\S])*?"{3,5}(?!")'
    r"|'''[\s\S]*?'{3,5}(?!')"
    r"""|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*|[\[\]{}\n]|[^"'#\[\]{}\n]+"""
)


class KeyPositions:
    """The positions of keys by path: names of tables and keys, and indices of array elements."""

    def __init__(self, name: str, text: str) -> None:
        self._source = Source(name, text)
        self._offsets: dict[KeyPath, int] = {}
        self._lengths: dict[KeyPath, int] = {}
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
        at = _end(_BLANK, text, 0)
        while at < len(text):
            start = at
            brackets = 2 if text.startswith("[[", at) else 1 if text[at] == "[" else 0
            key, at = _key(text, at + brackets)
            if not key:
                return  # not a statement: no position rather than a wrong one
            if brackets:
                table = self._table(key, array=brackets == 2)
                self._note(table, start)
            else:
                self._note(self._inside(table, key), start)
            at = _end(_BLANK, text, _statement_end(text, at, brackets))

    def _table(self, key: KeyPath, *, array: bool) -> KeyPath:
        if not array:
            return self._inside((), key)
        path = (*self._inside((), key[:-1]), key[-1])
        number = self._lengths.get(path, 0)
        self._lengths[path] = number + 1
        return (*path, number)

    def _inside(self, table: KeyPath, key: KeyPath) -> KeyPath:
        """Return the path of a key, with the index of the last element for arrays of tables."""
        path = table
        for part in key:
            path = (*path, part)
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
        return path

    def _note(self, path: KeyPath, offset: int) -> None:
        for length in range(1, len(path) + 1):
            self._offsets.setdefault(path[:length], offset)


def _key(text: str, at: int) -> tuple[KeyPath, int]:
    parts: list[str] = []
    while True:
        at = _end(_SPACE, text, at)
        match = _PART.match(text, at)
        if match is None:
            return (), at
        word = match[0]
        parts.append(next(iter(tomllib.loads(f"{word} = 0"))) if word[0] in "\"'" else word)
        at = _end(_SPACE, text, match.end())
        if not text.startswith(".", at):
            return tuple(parts), at
        at += 1


def _statement_end(text: str, at: int, depth: int) -> int:
    """Return the offset behind the statement; ``depth`` is the number of open brackets."""
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            return len(text)
        piece = match[0]
        at = match.end()
        if piece in ("[", "{"):
            depth += 1
        elif piece in ("]", "}"):
            depth -= 1
        elif piece == "\n" and depth <= 0:
            return at
    return at


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()
