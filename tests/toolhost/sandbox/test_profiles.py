"""A profile is enforced, refused by name, or weakened on demand and then says so."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from manglecp.toolhost.sandbox import (
    PROFILES,
    Enforcement,
    Policy,
    Profile,
    SandboxUnavailable,
    apply,
    measure,
    profiles,
)
from manglecp.toolhost.sandbox.policy import Unsupported

from .confined import NOBODY, Identity, require, run


def test_none_changes_nothing() -> None:
    assert apply("none") == Enforcement("none", (), {})
    assert Path("/etc/passwd").read_bytes()


def test_an_unknown_profile_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown sandbox profile 'lax'"):
        apply("lax")  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (Policy(workspace=("relative",)), ValueError),
        (Policy(workspace=("/nowhere/at/all",)), FileNotFoundError),
        (Policy(workspace=("/dev/null",)), NotADirectoryError),
        (Policy(workspace=("/tmp/..",)), ValueError),
        (Policy(readable=("/nowhere/at/all",)), FileNotFoundError),
        (Policy(executables=("true",)), ValueError),
    ],
)
def test_a_wrong_path_is_a_mistake_and_not_a_missing_mechanism(policy: Policy, error: type[Exception]) -> None:
    with pytest.raises(error):
        apply("strict", policy, degrade=True)


def test_threads_come_later() -> None:
    """Landlock confines the thread that asks; one that was there before would stay free."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="before there are threads"):
            apply("strict", degrade=True)
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("profile", PROFILES)
def test_probe_leaves_the_caller_as_it_is(profile: Profile) -> None:
    def state() -> tuple[str, ...]:
        status = Path("/proc/self/status").read_text().splitlines()
        kept = [line for line in status if line.startswith(("NoNewPrivs", "Seccomp", "Cap", "Uid", "Groups"))]
        return (*kept, str(Path("/proc/self/ns/net").readlink()), str(Path("/proc/self/ns/mnt").readlink()))

    before, descriptors = state(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # iterdir holds one open
    measure(profile)
    assert state() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208


def test_a_probe_beside_a_library_that_starts_threads_in_every_copy() -> None:
    """As those do that send traces from a thread of theirs."""
    code = """
import os, threading
os.register_at_fork(after_in_child=lambda: threading.Thread(target=threading.Event().wait, daemon=True).start())
from manglecp.toolhost.sandbox import measure
print(measure("strict").profile)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "strict\n", done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_working_folder_of_root_is_left(tmp_path: Path) -> None:
    policy = Policy(user=(NOBODY, NOBODY))
    require("strict", policy)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    outcome = run("strict", "print(os.getcwd())", policy, before=f"import os; os.chdir({str(closed)!r})")
    assert outcome.stdout == "/\n", outcome


@pytest.mark.parametrize("given", [("a", "a/b"), ("a/b", "a"), ("a", "a"), ("link",)], ids="+".join)
def test_workspaces_may_overlap(given: tuple[str, ...], workspace: str, identity: Identity) -> None:
    require("strict")
    prepare = f"import os; os.chdir({workspace!r}); os.makedirs('a/b'); os.symlink('a', 'link')"
    run("none", prepare, identity=identity)
    policy = Policy(workspace=tuple(f"{workspace}/{part}" for part in given))
    code = "open('a/file', 'w'); open('a/b/file', 'w'); print('written')"
    outcome = run("strict", code, policy, before=f"import os; os.chdir({workspace!r})", identity=identity)
    assert outcome.stdout == "written\n", outcome


def test_the_temporary_folder_hides_nothing_of_the_policy() -> None:
    assert profiles._temporary_folder(Policy()) == "/dev/shm"
    for policy in (Policy(workspace=("/dev/shm",)), Policy(readable=("/dev/shm/data",))):
        assert profiles._temporary_folder(policy) == "/var/tmp"
    with pytest.raises(Unsupported, match="no place for a temporary folder"):
        profiles._temporary_folder(Policy(workspace=("/dev/shm", "/var/tmp/a", "/mnt", "/media/b")))


def test_strict_has_every_wall_that_it_needs(identity: Identity) -> None:
    require("strict")
    outcome = run("strict", "print('started')", identity=identity)
    assert outcome.stdout == "started\n", outcome


# What a kernel without a mechanism answers, put in the place of the step.
MISSING = """
from manglecp.toolhost.sandbox import landlock, namespaces, policy, profiles, seccomp
def refuse(*_):
    raise OSError(38, "not on this kernel")
"""


@pytest.mark.parametrize(
    ("step", "mechanism"),
    [
        ("namespaces.leave_network", "network_namespace"),
        ("namespaces.make_disk_read_only", "mount_namespace"),
        ("landlock.restrict_files", "landlock_files"),
        ("seccomp.restrict_calls", "seccomp"),
    ],
)
def test_a_missing_mechanism_is_named_and_stops_the_start(step: str, mechanism: str) -> None:
    outcome = run("strict", "print('started')", before=f"{MISSING}\n{step} = refuse")
    assert outcome.stdout == ""
    assert f"{mechanism}: [Errno 38] not on this kernel" in outcome.stderr.splitlines()[-1]
    assert "SandboxUnavailable" in outcome.stderr.splitlines()[-1]


def test_less_will_do_only_if_somebody_says_so() -> None:
    require("strict")
    code = """
landlock.restrict_files = refuse
result = profiles.apply("strict", degrade=True)
active = result.active_mechanisms
print(result.complete, "landlock_files" in active, "seccomp" in active, dict(result.missing_mechanisms))
"""
    outcome = run("none", code, before=MISSING)
    assert outcome.stdout == "False False True {'landlock_files': '[Errno 38] not on this kernel'}\n", outcome


def test_what_strict_does_not_need_is_not_missing() -> None:
    """Before Linux 6.12 Landlock cannot hold back signals; seccomp does so where there are no children."""
    require("strict")
    code = """
landlock.version = lambda: 3
print("landlock_scopes" in profiles.apply("strict").active_mechanisms)
"""
    outcome = run("none", code, before=MISSING)
    assert outcome.stdout == "False\n", outcome


def test_the_refusal_names_each_missing_mechanism() -> None:
    error = SandboxUnavailable(Enforcement("strict", (), {"seccomp": "none", "landlock_files": "ABI 1"}))
    reasons = "(seccomp: none; landlock_files: ABI 1)"
    assert str(error) == f"sandbox profile 'strict' cannot be enforced here {reasons}; --degrade continues without them"
    assert error.enforcement.missing_mechanisms["seccomp"] == "none"


# ---- each wall alone: what one lets through another has to stop ---------------------------------------------------

ALONE: dict[str, tuple[str, str]] = {
    "the network namespace": (
        "os.geteuid() and namespaces.enter_user_namespace(); namespaces.leave_network()",
        "import socket; socket.create_connection(('127.0.0.1', 9), timeout=2)",
    ),
    "the read-only disk": (
        "os.geteuid() and namespaces.enter_user_namespace();"
        " namespaces.enter_mount_namespace('/dev/shm', 4096, own_processes=False); namespaces.make_disk_read_only([])",
        "os.chmod(FILE, 0o777)",
    ),
    "Landlock": (
        "privileges.refuse_new_privileges(); landlock.restrict_files([])",
        "open(FILE, 'rb')",
    ),
    "the scopes of Landlock": (
        "privileges.refuse_new_privileges(); landlock.restrict_scopes()",
        "os.kill(os.getppid(), 0)",
    ),
    "seccomp": (
        "privileges.refuse_new_privileges(); seccomp.restrict_calls('strict', os.getpid())",
        "os.fork()",
    ),
    "the limits": (
        "privileges.limit_resources(policy.Policy(memory=1 << 28))",
        "bytearray(1 << 29)",
    ),
}
EXPECTED: dict[str, Callable[[str], bool]] = {
    "the network namespace": lambda text: "[Errno 101]" in text,  # the network is unreachable
    "the read-only disk": lambda text: "[Errno 30]" in text,
    "Landlock": lambda text: "[Errno 13]" in text,
    "the scopes of Landlock": lambda text: "[Errno 1]" in text,
    "seccomp": lambda text: "[Errno 1]" in text,
    "the limits": lambda text: text.startswith("MemoryError"),
}


@pytest.mark.parametrize("wall", ALONE)
def test_each_wall_stands_alone(wall: str, workspace: str, identity: Identity) -> None:
    require("spawn", Policy(user=(NOBODY, NOBODY)) if os.getuid() == 0 else None)
    build, attack = ALONE[wall]
    file = Path(workspace) / "file"
    file.write_bytes(b"x")
    file.chmod(0o644)
    if os.getuid() == 0:
        os.chown(file, identity.uid, identity.uid)
    code = f"""
import os
from manglecp.toolhost.sandbox import landlock, namespaces, policy, privileges, seccomp
FILE = {str(file)!r}
{build}
{attack}
"""
    outcome = run("none", code, identity=identity)
    last = (outcome.stderr.splitlines() or ["nothing was raised"])[-1]
    assert EXPECTED[wall](last), outcome
