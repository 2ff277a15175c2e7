"""Passes of fact generators: their facts, the difference to the last pass, and the schedule.

A pass is fetched piece by piece; the next piece is requested while this one is parsed. It is atomic: a pass that fails,
is late, too large or does not fit its declaration changes nothing. A generator that returns only changes has then lost
its base, so its host is ended, and the next host returns all facts.

Passes block the calling thread. Their change is applied by :meth:`FactGenerators.commit`.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
import threading
import time
from asyncio import AbstractEventLoop, run_coroutine_threadsafe
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.background_loop import wait_for
from manglecp.mangle import Acceptance, Fact, Key, Predicate, Value
from manglecp.pack import GeneratorDescription, Pack, PackError, pack_problem
from manglecp.toolhost.dispatch import ActionResult, Dispatcher, DispatchError, PoolLimits, ServedPlugin
from manglecp.wire import Fault, Schema, Schemas, read_fact, to_value

_NONE: Final[frozenset[Fact]] = frozenset()
_MODULUS: Final = 1 << 128


class Change(NamedTuple):
    added: tuple[Fact, ...]
    removed: tuple[Fact, ...]
    parts: Mapping[str, frozenset[Fact]]
    """The parts that differ; an empty one is gone."""
    counts: Mapping[Fact, int]
    """By how many more, or fewer, parts a fact is given."""
    sum: int

    @property
    def empty(self) -> bool:
        return not (self.added or self.removed)


class GeneratedFacts:
    """The facts of one generator, by part; a fact exists as long as one part gives it.

    Its version is a sum over its facts, so that it is updated incrementally and does not depend on order. It does not
    resist deliberate collisions.
    """

    def __init__(self) -> None:
        self._parts: dict[str, frozenset[Fact]] = {}
        self._counts: dict[Fact, int] = {}
        self.sum = 0

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._counts)

    def change(self, given: Mapping[str, Iterable[Fact]], *, whole: bool) -> Change:
        """Return the change if these parts are given; ``whole``: and no others."""
        parts: dict[str, frozenset[Fact]] = {}
        counts: dict[Fact, int] = {}
        gone = [name for name in self._parts if name not in given] if whole else []
        for name, facts in (*given.items(), *((name, _NONE) for name in gone)):
            before = self._parts.get(name, _NONE)
            now = frozenset(facts)
            if now == before:
                continue
            parts[name] = now
            for fact in now - before:
                counts[fact] = counts.get(fact, 0) + 1
            for fact in before - now:
                counts[fact] = counts.get(fact, 0) - 1
        before_counts = self._counts
        added = tuple(fact for fact, more in counts.items() if more > 0 and fact not in before_counts)
        removed = tuple(fact for fact, more in counts.items() if more < 0 and before_counts[fact] + more == 0)
        gained = sum(map(_number, added)) - sum(map(_number, removed))
        return Change(added, removed, parts, counts, (self.sum + gained) % _MODULUS)

    def apply(self, change: Change) -> None:
        """Apply a change, which has to be the last one computed."""
        self.sum = change.sum
        for name, facts in change.parts.items():
            if facts:
                self._parts[name] = facts
            else:
                self._parts.pop(name, None)
        for fact, more in change.counts.items():
            count = self._counts.get(fact, 0) + more
            if count:
                self._counts[fact] = count
            else:
                self._counts.pop(fact, None)


def _number(fact: Fact) -> int:
    return int.from_bytes(hashlib.blake2b(fact.text.encode(), digest_size=16).digest(), "big")


_MAX_NAME: Final = 80


class FactRows:
    """Parses the rows of one generator, as the declarations of their predicates require.

    A row is an array of a predicate and its values, or a fact object, which may have a time. Undeclared predicates are
    refused.
    """

    def __init__(self, predicates: Mapping[Key, Predicate], names: Collection[str]) -> None:
        self._names = frozenset(names)
        declared = {key: predicate for key, predicate in predicates.items() if key[0] in self._names}
        self._schemas = Schemas(declared)
        self._by_key: dict[Key, Schema] = {key: self._schemas.find(*key) for key in declared}
        self._accepts = Acceptance(declared).accepts

    def read(self, rows: Iterable[Any]) -> list[Fact]:
        """Return the facts; raises :class:`Fault` at the first invalid row."""
        by_key, accepts = self._by_key, self._accepts
        found: list[Fact] = []
        for row in rows:
            if type(row) is not list:
                found.append(self._object(row))
                continue
            name, *given = row
            key = (name, len(given)) if type(name) is str else ("", 0)
            schema = by_key.get(key)
            if schema is None:
                raise self._unknown(name, len(given))
            try:
                args = tuple(map(to_value, given, schema.shapes))
                if not accepts(key, args):
                    raise _misfit(schema, args)
            except Fault as fault:
                raise Fault(f"a fact of {name}: {fault.message}", fault.fix) from None
            found.append(Fact(name, args))
        return found

    def _object(self, row: Any) -> Fact:
        name = row.get("pred") if type(row) is dict else None
        if type(name) is not str or name not in self._names:
            raise self._unknown(name, 0)
        try:
            return read_fact(row, self._schemas)
        except Fault as fault:
            raise Fault(f"a fact of {name}: {fault.message}", fault.fix) from None

    def _unknown(self, name: object, arity: int) -> Fault:
        if type(name) is str and name in self._names:
            arities = " or ".join(str(declared) for predicate, declared in sorted(self._by_key) if predicate == name)
            return Fault(f"a fact of {name} with {arity} values; it takes {arities}")
        predicate = name[:_MAX_NAME] if type(name) is str else "a value that is not a predicate"
        return Fault(f"a fact of {predicate}, which it does not declare", "name it in @facts(…)")


def _misfit(schema: Schema, args: tuple[Value, ...]) -> Fault:
    """Return which bound is violated: that of an argument, or of all together."""
    for position, value in enumerate(args):
        try:
            schema.check(position, value)
        except Fault as fault:
            return fault
    return Fault("its values do not fit together, as the Decl bounds them")


MAX_BYTES: Final = 1 << 28  # of one pass, encoded
_FILE: Final = "facts.py"
_GRACE: Final = 5.0  # seconds beyond its deadline that a piece is awaited: dispatch returns an error by itself
_LONGEST_PAUSE: Final = 60.0
_ENDLESS: Final = sys.maxsize
_MAX_DETAIL: Final = 300


class GeneratorHost:
    """The host of the generators: one process at a time, started on demand."""

    def __init__(self, loop: AbstractEventLoop, served: ServedPlugin) -> None:
        self._loop = loop
        self._served = served
        self._dispatcher: Dispatcher | None = None
        self._lock = threading.Lock()
        self._closed = False

    def call(self, aid: str, inputs: Mapping[str, Any], seconds: float) -> Future[ActionResult | DispatchError]:
        with self._lock:
            if self._closed:
                raise RuntimeError("closed")
            if self._dispatcher is None:
                # Generators keep state in memory, so the host is replaced only when it dies.
                limits = PoolLimits(attempts=1, calls_per_host=_ENDLESS, growth=_ENDLESS, pipelined=1)
                longest = max(profile.timeout or 1.0 for profile in self._served.catalogue.values())
                dispatcher = Dispatcher([self._served], size=1, timeout=longest, limits=limits)
                wait_for(self._loop, dispatcher.__aenter__())
                self._dispatcher = dispatcher
            return run_coroutine_threadsafe(self._dispatcher.call(aid, inputs=inputs, timeout=seconds), self._loop)

    def end(self) -> None:
        """End the process; the next call starts another one, without memory."""
        with self._lock:
            dispatcher, self._dispatcher = self._dispatcher, None
        if dispatcher is not None:
            wait_for(self._loop, dispatcher.__aexit__(None, None, None))

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.end()


class PassError(Exception):
    """A failed pass. The facts of the last committed pass stay valid."""

    def __init__(self, generator: str, message: str) -> None:
        super().__init__(f"{generator}: {message}")
        self.generator = generator
        self.message = message


class PassProgress(NamedTuple):
    """The progress of a pass of one generator."""

    generator: str
    done: int | None
    total: int | None
    what: str
    facts: int
    seconds: float
    over: bool = False


class PassResult(NamedTuple):
    generator: str
    change: Change
    version: str

    @property
    def added(self) -> Sequence[Fact]:
        return self.change.added

    @property
    def removed(self) -> Sequence[Fact]:
        return self.change.removed


class _Piece(msgspec.Struct, frozen=True):
    process: str
    first: bool
    over: bool
    parts: list[tuple[str, bool, list[Any]]]
    progress: tuple[int, int | None, str] | None = None


class _Generator:
    def __init__(self, spec: GeneratorDescription) -> None:
        self.spec = spec
        self.facts = GeneratedFacts()
        self.rows: FactRows | None = None
        self.due = 0.0
        self.failures = 0

    def schedule_next(self, began: float, *, well: bool) -> None:
        """Schedule the next pass: after ``every`` seconds, or as long as this pass took unless it was the first."""
        now = time.monotonic()
        pause = max(self.spec.every, min(now - began, _LONGEST_PAUSE) if len(self.facts) else 0.0)
        self.failures = 0 if well else self.failures + 1
        self.due = now + (pause if well else max(pause, min(2.0 ** (self.failures - 1), _LONGEST_PAUSE)))


class FactGenerators:
    """The generators of a pack. Thread-safe; one pass at a time."""

    def __init__(
        self,
        pack: Pack,
        host: GeneratorHost,
        cache: Path | None,
        on_progress: Callable[[PassProgress], None] | None = None,
    ) -> None:
        self._max_facts = pack.settings.limits.max_base_facts
        self._params = pack.params
        self._host = host
        self._cache = cache
        self._on_progress = on_progress
        self._pass_lock = threading.Lock()
        self._of = {generator.name: _Generator(generator) for generator in pack.generators.values()}

    def close(self) -> None:
        self._host.close()

    def begin(self, predicates: Mapping[Key, Predicate]) -> list[Fact]:
        """Make the first passes and return all facts; raises :class:`PackError`."""
        problems = []
        for name, generator in self._of.items():
            generator.rows = FactRows(predicates, generator.spec.predicates)
            try:
                self.commit(self.run_pass(name))
            except PassError as error:
                problems.append(pack_problem(_FILE, str(error)))
        if problems:
            raise PackError(problems)
        return [fact for generator in self._of.values() for fact in generator.facts]

    @property
    def version(self) -> str:
        """The version of all facts; the same facts have the same version, in any process."""
        return self._version({})

    def _version(self, instead: Mapping[str, int]) -> str:
        numbers = (instead.get(name, generator.facts.sum) for name, generator in self._of.items())
        return "".join(f"{number:032x}" for number in numbers)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._of)

    def next(self) -> tuple[str, float]:
        """Return the next generator that is due, and in how many seconds."""
        name, generator = min(self._of.items(), key=lambda item: item[1].due)
        return name, max(generator.due - time.monotonic(), 0.0)

    def make_due(self) -> None:
        """Make all generators due now, except failing ones."""
        for generator in self._of.values():
            if not generator.failures:
                generator.due = 0.0

    def run_pass(self, name: str) -> PassResult:
        with self._pass_lock:
            generator = self._of[name]
            began = time.monotonic()
            well = False
            try:
                parts, whole = self._pass(generator, began)
                change = generator.facts.change(parts, whole=whole)
                count = sum(len(one.facts) for one in self._of.values())
                if count + len(change.added) - len(change.removed) > self._max_facts:
                    raise self._too_many(generator.spec)
                well = True
            finally:
                generator.schedule_next(began, well=well)
                if not well and generator.spec.changes:
                    self._host.end()
            return PassResult(name, change, self._version({name: change.sum}))

    def commit(self, result: PassResult) -> None:
        self._of[result.generator].facts.apply(result.change)

    def discard(self, result: PassResult) -> None:
        """Discard a change; the next pass is compared with the last committed facts."""
        generator = self._of[result.generator]
        generator.schedule_next(time.monotonic(), well=False)
        if generator.spec.changes:
            self._host.end()

    def _pass(self, generator: _Generator, began: float) -> tuple[dict[str, set[Fact]], bool]:
        spec, rows = generator.spec, generator.rows
        assert rows is not None, "begin() comes first"
        inputs = {
            "pass_id": secrets.token_hex(8),
            "settings": {name: self._params[name] for name in spec.settings if name in self._params},
            "cache": None if self._cache is None else str(self._cache),
        }
        parts: dict[str, set[Fact]] = {}
        whole, count, size, process = not spec.changes, 0, 0, None
        waiting = self._request(spec, inputs, began)
        while True:
            output = self._output(spec, waiting)
            size += len(output)
            if size > MAX_BYTES:
                raise PassError(spec.name, f"it gave more than {MAX_BYTES:,} bytes")
            piece = _piece(spec, output)
            if process not in (None, piece.process):
                raise PassError(spec.name, "its host was replaced in the middle of a pass")
            process = piece.process
            if not piece.over:
                waiting = self._request(spec, inputs, began)
            whole = whole or piece.first
            for name, begins, given in piece.parts:
                try:
                    facts = rows.read(given)
                except Fault as fault:
                    raise PassError(spec.name, f"it gave {fault.message}") from None
                if begins:
                    parts[name] = set(facts)
                else:
                    parts.setdefault(name, set()).update(facts)
                count += len(facts)
            if count > self._max_facts:
                raise self._too_many(spec)
            self._report(spec, piece, count, began)
            if piece.over:
                return parts, whole

    def _too_many(self, spec: GeneratorDescription) -> PassError:
        return PassError(spec.name, f"more than {self._max_facts:,} facts: raise limits.max_base_facts in pack.toml")

    def _report(self, spec: GeneratorDescription, piece: _Piece, count: int, began: float) -> None:
        if self._on_progress is not None:
            done, total, what = piece.progress or (None, None, "")
            self._on_progress(PassProgress(spec.name, done, total, what, count, time.monotonic() - began, piece.over))

    def _request(
        self, spec: GeneratorDescription, inputs: Mapping[str, Any], began: float
    ) -> tuple[Future[ActionResult | DispatchError], float]:
        left = began + spec.seconds - time.monotonic()
        if left <= 0:
            self._host.end()
            raise _late(spec)
        try:
            return self._host.call(spec.aid, inputs, left), left
        except RuntimeError:
            raise PassError(spec.name, "it is no longer served") from None

    def _output(self, spec: GeneratorDescription, waiting: tuple[Future[ActionResult | DispatchError], float]) -> bytes:
        future, left = waiting
        try:
            result = future.result(left + _GRACE)
        except (TimeoutError, CancelledError):
            raise _late(spec) from None
        if isinstance(result, ActionResult):
            return result.output_json.encode()
        if result["type"] == "timeout":
            raise _late(spec)
        raise PassError(spec.name, result["detail"][:_MAX_DETAIL])


def _late(spec: GeneratorDescription) -> PassError:
    return PassError(spec.name, f"it was not done within {spec.seconds:g} s")


def _piece(spec: GeneratorDescription, output: bytes) -> _Piece:
    try:
        return msgspec.json.decode(output, type=_Piece)
    except (msgspec.DecodeError, RecursionError):
        raise PassError(spec.name, "it returned something that is not a piece of a pass") from None
