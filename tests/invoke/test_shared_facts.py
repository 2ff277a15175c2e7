"""Facts of sources in one process: races, declarations that have changed, and polls whose lease is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manglecp.intent import Identity
from manglecp.invoke import PUSH_FACTS, PackOptions, PackRuntime, SharedFacts, shared_facts
from manglecp.pack import SandboxPolicy
from manglecp.store import Store, open_store
from manglecp.store.sqlite import SqliteTransaction
from manglecp.wire import WireError
from tests.invoke.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
WHO = Identity("bot", frozenset({PUSH_FACTS}), "user")
RULES = """
Decl left(X) bound [/number].
Decl right(X) bound [/number].
Decl pair(X, Y) bound [/number, /number].
pair(X, Y) :- left(X), right(Y).
macro("t", "A tool."). macro_step("t", 1, "look"). mandatory("t") :- intent("go").
"""
SETTINGS = """
[limits]
max_base_facts = 150
[facts.left]
push = true
predicates = ["left"]
[facts.right]
push = true
predicates = ["right"]
"""
ACTIONS = 'from manglecp import action\n\n@action(effects=[])\ndef look() -> str:\n    """Look."""\n    return "x"\n'


def write(folder: Path, **changes: str) -> PackOptions:
    files = {"rules/a.mg": RULES, "actions.py": ACTIONS, "pack.toml": SETTINGS, **changes}
    for name, text in files.items():
        file = folder / "pack" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return PackOptions(folder / "pack", sandbox=SandboxPolicy(degrade=True), cache=False)


class Raced:
    """A database on which something happens just before the next write transaction."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.before: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    @contextmanager
    def write_transaction(self) -> Iterator[Any]:
        if (before := self.before) is not None:
            self.before = None
            before()
        with self._database.write_transaction() as tx:
            yield tx


@asynccontextmanager
async def opened(options: PackOptions, store: Store) -> Any:
    async with PackRuntime.open(options, store) as runtime:
        assert isinstance(runtime.facts, SharedFacts)
        yield runtime


def numbers(predicate: str, count: int) -> list[dict[str, Any]]:
    return [{"pred": predicate, "args": [number]} for number in range(count)]


async def test_a_push_is_judged_with_what_another_process_has_just_stored(tmp_path: Path) -> None:
    options, file = write(tmp_path), tmp_path / "store.db"
    first_store, plain = open_store(file), open_store(file)
    raced = Raced(plain.database)
    async with opened(options, first_store) as first, opened(options, replace(plain, database=raced)) as second:
        first.facts.push("left", numbers("left", 10), WHO)
        raced.before = lambda: first.facts.push("left", numbers("left", 20), WHO)
        with pytest.raises(WireError) as refused:  # ten pairs of each would do, 20 are too many
            second.facts.push("right", numbers("right", 10), WHO)
        assert refused.value.code == "x-facts_refused"
        assert second.facts.push("right", numbers("right", 3), WHO).version == 1
        first.facts.sync()
        assert first.invoker.domain.facts_version == second.invoker.domain.facts_version
        assert len(first.invoker.domain.base.rows(("pair", 2))) == 60
    first_store.close()
    plain.close()


async def test_facts_that_no_longer_fit_are_stale_until_the_next_push(tmp_path: Path) -> None:
    options, store = write(tmp_path), open_store(tmp_path / "store.db", key=b"k" * 32)
    async with opened(options, store) as runtime:
        runtime.facts.push("left", numbers("left", 2), WHO)
        runtime.facts.push("right", [], WHO)
        assert runtime.facts.failing() == {}
    changed = RULES.replace("left(X) bound [/number]", "left(X) bound [/string]")
    write(tmp_path, **{"rules/a.mg": changed.replace("pair(X, Y) bound [/number", "pair(X, Y) bound [/any")})
    async with opened(options, store) as runtime:
        (reason,) = runtime.facts.failing().values()
        assert reason.startswith("the stored facts do not fit the declarations")
        assert [fact.args[0] for fact in runtime.invoker.domain.stale_facts(0)] == ["left"]
        assert runtime.facts.push("left", 'left("a").', WHO).version == 2
        assert runtime.facts.failing() == {}
    store.close()


