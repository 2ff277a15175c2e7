"""A pack that is being worked on: every completed edit is found, once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from manglecp.pack.watcher import FolderWatcher
from tests.pack.folders import RULES, SMALL, write


@pytest.fixture
def watched(tmp_path: Path) -> FolderWatcher:
    return FolderWatcher(write(tmp_path / "pack", SMALL))


def test_nothing_is_found_while_nothing_changes(watched: FolderWatcher) -> None:
    assert [watched.poll() for _ in range(3)] == [False] * 3


def test_an_edit_is_found_once(watched: FolderWatcher) -> None:
    write(watched.folder, {"rules/greet.mg": RULES + "# more\n"})
    assert [watched.poll(), watched.poll()] == [True, False]


def test_every_kind_of_change_is_seen(watched: FolderWatcher) -> None:
    file = watched.folder / "rules/greet.mg"
    write(watched.folder, {"skills/new.md": "x\n"})
    assert watched.poll()
    (watched.folder / "skills/new.md").rename(watched.folder / "skills/other.md")
    assert watched.poll()
    (watched.folder / "skills/other.md").unlink()
    assert watched.poll()
    times = file.stat()
    file.write_text(RULES.replace("80", "81"))  # as long as before, and its time set back
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert watched.poll()
    shutil.rmtree(watched.folder)
    assert watched.poll()


def test_what_does_not_count_does_not_wake_anybody(watched: FolderWatcher) -> None:
    write(watched.folder, {".git/index": "x", "__pycache__/a.pyc": "x"})
    assert not watched.poll()


def test_hidden_files_count_and_wake(watched: FolderWatcher) -> None:
    write(watched.folder, {"rules/.greet.mg.swp": "x"})
    assert watched.poll()


def test_an_edit_that_has_not_come_to_rest_is_waited_for(tmp_path: Path) -> None:
    watched = FolderWatcher(write(tmp_path / "pack", SMALL), steady=1, gone=4)
    write(watched.folder, {"rules/greet.mg": RULES + "# more\n"})
    assert not watched.poll()
    write(watched.folder, {"rules/greet.mg": RULES + "# and more\n"})
    assert [watched.poll() for _ in range(3)] == [False, True, False]


def test_a_file_that_is_gone_for_a_moment_is_not_missed(tmp_path: Path) -> None:
    named = {**SMALL, "pack.toml": '[pack]\nname = "one"\n'}
    watched = FolderWatcher(write(tmp_path / "pack", named), steady=1, gone=4)
    for text in (named["pack.toml"], '[pack]\nname = "two"\n'):
        (watched.folder / "pack.toml").unlink()
        assert [watched.poll() for _ in range(3)] == [False] * 3
        write(watched.folder, {"pack.toml": text})
        assert [watched.poll() for _ in range(3)] == [False, True, False]
    (watched.folder / "pack.toml").unlink()  # for good
    assert [watched.poll() for _ in range(6)] == [*[False] * 4, True, False]


def test_a_folder_that_never_rests_counts_as_edited_all_the_same(tmp_path: Path) -> None:
    watched = FolderWatcher(write(tmp_path / "pack", SMALL), steady=1)
    polls = []
    for n in range(40):
        write(watched.folder, {"notes.txt": "x" * n})
        polls.append(watched.poll())
    assert 1 <= polls.count(True) <= 4
