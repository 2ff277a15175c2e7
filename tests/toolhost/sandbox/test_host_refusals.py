"""A host that cannot be locked in as it was told to says why, and nothing of its plugin runs."""

import json
import os
import select
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from manglecp.toolhost.sandbox.kernel import number

from .confined import NOBODY, SYSTEM_PYTHON, Identity, identities, require, staged
from .hosted import HONEST, aid, argv, called, folder_of, host, listed, plugin, request

OURSELVES = identities()[0]
LOUD = "import sys\nsys.stderr.write('the plugin ran')\n" + HONEST
SET_DUMPABLE, NO_NEW_PRIVS = 4, 38
# A system call (and a value of its first argument) that is taken away: which mechanism then is missing.
TAKEN = [
    ("mount_setattr", -1, "mount_namespace"),
    ("capset", -1, "capabilities"),
    ("prctl", NO_NEW_PRIVS, "no_new_privs"),
    ("landlock_create_ruleset", -1, "landlock_files"),
    ("landlock_restrict_self", -1, "landlock_files"),
    ("prctl", SET_DUMPABLE, "undumpable"),
    ("prlimit64", -1, "limits"),
    ("seccomp", -1, "seccomp"),
    ("unshare", -1, "network_namespace"),
]


@pytest.mark.no_cover
@pytest.mark.parametrize(("call", "value", "mechanism"), TAKEN)
def test_a_missing_mechanism_stops_the_start_unless_less_will_do(
    call: str, value: int, mechanism: str, identity: Identity
) -> None:
    require("strict")
    taken = number(call)
    assert taken is not None
    with plugin(identity, LOUD) as path:
        options = ("--list", path, "--sandbox", "strict")
        refused = host(identity, *options, without=(taken, value))
        weakened = host(identity, *options, "--degrade", without=(taken, value))
    assert (refused.returncode, refused.stderr) == (6, "")
    answer = json.loads(refused.stdout)
    assert answer["ok"] is False
    assert answer["error"].startswith("sandbox profile 'strict' cannot be enforced here (")
    assert f"{mechanism}: " in answer["error"]
    assert mechanism in answer["sandbox"]["missing"]
    sandbox = listed(weakened)["sandbox"]
    assert weakened.stderr == "the plugin ran"
    assert sandbox == {**answer["sandbox"], "profile": "strict"}
    assert "[Errno 38]" in sandbox["missing"][mechanism]
    assert mechanism not in sandbox["active"]
    assert sandbox["active"]


@pytest.mark.parametrize("profile", ["standard", "spawn"])
def test_a_profile_that_permits_processes_needs_a_pid_namespace(profile: str, identity: Identity) -> None:
    require("strict")
    taken, new_pid_namespace = number("unshare"), 0x2000_0000
    assert taken is not None
    with plugin(identity, LOUD) as path:
        options = ("--list", path, "--sandbox", profile)
        refused = host(identity, *options, without=(taken, new_pid_namespace))
        weakened = host(identity, *options, "--degrade", without=(taken, new_pid_namespace))
    assert (refused.returncode, refused.stderr) == (6, "")
    error = json.loads(refused.stdout)["error"]
    assert error.startswith(f"sandbox profile {profile!r} cannot be enforced here (pid_namespace: [Errno 38] unshare")
    assert "user.max_pid_namespaces" in error
    assert "--degrade continues without" in error
    assert "pid_namespace" in listed(weakened)["sandbox"]["missing"]


