"""Counting an answer part by part."""

from __future__ import annotations

import random

import pytest

from manglecp.intent import tokens
from manglecp.intent.tokens import ESTIMATE, count, counter

LETTERS = "aZ9 '\"\\{},:[]-_Tséß中😀\n\t./\u0301\u200dİʼ\r"
PLACES = ('","name":', '":"2026-', '","expires_at":"', '"},"metadata":{', "'s", "'LL", '\\","name":')


def _text(dice: random.Random) -> bytes:
    parts = [
        dice.choice(("", "a", "Z9")) + dice.choice(PLACES)
        if dice.random() < 0.15
        else dice.choice(LETTERS) * dice.choice((1, 1, 1, 2, 5, 70))
        for _ in range(dice.randrange(1, 60))
    ]
    return "".join(parts).encode()


@pytest.mark.req("EVAL-37")
@pytest.mark.parametrize("setting", ["estimate", "o200k_base", "cl100k_base"])
def test_the_parts_add_up_to_the_whole(setting: str) -> None:
    """Against the plain count of the whole text."""
    counts = counter(setting)
    dice = random.Random(setting)
    cut = 0
    for _ in range(2_000):
        text = _text(dice)
        assert count(text, counts) == counts.count(text), text
        cut += len(list(tokens._parts(text))) > 1
    assert cut > 1_000


def test_what_was_counted_is_not_counted_again() -> None:
    class Once:
        by = "once"

        def __init__(self) -> None:
            self.counted: list[bytes] = []

        def count(self, text: bytes) -> int:
            self.counted.append(text)
            return ESTIMATE.count(text)

    counts = Once()
    tool = b'","name":"t","description":"%b","validity":{"not_before' % (b"It does what it says. " * 9)
    rest = b'"},"metadata":{"selection_phase":"skeleton","score":100,"source_rules":["a","b"]}}'
    for minute in (b"10", b"11"):
        text = tool + b'":"2026-01-01T00:%b:00Z' % minute + rest
        assert count(text, counts) == ESTIMATE.count(text)
    assert counts.counted.count(tool) == counts.counted.count(rest) == 1


def test_only_parts_of_some_length_are_remembered() -> None:
    before = tokens._cached_count.cache_info().currsize
    count(b"x" * 10_000, ESTIMATE)
    count(b"short", ESTIMATE)
    assert tokens._cached_count.cache_info().currsize == before
