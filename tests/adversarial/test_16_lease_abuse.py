"""Case 16: leases that are replayed, aged, lowered, borrowed or made up."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from manglecp.toolhost.leases import MAX_TTL, LeaseBook, mint
from tests.adversarial._hosted import effects, plugin_in
from tests.adversarial._pipe import KEY, lease, line, said

BOUND: dict[str, Any] = {"aid": "A", "input_digest": "d", "call_id": "c", "tier": 2}


class Clock:
    """A time that only tests move."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def check(book: LeaseBook, token: str, **changes: Any) -> str | None:
    asked = {**BOUND, **changes}
    return book.check(token, asked["aid"], asked["input_digest"], asked["call_id"], asked["tier"])


@pytest.mark.parametrize(
    ("age", "changes", "reason"),
    [
        (0.0, {}, None),
        (9.999, {}, None),
        (10.0, {}, "expired"),
        (1e9, {}, "expired"),
        (0.0, {"tier": 3}, "tier_insufficient"),
        (0.0, {"tier": 1}, None),
        (0.0, {"aid": "B"}, "tool_mismatch"),
        (0.0, {"aid": "a"}, "tool_mismatch"),
        (0.0, {"aid": "*"}, "tool_mismatch"),
        (0.0, {"input_digest": "e"}, "input_mismatch"),
        (0.0, {"call_id": "other"}, "input_mismatch"),
        (0.0, {"call_id": ""}, "input_mismatch"),
    ],
)
def test_a_lease_fits_one_call_for_a_while(age: float, changes: dict[str, Any], reason: str | None) -> None:
    clock = Clock()
    token = mint(KEY, **BOUND, ttl=10, clock=clock)
    book = LeaseBook(KEY, clock=clock)
    clock.now += age
    assert check(book, token, **changes) == reason
    if reason is None:
        assert check(book, token, **changes) == "consumed"


def test_a_used_lease_never_becomes_good_again() -> None:
    clock = Clock()
    book = LeaseBook(KEY, clock=clock)
    token = mint(KEY, **BOUND, ttl=MAX_TTL, clock=clock)
    assert check(book, token) is None
    for _ in range(100):
        clock.now += MAX_TTL / 50
        other = mint(KEY, **BOUND, ttl=1, clock=clock)
        assert check(book, other) is None, "others come and go, and make room"
        assert check(book, token) in ("consumed", "expired")


def test_nobody_gets_a_lease_for_ever() -> None:
    clock = Clock()
    token = mint(KEY, **BOUND, ttl=1e12, clock=clock)
    clock.now += MAX_TTL
    assert check(LeaseBook(KEY, clock=clock), token) == "expired"


def test_a_clock_that_is_set_moves_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    token, short = mint(KEY, **BOUND, ttl=60), mint(KEY, **BOUND, ttl=0)
    book = LeaseBook(KEY)
    real = time.time()
    monkeypatch.setattr(time, "time", lambda: real + 86_400)
    assert check(book, token) is None
    monkeypatch.setattr(time, "time", lambda: real - 86_400)
    assert check(book, short) == "expired"


def test_a_lease_for_another_worker_is_none_here() -> None:
    assert check(LeaseBook(bytes(32)), mint(KEY, **BOUND, ttl=60)) == "not_found"


@given(st.integers(0, 9_999), st.characters(codec="utf-8"))
def test_a_lease_with_one_byte_changed_is_none(where: int, byte: str) -> None:
    token = mint(KEY, **BOUND, ttl=60)
    place = where % len(token)
    assume(byte != token[place])
    forged = token[:place] + byte + token[place + 1 :]
    book = LeaseBook(KEY)
    found = check(book, forged, tier=3)
    # The last character of base64 has bits that mean nothing; the claims are still what they were.
    assert found in ("not_found", "tier_insufficient")
    if found == "tier_insufficient":
        assert check(book, token) is None


@given(
    st.text(max_size=200) | st.text(max_size=100).map("lease_{}".format) | st.text(max_size=50).map("lease_a.{}".format)
)
def test_whatever_is_sent_as_a_lease_is_answered(token: str) -> None:
    assert check(LeaseBook(KEY), token) == "not_found"


def test_of_many_who_come_with_one_lease_one_is_served(tmp_path: Path) -> None:
    plugin, file = plugin_in(tmp_path), tmp_path / "notes"
    text = json.dumps({"path": str(file), "text": "once"})
    request = line("note", text, call_id="c1", _lease_token=lease("note", text))
    answers = said(plugin, *[request] * 50)
    assert [answer.get("status") for answer in answers].count("OK") == 1
    assert [answer.get("reason") for answer in answers[1:]] == ["consumed"] * 49
    assert effects(file) == ["once"]


def test_every_reason_comes_as_lease_rejected(tmp_path: Path) -> None:
    plugin, file = plugin_in(tmp_path), tmp_path / "notes"
    text = json.dumps({"path": str(file), "amount": 1})
    good = lease("pay", text)
    tokens = {
        "not_found": "lease_a.b",
        "expired": lease("pay", text, ttl=0.0),
        "tool_mismatch": lease("note", text),
        "input_mismatch": lease("pay", text + " "),
        "tier_insufficient": lease("pay", text, tier=2),
        "consumed": good,
    }
    used = line("pay", text, call_id="c1", _lease_token=good)
    answers = said(plugin, used, *[line("pay", text, call_id="c1", _lease_token=each) for each in tokens.values()])
    assert answers[0]["status"] == "OK"
    assert [(answer["error"], answer["reason"]) for answer in answers[1:]] == [
        ("lease_rejected", reason) for reason in tokens
    ]
    assert effects(file) == ["1"]