# ---- what can be wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sandbox", "lax"), "--sandbox: lax is not one of none, standard, spawn, strict"),
        (("--sandbox",), "--sandbox needs a value"),
        (("--sandbox", "strict", "--sandbox", "none"), "--sandbox is given twice"),
        (("--workspace", "/tmp"), "--workspace needs a sandbox"),
        (("--sandbox", "none", "--degrade"), "--degrade needs a sandbox"),
        (("--sandbox", "strict", "--executable", "/bin/sh"), "--executable: only the profile spawn starts programs"),
        (("--sandbox", "strict", "--user", "nobody"), "--user: nobody is not UID:GID"),
        (("--limit", "memory=1"), "--limit needs a sandbox"),
        (
            ("--sandbox", "strict", "--limit", "patience=1"),
            "--limit: patience is not one of memory, file-size, open-files",
        ),
        (("--sandbox", "strict", "--limit", "memory"), "--limit: memory is not NAME=N"),
        (("--sandbox", "strict", "--limit", "memory=0"), "--limit: memory=0 is not NAME=N"),
        (("--parent", "init"), "--parent: init is not a process"),
    ],
)
def test_a_command_line_that_says_nothing(options: tuple[str, ...], said: str) -> None:
    with plugin(OURSELVES, LOUD) as path:
        done = host(OURSELVES, "--list", path, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[0]
    assert "the plugin ran" not in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--workspace", "/nowhere/at/all"), "/nowhere/at/all"),
        (("--workspace", "/dev/null"), "/dev/null"),
        (("--workspace", "/"), "the whole disk cannot be a workspace"),
        (("--readable", "/nowhere/at/all"), "/nowhere/at/all"),
    ],
)
def test_a_wrong_path_is_refused_also_where_less_will_do(options: tuple[str, ...], said: str) -> None:
    with plugin(OURSELVES, LOUD) as path:
        done = host(OURSELVES, "--list", path, "--sandbox", "strict", "--degrade", *options)
    assert (done.returncode, done.stderr) == (6, "")
    answer = json.loads(done.stdout)
    assert answer["error"].startswith("sandbox profile 'strict': ")
    assert said in answer["error"]
    assert answer["sandbox"] == {"profile": "strict", "active": [], "missing": {}}


def test_a_program_of_the_workspace_is_none(workspace: str) -> None:
    program = Path(workspace) / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with plugin(OURSELVES, LOUD) as path:
        options = ("--sandbox", "spawn", "--workspace", workspace, "--executable", str(program))
        done = host(OURSELVES, "--list", path, *options, "--degrade")
    assert done.returncode == 6
    assert "a program in a workspace could be written before it is started" in json.loads(done.stdout)["error"]


def test_a_plugin_is_not_named_by_what_it_could_replace(workspace: str) -> None:
    with plugin(OURSELVES, LOUD) as path:
        link = Path(workspace) / "link.py"
        link.symlink_to(path)
        done = host(OURSELVES, "--list", str(link), "--sandbox", "strict", "--workspace", workspace)
    assert (done.returncode, done.stderr) == (6, "")
    assert f"the plugin, {str(link)!r}, is reached by the link" in json.loads(done.stdout)["error"]


def test_a_plugin_that_is_not_there_is_said_first() -> None:
    done = host(OURSELVES, "--list", "/nowhere.py", "--sandbox", "strict", "--workspace", "/nowhere/at/all")
    assert (done.returncode, json.loads(done.stdout)["error"]) == (3, "plugin not found: /nowhere.py")


def test_a_thread_that_was_there_before_would_stay_free() -> None:
    early = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    with plugin(OURSELVES, LOUD) as path:
        done = host(OURSELVES, "--list", path, "--sandbox", "strict", "--degrade", early=early)
    assert (done.returncode, done.stderr) == (6, "")
    assert "before there are threads" in json.loads(done.stdout)["error"]


# ---- root, who is nobody special in a sandbox -----------------------------------------------------------------------

AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can open what is closed, and become somebody else")
SYSTEM = Identity("copied", 0, SYSTEM_PYTHON)
NOBODYS = Identity("nobody", NOBODY, SYSTEM_PYTHON)


