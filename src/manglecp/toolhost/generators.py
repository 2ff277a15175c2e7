"""The facts that a pack finds out, from one host that is locked in and kept up to date by asking it again.

A pass is taken piece by piece, and the next piece is asked for while this one is read. It counts as a whole or not at
all: a pass that fails, is late, gives too much or what does not fit its declaration changes nothing. A function that
gives only changes has then lost track of what is known, and so its host is ended: the next one gives everything.

Whoever looks waits, in a thread of their own. Nobody who evaluates does: a change is handed over when it is complete,
and counts when it is taken.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sys
import threading
import time
from asyncio import AbstractEventLoop, run_coroutine_threadsafe
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.mangle.declarations import Predicate
from manglecp.mangle.facts import Fact
from manglecp.mangle.packages import Key
from manglecp.pack.folder import Folder
from manglecp.pack.model import GeneratorDescription, Pack
from manglecp.pack.problems import PackError, Problem, Problems
from manglecp.toolhost.caches import cache_folder
from manglecp.toolhost.dispatch import (
    Answer,
    Dispatcher,
    DispatchError,
    HostCommand,
    Limits,
    Listing,
    Served,
    list_plugin,
)
from manglecp.toolhost.fact_rows import FactRows
from manglecp.toolhost.known import Change, Known
from manglecp.toolhost.loops import background_loop, wait_for
from manglecp.wire.faults import Fault

__all__ = ["Generated", "Looked", "Looking", "NoFacts", "serve_facts"]

MOST_BYTES: Final = 1 << 28
"""Of one pass, as it travels."""
_FILE: Final = "facts.py"
_GRACE: Final = 5.0
"""Seconds beyond its deadline after which a piece is not waited for: dispatch answers by itself."""
_LONGEST_PAUSE: Final = 60.0
_SAID: Final = 300
_ENDLESS: Final = sys.maxsize
_log = logging.getLogger(__name__)


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
        return self.change.added

    @property
    def removed(self) -> Sequence[Fact]:
        return self.change.removed


@contextlib.contextmanager
def serve_facts(
    pack: Pack,
    *,
    cache: Path | bool = True,
    programs: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    degrade: bool = False,
    told: Callable[[Looking], None] | None = None,
) -> Iterator[Generated | None]:
    """A host for the generators of a pack, or None if it has none; :class:`PackError` if there is no host to be had.

    ``cache`` is where the folders are that generators keep things in; by default that of this user; False: nowhere.
    ``programs`` are those that they may start, by name or absolute path, if they name them too. ``degrade`` allows a
    machine that cannot lock the host in completely. ``told`` hears how far a pass is.
    """
    if not pack.generators or pack.generators_file is None:
        yield None
        return
    kept = _cache(pack, cache)
    with background_loop("facts") as loop:
        command, listing = _command(pack, loop, os.environ if environ is None else environ, kept, programs, degrade)
        generated = Generated(pack, _Host(loop, Served(listing.catalogue, command)), kept, told)
        try:
            yield generated
        finally:
            generated.close()


def _cache(pack: Pack, wanted: Path | bool) -> Path | None:
    if wanted is False or not any(generator.cache for generator in pack.generators.values()):
        return None
    try:
        return cache_folder(pack, None if wanted is True else wanted)
    except OSError as error:
        if wanted is not True:
            raise PackError([Problem("", f"the folder for caches cannot be used: {error.strerror}")]) from None
        _log.warning("there is no cache for the facts of %s: %s", pack.name, error.strerror)
        return None


def _command(
    pack: Pack,
    loop: AbstractEventLoop,
    environ: Mapping[str, str],
    cache: Path | None,
    programs: Sequence[str],
    degrade: bool,
) -> tuple[HostCommand, Listing]:
    listing = wait_for(loop, list_plugin(str(pack.generators_file), environ, degrade=degrade))
    if not isinstance(listing, Listing):
        raise _problem(f"cannot be served: {listing['detail'][:_SAID]}")
    folder = Folder(Path(pack.folder), Problems())
    if folder.digest(pack.name, pack.governance.digest, pack.params) != pack.digest:
        raise PackError([Problem("", "the pack has changed since it was read", fix="read it again")])
    command = listing.command(
        environ,
        sandbox=None if programs else "strict",
        programs=programs,
        workspace=() if cache is None else (str(cache),),
        readable=(*pack.readable, *pack.writable),
        degrade=degrade,
    )
    if not isinstance(command, HostCommand):
        raise _problem(f"cannot be served: {command['detail'][:_SAID]}")
    return command, listing


def _problem(message: str, fix: str | None = None) -> PackError:
    return PackError([Problem(_FILE, message, fix=fix)])


class _Host:
    """One process at a time, begun when it is needed."""

    def __init__(self, loop: AbstractEventLoop, served: Served) -> None:
        self._loop = loop
        self._served = served
        self._dispatcher: Dispatcher | None = None
        self._lock = threading.Lock()
        self._closed = False

    def ask(self, aid: str, inputs: Mapping[str, Any], seconds: float) -> Future[Answer | DispatchError]:
        with self._lock:
            if self._closed:
                raise RuntimeError("closed")
            if self._dispatcher is None:
                # It keeps what it has seen in memory, for as long as it is asked, so nothing but its death replaces it.
                limits = Limits(attempts=1, calls_per_host=_ENDLESS, growth=_ENDLESS, pipelined=1)
                longest = max(profile.timeout or 1.0 for profile in self._served.catalogue.values())
                dispatcher = Dispatcher([self._served], size=1, timeout=longest, limits=limits)
                wait_for(self._loop, dispatcher.__aenter__())
                self._dispatcher = dispatcher
            return run_coroutine_threadsafe(self._dispatcher.call(aid, inputs=inputs, timeout=seconds), self._loop)

    def end(self) -> None:
        """The next question begins another one, which remembers nothing."""
        with self._lock:
            dispatcher, self._dispatcher = self._dispatcher, None
        if dispatcher is not None:
            wait_for(self._loop, dispatcher.__aexit__(None, None, None))

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.end()


class _Piece(msgspec.Struct, frozen=True):
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
        self.due = now + (pause if well else max(pause, min(2.0**self.failures, _LONGEST_PAUSE)))


class Generated:
    """The generators of a pack that is served. Threads may share it, and one looks at a time."""

    def __init__(
        self, pack: Pack, host: _Host, cache: Path | None, told: Callable[[Looking], None] | None = None
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
                problems.append(Problem(_FILE, str(error)))
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
            return Looked(name, change, self._version({name: generator.known.sum_after(change)}))

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
        whole, count, size = not said.changes, 0, 0
        waiting = self._ask(said, inputs, began)
        while True:
            output = self._answer(said, waiting)
            size += len(output)
            if size > MOST_BYTES:
                raise NoFacts(said.name, f"it gave more than {MOST_BYTES:,} bytes")
            piece = _piece(said, output)
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
