"""The whole way, from bytes to bytes."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from manglecp.base.cache import LruCache
from manglecp.intent import responder
from manglecp.intent.domain import Domain
from manglecp.intent.identity import ANONYMOUS, Identity
from manglecp.intent.responder import answer_bytes, respond
from manglecp.pack.settings import PackLimits
from tests.intent.answering import asked, tools
from tests.intent.packs import NOW_TEXT, SCHEMA, Case, action, cases, clock, pack, request

RULES = """
mandatory("look_around") :- intent("observe").
macro("look_around", "Looks around.").
macro_step("look_around", 1, "look").
arg_value("look_around", 1, "path", Word) :- seen(Word).
relevant("wait", 50) :- seen(_).
macro("wait", "Waits. For long.").
macro_step("wait", 1, "look").
"""
DOMAIN = Domain.load(pack(RULES, schema=SCHEMA, intents=("observe", "repair")))


def message(data: bytes, domain: Domain = DOMAIN, identity: Identity = ANONYMOUS) -> Any:
    return json.loads(answer_bytes(domain, data, identity, clock))


def encoded(**changes: Any) -> bytes:
    return msgspec.json.encode(request(**changes))


@pytest.mark.req("EVAL-25", "EVAL-27", "EVAL-28", "EVAL-29")
def test_an_answer_has_the_members_that_were_asked_for() -> None:
    found = message(encoded(facts=[("seen", "red")], request_id="c-7"))
    assert (found["type"], found["id"], found["manglecp"]) == ("intent_response", "c-7", "2026-02-draft")
    payload = found["payload"]
    assert payload.keys() == {"eval_time_used", "eval_duration_ms", "macro_tools", "required_skills", "diagnostics"}
    assert payload["eval_time_used"] == NOW_TEXT
    assert type(payload["eval_duration_ms"]) is int
    assert [tool["name"] for tool in payload["macro_tools"]] == ["look_around", "wait"]
    assert payload["diagnostics"].keys() == {
        *("facts_evaluated", "facts_derived", "rules_fired", "phases_completed", "x-tokens")
    }
    options = {"include_proof_hints": True, "x-rule_coverage": True, "x-why_not": ["wait"]}
    more = message(encoded(options=options))["payload"]
    assert more["proof_hints"].keys() == {"derivations", "excluded", "unmatched_facts", "x-why_not"}
    assert more["diagnostics"]["rule_coverage"]["rules_fired"] == more["diagnostics"]["rules_fired"]


@pytest.mark.req("EVAL-31")
def test_an_intent_that_selects_nothing_gets_an_empty_list() -> None:
    assert asked(DOMAIN, "repair")["macro_tools"] == []


def test_the_server_keeps_the_definitions_of_what_it_sent() -> None:
    answer = respond(DOMAIN, request(facts=[("seen", "red")]), ANONYMOUS, clock)
    sent = answer.response.payload.macro_tools
    assert [one.macro_id for one in answer.definitions] == [one.macro_id for one in sent]
    assert [one.tool for one in answer.definitions] == [one.name for one in sent]
    assert answer.definitions[1].input_schema["required"] == ["path"], "condensed tools are kept whole"
    capped = respond(DOMAIN, request(facts=[("seen", "red")], constraints={"max_tools_returned": 1}), ANONYMOUS, clock)
    assert len(capped.definitions) == 1


def test_hints_are_about_the_tools_that_are_returned() -> None:
    options = {"include_proof_hints": True}
    free = asked(DOMAIN, facts=[("seen", "red")], options=options)
    assert len(free["proof_hints"]["derivations"]) == 2
    tight = {"max_tokens_budget": 60}
    less = asked(DOMAIN, facts=[("seen", "red")], options=options, constraints=tight)
    assert len(less["macro_tools"]) == 1
    ids = [one["macro_id"] for one in less["proof_hints"]["derivations"]]
    assert ids == [tool["macro_id"] for tool in less["macro_tools"]]


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code", "id_"),
    [
        (b"", "malformed_message", None),
        (b"[]", "malformed_message", None),
        (b'{"type":"intent_request","id":"x","manglecp":"1999","payload":{}}', "unsupported_version", "x"),
        (b'{"type":"intent_request","id":"x","manglecp":"2026-02-draft","payload":{}}', "malformed_message", "x"),
        (
            b'{"type":"invoke_request","id":"x","manglecp":"2026-02-draft","payload":{"macro_id":"m","args":{}}}',
            "invalid_type",
            "x",
        ),
        (encoded(facts=[("unknown", 1)], request_id="x"), "unknown_predicate", "x"),
        (encoded(facts=[("seen", 1)], request_id="x"), "type_mismatch", "x"),
        (encoded(constraints={"max_facts_created": 0}, request_id="x"), "derivation_limit_exceeded", "x"),
    ],
)
def test_what_is_wrong_with_a_request_is_an_error_that_answers_it(data: bytes, code: str, id_: str | None) -> None:
    found = message(data)
    assert (found["type"], found["id"], found["payload"]["code"]) == ("error", id_, code)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_answered(data: bytes) -> None:
    assert message(data)["payload"]["code"] == "malformed_message"


def test_a_message_beyond_the_limit_is_not_read() -> None:
    small = Domain.load(pack(RULES, schema=SCHEMA, limits=PackLimits(max_message_bytes=200)))
    assert message(encoded(params={"x": "y" * 300}), small)["payload"]["code"] == "message_too_large"


def test_what_goes_wrong_inside_tells_the_client_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("/srv/secret/place: password=hunter2")

    monkeypatch.setattr(responder, "evaluate", broken)
    found = message(encoded(request_id="x"))
    assert found["id"] == "x"
    assert found["payload"]["code"] == "internal_error"
    assert "details" not in found["payload"]
    assert "secret" not in str(found)
    assert "hunter2" in caplog.text, "whoever runs the server is told"


def test_a_tool_with_a_flaw_is_left_out_and_said_to_whoever_runs_the_server(caplog: pytest.LogCaptureFixture) -> None:
    rules = RULES + 'arg_value("wait", 1, Param, 1) :- seen(Param).'
    domain = Domain.load(pack(rules, schema=SCHEMA))
    with caplog.at_level(logging.WARNING):
        answer = respond(domain, request(facts=[("seen", "nothing")]), ANONYMOUS, clock)
    assert [one.tool for one in answer.definitions] == ["look_around"]
    assert [flaw.message for flaw in answer.flaws] == ["wait: step 1 gives 'nothing', which look does not take"]
    assert "wait" in caplog.text


def test_a_flaw_is_logged_once_for_each_edition_and_tool(caplog: pytest.LogCaptureFixture) -> None:
    rules = RULES + "arg_value(T, 1, Param, 1) :- seen(Param), macro(T, _)."
    domain, edited = (Domain.load(pack(rules + more, schema=SCHEMA)) for more in ("", "\n# 2"))

    def told(source: Domain, times: int = 3) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            answers = [respond(source, request(facts=[("seen", "x")]), ANONYMOUS, clock) for _ in range(times)]
        assert all(len(answer.flaws) == 2 for answer in answers)  # the answer has them each time
        return sorted(record.getMessage().split(": ")[1] for record in caplog.records)

    assert told(domain) == ["look_around", "wait"]
    assert told(domain) == []
    assert told(edited) == ["look_around", "wait"]
    small = replace(edited, logged_flaws=LruCache(1))  # what is remembered does not grow
    told(small)
    assert len(small.logged_flaws) == 1


# --- the same again --------------------------------------------------------------------------------------------------


def same(data: bytes, domain: Domain, identity: Identity = ANONYMOUS) -> bytes:
    """The answer without its duration."""
    found = message(data, domain, identity)
    found["payload"].pop("eval_duration_ms", None)
    return json.dumps(found).encode()


@pytest.mark.no_cover
@pytest.mark.req("EVAL-18", "TOOL-02")
def test_a_hundred_identical_requests_get_identical_bytes() -> None:
    options = {"include_proof_hints": True, "x-rule_coverage": True}
    data = encoded(facts=[("seen", "red"), ("seen", "green")], options=options)
    assert len({same(data, DOMAIN) for _ in range(100)}) == 1


@pytest.mark.req("EVAL-18")
@settings(deadline=None)
@given(cases(), st.randoms(use_true_random=False), st.integers(0, 800))
def test_answers_do_not_depend_on_the_order_of_facts(case: Case, random: Any, budget: int) -> None:
    shuffled = list(case.facts)
    random.shuffle(shuffled)
    identity = Identity("someone", case.permissions, "user")
    constraints = {"max_tokens_budget": budget}
    one = msgspec.json.encode(case.request(constraints=constraints))
    other = msgspec.json.encode(case.request(facts=shuffled, constraints=constraints))
    assert same(one, Domain.load(case.pack), identity) == same(other, Domain.load(case.pack), identity)


def test_what_one_request_proved_does_not_show_in_the_next() -> None:
    red = tools(DOMAIN, facts=[("seen", "red")])["look_around"]
    plain = tools(DOMAIN)["look_around"]
    again = tools(DOMAIN, facts=[("seen", "red")])["look_around"]
    assert red == again
    assert red["macro_id"] != plain["macro_id"]
    assert plain["input_schema"]["properties"].keys() == {"path", "depth"}
    assert red["input_schema"]["properties"].keys() == {"depth"}


def test_tools_of_packs_that_name_them_alike_do_not_meet() -> None:
    rules = RULES.replace('arg_value("look_around", 1, "path", Word) :- seen(Word).', "")
    one = Domain.load(pack(rules, schema=SCHEMA))
    other = Domain.load(pack(rules, schema=SCHEMA, actions=[action("look", params={"where": {"type": "string"}})]))
    mine, theirs = tools(one)["look_around"], tools(other)["look_around"]
    assert mine["input_schema"]["properties"].keys() == {"path", "depth"}
    assert theirs["input_schema"]["properties"].keys() == {"where"}
    assert mine["macro_id"] != theirs["macro_id"]
    assert tools(one)["look_around"] == mine
