"""What the reference takes from the code is what the code says now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.reference.pages import BLOCKS, DOCS, current, pages, used

PAGES = {str(page.relative_to(DOCS)): (was, now) for page, was, now in pages()}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_page_is_current(page: str) -> None:
    was, now = PAGES[page]
    assert was == now, "run: make reference"


def test_every_part_has_its_place() -> None:
    assert used() == set(BLOCKS)


def test_a_page_that_was_edited_by_hand_is_noticed() -> None:
    text = (DOCS / "reference" / "messages.md").read_text("utf-8")
    edited = re.sub(r"^\| `rate_limited` \| 429", "| `rate_limited` | 430", text, count=1, flags=re.MULTILINE)
    assert edited != text
    assert current(edited) == text


def test_text_around_the_marks_stays() -> None:
    text = "before\n<!-- generated: error codes -->\nold\n<!-- end -->\nbehind\n"
    written = current(text)
    assert written.startswith("before\n")
    assert written.endswith("<!-- end -->\nbehind\n")
    assert "old" not in written
    assert "`macro_not_found`" in written
    assert current(written) == written


def test_a_part_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError):
        current("<!-- generated: something else -->\n<!-- end -->\n")


def test_no_mark_is_left_open() -> None:
    for page in sorted(Path(DOCS).rglob("*.md")):
        text = page.read_text("utf-8")
        assert text.count("<!-- generated: ") == text.count("<!-- end -->"), page
