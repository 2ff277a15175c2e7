"""Running code in a child process that has locked itself in."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import manglecp
from manglecp.toolhost.sandbox import Mechanism, Policy, Profile, measure

from .attacks import Scene

PACKAGE = Path(manglecp.__file__).parent
HERE = Path(__file__).parent
NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"


@cache
def staged() -> Path:
    """Copies of the toolhost and of the attackers that everybody can read; the repository may be closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="manglecp-staged-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for package in ("base", "toolhost"):
        copy = folder / "manglecp" / package
        shutil.copytree(PACKAGE / package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("__init__.py", "__init__.pyi"):
        shutil.copy(PACKAGE / file, folder / "manglecp")
    for script in ("assault.py", "attacks.py"):
        shutil.copy(HERE / script, folder)
    for python in dict.fromkeys(each.python for each in identities()):  # compiled once, not at each of many starts
        subprocess.run([python, "-I", "-S", "-m", "compileall", "-q", str(folder)], check=True)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


class Identity(NamedTuple):
    """Who runs the worker, and with which interpreter: one that this user can read."""

    name: str
    uid: int
    python: str


def identities() -> list[Identity]:
    """Ourselves; and nobody as well where we are root and there is an interpreter that nobody can read."""
    found = [Identity("self", os.getuid(), sys.executable)]
    if os.getuid() == 0 and os.access(SYSTEM_PYTHON, os.X_OK):
        found.append(Identity("nobody", NOBODY, SYSTEM_PYTHON))
    return found


class Outcome(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


_CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from manglecp.toolhost.sandbox import Policy, apply
before, code, profile, policy = json.loads(sys.argv[2])
scope = {"__name__": "__confined__"}
exec(before, scope)
apply(profile, Policy(**policy))
exec(code, scope)
"""


def run(
    profile: Profile, code: str, policy: Policy | None = None, *, before: str = "", identity: Identity | None = None
) -> Outcome:
    """Run `code` after the profile is in force; `before` runs while everything is still allowed."""
    identity = identity or identities()[0]
    arguments = json.dumps([before, code, profile, (policy or Policy())._asdict()])
    done = subprocess.run(
        [identity.python, "-B", "-I", "-S", "-c", _CHILD, str(staged()), arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        process_group=0,
        stdin=subprocess.DEVNULL,
        cwd="/",
        **as_identity(identity),
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def assault(profile: Profile, scene: Scene, names: list[str], identity: Identity) -> dict[str, str]:
    """What became of each attack (assault.py)."""
    arguments = [str(staged()), profile, json.dumps(scene), json.dumps(names)]
    done = subprocess.run(
        [identity.python, "-B", "-I", "-S", str(staged() / "assault.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd="/",
        **as_identity(identity),
    )
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, str] = json.loads(done.stdout)
    return outcomes


def start_victim(identity: Identity) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "600"], cwd="/", **as_identity(identity))


def end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def as_identity(identity: Identity) -> Mapping[str, Any]:
    return {} if identity.uid == os.getuid() else {"user": identity.uid, "group": identity.uid, "extra_groups": []}


@cache
def _missing(profile: Profile, policy: Policy | None) -> Mapping[Mechanism, str]:
    return measure(profile, policy).missing_mechanisms


def require(profile: Profile, policy: Policy | None = None) -> None:
    """Skip, and say what is missing, where the kernel cannot enforce the profile; fail where it has to."""
    missing = _missing(profile, policy)
    if not missing:
        return
    reason = f"{profile} cannot be enforced here: {dict(missing)}"
    if os.environ.get("MANGLECP_REQUIRE_SANDBOX") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
