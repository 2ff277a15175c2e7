"""Leases: one call, once, for a while, and only from whoever holds the key."""

from collections.abc import Mapping
from typing import Any

import pytest

from manglecp.toolhost.leases import MAX_TTL, LeaseBook, input_digest, mint

KEY = b"k" * 32
AID = "AID.FILES.WRITE.v1"
INPUT = input_digest('{"path":"a"}')
CALL: dict[str, Any] = {"aid": AID, "input_digest": INPUT, "call_id": "c1", "tier": 1}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def minted(clock: Clock, *, key: bytes = KEY, ttl: float = 10, **changes: Any) -> str:
    return mint(key, **{**CALL, **changes}, ttl=ttl, clock=clock)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> LeaseBook:
    return LeaseBook(KEY, clock=clock)


@pytest.mark.req("IPC-15", "IPC-16")
def test_a_token_is_good_once(clock: Clock, book: LeaseBook) -> None:
    token = minted(clock)
    assert book.check(token, **CALL) is None
    assert book.check(token, **CALL) == "consumed"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aid": "AID.OTHER.v1"}, "tool_mismatch"),
        ({"input_digest": input_digest('{"path": "a"}')}, "input_mismatch"),
        ({"call_id": "c2"}, "input_mismatch"),
        ({"tier": 0}, "tier_insufficient"),
        ({"key": b"x" * 32}, "not_found"),
    ],
)
@pytest.mark.req("IPC-25")
def test_a_token_is_good_for_one_call(clock: Clock, book: LeaseBook, changes: Mapping[str, Any], reason: str) -> None:
    assert book.check(minted(clock, **changes), **CALL) == reason
    assert book.check(minted(clock, tier=3), **CALL) is None


def test_a_refusal_does_not_use_it_up(clock: Clock, book: LeaseBook) -> None:
    token = minted(clock)
    assert book.check(token, **{**CALL, "aid": "AID.OTHER.v1"}) == "tool_mismatch"
    assert book.check(token, **CALL) is None


def test_the_boundary_of_its_time(clock: Clock, book: LeaseBook) -> None:
    early, late = minted(clock), minted(clock)
    clock.now += 9.999
    assert book.check(early, **CALL) is None
    clock.now += 0.001
    assert book.check(late, **CALL) == "expired"
    assert book.check(early, **CALL) == "expired"


def test_no_token_lives_longer_than_allowed(clock: Clock, book: LeaseBook) -> None:
    token = minted(clock, ttl=1e9)
    clock.now += MAX_TTL
    assert book.check(token, **CALL) == "expired"


@pytest.mark.parametrize(
    "token", ["", "lease_", "lease_.", "tok_1", "lease_abc", "lease_ä.ö", "lease_e30.e30", "lease_!!!.???", "a.b"]
)
def test_what_is_no_token_is_not_found(book: LeaseBook, token: str) -> None:
    assert book.check(token, **CALL) == "not_found"


def test_changing_any_character_spoils_it(clock: Clock, book: LeaseBook) -> None:
    token = minted(clock)
    for at in range(len(token)):
        # The last character of a base64 group may carry bits that mean nothing; flip one that does.
        changed = token[:at] + ("A" if token[at] != "A" else "Q") + token[at + 1 :]
        assert book.check(changed, **CALL) == "not_found", at
    assert book.check(token, **CALL) is None


def test_used_tokens_are_forgotten_when_they_have_expired(clock: Clock, book: LeaseBook) -> None:
    for _ in range(100):
        assert book.check(minted(clock), **CALL) is None
    clock.now += 10
    assert book.check(minted(clock), **CALL) is None
    assert len(book._used) == 1


def test_every_grant_use_and_refusal_is_told(clock: Clock) -> None:
    events: list[tuple[str, Mapping[str, object]]] = []

    def audit(event: str, details: Mapping[str, object]) -> None:
        events.append((event, details))

    book = LeaseBook(KEY, clock=clock, audit=audit)
    token = mint(KEY, **CALL, ttl=10, clock=clock, audit=audit)
    book.check(token, **CALL)
    book.check(token, **CALL)
    book.check("nonsense", **CALL)
    assert [event for event, _ in events] == ["lease_granted", "lease_used", "lease_refused", "lease_refused"]
    assert [details.get("reason") for _, details in events] == [None, None, "consumed", "not_found"]
    assert len({details["lease"] for _, details in events[:3]}) == 1
    assert token not in str(events)
