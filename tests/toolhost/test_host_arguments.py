"""The command line of a host, without a process around it."""

import os
from pathlib import Path

import pytest

from manglecp.toolhost.host.arguments import Confinement, UsageError, parse_arguments


def test_options_stand_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = (
        "--sandbox spawn --run --workspace a plugin.py --workspace /b --workspace a/ AID.X.v1 --readable ../c"
        " --executable /bin/sh --writable /d --user 1:2 --degrade --sha256 ab --read-only"
    )
    said = parse_arguments(line.split())
    assert said.positionals == ["--run", "plugin.py", "AID.X.v1"]
    assert said.sha256 == "ab"
    assert said.confinement == Confinement(
        "spawn",
        (str(tmp_path / "a"), "/b"),
        ("/d",),
        (str(tmp_path.parent / "c"),),
        ("/bin/sh",),
        (1, 2),
        True,
        (),
        True,
    )


def test_without_options_nothing_is_confined() -> None:
    assert parse_arguments(["--list", "plugin.py"]).confinement == Confinement("none", (), (), (), (), None, False)


def test_a_key_is_read_once_and_has_a_size() -> None:
    for size, good in ((32, True), (31, False), (33, False)):
        reading, writing = os.pipe()
        os.write(writing, bytes(size))
        os.close(writing)
        arguments = ["--serve", "plugin.py", "--lease-key-fd", str(reading)]
        if good:
            assert parse_arguments(arguments).lease_key == bytes(size)
        else:
            with pytest.raises(UsageError, match="a key has 32 bytes"):
                parse_arguments(arguments)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(reading)


def test_whoever_writes_the_key_may_keep_his_end_open() -> None:
    reading, writing = os.pipe()
    os.write(writing, bytes(32))
    assert parse_arguments(["--serve", "plugin.py", "--lease-key-fd", str(reading)]).lease_key == bytes(32)
    os.close(writing)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--list plugin.py --bogus", "unknown option: --bogus"),
        ("--bogus --list plugin.py", "unknown option: --list"),
        ("--list plugin.py --progress-fd 2", "--progress-fd: 2 is a standard stream"),
        ("--list plugin.py --lease-key-fd 0", "--lease-key-fd: 0 is a standard stream"),
        ("--list", "a mode and a plugin are needed"),
        ("--list plugin.py --sandbox", "--sandbox needs a value"),
        ("--list plugin.py --progress-fd 999", "--progress-fd: 999 is not an open descriptor"),
        ("--list plugin.py --progress-fd x", "--progress-fd: x is not an open descriptor"),
        ("--list plugin.py --sha256 a --sha256 b", "--sha256 is given twice"),
        ("--list plugin.py --sandbox Strict", "--sandbox: Strict is not one of none, standard, spawn, strict"),
        ("--list plugin.py --user 1:2", "--user needs a sandbox"),
        ("--list plugin.py --sandbox strict --user 1", "--user: 1 is not UID:GID"),
        ("--list plugin.py --sandbox standard --executable /x", "only the profile spawn starts programs"),
    ],
)
def test_what_makes_no_sense(line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_arguments(line.split())
