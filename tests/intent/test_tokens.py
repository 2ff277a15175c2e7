"""Counting tokens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from manglecp.intent.tokens import ESTIMATE, Vocabulary, counter
from manglecp.pack import Disclosure
from tests.intent.answering import asked
from tests.intent.packs import pack

RULES = 'mandatory("t"). macro("t", "Does it."). macro_step("t", 1, "look").'
TOOL = {
    "macro_id": "m-0123456789abcdef",
    "name": "explain_build_failure",
    "description": "Collects the failing step, its log excerpt and the last green build, and names the likely cause.",
    "disclosure_level": "full",
    "input_schema": {"type": "object", "properties": {"build": {"type": "integer"}}, "required": ["build"]},
    "safety": {"requires_user_confirmation": False, "side_effects": ["filesystem", "network"]},
}
PAGES = sorted(Path(__file__).parents[2].glob("docs/*.md"))


@pytest.mark.req("EVAL-37")
def test_who_counts_is_a_setting_and_the_answer_says_who() -> None:
    assert counter("estimate") is ESTIMATE
    assert counter("auto").by == "o200k_base"
    assert counter("cl100k_base").by == "cl100k_base"
    for setting in ("auto", "estimate", "o200k_base", "cl100k_base"):
        said = asked(pack(RULES, disclosure=Disclosure(tokens=setting)))["diagnostics"]["x-tokens"]
        assert said["by"] == counter(setting).by
        assert said["count"] > 50


def test_the_count_is_that_of_the_tools_and_skills_as_they_are_sent() -> None:
    payload = asked(pack(RULES))
    parts = {name: payload[name] for name in ("macro_tools", "required_skills")}
    sent = json.dumps(parts, separators=(",", ":")).encode()
    assert payload["diagnostics"]["x-tokens"]["count"] == counter("auto").count(sent)


def test_the_estimate_is_close_on_tools_and_on_english() -> None:
    exact = counter("o200k_base")
    texts = [json.dumps([TOOL] * 5, separators=(",", ":")).encode(), *(page.read_bytes() for page in PAGES)]
    assert len(texts) > 1
    for text in texts:
        assert ESTIMATE.count(text) == pytest.approx(exact.count(text), rel=0.15)


def test_a_vocabulary_counts_exactly() -> None:
    exact = counter("o200k_base")
    assert isinstance(exact, Vocabulary)
    assert exact.count(b"hello world") == 2
    assert exact.count(b"") == 0


@given(st.binary(max_size=200))
def test_any_bytes_can_be_counted(text: bytes) -> None:
    for by in (ESTIMATE, counter("o200k_base")):
        assert 0 <= by.count(text) <= 3 * len(text)


@given(st.text(max_size=60), st.text(max_size=60))
def test_more_text_is_not_fewer_tokens_by_estimate(one: str, other: str) -> None:
    both = ESTIMATE.count((one + other).encode())
    assert both <= ESTIMATE.count(one.encode()) + ESTIMATE.count(other.encode()) + 1
    assert both >= ESTIMATE.count(one.encode()) - 1


WITHOUT = """
import sys
sys.modules["rs_bpe"] = sys.modules["rs_bpe.bpe"] = None
from manglecp.intent.tokens import counter
print(*(counter(setting).by for setting in ("auto", "o200k_base", "cl100k_base", "estimate")))
"""


def test_without_the_extra_everything_is_an_estimate_and_says_so() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["estimate"] * 4


def test_the_vocabulary_is_loaded_only_when_something_is_counted() -> None:
    program = "import sys, manglecp.intent.responder; print('rs_bpe' in sys.modules, 'jsonschema_rs' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
