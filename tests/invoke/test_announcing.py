"""What was announced can be invoked, however seldom it is written down."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from manglecp.intent import Definition, Domain, Identity, respond
from manglecp.invoke.announcing import Announced, Announcing
from manglecp.invoke.documents import Documents
from manglecp.store import Invalid, Store, open_store
from manglecp.store.registry import Registry
from manglecp.wire.messages import IntentRequest
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


def announcing(domain: Domain, store: Store) -> Announcing:
    return Announcing(store, Documents(domain.pack), domain.digest, RETENTION)


def seen(*values: str) -> list[dict[str, object]]:
    return [{"pred": "seen", "args": [value]} for value in values]


class Asking:
    """A process that answers questions; ``now`` is its clock, in milliseconds."""

    def __init__(self, domain: Domain, store: Store) -> None:
        self.domain = domain
        self.store = store
        self.now = START
        self.announcing = announcing(domain, store)
        self.documents = Documents(domain.pack)

    def ask(self, asked: IntentRequest, identity: Identity = ME) -> tuple[Definition, ...]:
        [definitions] = self.ask_together([(asked, identity)])
        return definitions

    def ask_together(self, questions: Sequence[tuple[IntentRequest, Identity]]) -> list[tuple[Definition, ...]]:
        """Answers that are kept at the same time."""
        now_ns = self.now * 1_000_000
        answers = [respond(self.domain, asked, who, lambda: now_ns).definitions for asked, who in questions]
        told = [
            Announced(asked, who, definitions, now_ns, self.now)
            for (asked, who), definitions in zip(questions, answers, strict=True)
        ]
        assert self.announcing.keep(told) == [None] * len(told)
        return answers

    def found(self, macro_id: str, after: int = 0, identity: Identity = ME) -> tuple[object, ...] | None:
        """What an invocation would find."""
        with self.store.read_transaction() as tx:
            kept = self.store.registry.find(tx, identity.name, macro_id, self.now + after)
        if kept is None:
            return None
        return self.documents.read(kept.document).definition, kept.not_before_ms, kept.expires_at_ms

    def proof(self, macro_id: str) -> str:
        with self.store.read_transaction() as tx:
            kept = self.store.registry.find(tx, ME.name, macro_id, self.now)
        assert kept is not None
        return self.documents.read(kept.document).proof_digest

    def writes(self) -> int:
        """When the entries were written last."""
        with self.store.read_transaction() as tx:
            return int(tx.execute("SELECT max(kept_ms) FROM registry").fetchone()[0])

    def evict(self) -> None:
        with self.store.write_transaction() as tx:
            self.store.registry.sweep(tx, self.now, most=0)


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
    proof = process.proof(first.macro_id)
    process.ask(request("go", seen("a")))
    assert process.proof(first.macro_id) == proof
    second = next(tool for tool in process.ask(request("go", seen("c"))) if tool.tool == "t")
    assert first == second
    assert process.proof(first.macro_id) != proof


def test_the_memory_is_bounded(domain: Domain, stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Announcing, "MOST", 3)
    process = Asking(domain, stores[0])
    for number in range(10):
        who = Identity(f"client-{number}", frozenset(), "user")
        (tool,) = process.ask(request("go"), who)
        assert process.found(tool.macro_id, identity=who) is not None
        assert len(process.announcing._known) <= 3
    monkeypatch.setattr(Announcing, "LARGEST", 10)
    process.announcing._known.clear()
    process.ask(request("go"))
    assert not process.announcing._known


@pytest.mark.req("INVK-11", "INVK-12")
@pytest.mark.parametrize("seed", range(30))
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
            process.announcing = announcing(domain, process.store)
        together = [(dice.choice(questions), dice.choice((ME, YOU))) for _ in range(dice.choice((1, 1, 2, 4)))]
        answers = process.ask_together(together)
        for (asked, who), definitions in zip(together, answers, strict=True):
            oracle.announcing = announcing(domain, oracle.store)
            assert oracle.ask(asked, who) == definitions
        asking = zip(together, answers, strict=True)
        last = {(who, one.macro_id): one for (_, who), definitions in asking for one in definitions}
        for (who, macro_id), one in last.items():
            window = max(0, (one.expires_at or 0) // 1_000_000 - process.now)
            for after in (0, RETENTION - 1, window, window + RETENTION - 1):
                expected = oracle.found(macro_id, after, who)
                assert expected is not None
                assert process.found(macro_id, after, who) == expected


def test_one_that_cannot_be_kept_is_told_so_and_the_others_are_kept(
    domain: Domain, stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Asking(domain, stores[0])
    real = Registry.keep

    def keep(self: Registry, tx: Any, identity: str, *more: Any, **told: Any) -> None:
        if identity == YOU.name:
            raise Invalid("registry", "nothing is kept for you")
        real(self, tx, identity, *more, **told)

    monkeypatch.setattr(Registry, "keep", keep)
    now_ns = process.now * 1_000_000
    tools = respond(domain, request("go"), ME, lambda: now_ns).definitions
    them = Identity("them", frozenset(), "user")
    told = [Announced(request("go"), who, tools, now_ns, process.now) for who in (ME, YOU, them)]
    mine, yours, theirs = process.announcing.keep(told)
    assert (mine, type(yours), theirs) == (None, Invalid, None)
    there = [process.found(tools[0].macro_id, identity=who) is not None for who in (ME, YOU, them)]
    assert there == [True, False, True]
