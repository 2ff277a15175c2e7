"""Approval requests: one for equal calls, decided once, used once, sealed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from manglecp.store.approvals import MAX_PENDING, RETENTION_MS, Approval, ApprovalBinding, TooManyPending
from manglecp.store.errors import Unusable
from manglecp.store.store import Store, open_store
from tests.deadlines import patience

ROOT = Path(__file__).resolve().parents[2]
NOW = 1_800_000_000_000
HOUR = 3_600_000
KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
TEXT = "Delete the folder /srv/archive, with 3 files"
CALL = ApprovalBinding(
    identity="kim",
    pack_digest="sha256:pack",
    chain_digest="sha256:chain",
    args_digest="sha256:args",
    subject_digest="sha256:subject",
)


@pytest.fixture
def store(store_where: str) -> Iterator[Store]:
    store = open_store(store_where)
    yield store
    store.close()


def request(
    store: Store,
    *,
    text: str = TEXT,
    roles: tuple[str, ...] = (),
    four_eyes: bool = False,
    now: int = NOW,
    lifetime: int = HOUR,
    **call: str,
) -> tuple[Approval, bool]:
    with store.write_transaction() as tx:
        return store.approvals.request(
            tx,
            msgspec.structs.replace(CALL, **call),
            tool="tidy",
            roles=roles,
            four_eyes=four_eyes,
            text=text,
            now_ms=now,
            lifetime_ms=lifetime,
        )


def new_request(store: Store, **given: Any) -> Approval:
    approval, new = request(store, **given)
    assert new
    return approval


def approved(store: Store, **given: Any) -> Approval:
    approval = new_request(store, **given)
    assert decide(store, approval, now=approval.created_ms)
    return approval


def find(store: Store, approval: Approval) -> Approval:
    with store.read_transaction() as tx:
        found = store.approvals.find(tx, approval.id)
    assert found is not None
    return found


def pending(store: Store, *, now: int = NOW, limit: int = 1_000) -> list[Approval]:
    with store.read_transaction() as tx:
        return store.approvals.pending(tx, now, limit=limit)


def decide(
    store: Store,
    approval: Approval,
    verdict: Literal["approved", "denied"] = "approved",
    *,
    approver: str = "lee",
    now: int = NOW,
) -> bool:
    with store.write_transaction() as tx:
        return store.approvals.decide(tx, approval.id, verdict, approver, now)


def use(store: Store, approval: Approval, *, run: str = "r-1", now: int = NOW) -> bool:
    with store.write_transaction() as tx:
        return store.approvals.use(tx, approval.id, run, now)


def sweep(store: Store, now: int) -> int:
    with store.write_transaction() as tx:
        return store.approvals.sweep(tx, now)


def test_a_request_is_stored_as_it_was_made(store: Store) -> None:
    approval, new = request(store, roles=("ops", "finance"), four_eyes=True, text="Löschen: \0 \U0001f5d1")
    assert new
    assert approval == Approval(
        id=approval.id,
        binding=CALL,
        tool="tidy",
        roles=("finance", "ops"),
        four_eyes=True,
        created_ms=NOW,
        expires_ms=NOW + HOUR,
        state="pending",
        text="Löschen: \0 \U0001f5d1",
    )
    assert find(store, approval) == approval
    with store.read_transaction() as tx:
        assert store.approvals.find(tx, "ap-unknown") is None


def test_an_equal_request_is_the_same(store: Store) -> None:
    first = new_request(store, roles=("ops", "finance"))
    assert request(store, roles=("finance", "ops"), now=NOW + 1) == (first, False), "with its first expiry"
    decide(store, first)
    again, new = request(store, roles=("ops", "finance"), now=NOW + 2)
    assert (again.id, again.state, new) == (first.id, "approved", False)


@pytest.mark.parametrize(
    "difference",
    [
        {"identity": "ann"},
        {"pack_digest": "sha256:other"},
        {"chain_digest": "sha256:other"},
        {"args_digest": "sha256:other"},
        {"subject_digest": "sha256:other"},
        {"subject_digest": ""},
        {"roles": ()},
        {"roles": ("finance", "ops")},
        {"four_eyes": True},
        {"text": f"{TEXT} "},
    ],
    ids=str,
)
def test_a_request_that_differs_is_another(store: Store, difference: dict[str, Any]) -> None:
    base: dict[str, Any] = {"roles": ("ops",)}
    first, other = new_request(store, **base), new_request(store, **base | difference)
    assert first.id != other.id
    assert decide(store, first)
    assert find(store, other).state == "pending"
    assert request(store, **base)[0].id == first.id
    assert request(store, **base | difference)[0].id == other.id


def test_after_denial_use_or_expiry_a_request_is_new(store: Store) -> None:
    denied = new_request(store)
    decide(store, denied, "denied")
    used = approved(store)
    use(store, used)
    expired = new_request(store)
    expired_after_approval = approved(store, now=expired.expires_ms)
    last = new_request(store, now=expired_after_approval.expires_ms)
    assert len({one.id for one in (denied, used, expired, expired_after_approval, last)}) == 5


def test_pending_requests_are_listed_oldest_first(store: Store) -> None:
    late = new_request(store, text="late", now=NOW + 20)
    early = new_request(store, text="early", now=NOW)
    short = new_request(store, text="short", now=NOW + 10, lifetime=100, identity="ann")
    decide(store, new_request(store, text="denied"), "denied")
    approved(store, text="approved")
    use(store, approved(store, text="used"))
    early, short, late = (msgspec.structs.replace(one, text="") for one in (early, short, late))
    assert pending(store, now=NOW + 20) == [early, short, late]
    assert pending(store, now=NOW + 20, limit=2) == [early, short]
    assert pending(store, now=short.expires_ms - 1) == [early, short, late]
    assert pending(store, now=short.expires_ms) == [early, late]
    assert pending(store, now=late.expires_ms) == []


def test_no_identity_hides_the_requests_of_others(store: Store) -> None:
    flood = [new_request(store, text=str(number), identity="kim", now=NOW + number) for number in range(9)]
    urgent = new_request(store, text="urgent", identity="ann", now=NOW + 9)
    other_role = new_request(store, text="role", identity="kim", roles=("finance",), now=NOW + 8)
    listed = [one.id for one in pending(store, now=NOW + 9, limit=4)]
    assert listed == [flood[0].id, flood[1].id, other_role.id, urgent.id]
    with store.read_transaction() as tx:
        decidable = store.approvals.pending(tx, NOW + 9, lambda one: one.roles == ("finance",), limit=1)
    assert [one.id for one in decidable] == [other_role.id], "the limit counts requests that the approver may decide"


def test_an_identity_has_a_limited_number_of_pending_requests(store: Store) -> None:
    first = new_request(store, text="0", lifetime=100)
    others = [new_request(store, text=str(number)) for number in range(1, MAX_PENDING)]
    with pytest.raises(TooManyPending):
        request(store, text="more")
    assert len(pending(store)) == MAX_PENDING
    assert request(store, text="1") == (others[0], False), "an equal request is not one more"
    new_request(store, text="more", identity="ann")
    decide(store, others[0])
    new_request(store, text="in place of the decided one")
    with pytest.raises(TooManyPending):
        request(store, text="more", now=first.expires_ms - 1)
    new_request(store, text="in place of the expired one", now=first.expires_ms)


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_a_request_is_decided_once(store: Store, verdict: Literal["approved", "denied"]) -> None:
    approval = new_request(store)
    assert decide(store, approval, verdict, now=NOW + 5)
    decided = msgspec.structs.replace(approval, state=verdict, approver="lee", decided_ms=NOW + 5)
    assert find(store, approval) == decided
    assert not decide(store, approval, "approved", approver="sam")
    assert not decide(store, approval, "denied", approver="sam")
    assert find(store, approval) == decided


def test_an_expired_or_unknown_request_is_not_decided(store: Store) -> None:
    approval = new_request(store)
    assert not decide(store, approval, now=approval.expires_ms)
    assert not decide(store, msgspec.structs.replace(approval, id="ap-unknown"))
    assert find(store, approval) == approval
    assert decide(store, approval, now=approval.expires_ms - 1)


def test_an_approval_is_used_once(store: Store) -> None:
    approval, other = approved(store), approved(store, text="another")
    assert use(store, approval, run="r-1")
    used = find(store, approval)
    assert (used.state, used.run, used.approver) == ("used", "r-1", "lee")
    assert not use(store, approval, run="r-2")
    assert not decide(store, approval)
    assert find(store, approval) == used
    assert use(store, other)


def test_only_an_approval_is_used(store: Store) -> None:
    undecided, denied = new_request(store), new_request(store, text="another")
    decide(store, denied, "denied")
    for approval in (undecided, denied, msgspec.structs.replace(undecided, id="ap-unknown")):
        assert not use(store, approval)
    assert (find(store, undecided).state, find(store, denied).state) == ("pending", "denied")
    assert decide(store, undecided)
    assert use(store, undecided)


def test_an_expired_approval_is_not_used(store: Store) -> None:
    approval = approved(store)
    assert not use(store, approval, now=approval.expires_ms)
    assert find(store, approval).state == "approved"
    assert use(store, approval, now=approval.expires_ms - 1)


def test_a_use_in_a_failed_transaction_does_not_count(store: Store) -> None:
    approval = approved(store)

    def fail() -> None:
        with store.write_transaction() as tx:
            assert store.approvals.use(tx, approval.id, "r-1", NOW)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert use(store, approval, run="r-2")


def test_requests_are_deleted_after_the_retention(store: Store) -> None:
    short = new_request(store, text="short", lifetime=100)
    used = approved(store, text="used", lifetime=100)
    use(store, used)
    later = new_request(store, text="later", lifetime=200)
    end = NOW + 100 + RETENTION_MS
    assert sweep(store, end - 1) == 0
    assert find(store, short) == short
    assert sweep(store, end) == 2
    with store.read_transaction() as tx:
        assert [store.approvals.find(tx, one.id) for one in (short, used)] == [None, None]
    assert find(store, later) == later


# --- concurrency ----------------------------------------------------------------------------------------------------


def in_threads(work: Callable[[int], list[str]], count: int = 6) -> list[list[str]]:
    """Return the results of ``work`` with each number, from threads that begin together."""
    begin = threading.Barrier(count)
    results: dict[int, list[str]] = {}

    def run(number: int) -> None:
        begin.wait()
        results[number] = work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[number] for number in range(count)]


@pytest.mark.parametrize("change", ["decide", "use"])
def test_threads_do_not_both_succeed(store: Store, change: str) -> None:
    make = new_request if change == "decide" else approved
    approvals = [make(store, text=str(number)) for number in range(20)]

    def work(number: int) -> list[str]:
        name = f"n-{number}"
        if change == "decide":
            return [one.id for one in approvals if decide(store, one, approver=name)]
        return [one.id for one in approvals if use(store, one, run=name)]

    winners = in_threads(work)
    assert sorted(one for ids in winners for one in ids) == sorted(one.id for one in approvals)
    for number, ids in enumerate(winners):
        for one in approvals:
            if one.id in ids:
                found = find(store, one)
                assert (found.approver if change == "decide" else found.run) == f"n-{number}"


def test_equal_requests_of_threads_are_the_same(store: Store) -> None:
    ids = in_threads(lambda _: [request(store, text=str(number))[0].id for number in range(20)])
    assert ids == [ids[0]] * 6
    assert sorted(one.id for one in pending(store)) == sorted(ids[0])


def test_requests_of_threads_do_not_exceed_the_limit(store: Store) -> None:
    for number in range(MAX_PENDING - 3):
        new_request(store, text=str(number))

    def work(number: int) -> list[str]:
        try:
            return [request(store, text=f"one more: {number}")[0].id]
        except TooManyPending:
            return []

    assert sum(map(len, in_threads(work))) == 3
    assert len(pending(store)) == MAX_PENDING


@pytest.mark.parametrize("change", ["decide", "use"])
@pytest.mark.parametrize("store_where", ["file", "postgresql"], indirect=True)
def test_processes_do_not_both_succeed(store: Store, store_where: str, change: str) -> None:
    make = new_request if change == "decide" else approved
    approvals = {one.id: one for one in (make(store, text=str(number)) for number in range(60))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.store._approver", store_where, change, name, str(NOW)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("ann", "lee")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(" ".join(approvals) + "\n")
        process.stdin.flush()
    winners: dict[str, list[str]] = {}
    for name, process in zip(("ann", "lee"), processes, strict=True):
        out, err = process.communicate(timeout=patience(120))
        assert (process.returncode, err) == (0, "")
        winners[name] = out.split()
    assert sorted(winners["ann"] + winners["lee"]) == sorted(approvals)
    for name, ids in winners.items():
        for one in ids:
            found = find(store, approvals[one])
            assert (found.approver if change == "decide" else found.run) == name


# --- seals ----------------------------------------------------------------------------------------------------------


def stored_bytes(store: Store, where: str) -> bytes:
    with store.read_transaction() as tx:
        rows = tx.execute("SELECT * FROM approval").fetchall()
    values = b"\n".join(value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row)
    return values + b"".join(path.read_bytes() for path in Path(where).parent.glob(f"{Path(where).name}*"))


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
def test_the_text_is_sealed_with_the_store_key(store_where: str, key: bytes | None) -> None:
    store = open_store(store_where, key=key)
    approval = new_request(store)
    assert (TEXT.encode() in stored_bytes(store, store_where)) == (key is None)
    assert find(store, approval).text == TEXT
    assert request(store) == (approval, False), "equal texts are recognised"
    assert decide(store, approval)
    assert use(store, approval)
    assert find(store, approval).text == TEXT
    store.close()


def test_a_swapped_text_does_not_open(store_where: str) -> None:
    store = open_store(store_where, key=KEY)
    harmless, harmful = new_request(store, text="Show a file"), new_request(store, text="Delete a file")
    with store.write_transaction() as tx:
        contents = dict(tx.execute("SELECT id, content FROM approval").fetchall())
        for one, other in ((harmless, harmful), (harmful, harmless)):
            tx.execute("UPDATE approval SET content = ? WHERE id = ?", (contents[other.id], one.id))
    for read in (
        lambda: find(store, harmless),
        lambda: find(store, harmful),
        lambda: request(store, text="Show a file"),
    ):
        with pytest.raises(Unusable, match="it was changed, or moved from another row"):
            read()
    store.close()


@pytest.mark.parametrize("store_where", ["file", "postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (KEY, OTHER_KEY, "sealed with another store key"),
        (KEY, None, "configure the store key"),
        (None, KEY, "stored without a key"),
    ],
)
def test_a_text_opens_with_its_own_key_only(
    store_where: str, first: bytes | None, second: bytes | None, message: str
) -> None:
    store = open_store(store_where, key=first)
    approval = new_request(store)
    store.close()
    store = open_store(store_where, key=second)
    with pytest.raises(Unusable, match=message):
        find(store, approval)
    store.close()
    store = open_store(store_where, key=first)
    assert find(store, approval) == approval
    store.close()
