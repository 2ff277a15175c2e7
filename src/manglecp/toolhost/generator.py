"""``@facts``: declares a fact generator, a function that is called periodically.

    @facts("file", "symbol", every=1, seconds=120, changes=True)
    def scan(root: Path, *, cache: Path | None) -> Iterator[Part | Progress]: ...

Each call of the function is a *pass*. All passes run in one process that lives as long as the pack is served, so that a
module can keep state. A fact is a tuple: the predicate, then plain values. A :class:`Part` replaces the part of the
same name. Parameters are settings of the pack, by name, and ``cache``: a folder that outlives the process, or None. A
host serves it as an action of tier 0 that returns a pass piece by piece, each small enough for one answer.
"""

from __future__ import annotations

import json
import os
import time
import types
import typing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from manglecp.toolhost.actions import Declaration, check_programs, serve_with
from manglecp.toolhost.conversion import encode_value

CACHE: Final = "cache"
MAX_BLOCK: Final = 262_144  # bytes of an encoded block of facts; an answer has at most three of them
PIECE: Final = 0.25  # seconds after which a piece is returned, if there is one
_BLOCK: Final = 256
_LONGEST: Final = 3_600.0
_SHORTEST: Final = 0.05
_VARIADIC: Final = 0x04 | 0x08
_COROUTINE: Final = 0x80 | 0x200
_BOOLEANS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}
F = TypeVar("F", bound=Callable[..., Iterable[Any]])


class Part(NamedTuple):
    """All facts of one source (a file, a log), under its name. A part without facts is removed."""

    name: str
    facts: Iterable[tuple[Any, ...] | dict[str, Any]] = ()


class Progress(NamedTuple):
    """How far a pass is; ``total`` None if unknown."""

    done: int
    total: int | None = None
    what: str = ""


def facts(
    *predicates: str, every: float = 5.0, seconds: float = 60.0, changes: bool = False, spawn: Iterable[str] = ()
) -> Callable[[F], F]:
    """Have a generator function supply facts.

    ``predicates`` are those of its facts; ``every`` is the pause between passes in seconds; ``seconds`` is the time
    limit of one pass; ``changes`` declares that only the first pass of a process yields everything; ``spawn`` names the
    only binaries that it may execute, if the operator allows them too.
    """
    if isinstance(spawn, str):
        raise TypeError("spawn is a list of strings, not a string")
    if not predicates or not all(_is_word(name) for name in predicates):
        raise ValueError("facts: name the predicates, such as @facts('file', 'symbol')")
    if len(set(predicates)) < len(predicates):
        raise ValueError("facts: a predicate is named twice")
    for name, value, least in (("every", every, _SHORTEST), ("seconds", seconds, 0.0)):
        if isinstance(value, bool) or not least <= value <= _LONGEST or not value:
            raise ValueError(f"facts: {name} has to be above {least:g} and at most {_LONGEST:g}")
    programs = tuple(spawn)
    check_programs(programs)

    def decorate(function: F) -> F:
        code = getattr(function, "__code__", None)
        if code is None or code.co_flags & (_COROUTINE | _VARIADIC) or code.co_posonlyargcount:
            raise TypeError("facts: the decorated function has to be a plain generator with named parameters")
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        description = {
            "predicates": list(predicates),
            "every": float(every),
            "seconds": float(seconds),
            "changes": bool(changes),
            "settings": [name for name in names if name != CACHE],
            "cache": CACHE in names,
        }
        passes = _Passes(function, names, changes=bool(changes))

        def take(pass_id: str, settings: dict[str, str], cache: str | None) -> dict[str, Any]:
            return passes.take(pass_id, {**settings, CACHE: cache})

        declared = Declaration((), 0, False, False, float(seconds), False, programs, 1, generator=description)
        return serve_with(function, take, declared)

    return decorate


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value)


