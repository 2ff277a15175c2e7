"""Each error code that an intent request can meet, by a request that meets it: from bytes to bytes.

The codes of invocations and of servers that listen are shown where those are.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import jsonschema_rs
import pytest

from manglecp.intent import ANONYMOUS, Domain, Identity, responder
from manglecp.intent.responder import answer_bytes
from manglecp.mangle import MangleError, Program, Source
from manglecp.pack.settings import PackLimits
from manglecp.wire.errors import CODES
from manglecp.wire.json_schemas import schema
from tests.intent.packs import NOW_TEXT, clock, pack
from tests.requirements.register import load

SCHEMA: Final = """
Decl seen(What) descr [direction("input")] bound [/string].
Decl sized(What, Size) descr [direction("input")] bound [/string, /number].
Decl logged(What) temporal descr [direction("input"), untimed("always")] bound [/string].
"""
RULES: Final = """
macro("see", "See.").
macro_step("see", 1, "look").
relevant("see", 80) :- intent(_).
counted(N) :- sized("count", N).
counted(M) :- counted(N), N < 1000000000, M = fn:plus(N, 1).
ratio(N) :- sized("divide", M), N = fn:div(1, M).
lasting(X) :- <-[0s, 1s] logged(X).
told(V) :- intent_param(_, V).
"""
POLICY: Final = 'intent_denied("Sign in to repair.") :- intent("repair"), !client_permission("admin").'
DOMAIN: Final = Domain.load(
    pack(RULES, schema=SCHEMA, policy=POLICY, limits=PackLimits(max_message_bytes=4_000, max_facts_per_request=5))
)
USER: Final = Identity("somebody", frozenset(), "user")
_ROW: Final = re.compile(r"`(?P<code>[a-z_]+)`: HTTP (?P<status>[0-9]+), (?P<no>not )?recoverable\.")
REGISTER: Final = {found["code"]: (row, found) for row in load().by_id.values() if (found := _ROW.match(row.statement))}
VALIDATOR: Final = jsonschema_rs.Draft202012Validator(schema("error"))


def asking(*facts: Any, intent: str = "observe", **changes: Any) -> dict[str, Any]:
    constraints = {"constraints": changes.pop("constraints")} if "constraints" in changes else {}
    payload = {"intent": {"name": intent}, "facts": list(facts), "eval_time": NOW_TEXT, **constraints}
    return {"type": "intent_request", "id": "c-1", "manglecp": "2026-02-draft", "payload": payload, **changes}


def fact(name: str, *args: Any, **more: Any) -> dict[str, Any]:
    return {"pred": name, "args": list(args), **more}


AT: Final = [fact("logged", "a", t={"at": f"2026-01-15T11:{minute}:00Z"}) for minute in (10, 20, 30)]
REQUESTS: Final = {
    "unsupported_version": asking(manglecp="2025-11-draft"),
    "malformed_message": asking(payload=[]),
    "message_too_large": asking(fact("seen", "x" * 4_000)),
    "invalid_type": asking(type="intent_response"),
    "invalid_facts": asking(fact("seen", "a", category="forever")),
    "unknown_predicate": asking(fact("sene", "a")),
    "arity_mismatch": asking(fact("seen", "a", "b")),
    "type_mismatch": asking(fact("sized", "a", "b")),
    "reserved_predicate": asking(fact("_manglecp_internal", "hack")),
    "too_many_facts": asking(*[fact("seen", str(n)) for n in range(6)]),
    "evaluation_timeout": asking(fact("sized", "count", 0), constraints={"max_compute_ms": 0}),
    "derivation_limit_exceeded": asking(fact("sized", "count", 0), constraints={"max_facts_created": 50}),
    "interval_limit_exceeded": asking(*AT, constraints={"max_intervals_per_atom": 2}),
    "evaluation_failed": asking(fact("sized", "divide", 0)),
}


def answered(request: dict[str, Any], identity: Identity = ANONYMOUS) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(answer_bytes(DOMAIN, json.dumps(request).encode(), identity, clock))
    return answer


def check(answer: dict[str, Any], code: str) -> None:
    """The code, and what the register says of it."""
    _, said = REGISTER[code]
    assert (answer["type"], answer["id"], answer["payload"]["code"]) == ("error", "c-1", code)
    assert answer["payload"]["recoverable"] is (not said["no"])
    assert answer["payload"]["message"].strip()
    assert CODES[code].status == int(said["status"])
    assert [error.message for error in VALIDATOR.iter_errors(answer)] == []


def test_a_request_with_nothing_wrong() -> None:
    answer = answered(asking(fact("seen", "a"), fact("sized", "a", 1), AT[0]))
    assert (answer["type"], len(answer["payload"]["macro_tools"])) == ("intent_response", 1)


@pytest.mark.parametrize(
    "code", [pytest.param(code, marks=pytest.mark.req(REGISTER[code][0].id)) for code in REQUESTS], ids=list(REQUESTS)
)
def test_a_request_that_meets_the_code(code: str) -> None:
    check(answered(REQUESTS[code]), code)


def test_a_parameter_that_is_no_value_is_found_whatever_it_is_called() -> None:
    request = asking()
    request["payload"]["intent"]["params"] = {"\x1b\u202e" * 100: {"list": [1, {"_var": "X"}]}}
    answer = answered(request)
    check(answer, "malformed_message")
    path = answer["payload"]["details"]["path"]
    assert path.startswith(r"$.payload.intent.params.\x1b\u202e")
    assert path.endswith("….list[1]")
    assert path.isprintable()


@pytest.mark.req("ERR-09")
def test_who_is_not_known_has_to_authenticate() -> None:
    check(answered(asking(intent="repair")), "auth_required")


@pytest.mark.req("ERR-11")
def test_who_is_known_may_not_be_permitted() -> None:
    check(answered(asking(intent="repair"), USER), "auth_insufficient")
    admin = Identity("root", frozenset({"admin"}), "user")
    assert answered(asking(intent="repair"), admin)["type"] == "intent_response"


@pytest.mark.req("ERR-31")
def test_a_server_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(responder, "evaluate", broken)
    answer = answered(asking())
    check(answer, "internal_error")
    assert "disk" not in json.dumps(answer)


@pytest.mark.req("ERR-21")
def test_rules_with_a_dangerous_temporal_recursion_are_never_served() -> None:
    rules = """
    Decl a(X) temporal bound [/string].
    Decl b(X) temporal bound [/string].
    a(X)@[T, U] :- b(X)@[T, U].
    b(X)@[T, U] :- a(X)@[T, U].
    """
    with pytest.raises(MangleError, match="mutual recursion through temporal predicates"):
        Program.load([Source("rules.mg", rules)])


def test_codes_that_requests_meet_are_said_to_be_done() -> None:
    for code in (*REQUESTS, "auth_required", "auth_insufficient", "internal_error"):
        assert REGISTER[code][0].status == "done"


def test_parameters_of_an_intent_count_as_facts() -> None:
    def code(facts: int, params: int) -> Any:
        request = asking(*[fact("seen", str(n)) for n in range(facts)])
        request["payload"]["intent"]["params"] = {f"p{n}": n for n in range(params)}
        return answered(request)["payload"]

    assert "code" not in code(2, 3)
    for facts, params in ((3, 3), (0, 6)):
        error = code(facts, params)
        assert (error["code"], error["details"]) == ("too_many_facts", {"limit": 5, "actual": 6})
