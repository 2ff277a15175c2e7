"""Facts of sources that all servers of one store share: pushes, polls, and their way into this process.

A new version of a source is stored only if the rules can be evaluated with it and with the stored versions of all other
sources. A thread looks for new versions of other processes several times a second. A generator with a table
``[facts.NAME]`` is polled by the process that holds its lease; after a failure the pauses grow, with jitter.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, TypeAlias

import msgspec

from manglecp.base.ids import random_id
from manglecp.base.source import Source
from manglecp.intent import Domain, Freshness, Identity, OfferService, SourceVersion
from manglecp.invoke.fact_refresh import OnStaleFacts
from manglecp.mangle import Fact, MangleError
from manglecp.pack import FactSource
from manglecp.pack.factfiles import FileLimits, parse_facts
from manglecp.store import Busy, NewEntry, Store, StoredSource, StoreError
from manglecp.toolhost import FactGenerators, PassError
from manglecp.wire import Fault, Profile, Schemas, WireError, did_you_mean, publish, read_fact, write_fact
from manglecp.wire.messages import FactsResult

PUSH_FACTS: Final = "push_facts"
"""The permission to push facts of every source; ``push_facts:NAME`` is the one for a single source."""
SYNC_SECONDS: Final = 0.25
FIRST_POLLS_SECONDS: Final = 10.0  # how long a server waits for the first polls before it begins to serve
_MAX_ATTEMPTS: Final = 20  # attempts to store a version while other processes store versions of other sources
_MAX_BACKOFF: Final = 60.0  # seconds after failed polls, unless ``every`` is longer
Lines: TypeAlias = Mapping[bytes, Fact]
"""Facts by the lines in which the store has them. Lines that two versions share are decoded once."""
_NO_FACTS: Final[Lines] = {}
_MAX_ERROR_LENGTH: Final = 500
_log = logging.getLogger(__name__)


class _Outdated(Exception):
    """Another process has stored a version that this process has not applied."""


class _LeaseLost(Exception):
    """Another process polls the source now."""


class SharedFacts:
    """The shared facts of one pack revision. Its methods block; :meth:`serve` runs them in threads."""

    def __init__(
        self,
        store: Store,
        domain: Domain,
        generators: FactGenerators | None,
        *,
        lease_ms: int,
        on_stale: OnStaleFacts | None = None,
    ) -> None:
        self._store = store
        self._stored = store.fact_sources
        self._pack = domain.pack.name
        self._sources = {source.name: source for source in domain.pack.settings.fact_sources}
        self._readers = {name: _SourceReader(source, domain) for name, source in self._sources.items()}
        self._generators = generators
        self._descriptions = domain.pack.generators
        self._lease_ms = lease_ms
        self._on_stale = on_stale or (lambda _source, _reason: None)
        self._owner = random_id()
        self._freshness = Freshness(self._sources.values())
        self._offers: OfferService
        # The applied facts and versions; changed only within OfferService.change.
        self._facts: dict[str, Lines] = {}
        self._versions: dict[str, int] = dict.fromkeys(self._sources, 0)
        self._tried: dict[str, int] = dict(self._versions)  # the versions of the last attempt to apply
        self._unusable: dict[str, str] = {}  # by source: why the stored version cannot be used
        self._polls: dict[str, float] = {}  # the polls under way, and when their lease was last renewed
        self._errors: dict[str, str] = {}  # by source: the error of the last poll
        self._reported: dict[str, str] = {}
        self._clock_ahead_ns = 0  # this machine's clock against that of the store, when the store was last read
        self._lock = threading.Lock()

    def load(self, domain: Domain) -> Domain:
        """Return the domain with the stored facts. Raises :class:`StoreError`."""
        with self._store.write_transaction() as tx:
            self._stored.ensure(tx, self._pack, self._sources)
        domain = replace(domain, freshness=self._freshness)
        domain = self._apply(domain)
        self._confirm(self._list(), domain)
        return domain

    @contextlib.asynccontextmanager
    async def serve(self, offers: OfferService) -> AsyncIterator[None]:
        """Keep the facts of ``offers`` up to date within the block; sources that are due are polled first."""
        self._offers = offers
        loop = asyncio.get_running_loop()
        # Separate threads: slow polls must neither occupy the threads of requests nor delay new versions and leases.
        ticks, polls = (ThreadPoolExecutor(1, thread_name_prefix=f"manglecp-facts-{name}") for name in ("tick", "poll"))

        async def tick() -> list[asyncio.Future[None]]:
            claimed = await loop.run_in_executor(ticks, self._tick)
            self._report()
            return [loop.run_in_executor(polls, self._poll, name) for name in claimed]

        async def run() -> None:
            while True:
                await asyncio.sleep(SYNC_SECONDS)
                try:
                    await tick()
                except StoreError as error:
                    _log.warning("shared facts cannot be read: %s", error)
                except Exception:
                    _log.exception("shared facts cannot be updated")

        first_polls = await tick()
        task = asyncio.create_task(run())
        try:
            if first_polls:
                await asyncio.wait(first_polls, timeout=FIRST_POLLS_SECONDS)
                await loop.run_in_executor(ticks, self.sync)
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            if self._generators is not None:
                await asyncio.to_thread(self._generators.close)  # ends a pass under way, too
            await asyncio.to_thread(polls.shutdown, cancel_futures=True)
            for name in self._reported:
                self._on_stale(name, None)
            with contextlib.suppress(StoreError):
                await loop.run_in_executor(ticks, self._release)
            ticks.shutdown()

    def push(self, source: str, facts: str | list[Any], identity: Identity) -> FactsResult:
        """Replace the facts of a source: fact objects, or facts as Mangle text.

        Raises :class:`WireError` without a change, and :class:`StoreError`.
        """
        if not {PUSH_FACTS, f"{PUSH_FACTS}:{source}"} & identity.permissions:
            message = f"The permission {PUSH_FACTS} or {PUSH_FACTS}:{source[:64]} is missing"
            raise WireError("auth_insufficient", message)
        settings = self._sources.get(source)
        if settings is None or not settings.push:
            names = [name for name, each in self._sources.items() if each.push]
            suggestion = did_you_mean(source, names) or f"pack.toml declares it as [facts.{source[:64]}] push = true"
            raise WireError("x-source_not_found", "No facts are pushed to this source", {"suggestion": suggestion})
        return self._publish(source, self._readers[source].read(facts), identity.name)

    def sync(self) -> dict[str, StoredSource]:
        """Apply versions that other processes have stored, and return the state of all sources."""
        rows = self._list()
        if any(row.version != self._tried[name] for name, row in rows.items()):
            self._offers.change(self._apply)
        self._confirm(rows, self._offers.domain)
        return rows

    @property
    def names(self) -> Iterable[str]:
        return self._sources.keys()

    def ages(self, now_ns: int) -> Mapping[str, float]:
        """Return the age in seconds of the facts of each source that has any."""
        return {name: (now_ns - at_ns) / 1e9 for (name, _), at_ns in sorted(self._freshness.confirmed_ns.items())}

    def failing(self) -> Mapping[str, str]:
        """Return why sources fail or are stale, by source."""
        stale = {str(fact.args[0]): str(fact.args[1]) for fact in self._offers.domain.stale_facts(time.time_ns())}
        return {**stale, **self._errors, **self._unusable}

    # --- replication -------------------------------------------------------------------------------------------------

    def _list(self) -> dict[str, StoredSource]:
        with self._store.read_transaction() as tx:
            rows = self._stored.list(tx, self._pack)
            self._clock_ahead_ns = time.time_ns() - tx.now_ms() * 1_000_000
        return {name: row for name, row in rows.items() if name in self._sources}

    def _apply(self, domain: Domain) -> Domain:
        """Return the domain with the stored versions of all sources, in one step.

        A version that does not fit the declarations, or with which the rules cannot be evaluated, is unusable: the pack
        may have changed since the version was stored. Then the source is stale, and its earlier facts stay in use.
        """
        with self._store.read_transaction() as tx:  # a snapshot of all sources
            rows = {name: row for name, row in self._stored.list(tx, self._pack).items() if name in self._sources}
            changed_names = [name for name, row in rows.items() if row.version != self._versions[name]]
            contents = {name: self._stored.content(tx, self._pack, name) for name in changed_names}
        self._tried = {name: row.version for name, row in rows.items()}
        facts: dict[str, Lines] = {}
        added: list[Fact] = []
        removed: list[Fact] = []
        unusable: dict[str, str] = {}
        for name, content in contents.items():
            try:
                before = self._facts.get(name, _NO_FACTS)
                facts[name] = after = self._readers[name].decode(content, before)
                added += _missing(before, after)
                removed += _missing(after, before)
            except Fault as fault:
                unusable[name] = f"the stored facts do not fit the declarations: {fault.message}"
        try:
            applied_versions = _provenance(row for name, row in rows.items() if name not in unusable)
            domain = domain.with_facts(added, removed, sources={**domain.sources, **applied_versions})
        except MangleError as error:
            unusable |= dict.fromkeys(facts, f"the rules cannot be evaluated with the stored facts: {_message(error)}")
        else:
            self._facts |= facts
            self._versions |= {name: row.version for name, row in rows.items() if name not in unusable}
        self._unusable = {name: why for name, why in self._unusable.items() if name not in contents} | unusable
        return domain

    def _confirm(self, rows: Mapping[str, StoredSource], domain: Domain) -> None:
        for name, row in rows.items():
            if name in self._unusable:
                self._freshness.forget(name)
            elif name in domain.sources and row.version == domain.sources[name].version:
                self._freshness.confirm(name, row.version, row.confirmed_ms * 1_000_000 + self._clock_ahead_ns)

    # --- publication -------------------------------------------------------------------------------------------------

    def _publish(
        self, name: str, facts: frozenset[Fact], principal: str, owner: str | None = None, began: float | None = None
    ) -> FactsResult:
        """Store the facts of a push, or those that ``owner`` has polled since ``began``, on the monotonic clock."""
        lines = self._readers[name].encode(facts)
        content = b"\n".join(lines)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        results: list[tuple[FactsResult, StoredSource]] = []

        def publish(domain: Domain) -> Domain:
            before = self._facts.get(name, _NO_FACTS)
            added, removed = _missing(before, lines), _missing(lines, before)
            if added or removed:
                domain = domain.with_facts(added, removed)
            with self._store.write_transaction() as tx:
                if owner is not None and not self._stored.renew(tx, self._pack, name, owner, self._lease_ms):
                    raise _LeaseLost
                rows = self._stored.list(tx, self._pack, lock=True)
                if any(row.version != self._tried.get(each, row.version) for each, row in rows.items()):
                    raise _Outdated
                is_new = not rows[name].version or rows[name].digest != digest
                if is_new:
                    self._stored.put(tx, self._pack, name, content, digest, len(facts), principal)
                age_ms = 0 if began is None else round((time.monotonic() - began) * 1_000)
                self._stored.confirm(tx, self._pack, name, age_ms)
                row = self._stored.list(tx, self._pack)[name]
                counts = {"facts": len(facts), "added": len(added), "removed": len(removed)}
                result = FactsResult(source=name, version=row.version, digest=digest, changed=is_new, **counts)
                if is_new or owner is None:
                    self._store.ledger.append_all(tx, [_ledger_entry(self._pack, result, facts, principal)])
            results.append((result, row))
            self._facts[name] = lines
            self._versions[name] = self._tried[name] = row.version
            self._unusable.pop(name, None)
            return replace(domain, sources={**domain.sources, **_provenance([row])})

        for _ in range(_MAX_ATTEMPTS):
            self.sync()
            try:
                self._offers.change(publish)
            except _Outdated:
                continue
            except MangleError as error:
                raise WireError("x-facts_refused", f"The rules fail with these facts: {_message(error)}") from error
            result, row = results[0]
            self._confirm({name: row}, self._offers.domain)
            return result
        raise Busy("other sources of this pack change all the time; nothing was changed. Try again.")

    # --- polls -------------------------------------------------------------------------------------------------------

    def _tick(self) -> list[str]:
        """Synchronise, renew the leases of polls under way, and claim sources that are due; return the claimed ones."""
        rows, now = self.sync(), time.monotonic()
        self._errors = {name: row.error for name, row in rows.items() if row.error is not None}
        if self._generators is None:
            return []
        with self._lock:
            ageing = [name for name, since in self._polls.items() if now - since > self._lease_ms / 3_000]
            idle = [name for name, source in self._sources.items() if not source.push and name not in self._polls]
        now_ms = (time.time_ns() - self._clock_ahead_ns) / 1_000_000
        owned = {name for name in idle if rows[name].owner == self._owner}
        free = [name for name in idle if name in owned or rows[name].lease_until_ms <= now_ms]
        due = [name for name in free if rows[name].due_ms <= now_ms]
        if not ageing and not due:
            return []
        with self._store.write_transaction() as tx:
            for name in ageing:
                self._stored.renew(tx, self._pack, name, self._owner, self._lease_ms)
            claimed = [each for each in due if self._stored.claim(tx, self._pack, each, self._owner, self._lease_ms)]
        with self._lock:
            self._polls |= dict.fromkeys([*claimed, *(name for name in ageing if name in self._polls)], now)
        return claimed

    def _poll(self, name: str) -> None:
        """Make a pass of a generator, store its facts, and schedule the next pass."""
        assert self._generators is not None
        error = None
        began = time.monotonic()
        try:
            result = self._generators.run_pass(name)
            self._generators.commit(result)
            facts = frozenset(self._generators.facts(name))
            if len(facts) > (limit := self._sources[name].max_facts):
                raise PassError(name, f"{len(facts):,} facts, and facts.{name}.max_facts is {limit:,}")
            self._publish(name, facts, f"facts.py {name}", self._owner, began)
        except PassError as failure:
            error = failure.message
        except WireError as refusal:
            error = refusal.message
        except _LeaseLost:
            _log.warning("another process polls %s now; a result was dropped", name)
        except Exception:
            _log.exception("a poll of %s failed in the server itself", name)
            error = "the server failed"
        try:
            with self._store.write_transaction() as tx:
                failures = self._stored.list(tx, self._pack)[name].failures + 1
                pause_ms = round(self._pause(name, 0 if error is None else failures) * 1_000)
                poll = (self._pack, name, self._owner)
                text = error and error[:_MAX_ERROR_LENGTH]
                self._stored.schedule(tx, *poll, pause_ms=pause_ms, lease_ms=self._lease_ms, error=text)
        except StoreError as failure:
            _log.warning("the next poll of %s cannot be scheduled: %s", name, failure)
        finally:
            with self._lock:
                self._polls.pop(name, None)

    def _pause(self, name: str, failures: int) -> float:
        """Return the seconds until the next poll, after so many consecutive failures."""
        every = self._sources[name].every or self._descriptions[name].every
        if not failures:
            return every
        return min(2.0 ** min(failures, 16), max(_MAX_BACKOFF, every)) * random.uniform(0.5, 1.0)

    def _report(self) -> None:
        """Report sources that begin or cease to fail."""
        failing = self.failing()
        for name, reason in failing.items():
            if name not in self._reported:
                _log.warning("the facts of %s are not updated: %s", name, reason)
                self._on_stale(name, reason)
        for name in self._reported.keys() - failing.keys():
            self._on_stale(name, None)
        self._reported = dict(failing)

    def _release(self) -> None:
        with self._store.write_transaction() as tx:
            self._stored.release(tx, self._pack, self._owner)


def with_stored_facts(domain: Domain, store: Store) -> Domain:
    """Return a domain with the facts that the store has now, which do not become stale. Raises :class:`StoreError`."""
    return replace(SharedFacts(store, domain, None, lease_ms=0).load(domain), freshness=None)


class _SourceReader:
    """Reads and writes the facts of one source, as the declarations of its predicates require."""

    def __init__(self, source: FactSource, domain: Domain) -> None:
        generator = domain.pack.generators.get(source.name)
        names = source.predicates if generator is None else generator.predicates
        self._name, self._max_facts = source.name, source.max_facts
        self._predicates = {key: each for key, each in domain.program.predicates.items() if key[0] in names}
        self._profile = Profile(self._predicates, [publish(each, "input") for each in self._predicates.values()])
        self._schemas = Schemas(self._predicates)

    def read(self, facts: str | list[Any]) -> frozenset[Fact]:
        """Return pushed facts. Raises :class:`WireError` with all violations."""
        if isinstance(facts, str) and not facts.strip():  # a program before a pipe may have failed
            raise WireError("invalid_facts", "The text is empty; push [] to state that there are no facts")
        if not isinstance(facts, str):
            found = self._profile.read(facts, time.time_ns(), limit=self._max_facts)
        else:
            try:
                found = parse_facts(Source(self._name, facts), self._predicates, FileLimits(facts=self._max_facts))
            except MangleError as error:
                problems = (problem.render().splitlines()[0] for problem in error.diagnostics)
                raise WireError("invalid_facts", "; ".join(problems)) from None
        for fact in found:
            if fact.key not in self._predicates or not self._profile.acceptance.accepts(fact.key, fact.args):
                raise WireError("invalid_facts", f"{fact.predicate}: the values do not fit its Decl")
        return frozenset(found)

    def decode(self, content: bytes, known: Lines) -> Lines:
        """Return stored facts. Raises :class:`Fault` if they do not fit the declarations."""
        return {line: known.get(line) or self._decode(line) for line in content.split(b"\n") if line}

    def _decode(self, line: bytes) -> Fact:
        fact = read_fact(msgspec.json.decode(line), self._schemas)
        if not self._profile.acceptance.accepts(fact.key, fact.args):
            raise Fault(f"{fact.predicate}: the values do not fit its Decl")
        return fact

    def encode(self, facts: Iterable[Fact]) -> Lines:
        """Return the facts by their lines, sorted: equal sets of facts have equal lines."""
        return dict(sorted((msgspec.json.encode(write_fact(fact, self._schemas)), fact) for fact in facts))


def _missing(lines: Lines, other_lines: Lines) -> list[Fact]:
    """Return the facts of ``other_lines`` that ``lines`` do not have."""
    return [fact for line, fact in other_lines.items() if line not in lines]


def _ledger_entry(pack: str, result: FactsResult, facts: Iterable[Fact], principal: str) -> NewEntry:
    counts = Counter(fact.predicate for fact in facts)
    body = {"pack": pack, **msgspec.structs.asdict(result), "predicates": dict(sorted(counts.items()))}
    return NewEntry("facts", body, identity=principal)


def _provenance(rows: Iterable[StoredSource]) -> dict[str, SourceVersion]:
    return {
        row.source: SourceVersion(row.version, row.digest, row.changed_ms, row.principal) for row in rows if row.version
    }


def _message(error: MangleError) -> str:
    return error.diagnostics[0].message
