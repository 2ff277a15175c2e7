"""What goes wrong in the server itself, and what is refused before any rule is asked."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from manglecp.intent import Identity, offers
from manglecp.store import Busy, StoreError, Unusable
from tests.server.desk import Tokens, desk, encoded, intent
from tests.server.slow import slow_evaluations


@pytest.mark.req("ERR-31")
@pytest.mark.parametrize("error", [RuntimeError("a secret of the server"), Unusable("a secret of the store")])
async def test_a_failure_of_the_server_is_told_without_its_reason(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk() as d, d.client() as client:
        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "manglecp"):
            _fail(patch, error)
            answer = await client.ask(intent("a"))
        assert answer["payload"] == {
            "code": "internal_error",
            "message": "The server failed on this request",
            "recoverable": False,
            "retry_after_ms": None,
        }
        assert "a secret of the" in caplog.text  # for whoever runs it
        assert [vars(record)["request_id"] for record in caplog.records] == ["a"]
        assert (await client.ask(intent("b")))["type"] == "intent_response"


async def test_a_store_that_is_busy_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as d:
        _fail(monkeypatch, Busy("somebody else writes"))
        answer, reply = await d.post(intent("a"))
        assert (reply.code, reply.status, answer["payload"]["recoverable"]) == ("rate_limited", 429, True)
        assert reply.retry_after_ms == answer["payload"]["retry_after_ms"] > 0


def _fail(patch: pytest.MonkeyPatch, error: Exception | StoreError) -> None:
    def respond(*_: Any) -> Any:
        raise error

    patch.setattr(offers, "respond", respond)


@pytest.mark.req("SEC-01", "SEC-03")
async def test_what_the_protocol_refuses_never_reaches_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"good": Identity("ann", frozenset(), "user")}
    with slow_evaluations(monkeypatch) as gate:
        gate.open.set()
        async with desk(auth=Tokens(known)) as d:
            asked = encoded(intent("a", "slow"))
            for message, token, code in (
                (asked, None, "auth_required"),
                (asked, "bad", "auth_invalid"),
                (asked + b" " * (1 << 24), "good", "message_too_large"),
                (asked[:-1], "good", "malformed_message"),
                (asked.replace(b"2026-02-draft", b"2025-02-draft"), "good", "unsupported_version"),
            ):
                assert (await d.post(message, token))[1].code == code
            assert gate.count == 0
            assert (await d.post(asked, "good"))[1].status == 200
            assert gate.count == 1
