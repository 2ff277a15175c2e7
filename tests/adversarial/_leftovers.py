"""Actions that leave processes behind, in hosts as the user of the tests and as uid 65534.

Each process that is left behind holds a lock on a file of the workspace. Children share the lock of their parent, so
it is free exactly when all of them are dead.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from manglecp.toolhost import HostCall
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.pool import Pool
from manglecp.toolhost.sandbox.kernel import number
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import QUICK
from tests.toolhost.rights import authorised
from tests.toolhost.sandbox.confined import Identity
from tests.toolhost.sandbox.hosted import WITHOUT, argv, folder_of, plugin

LEAVING = """
import fcntl, os, resource, signal, sys, time
from manglecp import action


def hold(lock):
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def daemon():
    if os.fork():
        return
    try:
        os.setsid()
    except OSError:
        pass
    if os.fork():
        os._exit(0)
    time.sleep(600)


def deaf():
    if os.fork():
        return
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)


def breeding():
    if os.fork():
        return
    for _ in range(20_000):
        try:
            if os.fork():
                os._exit(0)
        except BlockingIOError:
            pass
        time.sleep(0.0005)
    os._exit(0)


@action(effects=["process"])
def leave(how: str, lock: str, hang: bool = False) -> int:
    \"\"\"Leave a process behind.\"\"\"
    descriptor = hold(lock)
    globals()[how]()
    os.close(descriptor)
    if hang:
        time.sleep(600)
    return os.getpid()


@action(effects=["process"])
def squeeze() -> list[str]:
    \"\"\"Change the limits and the priority of the host from a child.\"\"\"
    host, (reading, writing) = os.getpid(), os.pipe()
    tried = {
        "limit": lambda: resource.prlimit(host, resource.RLIMIT_NOFILE, (4, 4)),
        "affinity": lambda: os.sched_setaffinity(host, {0}),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, host, 19),
    }
    if not os.fork():
        for name, attempt in tried.items():
            try:
                attempt()
                os.write(writing, name.encode() + b" ")
            except OSError:
                pass
        os._exit(0)
    os.wait()
    os.close(writing)
    return os.read(reading, 99).decode().split()


@action(effects=["process"])
def litter() -> str:
    \"\"\"Leave a file in the temporary folder.\"\"\"
    import tempfile
    return tempfile.mkstemp()[1]
"""


@contextmanager
def leaving(identity: Identity, profile: str, *, namespace: bool = True) -> Iterator[tuple[HostCommand, Path]]:
    """Yield the command of a host that leaves processes behind, and its workspace.

    Without ``namespace`` the kernel of the host creates no namespaces.
    """
    with plugin(identity, LEAVING) as path, folder_of(identity) as workspace:
        # The kernel does not limit the processes of root.
        degrade = () if identity.uid and namespace else ("--degrade",)
        options = ("--sandbox", profile, "--workspace", workspace, *degrade)
        command = argv(identity, "--serve", path, *options)
        if not namespace:
            command = [identity.python, "-I", "-S", "-c", WITHOUT, str(number("unshare")), "-1", *command]
        if identity.uid != os.getuid():
            setpriv = shutil.which("setpriv")
            assert setpriv is not None
            command = [setpriv, f"--reuid={identity.uid}", f"--regid={identity.uid}", "--clear-groups", *command]
        temporary = Path(workspace) / "temporary"
        temporary.mkdir()
        shutil.chown(temporary, identity.uid, identity.uid)
        yield (
            HostCommand(
                argv=tuple(command),
                environ={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TMPDIR": str(temporary)},
                lease_key_option="--lease-key-fd",
                progress_option="--progress-fd",
                parent_option="--parent",
                contained=True,
                single_use=True,
            ),
            Path(workspace),
        )


def pool_of(command: HostCommand) -> Pool:
    return Pool(command, size=1, timeout=patience(30), limits=QUICK._replace(health_timeout=patience(10)))


def call_of(name: str, *, timeout: float | None = None, **inputs: Any) -> HostCall:
    call = HostCall(aid=f"AID.PLUGIN.{name.upper()}.v1", input_json=json.dumps(inputs), tier=2)
    return authorised(call if timeout is None else replace(call, timeout=timeout))


def is_free(lock: Path) -> bool:
    """Return whether no process holds the lock."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def wait_until_free(lock: Path) -> None:
    deadline = time.monotonic() + patience(20)
    while not is_free(lock):
        assert time.monotonic() < deadline, "a process was left behind"
        time.sleep(0.01)


def wait_until_held(lock: Path) -> None:
    deadline = time.monotonic() + patience(30)
    while not lock.exists() or is_free(lock):
        assert time.monotonic() < deadline, "no process holds the lock"
        time.sleep(0.01)
