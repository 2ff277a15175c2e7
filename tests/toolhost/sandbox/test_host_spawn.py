"""A host of profile `spawn`: its plugin starts the named programs and no others, and they are confined as it is."""

import json
import os
import shutil
from pathlib import Path

import pytest

from manglecp.toolhost.sandbox import Policy

from .confined import NOBODY, SYSTEM_PYTHON, Identity, identities, require
from .hosted import called, folder_of, host, plugin, request

SHELL = os.path.realpath("/bin/sh")
CAT = os.path.realpath(shutil.which("cat") or "/bin/cat")
SPAWNING = """
import subprocess
from manglecp import action

@action(effects=["process"], spawn=["sh"])
def start(program: list[str]) -> str:
    try:
        done = subprocess.run(program, capture_output=True, text=True)
    except PermissionError:
        return "refused"
    return done.stdout if done.returncode == 0 else "failed"
"""
AS_NOBODY = (NOBODY, NOBODY) if os.getuid() == 0 else None


@pytest.fixture(params=[each for each in identities() if each.uid != 0], ids=lambda identity: identity.name)
def identity(request: pytest.FixtureRequest) -> Identity:
    chosen: Identity = request.param
    return chosen


def starting(*programs: list[str]) -> bytes:
    return b"".join(request("AID.PLUGIN.START.v1", program=program) for program in programs)


def test_named_programs_start_and_are_confined(identity: Identity, workspace: str) -> None:
    require("spawn", Policy(user=AS_NOBODY))
    programs = [
        [SHELL, "-c", "echo hello"],
        [SHELL, "-c", 'echo "$0" > file && read line < file && echo "$line"', "; $(id) | & > x"],
        [CAT, "/dev/null"],
        [SHELL, "-c", f"exec {CAT} /dev/null"],
        [SHELL, "-c", "read line < /etc/passwd"],
        [SHELL, "-c", ": > /tmp/manglecp-child"],
        [SHELL, "-c", "kill -CONT 1"],
    ]
    with plugin(identity, SPAWNING) as path:
        options = ("--sandbox", "spawn", "--workspace", workspace, "--executable", SHELL)
        done = host(identity, "--serve", path, *options, stdin=starting(*programs))
    assert called(done) == ["hello\n", "; $(id) | & > x\n", "refused", "failed", "failed", "failed", "failed"]
    assert {each.name for each in Path(workspace).iterdir()} == {"file"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_root_starts_programs_only_as_somebody_else() -> None:
    require("spawn", Policy(user=AS_NOBODY))
    root, nobody = Identity("copied", 0, SYSTEM_PYTHON), Identity("nobody", NOBODY, SYSTEM_PYTHON)
    with plugin(nobody, SPAWNING) as path, folder_of(nobody) as space:
        options = ("--sandbox", "spawn", "--executable", SHELL)
        refused = host(root, "--serve", path, *options)
        assert refused.returncode == 6
        assert list(json.loads(refused.stdout)["sandbox"]["missing"]) == ["process_limit"]
        line = starting([SHELL, "-c", "echo > made && echo started"])
        become = ("--user", f"{NOBODY}:{NOBODY}", "--workspace", space)
        assert called(host(root, "--serve", path, *options, *become, stdin=line)) == ["started\n"]
        assert (Path(space) / "made").stat().st_uid == NOBODY
