"""What the facts of a request mean once it is evaluated: when they hold, what now is, and that they end with it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from manglecp.intent.domain import Domain
from manglecp.intent.manifest_builder import manifest
from tests.intent.answering import asked, tools
from tests.intent.packs import NOW_TEXT, pack

DOMAIN: Final = Domain.load(
    pack(
        schema="""
        Decl failed(Service) temporal descr [direction("input"), untimed("always")] bound [/string].
        Decl known(Service) descr [direction("input")] bound [/string].
        """,
        domain="""
        macro("triage", "Looks into a recent failure.").
        macro_step("triage", 1, "look").
        macro("follow", "Looks at what fails right now.").
        macro_step("follow", 1, "look").
        macro("visit", "Looks at a service.").
        macro_step("visit", 1, "look").
        mandatory("triage") :- <-[0s, 5m] failed(_).
        mandatory("follow") :- failed(_)@[now].
        mandatory("visit") :- known(_).
        """,
        intents=["observe"],
    )
)


def failed(**t: Any) -> dict[str, Any]:
    return {"pred": "failed", "args": ["api"], "t": t}


def offered(fact: dict[str, Any], eval_time: str | int | None) -> set[str]:
    return set(tools(DOMAIN, "observe", [fact], eval_time=eval_time))


@pytest.mark.req("DATA-34", "DATA-32")
def test_the_reference_case() -> None:
    at = failed(at="2026-02-19T14:30:00Z")
    assert "triage" in offered(at, "2026-02-19T14:34:00Z")
    assert "triage" in offered(at, "2026-02-19T14:35:00Z")
    assert "triage" not in offered(at, "2026-02-19T14:36:00Z")
    assert "triage" not in offered(at, "2026-02-19T14:29:59Z")


@pytest.mark.req("DATA-31", "DATA-26", "DATA-32")
@pytest.mark.parametrize(
    ("eval_time", "holds"),
    [
        ("2026-02-19T13:59:59.999999999Z", False),
        ("2026-02-19T14:00:00Z", True),
        ("2026-02-19T14:30:00Z", True),
        ("2026-02-19T15:00:00Z", True),
        ("2026-02-19T15:00:00.000000001Z", False),
    ],
)
def test_a_fact_holds_between_its_ends_and_at_them(eval_time: str, holds: bool) -> None:
    fact = failed(start="2026-02-19T14:00:00Z", end="2026-02-19T15:00:00Z")
    assert ("follow" in offered(fact, eval_time)) == holds


@pytest.mark.req("DATA-24")
def test_a_fact_without_time_holds_always() -> None:
    for eval_time in ("1980-01-01T00:00:00Z", NOW_TEXT, "2200-01-01T00:00:00Z"):
        assert offered({"pred": "failed", "args": ["api"]}, eval_time) == {"triage", "follow"}


@pytest.mark.req("DATA-27", "DATA-32")
def test_now_is_the_time_of_the_evaluation() -> None:
    for eval_time in ("1980-01-01T00:00:00Z", NOW_TEXT, 0):
        assert offered(failed(at="now"), eval_time) == {"triage", "follow"}


@pytest.mark.req("DATA-33", "DATA-32")
def test_the_time_that_was_used_is_told() -> None:
    assert asked(DOMAIN, eval_time=None)["eval_time_used"] == NOW_TEXT  # what the clock says
    assert asked(DOMAIN, eval_time="2026-02-19T15:34:00+01:00")["eval_time_used"] == "2026-02-19T14:34:00Z"
    assert offered(failed(at=NOW_TEXT), None) == {"triage", "follow"}


@pytest.mark.req("DATA-47")
def test_a_fact_ends_with_its_request() -> None:
    assert set(tools(DOMAIN)) == set()
    assert set(tools(DOMAIN, facts=[("known", "api")])) == {"visit"}
    assert set(tools(DOMAIN)) == set()


@pytest.mark.req("DATA-11", "DATA-07", "DATA-30")
def test_what_the_manifest_says_about_facts_is_so() -> None:
    payload = manifest(DOMAIN).payload
    assert payload.capabilities.named_args is True
    assert payload.facts_profile.time_formats == ("rfc3339", "epoch_ms")
    named = {"pred": "failed", "named_args": {"service": "api"}, "t": {"at": 1_771_511_400_000}}
    assert offered(named, "2026-02-19T14:30:00Z") == {"triage", "follow"}
