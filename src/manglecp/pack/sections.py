"""Reading TOML strictly: a table is asked for its keys one by one, and what nobody asked for is unknown.

Every question has a default, which is also the answer to a value that is wrong: that is noted, and reading goes on, so
that one run finds everything. Messages say which key and what it takes, never what the value was: it may be a secret.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, TypeVar

from manglecp.base.suggestions import did_you_mean
from manglecp.base.text import find_invisible, replace_invisible
from manglecp.pack.diagnostics import Problems
from manglecp.pack.toml_places import Path, Places

__all__ = ["Section", "has_too_many_parts", "read_toml"]

_PLACE: Final = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")
# Possessive, and only from where a part begins: this is looked for in any text, and must not take long either.
_MANY_DOTS: Final = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){24}"""
)
_KINDS: Final = {str: "text", bool: "true or false", int: "a whole number", list: "a list", dict: "a table"}
_DEFAULT = TypeVar("_DEFAULT")
LONGEST: Final = 2_000
"""Characters of a text, unless something else is said."""


def read_toml(file: str, text: str, problems: Problems) -> Section:
    """The whole document; an empty one, and a problem, if it is none."""
    if has_too_many_parts(text):
        problems.add(file, "a key has too many parts")
        return Section(file, {}, (), Places(file, ""), problems)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for a number with very many digits
        said = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "a value is too large or too deeply nested"
        place = _PLACE.search(said)
        line, column = (int(place[1]), int(place[2])) if place else (None, None)
        problems.add(file, f"not TOML: {_PLACE.sub('', said)[:200]}", line=line, column=column)
        return Section(file, {}, (), Places(file, ""), problems)
    return Section(file, document, (), Places(file, text.replace("\r\n", "\n")), problems)


def has_too_many_parts(text: str) -> bool:
    """Whether a key may have so many: the time that the reader takes grows with the cube of them."""
    return _MANY_DOTS.search(text) is not None


class Section:
    """One table. Each method takes a key that is known, and gives its value or the default."""

    def __init__(self, file: str, table: dict[str, Any], path: Path, places: Places, problems: Problems) -> None:
        self._file = file
        self._table = table
        self._path = path
        self._places = places
        self._problems = problems
        self._known: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    @property
    def line(self) -> int | None:
        """Where the table begins."""
        return self._places.of(self._path)[0]

    def complain(self, key: str | None, message: str, fix: str | None = None) -> None:
        """Note a problem at this key, or at the table as a whole."""
        path = self._path if key is None else (*self._path, key)
        line, column = self._places.of(path)
        self._problems.add(self._file, f"{_shown(path)}: {message}", line=line, column=column, fix=fix)

    def text(
        self,
        key: str,
        default: _DEFAULT,
        *,
        pattern: re.Pattern[str] | None = None,
        takes: str = "",
        most: int = LONGEST,
        required: bool = False,
        empty: bool = False,
    ) -> str | _DEFAULT:
        """Text of visible characters, and of at least one unless it may be ``empty``."""
        value = self._typed(key, str, required=required)
        if value is None:
            return default
        if not value.strip() and not empty:
            self.complain(key, "the text is empty")
        elif len(value) > most:
            self.complain(key, f"the text has more than {most:,} characters")
        elif (hidden := find_invisible(value, running=True)) is not None:
            self.complain(key, f"the text holds the invisible character {hidden[1]}", "remove it")
        elif pattern is not None and not pattern.fullmatch(value):
            self.complain(key, f"not {takes}")
        else:
            return str(value)
        return default

    def choice(self, key: str, default: _DEFAULT, known: Collection[str]) -> str | _DEFAULT:
        """One of the known words; the default after a complaint."""
        value = self._typed(key, str)
        if value is None:
            return default
        if value not in known:
            self.complain(key, f"takes one of {', '.join(known)}", _fix(value, known))
            return default
        return str(value)

    def flag(self, key: str, default: _DEFAULT) -> bool | _DEFAULT:
        """True or false; the default after a complaint."""
        value = self._typed(key, bool)
        return default if value is None else bool(value)

    def number(self, key: str, default: int, least: int, most: int) -> int:
        """A whole number within these bounds; the default after a complaint."""
        value = self._typed(key, int)
        if value is None:
            return default
        if not least <= value <= most:
            self.complain(key, f"has to be from {least:,} to {most:,}")
            return default
        return int(value)

    def texts(self, key: str, pattern: re.Pattern[str], takes: str) -> tuple[str, ...]:
        """A list of different texts."""
        found: dict[str, None] = {}
        for number, item in enumerate(self._typed(key, list) or (), 1):
            if not isinstance(item, str) or not pattern.fullmatch(item):
                self.complain(key, f"entry {number} is not {takes}")
            elif item in found:
                self.complain(key, f"entry {number} is there already", "remove it")
            else:
                found[item] = None
        return tuple(found)

    def section(self, key: str) -> Section:
        """A table in this one; empty if it is not there."""
        return self._at((key,), self._typed(key, dict) or {})

    def sections(self, key: str) -> list[Section]:
        """The tables of ``[[key]]``."""
        items = self._typed(key, list) or []
        found = []
        for number, item in enumerate(items):
            if isinstance(item, dict):
                found.append(self._at((key, number), item))
            else:
                self.complain(key, f"entry {number + 1} is no table", f"write [[{key}]]")
        return found

    def finish(self, of_tables: Mapping[str, str] | None = None) -> None:
        """Complain about what nobody asked for; ``of_tables`` are keys that belong into a table of this one."""
        for key in self._table:
            if key not in self._known:
                table = (of_tables or {}).get(key)
                fix = did_you_mean(key, self._known) if table is None else f"write it below [{table}]"
                self.complain(key, "unknown key", fix)

    def _at(self, path: Path, table: dict[str, Any]) -> Section:
        return Section(self._file, table, (*self._path, *path), self._places, self._problems)

    def _typed(self, key: str, kind: type, *, required: bool = False) -> Any:
        self._known.add(key)
        value = self._table.get(key)
        if value is None:
            if required:
                self.complain(None, f"{key} is missing", f"add {key} = …")
            return None
        if type(value) is not kind:
            self.complain(key, f"takes {_KINDS[kind]}, not {_KINDS.get(type(value), 'a ' + type(value).__name__)}")
            return None
        return value


def _fix(value: str, known: Collection[str]) -> str | None:
    fix = did_you_mean(value, known)
    return fix if fix.startswith("did") else None


def _shown(path: Path) -> str:
    """``intents[2].name``, as people count."""
    text = ""
    for step in path:
        shown = f"[{step + 1}]" if isinstance(step, int) else replace_invisible(step[:80])
        text += f".{shown}" if text and isinstance(step, str) else shown
    return text or "the file"
