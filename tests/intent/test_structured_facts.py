"""Facts written as clauses: where the pack turns the extension on, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from manglecp.intent.domain import Domain
from manglecp.intent.identity import ANONYMOUS
from manglecp.intent.responder import answer_bytes
from tests.intent.packs import clock, pack, request

SCHEMA = 'Decl seen(Name) descr [direction("input")] bound [/string].'
RULES = 'macro("t", "Does it."). macro_step("t", 1, "look"). relevant("t", 80) :- seen("a").'
STRUCTURED = {"head": {"predicate": "seen", "args": [{"type": "string", "value": "a"}]}}
RULE = {**STRUCTURED, "body": [{"predicate": "seen", "args": [{"type": "string", "value": "b"}]}]}


def answered(fact: Any, *, on: bool) -> dict[str, Any]:
    plain = pack(RULES, schema=SCHEMA)
    domain = Domain.load(replace(plain, settings=replace(plain.settings, structured_facts=on)))
    data = msgspec.json.encode(request("observe", [fact]))
    message: dict[str, Any] = msgspec.json.decode(answer_bytes(domain, data, ANONYMOUS, clock))
    return message


def test_a_structured_fact_counts_where_the_pack_says_so() -> None:
    message = answered(STRUCTURED, on=True)
    assert [tool["name"] for tool in message["payload"]["macro_tools"]] == ["t"]


def test_it_is_refused_by_default() -> None:
    assert answered(STRUCTURED, on=False)["payload"]["code"] == "invalid_facts"


def test_a_rule_is_refused_in_any_case() -> None:
    assert answered(RULE, on=True)["type"] == "error"
    assert answered(RULE, on=False)["type"] == "error"
