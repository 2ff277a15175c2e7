"""Streams that are closed or full, and names that are no text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MANGLECP = [sys.executable, "-m", "manglecp"]


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    script = command.replace("manglecp", " ".join(MANGLECP))
    return subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, check=False)


def test_closed_and_full_streams(tmp_path: Path) -> None:
    (tmp_path / "a.mg").write_text("p(1).\n")
    full = shell("manglecp eval a.mg > /dev/full", tmp_path)
    assert full.returncode == 2
    assert full.stderr.startswith(b"Error: cannot write the result")
    assert shell("manglecp check a.mg >&-", tmp_path).stderr == b""
    closed = shell("manglecp eval - <&-", tmp_path)
    assert closed.returncode == 2
    assert b"Traceback" not in closed.stderr


def into_a_closed_pipe(folder: Path, *command: str) -> tuple[int, bytes]:
    """Status and standard error of a verb whose reader has gone, as that of ``| head -1`` has."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        ended = subprocess.run([*MANGLECP, *command], cwd=folder, stdout=out, stderr=subprocess.PIPE, check=False)
    return ended.returncode, ended.stderr


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    """Nothing is said about it, and the status is that of the work."""
    (tmp_path / "many.mg").write_text("".join(f"p({n}).\n" for n in range(20_000)))
    (tmp_path / "bad.mg").write_text("p(X).\n")
    folder = tmp_path / "pack"
    (folder / "rules" / "domain").mkdir(parents=True)
    (folder / "rules" / "domain" / "d.mg").write_text("fine(X) :- intent(X).\n")
    assert into_a_closed_pipe(tmp_path, "eval", "many.mg") == (0, b"")
    assert into_a_closed_pipe(tmp_path, "intent", "pack", "observe", "--json") == (0, b"")
    assert into_a_closed_pipe(tmp_path, "intent", "pack", "observe") == (0, b"")
    assert into_a_closed_pipe(tmp_path, "check", "many.mg") == (0, b"")
    status, told = into_a_closed_pipe(tmp_path, "check", "bad.mg")
    assert status == 1
    assert told.startswith(b"error")
    assert b"Pipe" not in told


def test_a_file_name_of_any_bytes(tmp_path: Path) -> None:
    name = os.fsdecode(b"ok\xff.mg")
    (tmp_path / name).write_text("p( 1 ).\n")
    listed = subprocess.run([*MANGLECP, "fmt", "--check", name], cwd=tmp_path, capture_output=True, check=False)
    assert (listed.returncode, listed.stdout) == (1, b"ok\xff.mg\n")


def test_a_file_name_forges_no_diagnostic(tmp_path: Path) -> None:
    name = "x\nerror[eval]: forged.mg"
    (tmp_path / name).write_text("p(")
    refused = subprocess.run([*MANGLECP, "eval", name], cwd=tmp_path, capture_output=True, check=False)
    assert refused.returncode == 1
    assert [line for line in refused.stderr.splitlines() if line.startswith(b"error[eval]")] == []


def test_externals_answer_for_python(tmp_path: Path) -> None:
    """Without a callable an external predicate has the facts that were stated, and no more."""
    (tmp_path / "e.mg").write_text(
        'Decl e(X, Y) descr [external(), mode("+", "-")]. e(1, 2). n(1). p(Y) :- n(X), e(X, Y).\n'
    )
    answer = subprocess.run([*MANGLECP, "eval", "e.mg", "--pred", "p"], cwd=tmp_path, capture_output=True, check=False)
    assert answer.stdout == b"p(2)\n"
