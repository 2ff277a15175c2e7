"""The registry of macro-tools: whose they are, and how long they are kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.base.digest import digest, digest_bytes
from manglecp.store.registry import CHECK_MS, RETENTION_MS, OfferSweep, StoredOffer
from manglecp.store.store import Store, open_store

NOW = 1_800_000_000_000
MINUTE = 60_000


@pytest.fixture
def store(store_where: str) -> Iterator[Store]:
    store = open_store(store_where)
    yield store
    store.close()


def tool(
    macro_id: str = "m1",
    *,
    document: bytes = b'{"name":"fix"}',
    chain: str = "sha256:aa",
    inputs: bytes = b'{"intent":"repair"}',
    identity: str = "kim",
    start: int | None = None,
    end: int | None = None,
) -> StoredOffer:
    inputs_digest = digest([identity, digest_bytes(inputs)])
    return StoredOffer(macro_id, chain, document, inputs_digest, inputs, start, end)


def keep(
    store: Store, *tools: StoredOffer, now: int = NOW, identity: str = "kim", retention: int = RETENTION_MS
) -> None:
    with store.write_transaction() as tx:
        store.registry.register(tx, identity, tools, now_ms=now, retention_ms=retention)


def find(store: Store, macro_id: str = "m1", *, now: int = NOW, identity: str = "kim") -> StoredOffer | None:
    with store.read_transaction() as tx:
        return store.registry.find(tx, identity, macro_id, now)


def sweep(store: Store, *, now: int = NOW, most: int = 1_000_000, at_once: int = 10_000) -> OfferSweep:
    with store.write_transaction() as tx:
        return store.registry.sweep(tx, now, most, batch=at_once)


def count(store: Store, table: str) -> int:
    with store.read_transaction() as tx:
        return int(tx.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def documents(store: Store) -> list[bytes]:
    """Return the definitions and inputs that are stored."""
    with store.read_transaction() as tx:
        return sorted(bytes(row[0]) for row in tx.execute("SELECT content FROM registry_document").fetchall())


def test_each_is_found_by_its_own_identity(store: Store) -> None:
    keep(store, tool("m1", start=NOW), tool("m2"))
    keep(store, tool("m1", document=b"another", identity="ann"), identity="ann")
    keep(store, tool("old"), now=NOW - 2 * RETENTION_MS)
    wanted = [("kim", "m2"), ("ann", "m1"), ("ann", "m2"), ("kim", "m1"), ("kim", "m2"), ("kim", "old"), ("m1", "kim")]
    found = [find(store, macro_id, identity=identity) for identity, macro_id in wanted]
    assert [one is not None for one in found] == [True, True, False, True, True, False, False]


def test_what_was_announced_is_found(store: Store) -> None:
    announced = tool(document=bytes(range(256)) * 40, start=NOW - 5, end=NOW + MINUTE)
    keep(store, announced, tool("m2"))
    assert find(store) == announced
    assert find(store, "m2") == tool("m2")
    assert find(store, "m3") is None


def test_a_foreign_tool_is_an_unknown_one(store: Store) -> None:
    """OPEN-31"""
    keep(store, tool())
    assert find(store, identity="eve") is None
    keep(store, tool(chain="sha256:bb", identity="eve"), identity="eve")
    assert find(store) == tool()
    assert find(store, identity="eve") == tool(chain="sha256:bb", identity="eve")
    assert documents(store).count(tool().document) == 1, "the same definition is kept once"


def test_the_last_announcement_counts(store: Store) -> None:
    """OPEN-32: validity, definition and inputs are those that the client saw last."""
    keep(store, tool(end=NOW + 60 * MINUTE))
    newer = tool(document=b"other", inputs=b"others", end=NOW + MINUTE)
    keep(store, newer, now=NOW + 1)
    assert find(store) == newer
    keep(store, tool(), now=NOW + 2)
    assert find(store) == tool()
    assert count(store, "registry") == 1


def test_another_chain_under_the_same_id_does_not_replace_an_offer(store: Store) -> None:
    """An id is the beginning of a digest; two chains with the same id are not the same tool."""
    first = tool(chain="sha256:aa", end=NOW + 60 * MINUTE)
    keep(store, first)
    keep(store, tool(chain="sha256:ab", document=b"other", inputs=b"others"), tool("m2"), now=NOW + 1)
    assert find(store) == first
    assert find(store, "m2") == tool("m2")
    with store.read_transaction() as tx:
        (entry,) = store.registry.entries(tx, "kim", ["m1"]).values()
    assert entry == (digest_bytes(first.document), NOW + 60 * MINUTE + RETENTION_MS, first.inputs_digest)
    renewed = tool(chain="sha256:aa", document=b"renewed")
    keep(store, renewed, now=NOW + 2)
    assert find(store) == renewed
    eves = tool(chain="sha256:ab", identity="eve")
    keep(store, eves, identity="eve")
    assert find(store, identity="eve") == eves, "an offer to another identity is no obstacle"


def test_entries_are_those_of_the_identity(store: Store) -> None:
    mine, other = tool(end=NOW + MINUTE), tool("m2", document=b"other", inputs=b"others")
    keep(store, mine, other)
    keep(store, tool("m3", identity="eve"), identity="eve")
    with store.read_transaction() as tx:
        assert store.registry.entries(tx, "kim", ["m1", "m2", "m3", "m4"]) == {
            "m1": (digest_bytes(mine.document), NOW + MINUTE + RETENTION_MS, mine.inputs_digest),
            "m2": (digest_bytes(other.document), NOW + RETENTION_MS, other.inputs_digest),
        }


def test_inputs_belong_to_one_identity(store: Store) -> None:
    keep(store, tool("m1", end=NOW + 60 * MINUTE), tool("m2", end=NOW + 60 * MINUTE))
    keep(store, tool(identity="ann"), identity="ann")
    assert documents(store) == sorted([tool().document, tool().inputs, tool().inputs]), "once for each identity"
    sweep(store, now=NOW + RETENTION_MS)
    assert find(store, identity="ann", now=NOW + RETENTION_MS) is None
    assert find(store, now=NOW + RETENTION_MS) == tool(end=NOW + 60 * MINUTE)
    assert documents(store) == sorted([tool().document, tool().inputs]), "those of ann are deleted"


def test_inputs_are_deleted_with_the_last_offer_after_its_retention(store: Store) -> None:
    end = NOW + 180 * MINUTE
    keep(store, tool("short", document=b"short"), tool("long", document=b"long", end=end))
    sweep(store, now=NOW + RETENTION_MS)
    assert documents(store) == sorted([b"long", tool().inputs])
    sweep(store, now=end + RETENTION_MS - 1)
    assert find(store, "long", now=end + RETENTION_MS - 1) == tool("long", document=b"long", end=end)
    sweep(store, now=end + RETENTION_MS)
    assert documents(store) == []


@pytest.mark.parametrize("end", [None, NOW + 60 * MINUTE])
def test_inputs_are_deleted_with_the_last_offer_that_is_evicted(store: Store, end: int | None) -> None:
    keep(store, tool("m1", document=b"1", end=end), now=NOW - 2)
    keep(store, tool("m2", document=b"2", end=end), now=NOW - 1)
    assert sweep(store, most=1).evicted == 1
    assert documents(store) == sorted([b"2", tool().inputs])
    assert find(store, "m2") == tool("m2", document=b"2", end=end)
    assert sweep(store, most=0).evicted == 1
    assert documents(store) == []


def test_replaced_documents_are_deleted_when_they_are_checked(store: Store) -> None:
    """A client that evaluates again and again, with other facts each time, must not fill the store."""
    far = NOW + 1_000 * CHECK_MS
    for number in range(5):
        keep(store, tool(document=b"%d" % number, inputs=b"given %d" % number, end=far), tool("m2", end=far))
    assert len(documents(store)) == 12
    last = tool(document=b"4", inputs=b"given 4", end=far)
    for later in (NOW + CHECK_MS, NOW + 2 * CHECK_MS):
        assert sweep(store, now=later) == OfferSweep(0, 0, 0, more=False)
        assert documents(store) == sorted([b"4", b"given 4", tool().document, tool().inputs])
        assert find(store, now=later) == last
        assert find(store, "m2", now=later) == tool("m2", end=far)
    keep(store, tool(document=b"5", inputs=b"given 5", end=far), now=NOW + 2 * CHECK_MS)
    assert sweep(store, now=NOW + 3 * CHECK_MS, at_once=2).more
    while sweep(store, now=NOW + 3 * CHECK_MS, at_once=2).more:
        pass
    assert documents(store) == sorted([b"5", b"given 5", tool().document, tool().inputs])


def test_inputs_that_were_sealed_anew_replace_the_old_ones(store: Store) -> None:
    """With another store key the old ones do not open."""
    first = tool(inputs=b"equal")
    again = first._replace(inputs=b"equal, with another seal")
    keep(store, first)
    keep(store, again)
    assert find(store) == again
    assert documents(store) == sorted([first.document, again.inputs])


def test_one_announcement_may_name_a_definition_twice(store: Store) -> None:
    keep(store, tool("m1", end=NOW + 60 * MINUTE), tool("m2"), tool("m2", end=NOW + MINUTE))
    assert find(store, "m2") == tool("m2", end=NOW + MINUTE)
    sweep(store, now=NOW + 30 * MINUTE)
    assert find(store, now=NOW + 30 * MINUTE) is not None, "the definition stays for the one that needs it longest"


def test_nothing_announced(store: Store) -> None:
    keep(store)
    assert count(store, "registry") == 0


@pytest.mark.req("INVK-11")
def test_kept_until_the_window_ends(store: Store) -> None:
    end = NOW + 180 * MINUTE
    keep(store, tool(end=end))
    assert sweep(store, now=end - 1) == OfferSweep(0, 0, 0, more=False)
    assert find(store, now=end - 1) is not None
    assert sweep(store, now=end) == OfferSweep(0, 0, 0, more=False)
    assert find(store, now=end) is not None, "who comes late hears that it has expired"
    assert sweep(store, now=end + RETENTION_MS) == OfferSweep(1, 0, 0, more=False)
    assert find(store, now=end + RETENTION_MS) is None
    assert count(store, "registry_document") == 0


@pytest.mark.req("INVK-12")
def test_five_minutes_without_a_window(store: Store) -> None:
    keep(store, tool())
    last = NOW + 5 * MINUTE - 1
    sweep(store, now=last)
    assert find(store, now=last) == tool()
    assert find(store, now=last + 1) is None, "swept or not"
    keep(store, tool(), now=last)  # announced again: the five minutes begin anew
    sweep(store, now=last + 5 * MINUTE - 1)
    assert find(store, now=last + 5 * MINUTE - 1) == tool()


@pytest.mark.req("INVK-13")
def test_the_retention_is_a_setting(store: Store) -> None:
    keep(store, tool(), retention=7 * MINUTE)
    assert find(store, now=NOW + 7 * MINUTE - 1) is not None
    assert find(store, now=NOW + 7 * MINUTE) is None


def test_a_tool_that_is_not_valid_yet(store: Store) -> None:
    start = NOW + 60 * MINUTE
    keep(store, tool(start=start))
    sweep(store, now=start + 5 * MINUTE - 1)
    assert find(store, now=start + 5 * MINUTE - 1) == tool(start=start)
    assert find(store, now=start + 5 * MINUTE) is None


@pytest.mark.req("INVK-13")
def test_for_want_of_room_the_oldest_outside_of_a_window_go_first(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """OPEN-30"""
    keep(store, tool("inside", end=NOW + 60 * MINUTE, document=b"inside"), now=NOW - 10)
    for age in (3, 2, 1):
        keep(store, tool(f"free{age}", document=b"%d" % age), now=NOW - age)
    keep(store, tool("over", end=NOW - 1), now=NOW - 5)
    with caplog.at_level(logging.WARNING):
        assert sweep(store, most=3) == OfferSweep(0, 2, 0, more=False)
    assert caplog.records == []
    assert {name for name in ("inside", "free1", "free2", "free3", "over") if find(store, name)} == {
        "inside",
        "free1",
        "free2",
    }
    assert documents(store) == sorted([b"inside", b"1", b"2", tool().inputs])


@pytest.mark.req("INVK-13")
def test_inside_a_window_only_as_a_last_resort(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """OPEN-30"""
    for age in (3, 2, 1):
        keep(store, tool(f"m{age}", end=NOW + MINUTE), now=NOW - age)
    keep(store, tool("free"))
    with caplog.at_level(logging.WARNING):
        assert sweep(store, most=2) == OfferSweep(0, 2, 1, more=False)
    assert [record.getMessage() for record in caplog.records] == [
        "the registry has room for 2 macro-tools: 1 were dropped before their validity ended"
    ]
    assert [bool(find(store, name)) for name in ("m3", "m2", "m1", "free")] == [False, True, True, False]
    assert documents(store) == sorted([tool().document, tool().inputs]), "others need them"


def test_little_by_little(store: Store) -> None:
    """However much there is to sweep, others get their turn."""
    keep(store, *(tool(f"m{n}", document=b"%d" % n) for n in range(7)))
    keep(store, *(tool(f"m{n}", document=b"%d" % n, end=NOW + 60 * MINUTE) for n in (7, 8, 9)))
    later = NOW + RETENTION_MS
    assert sweep(store, now=later, most=1, at_once=3) == OfferSweep(3, 0, 0, more=True)
    assert sweep(store, now=later, most=1, at_once=3) == OfferSweep(3, 0, 0, more=True)
    assert sweep(store, now=later, most=1, at_once=3) == OfferSweep(1, 2, 2, more=False)
    assert sweep(store, now=later, most=1, at_once=3) == OfferSweep(0, 0, 0, more=False)
    assert (count(store, "registry"), len(documents(store))) == (1, 2)
    keep(store, *(tool(f"m{n}") for n in range(5)), now=later)
    assert sweep(store, now=later, most=1, at_once=4) == OfferSweep(0, 4, 0, more=True)
    assert sweep(store, now=later, most=1, at_once=4) == OfferSweep(0, 1, 0, more=False)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["kim", "lee"]),
            st.sampled_from(["m1", "m2", "m3"]),
            st.sampled_from([b"x", b"y"]),
            st.none() | st.integers(0, 900),
        ),
        max_size=12,
    ),
    st.integers(0, 1500),
    st.integers(0, 8),
)
def test_what_is_promised_holds(announced: list[tuple[str, str, bytes, int | None]], later: int, most: int) -> None:
    """Against a dictionary: who may be found is found, and eviction takes nobody inside a window without need."""
    store = open_store(":memory:")
    expected: dict[tuple[str, str], tuple[StoredOffer, int]] = {}
    for second, (identity, macro_id, document, end) in enumerate(announced):
        now = NOW + second * 1000
        ends = None if end is None else NOW + end * 1000
        kept = tool(macro_id, document=document, inputs=b"for " + document, identity=identity, end=ends)
        keep(store, kept, now=now, identity=identity)
        expected[identity, macro_id] = kept, max(now, kept.expires_at_ms or 0) + RETENTION_MS
    now = NOW + later * 1000
    alive = {key: kept for key, (kept, drop) in expected.items() if drop > now}
    swept = sweep(store, now=now, most=most)
    found = {key: one for key in expected if (one := find(store, key[1], now=now, identity=key[0]))}
    assert swept == (len(expected) - len(alive), max(0, len(alive) - most), swept.evicted_unexpired, False)
    assert found.items() <= alive.items()
    assert len(found) == min(len(alive), most)
    inside = {key for key, kept in alive.items() if kept.expires_at_ms is not None and kept.expires_at_ms > now}
    assert len(inside - found.keys()) == swept.evicted_unexpired == max(0, len(inside) - most)
    assert set(documents(store)) >= {content for kept in found.values() for content in (kept.document, kept.inputs)}
    sweep(store, now=now + 2 * CHECK_MS, most=0)
    assert documents(store) == [], "those that were replaced, too"
    store.close()


def test_sweeping_while_others_announce(store: Store) -> None:
    """No entry is ever without its definition or its inputs."""
    failures: list[BaseException] = []
    done = threading.Event()

    def announce(identity: str) -> None:
        try:
            for number in range(40):
                given: dict[str, Any] = {
                    "inputs": b"inputs %d" % (number % 2),
                    "identity": identity,
                    "end": NOW + 2 * CHECK_MS,
                }
                tools = [tool(f"m{n}", document=b"%d" % (number % 3 + n), **given) for n in range(4)]
                keep(store, *tools, identity=identity)
                found = [find(store, one.macro_id, identity=identity) for one in tools]
                assert [one for one in found if one is not None and one not in tools] == []
        except BaseException as error:
            failures.append(error)

    def tidy() -> None:
        try:
            while not done.is_set():
                sweep(store, most=3)
                sweep(store, now=NOW + CHECK_MS)
        except BaseException as error:
            failures.append(error)

    announcers = [threading.Thread(target=announce, args=(identity,)) for identity in ("kim", "lee", "sam")]
    sweeper = threading.Thread(target=tidy)
    for thread in (*announcers, sweeper):
        thread.start()
    for thread in announcers:
        thread.join()
    done.set()
    sweeper.join()
    assert failures == []
    with store.read_transaction() as tx:
        lost = tx.execute(
            "SELECT count(*) FROM registry WHERE NOT EXISTS"
            " (SELECT 1 FROM registry_document AS one WHERE one.digest = registry.digest) OR NOT EXISTS"
            " (SELECT 1 FROM registry_document AS one WHERE one.digest = registry.inputs)"
        ).fetchone()
    assert lost == (0,)
