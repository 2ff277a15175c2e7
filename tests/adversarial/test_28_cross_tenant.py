"""Case 28: what one client says, may and is told never reaches another; hints give nothing of the server away."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Final

import msgspec
import pytest

from manglecp.intent import ANONYMOUS, Domain, Identity
from manglecp.intent.responder import answer_bytes
from tests.intent.packs import clock, pack, request

pytestmark = pytest.mark.no_cover

SCHEMA: Final = """
Decl seen(Word) descr [direction("input")] bound [/string].
Decl note(Text) descr [direction("both")] bound [/string].
"""
RULES: Final = """
macro("fetch", "Fetches."). macro_step("fetch", 1, "look").
macro("mend", "Mends."). macro_step("mend", 1, "look").
macro("open", "Opens."). macro_step("open", 1, "look").
echo(W) :- seen(W).
relevant("fetch", 70) :- intent("observe"), echo(_).
relevant("mend", 60) :- intent("observe"), note(T), echo(T).
relevant("open", 50) :- intent("observe"), client_permission("keys").
instruction("fetch", 1, W) :- seen(W).
"""
POLICY: Final = """
prohibited("mend", "reserved for the moonlight team") :- !client_permission("moonlight").
prohibited("open", "closed after midnight") :- seen("midnight"), client_permission("keys").
"""
NAMES: Final = ("fetch", "mend", "open", "nothing")


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain.load(pack(RULES, policy=POLICY, schema=SCHEMA, intents=["observe", "rest"]))


def ask(domain: Domain, identity: Identity, facts: list[Any], intent: str = "observe") -> bytes:
    options = {"include_proof_hints": True, "x-why_not": list(NAMES), "x-rule_coverage": True}
    data = msgspec.json.encode(request(intent, facts, options=options))
    answer = answer_bytes(domain, data, identity, clock)
    assert b'"type":"intent_response"' in answer
    return re.sub(rb'"eval_duration_ms":\d+', b'"eval_duration_ms":0', answer)


def client(number: int) -> tuple[Identity, list[Any]]:
    """Everyone says and may something else."""
    word = f"word-of-{number:03}"
    permissions = frozenset(
        name for bit, name in enumerate(("moonlight", "keys", "explain_policy")) if number >> bit & 1
    )
    facts = [("seen", word), ("note", word), ("note", f"other-{word}")]
    return Identity(f"client-{number:03}", permissions, "user"), facts


@pytest.mark.req("PROOF-09")
def test_clients_in_parallel_get_what_they_get_alone(domain: Domain) -> None:
    fresh = {number: ask(Domain.load(domain.pack), *client(number)) for number in range(8)}
    order = [number for number in range(8) for _ in range(6)]
    Random(7).shuffle(order)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: ask(domain, *client(number)), order))
    for number, answer in zip(order, answers, strict=True):
        assert answer == fresh[number]


def test_nobody_is_told_what_another_said(domain: Domain) -> None:
    for number in range(24):
        said = set(re.findall(rb"word-of-\d{3}", ask(domain, *client(number))))
        assert said == {b"word-of-%03d" % number}


def test_nobody_is_told_who_else_asked_or_what_they_may(domain: Domain) -> None:
    for number in range(8):
        ask(domain, *client(number))
        told = ask(domain, ANONYMOUS, [("seen", "x")])
        assert b"client-" not in told
        for word in (b"moonlight", b"keys", b"explain_policy", b"midnight"):
            assert word not in told


def test_the_same_question_of_others_is_answered_anew(domain: Domain) -> None:
    """Nothing that was explained to one who may know is told to one who may not."""
    facts = [("seen", "x"), ("note", "x")]
    auditor = Identity("auditor", frozenset({"explain_policy"}), "user")
    before = ask(domain, ANONYMOUS, facts)
    assert b"reserved for the moonlight team" in ask(domain, auditor, facts)
    assert ask(domain, ANONYMOUS, facts) == before
    assert b"reserved" not in before


def test_hints_for_the_anonymous_reveal_no_policy(domain: Domain) -> None:
    """Up to the counts of rules, the answers are those of a pack in which the forbidden tools were never written."""
    without = pack(
        "".join(line for line in domain.pack.sources[-1].text.splitlines(True) if '"mend"' not in line),
        schema=SCHEMA,
        intents=["observe", "rest"],
    )

    def told(source: Domain, facts: list[Any]) -> Any:
        payload = msgspec.json.decode(ask(source, ANONYMOUS, facts))["payload"]
        hints = payload["proof_hints"]
        return payload["macro_tools"], hints["derivations"], hints["excluded"], hints["x-why_not"]

    for facts in ([], [("seen", "x")], [("seen", "x"), ("note", "x")]):
        assert told(domain, facts) == told(Domain.load(without), facts)


def test_a_name_that_is_forbidden_answers_as_one_that_does_not_exist(domain: Domain) -> None:
    payload = msgspec.json.decode(ask(domain, ANONYMOUS, [("seen", "x"), ("note", "x")]))["payload"]
    answers = {one.pop("tool"): one for one in payload["proof_hints"]["x-why_not"]}
    assert answers["mend"] == answers["nothing"]
    other = msgspec.json.decode(ask(domain, ANONYMOUS, [("seen", "x")], "rest"))["payload"]
    assert [one for one in other["proof_hints"]["x-why_not"] if one["known"]] == []