class _Passes:
    def __init__(self, function: Callable[..., Iterable[Any]], names: Sequence[str], *, changes: bool) -> None:
        self._function = function
        self._names = names
        self._changes = changes
        self._process = os.urandom(8).hex()
        self._passes = 0
        self._pass: str | None = None
        self._items: Iterator[Any] = iter(())
        self._waiting: deque[tuple[str, bool, list[Any], int]] = deque()
        self._loose = False

    def take(self, pass_id: str, given: dict[str, str | None]) -> dict[str, Any]:
        """Return the next piece of the pass; the first one starts it."""
        if pass_id != self._pass:
            self._items = iter(self._function(**self._arguments(given)))
            self._pass = pass_id
            self._passes += 1
            self._waiting.clear()
            self._loose = False
        return self._piece(time.monotonic() + PIECE)

    def _piece(self, until: float) -> dict[str, Any]:
        parts: list[tuple[str, bool, list[Any]]] = []
        size = 0
        progress: Progress | None = None
        over = False
        loose: list[Any] = []
        while size < MAX_BLOCK and (not (parts or loose or progress) or time.monotonic() < until):
            if self._waiting:
                name, begins, rows, length = self._waiting.popleft()
                parts.append((name, begins, rows))
                size += length
                continue
            try:
                item = next(self._items)
            except StopIteration:
                over = True
                break
            if isinstance(item, Progress):
                progress = item
            elif isinstance(item, Part):
                if not _is_word(item.name):
                    raise TypeError("the name of a part is a text, and not empty")
                self._split(item.name, list(item.facts))
            else:
                loose.append(item)
                if len(loose) == _BLOCK:
                    self._split_loose(loose)
                    loose = []
        if loose:
            self._split_loose(loose)
        while self._waiting and size < 2 * MAX_BLOCK:
            name, begins, rows, length = self._waiting.popleft()
            parts.append((name, begins, rows))
            size += length
        return {
            "process": self._process,
            "first": self._passes == 1,
            "over": over and not self._waiting,
            "parts": parts,
            "progress": None if progress is None else list(progress),
        }

    def _split_loose(self, rows: list[Any]) -> None:
        if self._changes:
            raise TypeError("with changes=True, facts are yielded in parts: Part(name, facts)")
        self._split("", rows, begins=not self._loose)
        self._loose = True

    def _split(self, name: str, rows: list[Any], *, begins: bool = True) -> None:
        for row in rows:
            if not isinstance(row, (tuple, list, dict)) or not row:
                raise TypeError(f"a fact is a tuple such as ('file', path, 12), not a {type(row).__name__}")
        blocks = deque(rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)) or deque([rows])
        while blocks:
            block = blocks.popleft()
            length = _length(name, block)
            if length > MAX_BLOCK:
                if len(block) <= 1:
                    raise ValueError(f"a fact of the part {name[:80]!r} has more than {MAX_BLOCK:,} bytes")
                blocks.extendleft((block[len(block) // 2 :], block[: len(block) // 2]))
                continue
            self._waiting.append((name, begins, block, length))
            begins = False

    def _arguments(self, given: dict[str, str | None]) -> dict[str, Any]:
        hints = typing.get_type_hints(self._function)
        found = {}
        for name in self._names:
            if name in given:
                found[name] = _converted(name, given[name], hints.get(name, str))
        return found


def _length(name: str, rows: list[Any]) -> int:
    """Return the bytes that the rows take in an answer: JSON within a JSON string."""
    text = encode_value([name, rows])
    if "\\ud" in text and _is_halved(text):
        raise ValueError(f"a text in the part {ascii(name)[:80]} holds half a character (a lone surrogate)")
    return len(text.encode()) + text.count('"') + text.count("\\")


def _is_halved(text: str) -> bool:
    """Return whether JSON holds a lone surrogate, and not just a backslash before these letters."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _converted(name: str, text: str | None, hint: Any) -> Any:
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if type(None) in options and not text:
        return None
    kind = next((option for option in options if option is not type(None)), str)
    if text is None:
        raise TypeError(f"{name} has no value: annotate it as Path | None")
    if kind is bool:
        if text.lower() not in _BOOLEANS:
            raise ValueError(f"the setting {name} is true or false")
        return _BOOLEANS[text.lower()]
    if kind in (str, Any) or not callable(kind):
        return text
    try:
        return kind(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the setting {name} is not a valid {getattr(kind, '__name__', 'value')}") from error
