"""Offers can be invoked from the response on, however seldom they are written; they are found fast and not too long."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from manglecp.intent import Definition, Domain, Identity, OfferCodec, OfferService, offers
from manglecp.store import Store, open_store
from manglecp.wire.messages import IntentRequest
from tests.effort import effort
from tests.intent.packs import NOW, action, pack, request

RETENTION = 300_000
ME = Identity("me", frozenset(), "user")
YOU = Identity("you", frozenset({"more"}), "user")
START = NOW // 1_000_000

RULES = """
Decl seen(X) descr [direction("input")] bound [/string].
macro("t", "A tool."). mandatory("t") :- intent("go"). macro_step("t", 1, "look").
macro("u", "Another."). mandatory("u") :- intent("go"), seen(X). macro_step("u", 1, "look").
needs_confirmation("t") :- seen("b").
macro("w", "With a window."). mandatory("w") :- intent("stay"). macro_step("w", 1, "look").
valid_for("w", fn:duration:parse("10m")) :- intent("stay").
"""


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain.load(pack(RULES, actions=(action("look"),), intents=("go", "stay")))


@pytest.fixture
def stores() -> Iterator[tuple[Store, Store]]:
    one, two = open_store(":memory:"), open_store(":memory:")
    yield one, two
    one.close()
    two.close()


def seen(*values: str) -> list[dict[str, object]]:
    return [{"pred": "seen", "args": [value]} for value in values]


class Asking:
    """A process that answers questions; ``now`` is its clock, in milliseconds."""

    def __init__(self, domain: Domain, store: Store) -> None:
        self.store = store
        self.now = START
        self.codec = OfferCodec(domain.pack)
        self._domain = domain
        self.restart()

    def restart(self) -> None:
        """Forget what was stored."""
        self.offers = OfferService(self._domain, self.store, clock=lambda: self.now * 1_000_000)

    def ask(self, asked: IntentRequest, identity: Identity = ME) -> tuple[Definition, ...]:
        tools = self.offers.evaluate_blocking(asked, identity).payload.macro_tools
        found = [self.found(tool.macro_id, identity=identity) for tool in tools]
        return tuple(one[0] for one in found if one is not None)

    def ask_all(self, questions: Sequence[tuple[IntentRequest, Identity]]) -> list[tuple[Definition, ...]]:
        return [self.ask(asked, identity) for asked, identity in questions]

    def found(
        self, macro_id: str, after: int = 0, identity: Identity = ME
    ) -> tuple[Definition, int | None, int | None] | None:
        """What an invocation would find."""
        with self.store.read_transaction() as tx:
            kept = self.store.registry.find(tx, identity.name, macro_id, self.now + after)
        if kept is None:
            return None
        return self.codec.read(kept.document), kept.not_before_ms, kept.expires_at_ms

    def inputs(self, macro_id: str) -> str:
        with self.store.read_transaction() as tx:
            kept = self.store.registry.find(tx, ME.name, macro_id, self.now)
        assert kept is not None
        return kept.inputs_digest

    def writes(self) -> int:
        """When the entries were written last."""
        with self.store.read_transaction() as tx:
            return int(tx.execute("SELECT max(kept_ms) FROM registry").fetchone()[0])

    def evict(self) -> None:
        with self.store.write_transaction() as tx:
            self.store.registry.sweep(tx, self.now, max_entries=0)


def test_what_is_there_already_is_not_written_again(domain: Domain, stores: tuple[Store, Store]) -> None:
    process = Asking(domain, stores[0])
    (tool,) = process.ask(request("go"))
    process.now += 1_000
    process.ask(request("go"))  # once more, and for longer
    written = process.writes()
    assert written == START + 1_000
    for _ in range(5):
        process.now += 10_000
        assert process.ask(request("go")) == (tool,)
        assert process.writes() == written
        assert process.found(tool.macro_id, RETENTION - 1) is not None


def test_what_was_evicted_is_written_again(domain: Domain, stores: tuple[Store, Store]) -> None:
    process = Asking(domain, stores[0])
    for _ in range(3):
        (tool,) = process.ask(request("go"))
        assert process.found(tool.macro_id) is not None
        process.evict()
        assert process.found(tool.macro_id) is None


def test_what_another_process_replaced_is_written_again(domain: Domain, stores: tuple[Store, Store]) -> None:
    """The last announcement counts (OPEN-32), whoever makes it."""
    one, two = Asking(domain, stores[0]), Asking(domain, stores[0])
    (plain,) = one.ask(request("go"))
    confirmed = next(tool for tool in two.ask(request("go", seen("b"))) if tool.tool == "t")
    assert plain.macro_id == confirmed.macro_id
    assert plain != confirmed
    assert one.found(plain.macro_id) == (confirmed, None, None)
    one.ask(request("go"))
    assert one.found(plain.macro_id) == (plain, None, None)


def test_a_window_that_moves_is_written_each_time(domain: Domain, stores: tuple[Store, Store]) -> None:
    process = Asking(domain, stores[0])
    for _ in range(5):
        process.now += 1_000
        (tool,) = process.ask(request("stay", eval_time=None))
        assert process.found(tool.macro_id) == (tool, process.now, process.now + 600_000)


def test_another_question_is_kept_with_its_own_proof(domain: Domain, stores: tuple[Store, Store]) -> None:
    process = Asking(domain, stores[0])
    first = next(tool for tool in process.ask(request("go", seen("a"))) if tool.tool == "t")
    inputs = process.inputs(first.macro_id)
    process.ask(request("go", seen("a")))
    assert process.inputs(first.macro_id) == inputs
    second = next(tool for tool in process.ask(request("go", seen("c"))) if tool.tool == "t")
    assert first == second
    assert process.inputs(first.macro_id) != inputs


def test_the_memory_is_bounded(domain: Domain, stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "_MAX_STORED", 3)
    process = Asking(domain, stores[0])
    for number in range(10):
        who = Identity(f"client-{number}", frozenset(), "user")
        (tool,) = process.ask(request("go"), who)
        assert process.found(tool.macro_id, identity=who) is not None
        assert len(process.offers._written_cache) <= 3
    monkeypatch.setattr(offers, "_LARGEST_CACHED", 10)
    process.restart()
    process.ask(request("go"))
    assert not len(process.offers._written_cache)


@pytest.mark.req("INVK-11", "INVK-12")
@pytest.mark.parametrize("seed", range(effort(100)))
def test_it_is_as_if_everything_were_written_each_time(seed: int, domain: Domain, stores: tuple[Store, Store]) -> None:
    """Against a process that remembers nothing: what can be invoked now can be invoked, as long as it has to be."""
    dice = random.Random(seed)
    process, oracle = Asking(domain, stores[0]), Asking(domain, stores[1])
    questions = [
        request("go"),
        request("go", seen("a")),
        request("go", seen("b")),
        request("stay"),
        request("stay", eval_time=None),
    ]
    steps = (0, 0, 1, 1_000, RETENTION // 3, RETENTION // 2, RETENTION - 1, RETENTION, 2 * RETENTION)
    for _ in range(40):
        process.now += dice.choice(steps)
        oracle.now = process.now
        if dice.random() < 0.1:
            process.evict()
            oracle.evict()
        if dice.random() < 0.1:  # another process of the same store
            process.restart()
        together = [(dice.choice(questions), dice.choice((ME, YOU))) for _ in range(dice.choice((1, 1, 2, 4)))]
        answers = process.ask_all(together)
        for (asked, who), definitions in zip(together, answers, strict=True):
            oracle.restart()
            assert oracle.ask(asked, who) == definitions
        asking = zip(together, answers, strict=True)
        last = {(who, one.macro_id): one for (_, who), definitions in asking for one in definitions}
        for (who, macro_id), one in last.items():
            window = max(0, (one.expires_at or 0) // 1_000_000 - process.now)
            for after in (0, RETENTION - 1, window, window + RETENTION - 1):
                expected = oracle.found(macro_id, after, who)
                assert expected is not None
                assert process.found(macro_id, after, who) == expected


async def test_an_offer_is_found_without_the_store_for_a_moment(
    domain: Domain, stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Asking(domain, stores[0])
    (tool,) = process.ask(request("go"))
    assert await process.offers.find(ME.name, tool.macro_id) is not None
    assert await process.offers.find(YOU.name, tool.macro_id) is None
    process.evict()
    assert await process.offers.find(ME.name, tool.macro_id) is not None
    monkeypatch.setattr(offers, "_FRESH_SECONDS", 0.0)
    process.restart()
    assert await process.offers.find(ME.name, tool.macro_id) is None


async def test_no_offer_is_found_past_its_retention(domain: Domain, stores: tuple[Store, Store]) -> None:
    process = Asking(domain, stores[0])
    (tool,) = process.ask(request("go"))
    assert await process.offers.find(ME.name, tool.macro_id) is not None
    process.now += RETENTION
    assert await process.offers.find(ME.name, tool.macro_id) is None


async def test_the_last_offer_is_found(domain: Domain, stores: tuple[Store, Store]) -> None:
    """Also where only what is not in its macro_id has changed, and where its validity has ended (OPEN-32)."""
    process = Asking(domain, stores[0])
    (plain,) = process.ask(request("go"))
    first = await process.offers.find(ME.name, plain.macro_id)
    process.ask(request("go", seen("b")))
    second = await process.offers.find(ME.name, plain.macro_id)
    assert first is not None
    assert second is not None
    assert not first.definition.safety.requires_user_confirmation
    assert second.definition.safety.requires_user_confirmation
    (window,) = process.ask(request("stay", eval_time=None))
    assert await process.offers.find(ME.name, window.macro_id) is not None
    process.now += 600_000
    other = Asking(domain, stores[0])
    other.now = process.now
    other.ask(request("stay", eval_time=None))
    found = await process.offers.find(ME.name, window.macro_id)
    assert found is not None
    assert found.definition.expires_at == (process.now + 600_000) * 1_000_000
