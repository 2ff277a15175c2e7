"""``@facts``: declares a fact generator, a function that is called periodically.

    @facts("file", "symbol", every=1, seconds=120, changes=True)
    def scan(root: Path, *, cache: Path | None) -> Iterator[Part | Progress]: ...

Each call of the function is a *pass*. All passes run in one process that usually lives as long as the pack is served,
so that a module can keep state. A fact is a tuple: predicate and plain values. A :class:`Part` replaces the part of the
same name; the facts outside parts are one more part. The parameters are settings of the pack, and ``cache``: a folder
that outlives the process, or None. A host serves the function as an action of tier 0, which returns a pass in pieces.
The function may be ``async def``, with or without ``yield``.
"""

from __future__ import annotations

import os
import time
import types
import typing
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from manglecp.base.coroutines import items_of, run_to_end
from manglecp.toolhost.actions import COROUTINE_FLAGS, SAFE, Declaration, check_egress, check_programs, serve_with
from manglecp.toolhost.conversion import encode_json

CACHE: Final = "cache"  # the parameter of a generator that gets the cache folder
MAX_BLOCK_BYTES: Final = 262_144  # the most bytes of a block, encoded; a piece has less than three times as many
PIECE_SECONDS: Final = 0.25  # a piece that is not empty is returned after this time
_MAX_BLOCK_ROWS: Final = 256
_MAX_SECONDS: Final = 3_600.0
_MIN_EVERY: Final = 0.05  # seconds
_VARIADIC_FLAGS: Final = 0x04 | 0x08  # CO_VARARGS and CO_VARKEYWORDS of a code object
_BOOLEANS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}
F = TypeVar("F", bound=Callable[..., Any])


class Part(NamedTuple):
    """All facts of one source (a file, a log), under its name. A part without facts is removed."""

    name: str
    facts: Iterable[tuple[Any, ...] | dict[str, Any]] = ()


class Progress(NamedTuple):
    """The progress of a pass; ``total`` is None if unknown."""

    done: int
    total: int | None = None
    what: str = ""


def facts(
    *predicates: str,
    every: float = 5.0,
    seconds: float = 60.0,
    changes: bool = False,
    spawn: Iterable[str] = (),
    egress: Iterable[str] = (),
) -> Callable[[F], F]:
    """Declare a generator function whose facts are added to those of the pack.

    ``predicates`` are the predicates of its facts; ``every`` is the pause between passes in seconds; ``seconds`` is the
    time limit of one pass; ``changes`` declares that only the first pass of a process yields all parts, and a later
    pass only the changed ones; ``spawn`` names the only binaries that a pass may execute, if the operator allows them;
    ``egress`` names the destinations, as HOST:PORT, that the host of the generators may connect to.
    """
    if isinstance(spawn, str):
        raise TypeError("spawn is a list of strings, not a string")
    if not predicates or not all(_is_text(name) for name in predicates):
        raise ValueError("facts: name the predicates, such as @facts('file', 'symbol')")
    if len(set(predicates)) < len(predicates):
        raise ValueError("facts: a predicate is named twice")
    for name, value, least in (("every", every, _MIN_EVERY), ("seconds", seconds, 0.0)):
        if isinstance(value, bool) or value == 0 or not least <= value <= _MAX_SECONDS:
            raise ValueError(f"facts: {name} has to be above {least:g} and at most {_MAX_SECONDS:g}")
    programs = tuple(spawn)
    check_programs(programs)
    destinations = check_egress(egress)

    def decorate(function: F) -> F:
        code = getattr(function, "__code__", None)
        if code is None or code.co_flags & _VARIADIC_FLAGS or code.co_posonlyargcount:
            raise TypeError("facts: the decorated function has to be a generator with named parameters")
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

        async def next_piece(
            pass_id: str, settings: dict[str, str], cache: str | None, **secrets: str
        ) -> dict[str, Any]:
            return await passes.next_piece(pass_id, {**settings, CACHE: cache}, secrets)

        def next_piece_now(pass_id: str, settings: dict[str, str], cache: str | None, **secrets: str) -> dict[str, Any]:
            return run_to_end(next_piece(pass_id, settings, cache, **secrets))

        declared = Declaration(
            tier=SAFE,
            timeout=float(seconds),
            mutates=False,
            spawn=programs,
            egress=destinations,
            generator=description,
        )
        return serve_with(function, next_piece if code.co_flags & COROUTINE_FLAGS else next_piece_now, declared)

    return decorate


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


class _Block(NamedTuple):
    part: str
    begins: bool  # whether the rows are the first of the part
    rows: list[Any]
    size: int  # bytes that the block adds to an answer


