"""Files are replaced whole or not at all, and a lock of a folder excludes other processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from manglecp.base.files import lock_folder, replace_file


def test_a_replaced_file_has_the_mode_and_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda _, uid, gid: owners.append((uid, gid)))
    file = tmp_path / "a.toml"
    replace_file(file, [b"one\n", b"two\n"], 0o640, owner=(7, 8))
    assert (file.read_bytes(), file.stat().st_mode & 0o777, owners) == (b"one\ntwo\n", 0o640, [(7, 8)])
    replace_file(file, [b"three\n"], 0o600)
    assert (file.read_bytes(), file.stat().st_mode & 0o777, owners) == (b"three\n", 0o600, [(7, 8)])


def test_a_failed_replacement_changes_nothing(tmp_path: Path) -> None:
    def lines() -> Iterator[bytes]:
        yield b"new\n"
        raise RuntimeError("lost")

    file = tmp_path / "a.toml"
    file.write_bytes(b"old\n")
    with pytest.raises(RuntimeError, match="lost"):
        replace_file(file, lines(), 0o600)
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(file, b"old\n")]


def test_a_folder_is_locked_until_the_end_of_the_block(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)  # a second open file, which stands for another process
    try:
        with lock_folder(tmp_path), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)
    with pytest.raises(FileNotFoundError), lock_folder(tmp_path / "none"):
        raise AssertionError
