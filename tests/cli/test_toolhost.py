"""``manglecp toolhost`` becomes the host process; its conversations are tested in tests/toolhost."""

import json
import subprocess
import sys

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
