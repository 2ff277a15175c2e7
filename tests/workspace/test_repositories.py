"""What the other tests rest on: both repositories come out the same each time, and the library's tests tell a break."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.workspace.repositories import Repository, break_tax, layered, messy

PATIENCE = 120


def failing(repository: Repository) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:manglecp", "-rf", "--tb=no"],
        cwd=repository.root,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [line.split(" ")[1] for line in done.stdout.splitlines() if line.startswith("FAILED ")]


@pytest.mark.no_cover
def test_the_library_works_until_it_is_broken(tmp_path: Path) -> None:
    repository = layered(tmp_path / "pricing")
    assert failing(repository) == []
    assert repository.git("status", "--porcelain") == ""
    break_tax(repository)
    assert failing(repository) == ["tests/test_basket.py::TestBasket::test_total_has_the_tax"]


def test_commits_have_the_same_names_everywhere(tmp_path: Path) -> None:
    assert layered(tmp_path / "one").commits == layered(tmp_path / "a" / "two").commits
    assert messy(tmp_path / "three").commits == messy(tmp_path / "b" / "four").commits
