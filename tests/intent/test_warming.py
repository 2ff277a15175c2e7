"""Warming up takes the first request's burden and changes nothing."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from manglecp.intent import responder
from manglecp.intent.domain import Domain
from manglecp.intent.identity import ANONYMOUS
from manglecp.intent.responder import answer_bytes, warm_up
from manglecp.intent.tokens import counter
from manglecp.mangle import External
from manglecp.mangle.builtins.calendar import zone_names
from manglecp.mangle.engine.codegen import Generator
from manglecp.pack import ExternalDescription, Pack
from tests.intent.packs import SCHEMA, clock, pack, request

RULES = """
macro("see", "See."). macro_step("see", 1, "look").
relevant("see", 80) :- intent("observe"), !seen("red").
relevant("see", 90) :- intent("observe"), seen(W), known(W).
known("green").
instruction("see", 1, Text) :- intent(_), At = fn:time:now(), Text = fn:time:format_civil(At, "Asia/Tokyo", /day).
"""


def sample(**changes: Any) -> Pack:
    return pack(RULES, schema=SCHEMA, intents=["observe", "repair"], **changes)


def answer(domain: Domain, facts: list[Any]) -> Any:
    found = msgspec.json.decode(answer_bytes(domain, msgspec.json.encode(request(facts=facts)), ANONYMOUS, clock))
    found["payload"].pop("eval_duration_ms")
    return found


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that are generated."""
    names: list[str] = []
    generate = Generator.compile

    def noted(generator: Generator) -> Any:
        names.append(generator.name)
        return generate(generator)

    monkeypatch.setattr(Generator, "compile", noted)
    return names


@pytest.mark.req("EVAL-18")
def test_answers_are_the_same() -> None:
    cold, warm = Domain.load(sample()), Domain.load(sample())
    warm_up(warm)
    warm_up(warm)
    for facts in ([], [("seen", "red")], [("seen", "green")]):
        assert answer(cold, facts) == answer(warm, facts)
    assert (warm.digest, warm.base.derived) == (cold.digest, cold.base.derived)


def test_the_first_request_finds_everything_there(made: list[str]) -> None:
    cold, warm = Domain.load(sample()), Domain.load(sample())
    counter.cache_clear()
    zone_names.cache_clear()
    warm_up(warm)
    assert counter.cache_info().currsize == 1
    assert zone_names.cache_info().currsize >= 1
    made.clear()
    answer(warm, [])
    assert made == []
    answer(cold, [])
    assert made != []


def test_a_pack_without_intents_is_warmed_up_too(made: list[str]) -> None:
    domain = Domain.load(pack(RULES, schema=SCHEMA))
    made.clear()
    warm_up(domain)
    assert made != []


def test_external_predicates_are_not_asked() -> None:
    similar = ExternalDescription(predicate="similar", mode="+-", arguments=("Text", "Id"))
    asked: list[Any] = []

    def answered(rows: Any) -> Any:
        asked.append(rows)
        return []

    given = pack(RULES + "found(Id) :- intent(Name), similar(Name, Id).", schema=SCHEMA, externals=[similar])
    domain = Domain.load(given, externals={"similar": External(answered)})
    warm_up(domain)
    assert asked == []
    answer(domain, [])
    assert asked == [("observe",)]


def test_it_takes_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    answered: list[bytes] = []
    monkeypatch.setattr(responder, "answer_bytes", lambda _domain, data, _who: answered.append(data))
    ticks = itertools.count(0.0, responder.MAX_WARM_UP_SECONDS / 2)
    monkeypatch.setattr(responder, "monotonic", lambda: next(ticks))
    warm_up(Domain.load(pack(RULES, schema=SCHEMA, intents=["observe", "a", "b", "c"])))
    assert len(answered) == 1
