"""What the other tests rest on: both repositories come out the same each time, and the library's tests tell a break."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import patience
from tests.workspace.repositories import Repository, break_tax, layered, make_layered, make_messy, messy
from tests.workspace.repository import ADA

PATIENCE = patience(120)


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
    for make, copy in (
        (make_layered, layered(tmp_path / "layered")),
        (make_messy, messy(tmp_path / "messy", hostile=False)),
    ):
        made = make(tmp_path / make.__name__ / "anywhere")
        assert made.commits == copy.commits
        assert copy.commit("One more", ADA) == made.commit("One more", ADA)


def test_a_copy_is_a_repository_of_its_own(tmp_path: Path) -> None:
    first, second = (messy(tmp_path / name, hostile=False) for name in ("first", "second"))
    state = second.git("status", "--porcelain")
    assert state == first.git("status", "--porcelain") != ""
    first.commit("Only here")
    assert second.git("status", "--porcelain") == state
    assert len(first.commits) == len(second.commits) + 1
