"""Whoever pastes the blocks of the first tutorial into a shell, in an empty folder, gets what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.walking import Pasting, comparable

pytestmark = pytest.mark.no_cover  # whole processes, and the code in them is tested elsewhere
PAGE = "docs/tutorial/ten-minutes.md"


def test_the_blocks_can_be_pasted_one_after_the_other(tmp_path: Path) -> None:
    printed = Pasting(PAGE).paste(tmp_path)
    for shown, said in printed:
        assert comparable(shown) == comparable(said)
    assert len(printed) == 6
    files = [file for file in (tmp_path / "desk").rglob("*.*") if file.suffix in (".py", ".mg")]
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) == 25
