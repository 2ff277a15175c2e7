"""Talking to a program: both ways at once, no longer than is wanted, and never for ever."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from examples.workspace.repository.process_stream import ProcessStream, ProcessTimeout


def talk(program: str, stdin: bytes = b"", seconds: float = 60) -> ProcessStream:
    environ = {"PATH": os.defpath}
    return ProcessStream(
        [sys.executable, "-I", "-S", "-c", program], folder="/", environ=environ, stdin=stdin, seconds=seconds
    )


def test_neither_side_waits_for_the_other() -> None:
    """More goes both ways than fits into a pipe, and more is said before all was heard."""
    echo = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line * 2); sys.stderr.write('e' * 9)"
    given = b"".join(b"%d\n" % number for number in range(60_000))
    talked = talk(echo, given)
    assert b"".join(talked) == b"".join(line * 2 for line in given.splitlines(keepends=True))
    assert (talked.code, talked.errors) == (0, b"e" * 8_192)


def test_who_has_heard_enough_goes() -> None:
    talked = talk("while True: print('more')")
    with closing(iter(talked)) as said:
        assert next(said).startswith(b"more\n")
    assert talked.code == -9


def test_what_does_not_end_is_ended() -> None:
    talked = talk("import time\nprint('begun', flush=True)\ntime.sleep(600)", seconds=2)
    with pytest.raises(ProcessTimeout):
        list(talked)
    assert talked.code == -9


def test_who_does_not_listen_is_heard_all_the_same() -> None:
    talked = talk("import os\nos.close(0)\nprint('no')\nraise SystemExit(3)", b"x" * 1_000_000)
    assert (b"".join(talked), talked.code) == (b"no\n", 3)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ProcessStream([str(tmp_path / "none")], folder="/", environ={}, stdin=b"", seconds=1)
