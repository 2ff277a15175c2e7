"""Explanations are part of the time of a request: what is not found by then is an error, as for everything else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from manglecp.intent.domain import Domain
from manglecp.intent.identity import Identity
from manglecp.intent.responder import ToolSelection, respond
from manglecp.mangle import LimitError, Program, Source
from manglecp.wire import WireError
from manglecp.wire.messages import ProofHints
from tests.intent.packs import pack, request

PAIRS = """
Decl ev(X) temporal descr [direction("input"), untimed("now")] bound [/number].
macro("t", "A tool.").
macro_step("t", 1, "look").
relevant("t", 90) :- intent("i"), <-[10m] ev(X), <-[10m] ev(Y), X != Y.
"""


def ask(options: dict[str, Any], milliseconds: int, facts: int) -> ToolSelection:
    domain = Domain.load(pack(PAIRS))
    seen = [{"pred": "ev", "args": [number], "t": {"at": "now"}} for number in range(facts)]
    asked = request("i", seen, constraints={"max_compute_ms": milliseconds}, options=options)
    return respond(domain, asked, Identity("ann", trust="user"))


def test_an_explanation_that_takes_too_long_is_an_error() -> None:
    assert ask({}, 2_000, facts=400).definitions  # the evaluation itself takes a fraction of that
    started = time.monotonic()
    with pytest.raises(WireError) as late:
        ask({"include_proof_hints": True}, 2_000, facts=400)  # 160,000 pairs would take half a minute
    assert late.value.code == "evaluation_timeout"
    assert late.value.details is not None
    assert late.value.details["budget"] == {"limit": 2_000, "consumed": 2_000, "unit": "ms"}
    assert time.monotonic() - started < 15


def test_in_time_it_is_answered() -> None:
    answer = ask({"include_proof_hints": True, "x-rule_coverage": True}, 60_000, facts=5)
    payload = answer.response.payload
    assert isinstance(payload.proof_hints, ProofHints)
    assert [one.macro_id for one in payload.proof_hints.derivations] == [one.macro_id for one in payload.macro_tools]


def test_every_question_about_a_result_ends_in_time() -> None:
    result = Program.load([Source("p.mg", "p(1). p(2). q(X, Y) :- p(X), p(Y).")]).base().evaluate((), now=0)
    result.explainer.set_deadline(time.monotonic() - 1)
    questions: list[Callable[[], object]] = [
        lambda: result.explainer.explain("q(1,2)"),
        lambda: result.explainer.alternatives("q(1,2)"),
        lambda: result.explainer.why_not("q(1,3)"),
        lambda: result.explainer.unused(["p(1)"]),
        lambda: result.explainer.coverage(),
    ]
    for question in questions:
        with pytest.raises(LimitError):
            question()
    result.explainer.set_deadline(None)
    assert all(question() for question in questions if question is not questions[3])
