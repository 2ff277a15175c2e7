"""A pack that is being worked on: a broken edit keeps the old version, a good one takes its place."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from manglecp.pack.diagnostics import PackError, pack_problem
from manglecp.pack.loader import read_pack
from manglecp.pack.model import Pack
from manglecp.pack.watcher import FolderWatcher
from tests.pack.folders import ACTIONS, RULES, SMALL, write


@pytest.fixture
def watched(tmp_path: Path) -> FolderWatcher[Pack]:
    return FolderWatcher(write(tmp_path / "pack", SMALL), read_pack)


def test_nothing_is_loaded_while_nothing_changes(tmp_path: Path) -> None:
    loaded: list[Path] = []
    watched = FolderWatcher(write(tmp_path, SMALL), loaded.append)
    assert [watched.poll() for _ in range(3)] == ["none"] * 3
    assert loaded == [tmp_path]


def test_a_good_edit_takes_its_place(watched: FolderWatcher[Pack]) -> None:
    before = watched.current.digest
    write(watched.folder, {"rules/greet.mg": RULES + "# more\n"})
    assert watched.poll() == "swapped"
    assert watched.current.digest != before
    assert watched.problems == ()
    assert watched.poll() == "none"


@pytest.mark.parametrize("edit", [{"pack.toml": "[pakc]\n"}, {"actions.py": "def f(:\n"}, {"rules/x/y.mg": "p(1)."}])
def test_a_broken_edit_keeps_the_old_version_and_says_why(watched: FolderWatcher[Pack], edit: dict[str, str]) -> None:
    before = watched.current
    write(watched.folder, edit)
    assert watched.poll() == "broken"
    assert watched.current is before
    assert [problem.file in edit for problem in watched.problems] == [True]
    assert watched.poll() == "none"  # and goes on saying it
    assert len(watched.problems) == 1
    for name in edit:
        (watched.folder / name).unlink()
    write(watched.folder, {"actions.py": ACTIONS})
    assert watched.poll() == "swapped"
    assert not watched.problems


def test_every_kind_of_change_is_seen(watched: FolderWatcher[Pack]) -> None:
    file = watched.folder / "rules/greet.mg"
    write(watched.folder, {"skills/new.md": "---\nname: n\ndescription: d\n---\nx\n"})
    assert watched.poll() == "swapped"
    (watched.folder / "skills/new.md").rename(watched.folder / "skills/other.md")
    assert watched.poll() == "swapped"
    (watched.folder / "skills/other.md").unlink()
    assert watched.poll() == "swapped"
    times = file.stat()
    file.write_text(RULES.replace("80", "81"))  # as long as before, and its time set back
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert watched.poll() == "swapped"
    assert "81" in watched.current.sources[0].text


def test_what_does_not_count_does_not_wake_anybody(watched: FolderWatcher[Pack]) -> None:
    write(watched.folder, {".git/index": "x", "__pycache__/a.pyc": "x"})
    assert watched.poll() == "none"


def test_hidden_files_count_and_wake(watched: FolderWatcher[Pack]) -> None:
    before = watched.current.digest
    write(watched.folder, {"rules/.greet.mg.swp": "x"})
    assert watched.poll() == "swapped"
    assert watched.current.digest != before


def test_what_changes_while_it_is_read_is_seen_next_time(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    versions = iter(["# one\n", "# two\n"])

    def load(folder: Path) -> str:
        text = (folder / "rules/greet.mg").read_text()
        for version in versions:
            write(folder, {"rules/greet.mg": version})
            break
        return text

    watched = FolderWatcher(tmp_path, load)
    assert watched.current == RULES
    assert [watched.poll(), watched.current] == ["swapped", "# one\n"]
    assert [watched.poll(), watched.current] == ["swapped", "# two\n"]
    assert watched.poll() == "none"


def test_an_edit_that_has_not_come_to_rest_is_waited_for(tmp_path: Path) -> None:
    watched = FolderWatcher(write(tmp_path / "pack", SMALL), read_pack, steady=1, gone=4)
    write(watched.folder, {"rules/greet.mg": RULES + "# more\n"})
    assert watched.poll() == "none"
    write(watched.folder, {"rules/greet.mg": RULES + "# and more\n"})
    assert [watched.poll() for _ in range(3)] == ["none", "swapped", "none"]
    assert "and more" in watched.current.sources[0].text


def test_a_file_that_is_gone_for_a_moment_is_not_missed(tmp_path: Path) -> None:
    named = {**SMALL, "pack.toml": '[pack]\nname = "one"\n'}
    watched = FolderWatcher(write(tmp_path / "pack", named), read_pack, steady=1, gone=4)
    for text in (named["pack.toml"], '[pack]\nname = "two"\n'):
        (watched.folder / "pack.toml").unlink()
        assert [watched.poll() for _ in range(3)] == ["none"] * 3
        write(watched.folder, {"pack.toml": text})
        assert [watched.poll() for _ in range(3)] == ["none", "swapped", "none"]
        assert watched.current.settings.name == text.split('"')[1]
    (watched.folder / "pack.toml").unlink()  # for good
    assert [watched.poll() for _ in range(6)] == [*["none"] * 4, "swapped", "none"]


def test_a_folder_that_never_rests_is_loaded_all_the_same(tmp_path: Path) -> None:
    watched = FolderWatcher(write(tmp_path / "pack", SMALL), read_pack, steady=1)
    polls = []
    for n in range(40):
        write(watched.folder, {"notes.txt": "x" * n})
        polls.append(watched.poll())
    assert 1 <= polls.count("swapped") <= 4


def test_a_folder_that_vanishes_is_a_broken_edit(watched: FolderWatcher[Pack]) -> None:
    before = watched.current
    watched.folder.rename(watched.folder.with_name("elsewhere"))
    assert watched.poll() == "broken"
    assert watched.current is before
    assert "there is no folder" in watched.problems[0].message


def test_the_first_version_has_to_work(tmp_path: Path) -> None:
    with pytest.raises(PackError):
        FolderWatcher(tmp_path, read_pack)


def test_readers_never_wait_for_a_load(tmp_path: Path) -> None:
    entered, release = threading.Event(), threading.Event()
    versions = iter(["old", "new"])

    def load(_: Path) -> str:
        version = next(versions)
        if version == "new":
            entered.set()
            assert release.wait(60)
        return version

    watched = FolderWatcher(write(tmp_path, SMALL), load)
    write(tmp_path, {"x": "y"})
    polling = threading.Thread(target=watched.poll)
    polling.start()
    assert entered.wait(60)
    assert (watched.current, watched.problems) == ("old", ())
    release.set()
    polling.join(60)
    assert watched.current == "new"


def test_other_errors_are_neither_hidden_nor_forgotten(tmp_path: Path) -> None:
    failures = iter([ZeroDivisionError, MemoryError])

    def load(folder: Path) -> str:
        if (folder / "x").exists():
            for failure in failures:
                raise failure
        return "new" if (folder / "x").exists() else "old"

    watched = FolderWatcher(write(tmp_path, SMALL), load)
    write(tmp_path, {"x": "y"})
    for failure in (ZeroDivisionError, MemoryError):
        with pytest.raises(failure):
            watched.poll()
        assert watched.current == "old"
        assert watched.problems == (pack_problem("", f"it could not be loaded: {failure.__name__}"),)
    assert (watched.poll(), watched.current, watched.problems) == ("swapped", "new", ())
    assert watched.poll() == "none"
