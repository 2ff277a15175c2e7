"""``manglecp toolhost`` becomes the host process; its conversations are tested in tests/toolhost."""

import json
import subprocess
import sys
from pathlib import Path

from tests.toolhost.conversation import WORKSPACE, request


def toolhost(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "manglecp", "toolhost", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=30)


def test_the_command_is_the_host() -> None:
    done = toolhost("--serve", WORKSPACE, stdin=request("echo", {"text": "a"}) + b"\n")
    assert (done.returncode, json.loads(done.stdout)["output_json"]) == (0, '"a"')


def test_its_exit_status_is_the_hosts() -> None:
    assert toolhost("--list", "/nowhere.py").returncode == 3
    assert toolhost("--list").returncode == 2


def test_help_is_for_people() -> None:
    done = toolhost("--help")
    assert (done.returncode, b"MODE PLUGIN [AID]" in done.stdout) == (0, True)


def test_it_does_not_import_from_where_one_stands(tmp_path: Path) -> None:
    """A plugin may have written there, and its code would run before the host is locked in."""
    (tmp_path / "json.py").write_text("raise SystemExit('planted')\n")
    command = [sys.executable, "-P", "-m", "manglecp", "toolhost", "--list", WORKSPACE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=30)
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (0, True)
