"""The folder of a pack while somebody else works on it, and one that is too large."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from manglecp.pack import folder
from manglecp.pack.diagnostics import PackError, Problems
from manglecp.pack.folder import Folder, open_inside
from tests.pack.folders import SMALL, problem, read, write


def refused(problems: Problems) -> dict[str, str]:
    with pytest.raises(PackError) as caught:
        problems.raise_if_errors()
    return {found.file: found.message for found in caught.value.diagnostics}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return write(tmp_path / "outside", {"a.csv": "hunter2"})


class TestLinksThatComeLater:
    def test_one_in_place_of_a_folder_is_not_followed(self, tmp_path: Path, outside: Path) -> None:
        root = write(tmp_path / "pack", {"facts/a.csv": "x"})
        problems = Problems()
        walked = Folder(root, problems)
        (root / "facts").rename(tmp_path / "elsewhere")
        (root / "facts").symlink_to(outside)
        assert walked.read("facts/a.csv", 100) is None
        assert "cannot be read" in refused(problems)["facts/a.csv"]

    def test_nor_is_it_hashed(self, tmp_path: Path, outside: Path) -> None:
        root = write(tmp_path / "pack", {"facts/a.csv": "x"})
        problems = Problems()
        walked = Folder(root, problems)
        (root / "facts/a.csv").unlink()
        (root / "facts/a.csv").symlink_to(outside / "a.csv")
        walked.digest("pack", "", {})
        assert "cannot be read" in refused(problems)["facts/a.csv"]
        with pytest.raises(KeyError):
            walked.sha256("facts/a.csv")

    def test_a_link_leads_where_it_led(self, tmp_path: Path, outside: Path) -> None:
        root = write(tmp_path / "pack", {"facts/a.csv": "x"})
        (root / "b.csv").symlink_to("facts/a.csv")
        walked = Folder(root, Problems())
        (root / "b.csv").unlink()
        (root / "b.csv").symlink_to(outside / "a.csv")
        assert walked.read("b.csv", 100) == b"x"
        assert walked.sha256("b.csv") == hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize("name", ["../outside/a.csv", "x/../../outside/a.csv", "/etc/passwd", "", ".", "x//y"])
def test_a_name_that_leads_out_names_nothing(tmp_path: Path, outside: Path, name: str) -> None:
    assert outside.exists()
    root = write(tmp_path / "pack", {"x/y": "x"})
    with pytest.raises(OSError, match="No such file"):
        open_inside(root, name)


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    root = write(tmp_path, {"a/b/c": "x"})
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    os.close(open_inside(root, "a/b/c"))
    for name in ("a/b/d", "a/d/c", "d/b/c", "a/b/c/d"):
        with pytest.raises(OSError, match=r"No such file|Not a directory"):
            open_inside(root, name)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


class TestLimits:
    def test_folders_and_links_count_as_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(folder, "MAX_FILES", 5)
        write(tmp_path, SMALL)  # two files and a folder
        (tmp_path / "empty").mkdir()
        (tmp_path / "link").symlink_to("actions.py")
        assert read(tmp_path, {}).name
        (tmp_path / "other").mkdir()
        assert problem(tmp_path, {}).message == "the folder has more than 5 files"
        (tmp_path / "other").rmdir()
        (tmp_path / "other").symlink_to("actions.py")
        assert problem(tmp_path, {}).message == "the folder has more than 5 files"

    def test_all_bytes_count_together_and_it_is_said_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(folder, "MAX_BYTES", 1_000)
        rules = {"rules/a.mg": "p(1)."}
        assert read(tmp_path, {**rules, "data/1": "x" * 900, "data/2": "x" * 95}).name
        found = problem(tmp_path, {"data/2": "x" * 96, "data/3": "x", "data/4": "x" * 2_000})
        assert found.message == "with it, the files of the pack have more than 1,000 bytes"
