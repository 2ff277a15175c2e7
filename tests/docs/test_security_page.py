"""SECURITY.md says what is promised, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")


@pytest.mark.req("SEC-38")
@pytest.mark.parametrize(
    "words", ["a malicious pack is out of scope", "vulnerabilities of\nclients", "denial of service by network traffic"]
)
def test_what_is_out_of_scope_is_named(words: str) -> None:
    _, _, excluded = PAGE.partition("## Out of scope")
    assert words in excluded
