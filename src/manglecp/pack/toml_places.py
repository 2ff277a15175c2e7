"""Where the keys of a TOML text stand, for messages: the standard library's reader does not say.

Only text that the reader has accepted is looked at, so this need not know what is TOML, only where statements begin and
end. A key inside an inline table or array stands where the outermost key does.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final, TypeAlias

from manglecp.mangle import Source

__all__ = ["Path", "Places"]

Path: TypeAlias = tuple[str | int, ...]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_PART: Final = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
# What a value consists of, as far as one has to know to find its end.
_PIECE: Final = re.compile(
    r'"""(?:[^\\]|\\[\s\S])*?"{3,5}(?!")'
    r"|'''[\s\S]*?'{3,5}(?!')"
    r"""|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*|[\[\]{}\n]|[^"'#\[\]{}\n]+"""
)


class Places:
    """The places of keys, by the way to them: names of tables and keys, and numbers of array elements."""

    def __init__(self, name: str, text: str) -> None:
        self._source = Source(name, text)
        self._offsets: dict[Path, int] = {}
        self._lengths: dict[Path, int] = {}
        self._scan(text)

    def of(self, path: Path) -> tuple[int, int] | tuple[None, None]:
        """Line and column of a key, or of the nearest one around it."""
        for length in range(len(path), 0, -1):
            offset = self._offsets.get(path[:length])
            if offset is not None:
                return self._source.position(offset)
        return None, None

    def _scan(self, text: str) -> None:
        table: Path = ()
        at = _end(_BLANK, text, 0)
        while at < len(text):
            start = at
            brackets = 2 if text.startswith("[[", at) else 1 if text[at] == "[" else 0
            key, at = _key(text, at + brackets)
            if not key:
                return  # no statement begins like this: say less rather than something wrong
            if brackets:
                table = self._table(key, array=brackets == 2)
                self._note(table, start)
            else:
                self._note(self._inside(table, key), start)
            at = _end(_BLANK, text, _statement_end(text, at, brackets))

    def _table(self, key: Path, *, array: bool) -> Path:
        if not array:
            return self._inside((), key)
        path = (*self._inside((), key[:-1]), key[-1])
        number = self._lengths.get(path, 0)
        self._lengths[path] = number + 1
        return (*path, number)

    def _inside(self, table: Path, key: Path) -> Path:
        """The path of a key; of an array of tables it means the last one."""
        path = table
        for part in key:
            path = (*path, part)
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
        return path

    def _note(self, path: Path, offset: int) -> None:
        for length in range(1, len(path) + 1):
            self._offsets.setdefault(path[:length], offset)


def _key(text: str, at: int) -> tuple[Path, int]:
    parts: list[str] = []
    while True:
        at = _end(_SPACE, text, at)
        found = _PART.match(text, at)
        if found is None:
            return (), at
        word = found[0]
        parts.append(next(iter(tomllib.loads(f"{word} = 0"))) if word[0] in "\"'" else word)
        at = _end(_SPACE, text, found.end())
        if not text.startswith(".", at):
            return tuple(parts), at
        at += 1


def _statement_end(text: str, at: int, depth: int) -> int:
    """Behind the line end that ends a statement; ``depth`` is how many brackets are open already."""
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            return len(text)
        piece = found[0]
        at = found.end()
        if piece in ("[", "{"):
            depth += 1
        elif piece in ("]", "}"):
            depth -= 1
        elif piece == "\n" and depth <= 0:
            return at
    return at


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()
