"""Passes of generators: what they gave, what that changes, and when they are asked again.

A pass is taken piece by piece, and the next piece is asked for while this one is read. It counts as a whole or not at
all: a pass that fails, is late, gives too much or what does not fit its declaration changes nothing. A function that
gives only changes has then lost track of what is known, and so its host is ended: the next one gives everything.

Whoever looks waits, in a thread of their own. Nobody who evaluates does: a change is handed over when it is complete,
and counts when it is taken.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from manglecp.mangle import Fact, Key, Predicate
from manglecp.pack import GeneratorDescription, Pack, PackError, pack_problem
from manglecp.toolhost.dispatch import Answer, DispatchError
from manglecp.toolhost.fact_rows import FactRows
from manglecp.toolhost.known import Change, Known
from manglecp.wire import Fault

__all__ = ["Generated", "Host", "Looked", "Looking", "NoFacts"]

MOST_BYTES: Final = 1 << 28
"""Of one pass, as it travels."""
_FILE: Final = "facts.py"
_GRACE: Final = 5.0
"""Seconds beyond its deadline after which a piece is not waited for: dispatch answers by itself."""
_LONGEST_PAUSE: Final = 60.0
_SAID: Final = 300


class Host(Protocol):
    """One process at a time."""

    def ask(self, aid: str, inputs: Mapping[str, Any], seconds: float) -> Future[Answer | DispatchError]:
        """RuntimeError if it is closed."""

    def end(self) -> None:
        """The next question begins another one, which remembers nothing."""

    def close(self) -> None:
        """End the process for good."""


class NoFacts(Exception):
    """A pass that came to nothing. What was known before is still known."""

    def __init__(self, generator: str, message: str) -> None:
        super().__init__(f"{generator}: {message}")
        self.generator = generator
        self.message = message


class Looking(NamedTuple):
    """How far a pass is."""

    generator: str
    done: int | None
    total: int | None
    what: str
    facts: int
    seconds: float
    over: bool = False


class Looked(NamedTuple):
    """What a pass has changed; to be handed to :meth:`Generated.take`."""

    generator: str
    change: Change
    version: str

    @property
    def added(self) -> Sequence[Fact]:
        """Facts that were not known before."""
        return self.change.added

    @property
    def removed(self) -> Sequence[Fact]:
        """Facts that were known, and were not said again."""
        return self.change.removed


class _Piece(msgspec.Struct, frozen=True):
    process: str
    first: bool
    over: bool
    parts: list[tuple[str, bool, list[Any]]]
    progress: tuple[int, int | None, str] | None = None


class _Generator:
    """One function: what it said, and when it is asked again."""

    def __init__(self, said: GeneratorDescription) -> None:
        self.said = said
        self.known = Known()
        self.rows: FactRows | None = None
        self.due = 0.0
        self.failures = 0

    def ended(self, began: float, *, well: bool) -> None:
        """It rests for as long as it worked, but not after the first time: that is longer than the others."""
        now = time.monotonic()
        pause = max(self.said.every, min(now - began, _LONGEST_PAUSE) if len(self.known) else 0.0)
        self.failures = 0 if well else self.failures + 1
        self.due = now + (pause if well else max(pause, min(2.0 ** (self.failures - 1), _LONGEST_PAUSE)))


class Generated:
    """The generators of a pack that is served. Threads may share it, and one looks at a time."""

    def __init__(
        self, pack: Pack, host: Host, cache: Path | None, told: Callable[[Looking], None] | None = None
    ) -> None:
        self._most = pack.settings.limits.max_base_facts
        self._params = pack.params
        self._host = host
        self._cache = cache
        self._told = told
        self._looking = threading.Lock()
        self._of = {generator.name: _Generator(generator) for generator in pack.generators.values()}

    def close(self) -> None:
        """Whoever looks now is told that nothing came of it."""
        self._host.close()

    # --- the first time --------------------------------------------------------------------------------------------

    def begin(self, predicates: Mapping[Key, Predicate]) -> list[Fact]:
        """All facts, before anything else is known; :class:`PackError` if a generator does not give them."""
        problems = []
        for name, generator in self._of.items():
            generator.rows = FactRows(predicates, generator.said.predicates)
            try:
                self.take(self.look(name))
            except NoFacts as error:
                problems.append(pack_problem(_FILE, str(error)))
        if problems:
            raise PackError(problems)
        return [fact for generator in self._of.values() for fact in generator.known]

    # --- and again -------------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """Of all that is known; the same facts have the same version, in any process."""
        return self._version({})

    def _version(self, instead: Mapping[str, int]) -> str:
        numbers = (instead.get(name, generator.known.sum) for name, generator in self._of.items())
        return "".join(f"{number:032x}" for number in numbers)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the generators, in the order of the pack."""
        return tuple(self._of)

    def next(self) -> tuple[str, float]:
        """The generator that is to be asked next, and in how many seconds."""
        name, generator = min(self._of.items(), key=lambda item: item[1].due)
        return name, max(generator.due - time.monotonic(), 0.0)

    def hurry(self) -> None:
        """Something has happened: all are to be asked now, but for those that fail."""
        for generator in self._of.values():
            if not generator.failures:
                generator.due = 0.0

    def look(self, name: str) -> Looked:
        """Make a pass; :class:`NoFacts` if nothing comes of it."""
        with self._looking:
            generator = self._of[name]
            began = time.monotonic()
            well = False
            try:
                parts, whole = self._pass(generator, began)
                change = generator.known.change(parts, whole=whole)
                self._check_number(generator, change)
                well = True
            finally:
                generator.ended(began, well=well)
                if not well and generator.said.changes:
                    self._host.end()
            return Looked(name, change, self._version({name: change.sum}))

    def take(self, looked: Looked) -> None:
        """The change counts from now on."""
        self._of[looked.generator].known.take(looked.change)

    def refuse(self, looked: Looked) -> None:
        """The change cannot be used: what was known is still known, and is compared with everything next time."""
        generator = self._of[looked.generator]
        generator.ended(time.monotonic(), well=False)
        if generator.said.changes:
            self._host.end()

    def _pass(self, generator: _Generator, began: float) -> tuple[dict[str, set[Fact]], bool]:
        said, rows = generator.said, generator.rows
        assert rows is not None, "begin() comes first"
        inputs = {
            "pass_id": secrets.token_hex(8),
            "settings": {name: self._params[name] for name in said.settings if name in self._params},
            "cache": None if self._cache is None else str(self._cache),
        }
        parts: dict[str, set[Fact]] = {}
        whole, count, size, process = not said.changes, 0, 0, None
        waiting = self._ask(said, inputs, began)
        while True:
            output = self._answer(said, waiting)
            size += len(output)
            if size > MOST_BYTES:
                raise NoFacts(said.name, f"it gave more than {MOST_BYTES:,} bytes")
            piece = _piece(said, output)
            if process not in (None, piece.process):
                raise NoFacts(said.name, "its host was replaced in the middle of a pass")
            process = piece.process
            if not piece.over:
                waiting = self._ask(said, inputs, began)
            whole = whole or piece.first
            for name, begins, given in piece.parts:
                try:
                    facts = rows.read(given)
                except Fault as fault:
                    raise NoFacts(said.name, f"it gave {fault.message}") from None
                if begins:
                    parts[name] = set(facts)
                else:
                    parts.setdefault(name, set()).update(facts)
                count += len(facts)
            if count > self._most:
                raise self._too_many(said)
            self._tell(said, piece, count, began)
            if piece.over:
                return parts, whole

    def _check_number(self, generator: _Generator, change: Change) -> None:
        known = sum(len(one.known) for one in self._of.values())
        if known + len(change.added) - len(change.removed) > self._most:
            raise self._too_many(generator.said)

    def _too_many(self, said: GeneratorDescription) -> NoFacts:
        return NoFacts(said.name, f"more than {self._most:,} facts: raise limits.max_base_facts in pack.toml")

    def _tell(self, said: GeneratorDescription, piece: _Piece, count: int, began: float) -> None:
        if self._told is not None:
            done, total, what = piece.progress or (None, None, "")
            self._told(Looking(said.name, done, total, what, count, time.monotonic() - began, piece.over))

    def _ask(
        self, said: GeneratorDescription, inputs: Mapping[str, Any], began: float
    ) -> tuple[Future[Answer | DispatchError], float]:
        left = began + said.seconds - time.monotonic()
        if left <= 0:
            self._host.end()
            raise _late(said)
        try:
            return self._host.ask(said.aid, inputs, left), left
        except RuntimeError:
            raise NoFacts(said.name, "it is no longer served") from None

    def _answer(self, said: GeneratorDescription, waiting: tuple[Future[Answer | DispatchError], float]) -> bytes:
        future, left = waiting
        try:
            result = future.result(left + _GRACE)
        except (TimeoutError, CancelledError):
            raise _late(said) from None
        if isinstance(result, Answer):
            return result.output_json.encode()
        if result["type"] == "timeout":
            raise _late(said)
        raise NoFacts(said.name, result["detail"][:_SAID])


def _late(said: GeneratorDescription) -> NoFacts:
    return NoFacts(said.name, f"it was not done within {said.seconds:g} s")


def _piece(said: GeneratorDescription, output: bytes) -> _Piece:
    try:
        return msgspec.json.decode(output, type=_Piece)
    except (msgspec.DecodeError, RecursionError):
        raise NoFacts(said.name, "it gave something that is no piece of a pass") from None