class _Passes:
    """The passes of one generator in this process, one at a time; ``names`` are the parameters of its function."""

    def __init__(self, function: Callable[..., Any], names: Sequence[str], *, changes: bool) -> None:
        self._function = function
        self._names = names
        self._changes = changes
        self._process_id = os.urandom(8).hex()
        self._pass_count = 0
        self._pass_id: str | None = None
        self._items: Iterator[Any] | AsyncIterator[Any] = iter(())  # what the function yields in this pass
        self._blocks: deque[_Block] = deque()  # yielded, and not yet returned in a piece
        self._has_loose_facts = False  # whether this pass has yielded facts outside parts

    async def next_piece(
        self, pass_id: str, settings: dict[str, str | None], secrets: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return the next piece of the pass; a new ``pass_id`` begins a pass."""
        if pass_id != self._pass_id:
            found = self._function(**self._arguments(settings), **secrets)
            self._items = aiter(found) if isinstance(found, AsyncIterable) else iter(await items_of(found))
            self._pass_id = pass_id
            self._pass_count += 1
            self._blocks.clear()
            self._has_loose_facts = False
        return await self._piece(time.monotonic() + PIECE_SECONDS)

    async def _piece(self, until: float) -> dict[str, Any]:
        blocks: list[_Block] = []
        size = 0
        progress: Progress | None = None
        over = False
        loose_facts: list[Any] = []
        while size < MAX_BLOCK_BYTES:
            is_empty = not (blocks or loose_facts or progress)
            if not is_empty and time.monotonic() >= until:
                break
            if self._blocks:
                blocks.append(self._blocks.popleft())
                size += blocks[-1].size
                continue
            try:
                item = next(self._items) if isinstance(self._items, Iterator) else await anext(self._items)
            except (StopIteration, StopAsyncIteration):
                over = True
                break
            if isinstance(item, Progress):
                progress = item
            elif isinstance(item, Part):
                if not _is_text(item.name):
                    raise TypeError("the name of a part is a text, and not empty")
                self._add_blocks(item.name, list(item.facts))
            else:
                loose_facts.append(item)
                if len(loose_facts) == _MAX_BLOCK_ROWS:
                    self._add_loose_blocks(loose_facts)
                    loose_facts = []
        if loose_facts:
            self._add_loose_blocks(loose_facts)
        while self._blocks and size < 2 * MAX_BLOCK_BYTES:  # blocks that the first loop has left over
            blocks.append(self._blocks.popleft())
            size += blocks[-1].size
        return {
            "process": self._process_id,
            "first": self._pass_count == 1,
            "over": over and not self._blocks,
            "parts": [(block.part, block.begins, block.rows) for block in blocks],
            "progress": None if progress is None else list(progress),
        }

    def _add_loose_blocks(self, rows: list[Any]) -> None:
        if self._changes:
            raise TypeError("with changes=True, facts are yielded in parts: Part(name, facts)")
        self._add_blocks("", rows, begins=not self._has_loose_facts)
        self._has_loose_facts = True

    def _add_blocks(self, part: str, rows: list[Any], *, begins: bool = True) -> None:
        """Split the rows of a part into blocks; a part without rows is one empty block."""
        for row in rows:
            if not isinstance(row, (tuple, list, dict)) or not row:
                raise TypeError(f"a fact is a tuple such as ('file', path, 12), not a {type(row).__name__}")
        starts = range(0, max(len(rows), 1), _MAX_BLOCK_ROWS)
        slices = deque(rows[start : start + _MAX_BLOCK_ROWS] for start in starts)
        while slices:
            block = slices.popleft()
            size = _encoded_size(part, block)
            if size > MAX_BLOCK_BYTES:
                if len(block) <= 1:
                    raise ValueError(f"a fact of the part {part[:80]!r} has more than {MAX_BLOCK_BYTES:,} bytes")
                middle = len(block) // 2
                slices.extendleft((block[middle:], block[:middle]))  # extendleft reverses: the first half comes first
                continue
            self._blocks.append(_Block(part, begins, block, size))
            begins = False

    def _arguments(self, settings: dict[str, str | None]) -> dict[str, Any]:
        hints = typing.get_type_hints(self._function)
        names = [name for name in self._names if name in settings]  # other parameters have defaults
        return {name: _convert_setting(name, settings[name], hints.get(name, str)) for name in names}


def _encoded_size(part: str, rows: list[Any]) -> int:
    r"""Return how many bytes the rows take in an answer: JSON within a JSON string, where ``"`` and ``\`` take two."""
    try:
        data = encode_json([part, rows]).encode()
    except UnicodeEncodeError:
        raise ValueError(f"a text in the part {ascii(part)[:80]} holds half a character (a lone surrogate)") from None
    return len(data) + data.count(b'"') + data.count(b"\\")


def _convert_setting(name: str, text: str | None, hint: Any) -> Any:
    """Convert the text of a setting to the annotated type of its parameter; raises TypeError or ValueError."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if type(None) in options and not text:
        return None
    target = next((option for option in options if option is not type(None)), str)
    if text is None:
        raise TypeError(f"{name} has no value: annotate it as Path | None")
    if target is bool:
        if text.lower() not in _BOOLEANS:
            raise ValueError(f"the setting {name} is true or false")
        return _BOOLEANS[text.lower()]
    if target in (str, Any) or not callable(target):
        return text
    try:
        return target(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the setting {name} is not a valid {getattr(target, '__name__', 'value')}") from error