@AS_ROOT
@pytest.mark.parametrize("closed", ["plugin", "workspace", "data"])
def test_root_is_told_what_is_closed_to_it(closed: str) -> None:
    require("strict")
    with folder_of(NOBODYS) as room, plugin(OURSELVES, LOUD) as path:
        Path(room).chmod(0o700)
        inside = Path(room) / "plugin.py"
        inside.write_text(LOUD)
        options = {
            "plugin": ("--list", str(inside)),
            "workspace": ("--list", path, "--workspace", room),
            "data": ("--list", path, "--readable", room),
        }
        for less in ((), ("--degrade",)):
            done = host(OURSELVES, *options[closed], "--sandbox", "strict", *less)
            assert (done.returncode, done.stderr) == (6, ""), done
            error = json.loads(done.stdout)["error"]
            assert error.startswith(f"sandbox profile 'strict': {room!r} cannot be read")
            assert error.endswith("by user 0 without privileges")


@AS_ROOT
def test_root_becomes_the_named_user() -> None:
    require("strict")
    with plugin(NOBODYS, HONEST) as path, folder_of(NOBODYS) as space:
        options = ("--sandbox", "strict", "--user", f"{NOBODY}:{NOBODY}", "--workspace", space)
        done = host(SYSTEM, "--serve", path, *options, stdin=request(aid("place")) + request(aid("temporary")))
        assert called(done)[0] == [space, 0, NOBODY, "/dev/shm"]


@AS_ROOT
def test_an_interpreter_that_is_closed_to_the_user_is_named() -> None:
    """The plugin would fail at its first import otherwise, with an error about a module that is certainly there."""
    require("strict")
    with folder_of(SYSTEM) as room, plugin(SYSTEM, LOUD) as path:
        closed = f"{room}/closed"
        shutil.copytree(staged(), closed)
        Path(closed).chmod(0o700)
        done = host(SYSTEM, "--list", path, "--sandbox", "strict", "--user", f"{NOBODY}:{NOBODY}", package=closed)
    assert (done.returncode, done.stderr) == (6, "")
    error = json.loads(done.stdout)["error"]
    assert "which the host itself is made of, is closed to user 65534 without privileges" in error


STARTER = """
import os, subprocess, sys
parent = ["--parent", str(os.getpid())]
host = subprocess.Popen([*sys.argv[2:], *parent], stdin=int(sys.argv[1]), stdout=subprocess.PIPE)
host.stdout.readline()
print(host.pid, flush=True)
sys.stdin.read()
"""


def ends_with_its_parent(python: str, command: list[str]) -> bool:
    reading, writing = os.pipe()  # it stays open here, so that only a signal can end the host
    starter = subprocess.Popen(
        [python, "-I", "-S", "-c", STARTER, str(reading), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[reading],
        cwd="/",
    )
    os.write(writing, b"[]\n")
    assert starter.stdout is not None
    ended = os.pidfd_open(int(starter.stdout.readline()))
    starter.kill()
    starter.communicate()
    try:
        return bool(select.select([ended], [], [], 30)[0])
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(ended, signal.SIGKILL)
        for descriptor in (reading, writing, ended):
            os.close(descriptor)


@pytest.mark.parametrize("profile", ["none", "strict"])
def test_a_host_ends_with_its_parent(profile: str) -> None:
    require("strict")
    with plugin(OURSELVES, HONEST) as path:
        assert ends_with_its_parent(OURSELVES.python, argv(OURSELVES, "--serve", path, "--sandbox", profile))


def test_a_host_whose_parent_is_gone_does_not_start() -> None:
    with plugin(OURSELVES, LOUD) as path:
        done = host(OURSELVES, "--list", path, "--parent", str(os.getpid()))  # there is a shell in between
    assert done == (1, "", "")


@AS_ROOT
def test_whom_root_becomes_still_dies_with_its_parent() -> None:
    """The kernel forgets the arrangement when a process changes its user."""
    require("strict")
    with plugin(NOBODYS, HONEST) as path:
        command = argv(SYSTEM, "--serve", path, "--sandbox", "strict", "--user", f"{NOBODY}:{NOBODY}")
        assert ends_with_its_parent(SYSTEM_PYTHON, command)
