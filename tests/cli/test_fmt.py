from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run

Write = Callable[[str, str | bytes], Path]

UGLY = "p( 1,2 ).# one\r\n\r\n\r\nq(X):-p(X,_)."
NICE = "p(1, 2).  # one\n\nq(X) :- p(X, _).\n"


def test_files_are_rewritten(run: Run, write: Write, folder: Path) -> None:
    ugly, nice = write("ugly.mg", UGLY), write("nice.mg", NICE)
    shown = run("fmt", "ugly.mg", "nice.mg")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", "formatted ugly.mg\n")
    assert ugly.read_bytes() == nice.read_bytes() == NICE.encode()
    assert sorted(path.name for path in folder.iterdir()) == ["nice.mg", "ugly.mg"]
    assert run("fmt", "ugly.mg").stderr == ""


def test_what_needs_no_change_is_not_touched(run: Run, write: Write) -> None:
    path = write("nice.mg", NICE)
    before = path.stat()
    run("fmt", "nice.mg")
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_check_changes_nothing(run: Run, write: Write) -> None:
    ugly = write("ugly.mg", UGLY)
    write("nice.mg", NICE)
    shown = run("fmt", "--check", "ugly.mg", "nice.mg")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (1, "ugly.mg\n", "")
    assert ugly.read_bytes() == UGLY.encode()
    assert run("fmt", "--check", "nice.mg").exit_code == 0


def test_standard_input_goes_to_standard_output(run: Run) -> None:
    shown = run("fmt", "-", stdin=UGLY)
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, NICE, "")
    assert run("fmt", "-", stdin=NICE).stdout == NICE
    shown = run("fmt", "--check", "-", stdin=UGLY)
    assert (shown.exit_code, shown.stdout) == (1, "<stdin>\n")


def test_a_file_that_does_not_parse_is_left_alone(run: Run, write: Write) -> None:
    broken, ugly = write("broken.mg", "p( 1 ). q("), write("ugly.mg", UGLY)
    shown = run("fmt", "ugly.mg", "broken.mg")
    assert shown.exit_code == 1
    assert shown.stderr.startswith("error[parse]: broken.mg:1:")
    assert shown.stderr.endswith("\nformatted ugly.mg\n")
    assert broken.read_text() == "p( 1 ). q("
    assert ugly.read_text() == NICE
    assert run("fmt", "-", stdin="p(").stdout == ""


def test_mode_and_links_are_kept(run: Run, write: Write, folder: Path) -> None:
    path = write("ugly.mg", UGLY)
    path.chmod(0o640)
    folder.joinpath("link.mg").symlink_to("ugly.mg")
    assert run("fmt", "link.mg").stderr == "formatted link.mg\n"
    assert folder.joinpath("link.mg").is_symlink()
    assert path.read_text() == NICE
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_failed_write_leaves_the_old_file(
    run: Run, write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    path = write("ugly.mg", UGLY)
    monkeypatch.setattr(Path, "replace", refuse)
    shown = run("fmt", "ugly.mg")
    assert shown.exit_code == 1
    assert "cannot write ugly.mg: No space left on device" in shown.stderr
    assert path.read_bytes() == UGLY.encode()
    assert list(folder.iterdir()) == [path]


def test_an_empty_file_stays_empty(run: Run, write: Write) -> None:
    path = write("empty.mg", b"")
    assert run("fmt", "--check", "empty.mg").exit_code == 0
    assert run("fmt", "empty.mg").stderr == ""
    assert path.read_bytes() == b""