GENERATOR = """
from manglecp import facts

@facts("right", every=3600)
def right():
    yield ("right", 1)
"""
POLLED = SETTINGS.replace('[facts.right]\npush = true\npredicates = ["right"]', '[facts.right]\nevery = "1h"')


async def test_a_result_without_a_lease_is_refused(tmp_path: Path) -> None:
    options = write(tmp_path, **{"facts.py": GENERATOR, "pack.toml": POLLED})
    plain = open_store(tmp_path / "store.db")
    raced = Raced(plain.database)
    async with opened(options, replace(plain, database=raced)) as runtime:
        with plain.read_transaction() as tx:
            row = plain.fact_sources.list(tx, "pack")["right"]
        assert (row.version, row.facts, row.error, row.owner is None) == (1, 1, None, False)

        def take_over() -> None:
            with plain.write_transaction() as tx:
                tx.execute("UPDATE fact_source SET owner = 'other', digest = 'changed' WHERE source = 'right'")

        raced.before = take_over
        runtime.facts._poll("right")
        with plain.read_transaction() as tx:
            row = plain.fact_sources.list(tx, "pack")["right"]
        assert (row.version, row.digest, row.owner) == (1, "changed", "other")
    plain.close()


@pytest.mark.parametrize("hours", [-1, 1])
async def test_the_age_of_facts_does_not_depend_on_the_clock_of_a_server(
    hours: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged = SETTINGS.replace("[facts.right]", 'stale_after = "10m"\n[facts.right]')
    store, now_ns = open_store(tmp_path / "store.db"), time.time_ns
    async with opened(write(tmp_path, **{"pack.toml": aged}), store) as runtime:
        monkeypatch.setattr(SqliteTransaction, "now_ms", lambda _: now_ns() // 1_000_000)  # that of a database server
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() + hours * 3_600_000_000_000)
        runtime.facts.push("left", numbers("left", 2), WHO)
        runtime.facts.push("right", [], WHO)

        def stale(minutes: int) -> list[Any]:
            facts = runtime.invoker.domain.stale_facts(time.time_ns() + minutes * 60_000_000_000)
            return [fact.args[0] for fact in facts]

        assert [stale(minutes) for minutes in (0, 5, 11)] == [[], [], ["left"]]
    store.close()


async def test_polled_facts_are_as_old_as_the_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = write(tmp_path, **{"facts.py": GENERATOR, "pack.toml": POLLED})
    store = open_store(tmp_path / "store.db")

    def confirmed_and_now() -> tuple[int, int]:
        with store.read_transaction() as tx:
            return store.fact_sources.list(tx, "pack")["right"].confirmed_ms, tx.now_ms()

    async with opened(options, store) as runtime:
        monotonic = time.monotonic
        run_pass = runtime.facts._generators.run_pass

        def suspended(name: str) -> Any:
            result = run_pass(name)
            monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 3_600)  # then the process is stopped
            return result

        runtime.facts._generators.run_pass = suspended
        await asyncio.to_thread(runtime.facts._poll, "right")
        monkeypatch.undo()
        confirmed_ms, now_ms = confirmed_and_now()
        assert now_ms - confirmed_ms >= 3_600_000
    store.close()


async def test_a_generator_that_hangs_does_not_keep_a_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_facts, "FIRST_POLLS_SECONDS", 0.1)
    hanging = GENERATOR.replace("    yield", "    import time; time.sleep(3600)\n    yield")
    options, store = write(tmp_path, **{"facts.py": hanging, "pack.toml": POLLED}), open_store(tmp_path / "store.db")
    async with opened(options, store) as runtime:
        assert list(runtime.facts._polls) == ["right"], "it has not ended"
        assert [fact.args[0] for fact in runtime.invoker.domain.stale_facts(time.time_ns())] == ["left", "right"]
    store.close()


def test_pauses_grow_with_jitter() -> None:
    facts = SharedFacts.__new__(SharedFacts)
    facts._sources = {"x": type("Source", (), {"every": 5.0})()}
    pauses = {failures: [facts._pause("x", failures) for _ in range(50)] for failures in (0, 1, 3, 60)}
    assert set(pauses[0]) == {5.0}
    for failures, longest in ((1, 2.0), (3, 8.0), (60, 60.0)):
        assert longest / 2 <= min(pauses[failures]) < max(pauses[failures]) <= longest
        assert len(set(pauses[failures])) > 10
