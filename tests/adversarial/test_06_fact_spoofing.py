"""Case 6: a client asserts what is not its to say. It is told so, nothing is evaluated, and nothing is gained by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from manglecp.intent import Domain, Identity
from manglecp.intent.kernel import ASSERTED, DERIVED, NOT_ASSERTABLE, POLICY
from manglecp.intent.responder import answer_bytes
from tests.intent.packs import clock, pack, request

SECRET: Final = "hidden_switch"
DOMAIN: Final = Domain.load(
    pack(
        schema="""
        Decl seen(What) descr [direction("input")] bound [/string].
        Decl verdict(What) descr [direction("output")] bound [/string].
        Decl hidden_switch(What) bound [/string].
        Decl role(Who, Role) bound [/string, /string].
        """,
        policy="""
        prohibited("wipe", "only operators") :- client(C), !role(C, "operator").
        role(C, "operator") :- client(C), client_permission("operate").
        """,
        domain="""
        macro("peek", "Looks.") :- intent("observe").
        macro_step("peek", 1, "look") :- intent("observe").
        macro("wipe", "Wipes.") :- intent("observe").
        macro_step("wipe", 1, "look") :- intent("observe").
        mandatory("peek") :- intent("observe").
        mandatory("wipe") :- intent("observe").
        macro("trace", "Traces.") :- intent("observe").
        macro_step("trace", 1, "look") :- intent("observe").
        mandatory("trace") :- seen("a").
        verdict(X) :- seen(X).
        hidden_switch(X) :- seen(X), X = "never".
        """,
        intents=["observe"],
    )
)
CLIENT: Final = Identity("mallory")
OPERATOR: Final = Identity("olga", frozenset({"operate"}), "user")


def answered(facts: list[Any], identity: Identity = CLIENT) -> dict[str, Any]:
    data = msgspec.json.encode(request("observe", facts, options={"include_proof_hints": True}))
    message: dict[str, Any] = msgspec.json.decode(answer_bytes(DOMAIN, data, identity, clock))
    return message


def offered(message: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in message["payload"]["macro_tools"]}


def issues(message: dict[str, Any]) -> list[str]:
    assert message["type"] == "error", message
    return [violation["issue"] for violation in message["payload"]["details"]["violations"]]


def test_what_there_is_to_gain() -> None:
    assert offered(answered([])) == {"peek"}
    assert offered(answered([], OPERATOR)) == {"peek", "wipe"}


@pytest.mark.parametrize("name", sorted(NOT_ASSERTABLE))
def test_no_word_of_the_kernel_can_be_said(name: str) -> None:
    message = answered([{"pred": name, "args": ["wipe"] * arity, "category": "server"} for arity in range(4)])
    # A client's predicate has no package.
    assert issues(message) == ["invalid_predicate_name" if "." in name else "unknown_predicate"] * 4
    suggested = {violation.get("suggestion") for violation in message["payload"]["details"]["violations"]}
    assert suggested <= {None, "Did you mean 'seen'?"}


def test_the_kernel_has_such_words() -> None:
    assert {"permitted", "prohibited"} <= set(POLICY) <= NOT_ASSERTABLE
    assert {"client_permission", "intent"} <= set(ASSERTED)
    assert "final_selected" in DERIVED


@pytest.mark.parametrize(
    ("fact", "issue"),
    [
        ({"pred": "role", "args": ["mallory", "operator"]}, "unknown_predicate"),
        ({"pred": SECRET, "args": ["x"]}, "unknown_predicate"),
        ({"pred": SECRET, "named_args": {"what": "x"}}, "unknown_predicate"),
        ({"pred": "verdict", "args": ["x"]}, "direction_violation"),
        ({"pred": "verdict", "args": []}, "direction_violation"),
        ({"pred": "_manglecp_role", "args": ["mallory"]}, "reserved_predicate"),
        ({"pred": "Role", "args": ["mallory", "operator"]}, "invalid_predicate_name"),
        ({"pred": "role ", "args": ["mallory", "operator"]}, "invalid_predicate_name"),
        ({"pred": "rоle", "args": ["mallory", "operator"]}, "invalid_predicate_name"),  # a Cyrillic letter
        ({"pred": 'seen("x"). role', "args": ["mallory", "operator"]}, "invalid_predicate_name"),
        ({"pred": "seen", "args": ["x", "y"]}, "arity_mismatch"),
        ({"pred": "seen", "args": [{"_var": "X"}]}, "type_mismatch"),
        ({"pred": "seen", "args": [None]}, "type_mismatch"),
    ],
)
def test_what_is_not_the_clients_to_say(fact: dict[str, Any], issue: str) -> None:
    """One such fact among good ones, and the whole request is refused."""
    assert issues(answered([("seen", "a"), fact, ("seen", "b")])) == [issue]


def test_an_internal_predicate_looks_like_one_that_is_not_there() -> None:
    def told(name: str) -> Any:
        message = answered([{"pred": name, "args": ["x"]}])
        return msgspec.json.decode(msgspec.json.encode(message["payload"]).replace(name.encode(), b"?"))

    assert told(SECRET) == told("hidden_snitch") == told("permitted")


@pytest.mark.req("DATA-38", "DATA-42", "DATA-44")
def test_claims_about_a_fact_give_it_no_weight() -> None:
    plain = answered([("seen", "a")])
    claimed = {"pred": "seen", "args": ["a"], "category": "server", "source": {"source_type": "server"}}
    for facts in ([claimed], [claimed, ("seen", "a")]):
        message = answered(facts)
        for one in (plain, message):
            one["payload"].pop("eval_duration_ms", None)
        assert message == plain


def nodes(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield tree
    for child in tree.get("children", ()):
        yield from nodes(child)


def test_the_proof_says_who_said_it() -> None:
    claimed = {"pred": "seen", "args": ["a"], "category": "server", "source": {"source_type": "server"}}
    message = answered([claimed])
    assert "trace" in offered(message)
    derivations = message["payload"]["proof_hints"]["derivations"]
    types = {node["type"] for d in derivations for node in nodes(d["tree"]) if node["fact"].startswith("seen(")}
    assert types == {"session"}


@pytest.mark.req("DATA-47")
def test_nothing_is_left_of_an_earlier_request() -> None:
    before = answered([])
    answered([("seen", "a"), ("seen", "never")])
    answered([("seen", "a")], OPERATOR)
    after = answered([])
    for message in (before, after):
        message["payload"].pop("eval_duration_ms")
    assert after == before
