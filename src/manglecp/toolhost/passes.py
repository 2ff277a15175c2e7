"""Passes of fact generators: their facts, the difference to the last pass, and the schedule.

A pass is one call of a generator. It is fetched in pieces; while a piece is parsed, the next is requested. A pass is
atomic: if it fails, is late or too large, or does not fit its declaration, no facts change. A generator that returns
only changes would not repeat those of a failed pass, so its host is ended: the first pass of a host returns all facts.

A pass blocks the calling thread. Its change is applied by :meth:`FactGenerators.commit`.
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
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from manglecp.base.background_loop import wait_for
from manglecp.mangle import Fact, FactAcceptor, Key, Predicate
from manglecp.pack import GeneratorDescription, Pack, PackError, SecretProvider, pack_problem
from manglecp.toolhost.dispatch.dispatcher import Dispatcher, ServedPlugin
from manglecp.toolhost.dispatch.launch import PoolLimits
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError
from manglecp.wire import Fault, Schemas, read_fact

_NO_FACTS: Final[frozenset[Fact]] = frozenset()
_MODULUS: Final = 1 << 128  # a hash sum has 128 bits


class Change(NamedTuple):
    """The difference that a pass makes to the facts of a generator."""

    added: tuple[Fact, ...]
    removed: tuple[Fact, ...]
    parts: Mapping[str, frozenset[Fact]]
    """The new facts of each part that differs; a part without facts is removed."""
    gains: Mapping[Fact, int]
    """By fact: how many more (or fewer, if negative) parts contain it."""
    hash_sum: int
    """The new :attr:`GeneratedFacts.hash_sum`."""

    @property
    def empty(self) -> bool:
        """Whether the facts stay the same; parts may differ."""
        return not (self.added or self.removed)


class GeneratedFacts:
    """The facts of one generator, by part; a fact exists as long as one part contains it.

    ``hash_sum``, the sum of the hashes of the facts, is their version: it is updated incrementally and does not depend
    on their order. It does not resist deliberate collisions.
    """

    def __init__(self) -> None:
        self._parts: dict[str, frozenset[Fact]] = {}
        self._counts: dict[Fact, int] = {}  # how many parts contain the fact
        self.hash_sum = 0

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._counts)

    def change_to(self, new_parts: Mapping[str, Iterable[Fact]], *, complete: bool) -> Change:
        """Return the change that sets these parts; if ``complete``, all other parts are removed, else they stay."""
        changed_parts: dict[str, frozenset[Fact]] = {}
        gains: dict[Fact, int] = {}
        removed_parts = {name: _NO_FACTS for name in self._parts if name not in new_parts} if complete else {}
        for name, facts in {**new_parts, **removed_parts}.items():
            before = self._parts.get(name, _NO_FACTS)
            after = frozenset(facts)
            if after == before:
                continue
            changed_parts[name] = after
            for fact in after - before:
                gains[fact] = gains.get(fact, 0) + 1
            for fact in before - after:
                gains[fact] = gains.get(fact, 0) - 1
        added = tuple(fact for fact, gain in gains.items() if gain > 0 and fact not in self._counts)
        removed = tuple(fact for fact, gain in gains.items() if gain < 0 and self._counts[fact] + gain == 0)
        difference = sum(map(_hash_number, added)) - sum(map(_hash_number, removed))
        return Change(added, removed, changed_parts, gains, (self.hash_sum + difference) % _MODULUS)

    def apply(self, change: Change) -> None:
        """Apply a change of :meth:`change_to`; it is invalid if another one was applied in the meantime."""
        self.hash_sum = change.hash_sum
        for name, facts in change.parts.items():
            if facts:
                self._parts[name] = facts
            else:
                self._parts.pop(name, None)
        for fact, gain in change.gains.items():
            count = self._counts.get(fact, 0) + gain
            if count:
                self._counts[fact] = count
            else:
                self._counts.pop(fact, None)


def _hash_number(fact: Fact) -> int:
    return int.from_bytes(hashlib.blake2b(fact.text.encode(), digest_size=16).digest(), "big")


_MAX_NAME: Final = 80  # characters of a predicate in a message


class FactRows:
    """Parses the rows of one generator, as the declarations of their predicates require.

    A row is an array of a predicate and its values, or a fact object, which may have a time. ``names`` are the
    predicates that the generator declares; others are refused.
    """

    def __init__(self, predicates: Mapping[Key, Predicate], names: Collection[str]) -> None:
        self._names = frozenset(names)
        declared = {key: predicate for key, predicate in predicates.items() if key[0] in self._names}
        self._schemas = Schemas(declared)
        self._accepts = FactAcceptor(declared).accepts

    def read(self, rows: Iterable[Any]) -> list[Fact]:
        """Return the facts; raises :class:`Fault` at the first invalid row."""
        return list(map(self._read_row, rows))

    def _read_row(self, row: Any) -> Fact:
        fact_object = {"pred": row[0], "args": row[1:]} if type(row) is list and row else row
        name = fact_object.get("pred") if type(fact_object) is dict else None
        if type(name) is not str or name not in self._names:
            predicate = name[:_MAX_NAME] if type(name) is str else "a value that is not a predicate"
            raise Fault(f"a fact of {predicate}, which it does not declare", "name it in @facts(…)")
        try:
            fact = read_fact(fact_object, self._schemas)
            if not self._accepts((name, len(fact.args)), fact.args):
                raise Fault("its values do not fit together, as the Decl bounds them")
        except Fault as fault:
            raise Fault(f"a fact of {name}: {fault.message}", fault.fix) from None
        return fact


MAX_BYTES: Final = 1 << 28  # bytes of one pass, encoded
_FILE: Final = "facts.py"
_GRACE: Final = 5.0  # seconds that dispatch has, after the deadline of a call, to return its error
_MAX_PAUSE: Final = 60.0  # the most seconds that a slow or failed pass delays the next one
_UNLIMITED: Final = sys.maxsize
_MAX_DETAIL: Final = 300  # characters of an error of dispatch
_CallResult: TypeAlias = ActionResult | DispatchError


class GeneratorHost:
    """The hosts of the generators: one process at a time for each set of secrets and egress, started on demand."""

    def __init__(
        self, loop: AbstractEventLoop, plugins: Sequence[ServedPlugin], secrets: SecretProvider | None = None
    ) -> None:
        self._loop = loop
        self._plugins = plugins
        self._secrets = secrets
        self._dispatcher: Dispatcher | None = None
        self._lock = threading.Lock()
        self._closed = False

    def call(self, aid: str, inputs: Mapping[str, Any], seconds: float) -> Future[_CallResult]:
        """Call an action of the host, with a timeout of ``seconds``; raises RuntimeError after :meth:`close`."""
        with self._lock:
            if self._closed:
                raise RuntimeError("closed")
            if self._dispatcher is None:
                # Generators keep state in memory, so the host is replaced only when it dies.
                limits = PoolLimits(attempts=1, calls_per_host=_UNLIMITED, growth=_UNLIMITED)
                longest = max(each.timeout or 1.0 for plugin in self._plugins for each in plugin.catalogue.values())
                dispatcher = Dispatcher(self._plugins, size=1, timeout=longest, limits=limits, secrets=self._secrets)
                wait_for(self._loop, dispatcher.__aenter__())
                self._dispatcher = dispatcher
            return run_coroutine_threadsafe(self._dispatcher.call(aid, inputs=inputs, timeout=seconds), self._loop)

    def end(self) -> None:
        """End the process; the next call starts a new one, without the memory of this one."""
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
    done: int | None  # ``done``, ``total`` and ``what`` are those of the last Progress that the generator yielded
    total: int | None
    what: str
    facts: int  # the number of facts so far
    seconds: float  # since the pass began
    over: bool = False


class PassResult(NamedTuple):
    """A pass that has succeeded and is not committed."""

    generator: str
    change: Change
    version: str  # the version of all facts after the commit of this pass

    @property
    def added(self) -> tuple[Fact, ...]:
        return self.change.added

    @property
    def removed(self) -> tuple[Fact, ...]:
        return self.change.removed


class _PartRows(NamedTuple):
    part: str
    begins: bool  # whether the rows are the first of the part
    rows: list[Any]


class _Piece(msgspec.Struct, frozen=True):
    """One answer of a generator, as :mod:`.generator` makes it."""

    process: str  # an id of the host process
    first: bool  # whether the pass is the first of its process
    over: bool  # whether the piece is the last of the pass
    parts: list[_PartRows]
    progress: tuple[int, int | None, str] | None = None  # done, total, what


class _Generator:
    """A generator, its facts and its schedule."""

    def __init__(self, description: GeneratorDescription) -> None:
        self.description = description
        self.facts = GeneratedFacts()
        self.rows: FactRows | None = None  # set by begin()
        self.due = 0.0  # on the monotonic clock
        self.failures = 0  # consecutive failed passes

    def schedule_next(self, began: float, *, succeeded: bool) -> None:
        """Schedule the next pass after a pause of ``every`` seconds.

        The pause is at least as long as this pass took, unless it was the first. After consecutive failures it is also
        at least 1, 2, 4 … seconds.
        """
        now = time.monotonic()
        duration = min(now - began, _MAX_PAUSE) if len(self.facts) else 0.0  # no facts: this was the first pass
        self.failures = 0 if succeeded else self.failures + 1
        backoff = 0.0 if succeeded else min(2.0 ** (self.failures - 1), _MAX_PAUSE)
        self.due = now + max(self.description.every, duration, backoff)


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
        self._generators = {each.name: _Generator(each) for each in pack.generators.values()}
        self._local = dict(self._generators)

    def share(self, names: Collection[str]) -> None:
        """Leave the passes of these generators, and their facts, to the caller."""
        self._local = {name: each for name, each in self._generators.items() if name not in names}

    def facts(self, name: str) -> Iterable[Fact]:
        """Return the facts of the last committed pass of a generator."""
        return self._generators[name].facts

    def close(self) -> None:
        self._host.close()

    def begin(self, predicates: Mapping[Key, Predicate]) -> list[Fact]:
        """Make the first passes and return all facts; raises :class:`PackError`."""
        problems = []
        for name, generator in self._generators.items():
            generator.rows = FactRows(predicates, generator.description.predicates)
            if name not in self._local:
                continue
            try:
                self.commit(self.run_pass(name))
            except PassError as error:
                problems.append(pack_problem(_FILE, str(error)))
        if problems:
            raise PackError(problems)
        return [fact for generator in self._local.values() for fact in generator.facts]

    @property
    def version(self) -> str:
        """The version of all facts; the same facts have the same version, in any process."""
        return self._version({})

    def _version(self, new_sums: Mapping[str, int]) -> str:
        """Return the version that all facts have if the named generators get these hash sums."""
        sums = (new_sums.get(name, generator.facts.hash_sum) for name, generator in self._local.items())
        return "".join(f"{number:032x}" for number in sums)

    @property
    def names(self) -> tuple[str, ...]:
        """The generators whose passes this object schedules."""
        return tuple(self._local)

    def next(self) -> tuple[str, float]:
        """Return the generator that is due next, and in how many seconds."""
        name, generator = min(self._local.items(), key=lambda item: item[1].due)
        return name, max(generator.due - time.monotonic(), 0.0)

    def make_due(self) -> None:
        """Make all generators due now, except failing ones."""
        for generator in self._local.values():
            if not generator.failures:
                generator.due = 0.0

    def run_pass(self, name: str) -> PassResult:
        """Make a pass of a generator, to be passed to :meth:`commit` or :meth:`discard`; raises :class:`PassError`."""
        with self._pass_lock:
            generator = self._generators[name]
            began = time.monotonic()
            succeeded = False
            try:
                parts, complete = self._fetch(generator, began)
                change = generator.facts.change_to(parts, complete=complete)
                count = sum(len(each.facts) for each in self._generators.values())
                if count + len(change.added) - len(change.removed) > self._max_facts:
                    raise self._too_many(generator.description)
                succeeded = True
            finally:
                generator.schedule_next(began, succeeded=succeeded)
                if not succeeded and generator.description.changes:
                    self._host.end()
            return PassResult(name, change, self._version({name: change.hash_sum}))

    def commit(self, result: PassResult) -> None:
        self._generators[result.generator].facts.apply(result.change)

    def discard(self, result: PassResult) -> None:
        """Discard a change; the next pass is compared with the last committed facts."""
        generator = self._generators[result.generator]
        generator.schedule_next(time.monotonic(), succeeded=False)
        if generator.description.changes:
            self._host.end()

    def _fetch(self, generator: _Generator, began: float) -> tuple[dict[str, set[Fact]], bool]:
        """Return the parts of a new pass, and whether they are complete: if so, every other part is to be removed."""
        spec, rows = generator.description, generator.rows
        assert rows is not None, "begin() comes first"
        inputs = {
            "pass_id": secrets.token_hex(8),
            "settings": {name: self._params[name] for name in spec.settings if name in self._params},
            "cache": None if self._cache is None else str(self._cache),
        }
        parts: dict[str, set[Fact]] = {}
        complete, process = not spec.changes, None
        count = size = 0
        request = self._request(spec, inputs, began)
        while True:
            output = self._output(spec, request, began)
            size += len(output)
            if size > MAX_BYTES:
                raise PassError(spec.name, f"it gave more than {MAX_BYTES:,} bytes")
            piece = _decode_piece(spec, output)
            if process not in (None, piece.process):
                raise PassError(spec.name, "its host was replaced in the middle of a pass")
            process = piece.process
            if not piece.over:  # the host works on the next piece while this process parses
                request = self._request(spec, inputs, began)
            complete = complete or piece.first
            for name, begins, part_rows in piece.parts:
                try:
                    facts = rows.read(part_rows)
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
                return parts, complete

    def _too_many(self, spec: GeneratorDescription) -> PassError:
        return PassError(spec.name, f"more than {self._max_facts:,} facts: raise limits.max_base_facts in pack.toml")

    def _report(self, spec: GeneratorDescription, piece: _Piece, count: int, began: float) -> None:
        if self._on_progress is not None:
            done, total, what = piece.progress or (None, None, "")
            self._on_progress(PassProgress(spec.name, done, total, what, count, time.monotonic() - began, piece.over))

    def _request(self, spec: GeneratorDescription, inputs: Mapping[str, Any], began: float) -> Future[_CallResult]:
        seconds = began + spec.seconds - time.monotonic()
        if seconds <= 0:
            self._host.end()
            raise _late(spec)
        try:
            return self._host.call(spec.aid, inputs, seconds)
        except RuntimeError:  # the host is closed
            raise PassError(spec.name, "it is no longer served") from None

    def _output(self, spec: GeneratorDescription, request: Future[_CallResult], began: float) -> bytes:
        try:
            result = request.result(began + spec.seconds + _GRACE - time.monotonic())
        except (TimeoutError, CancelledError):
            raise _late(spec) from None
        if isinstance(result, ActionResult):
            return result.output_json.encode()
        if result["type"] == "timeout":
            raise _late(spec)
        raise PassError(spec.name, result["detail"][:_MAX_DETAIL])


def _late(spec: GeneratorDescription) -> PassError:
    return PassError(spec.name, f"it was not done within {spec.seconds:g} s")


def _decode_piece(spec: GeneratorDescription, output: bytes) -> _Piece:
    try:
        return msgspec.json.decode(output, type=_Piece)
    except (msgspec.DecodeError, RecursionError):
        raise PassError(spec.name, "it returned something that is not a piece of a pass") from None
