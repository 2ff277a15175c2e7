"""What an answer has besides its tools, and that it is the same every time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from manglecp.intent.domain import Domain
from manglecp.intent.identity import ANONYMOUS, Identity
from manglecp.intent.responder import answer_bytes
from tests.effort import examples
from tests.intent.answering import asked
from tests.intent.packs import SCHEMA, Case, cases, clock, pack, request

RULES = """\
macro("see", "See."). macro_step("see", 1, "look"). relevant("see", 90) :- intent("observe").
macro("note", "Note."). macro_step("note", 1, "look"). relevant("note", 45) :- seen(_).
macro("hum", "Hum."). macro_step("hum", 1, "look"). relevant("hum", 25) :- <-[0s, 5m] logged("red").
macro("mute", "Mute."). macro_step("mute", 1, "look"). relevant("mute", 5) :- intent("observe").
"""
FACTS = [("seen", "x"), {"pred": "logged", "args": ["red"], "t": {"at": "2026-01-15T11:58:00Z"}}]


def sample() -> Domain:
    return Domain.load(pack(RULES, schema=SCHEMA))


def without_duration(data: bytes) -> bytes:
    return re.sub(rb'"eval_duration_ms":\d+', b"", data)


@pytest.mark.req("EVAL-07")
def test_without_constraints_nothing_is_cut() -> None:
    many = "".join(
        f'macro("t{n}", "{"A long description. " * 20}"). macro_step("t{n}", 1, "look"). relevant("t{n}", 80).\n'
        for n in range(60)
    )
    found = asked(pack(many))["macro_tools"]
    assert len(found) == 60
    assert {tool["disclosure_level"] for tool in found} == {"full"}


@pytest.mark.req("EVAL-08", "EVAL-28")
def test_without_options_there_are_no_hints_and_levels_follow_scores() -> None:
    plain, adaptive = (
        asked(sample(), facts=FACTS),
        asked(
            sample(),
            facts=FACTS,
            options={
                "include_proof_hints": False,
                "disclosure_preference": "adaptive",
            },
        ),
    )
    assert plain["macro_tools"] == adaptive["macro_tools"]
    assert [(tool["name"], tool["disclosure_level"]) for tool in plain["macro_tools"]] == [
        ("see", "full"),
        ("note", "condensed"),
        ("hum", "minimal"),
    ]
    assert "proof_hints" not in plain
    assert "proof_hints" not in adaptive
    assert "proof_hints" in asked(sample(), facts=FACTS, options={"include_proof_hints": True})


@pytest.mark.req("EVAL-25", "EVAL-26", "EVAL-27", "EVAL-29")
def test_what_every_answer_has() -> None:
    for found in (asked(sample(), facts=FACTS), asked(sample(), "unheard_of")):
        assert found["eval_time_used"] == "2026-01-15T12:00:00Z"
        assert type(found["eval_duration_ms"]) is int
        assert isinstance(found["macro_tools"], list)
        assert {"facts_evaluated", "facts_derived", "rules_fired", "phases_completed"} <= set(found["diagnostics"])


@pytest.mark.no_cover
@pytest.mark.req("EVAL-18", "CONF-14", "CONF-15")
def test_a_hundred_answers_are_the_same_bytes() -> None:
    domain = sample()
    data = msgspec.json.encode(request("observe", FACTS, options={"include_proof_hints": True}))
    answers = {without_duration(answer_bytes(domain, data, ANONYMOUS, clock)) for _ in range(100)}
    assert len(answers) == 1
    other = without_duration(answer_bytes(sample(), data, ANONYMOUS, clock))
    assert other in answers
    assert b'"macro_id":"m-' in other


@pytest.mark.req("EVAL-18", "CONF-14", "CONF-15")
@given(cases())
@examples(25)
def test_answers_of_random_packs_are_the_same_bytes(case: Case) -> None:
    identity = Identity("me", case.permissions, "user")
    data = msgspec.json.encode(case.request(options={"include_proof_hints": True}))
    first, again = (without_duration(answer_bytes(Domain.load(case.pack), data, identity, clock)) for _ in range(2))
    assert first == again


PROGRAM = """
import sys
import msgspec
from manglecp.intent.identity import ANONYMOUS
from manglecp.intent.responder import answer_bytes
from tests.intent.packs import clock, request
from tests.intent.test_evaluation_answers import FACTS, sample, without_duration

data = msgspec.json.encode(request("observe", FACTS, options={"include_proof_hints": True}))
sys.stdout.buffer.write(without_duration(answer_bytes(sample(), data, ANONYMOUS, clock)))
"""


@pytest.mark.no_cover
@pytest.mark.req("EVAL-18", "EVAL-19")
def test_hash_seeds_time_zones_and_locales_do_not_matter() -> None:
    """Adversarial case 29."""
    root = Path(__file__).parents[2]
    surroundings: list[dict[str, Any]] = [
        {"PYTHONHASHSEED": "1", "TZ": "UTC"},
        {"PYTHONHASHSEED": "7", "TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8"},
        {"PYTHONHASHSEED": "99", "TZ": "America/St_Johns", "LC_ALL": "C"},
    ]
    answers = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=root,
            env={"PYTHONPATH": f"{root}:{root / 'src'}", **around},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for around in surroundings
    }
    assert len(answers) == 1
    assert b'"see"' in answers.pop()
