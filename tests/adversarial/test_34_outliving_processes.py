"""Case 34: processes that outlive their call, its host or the server, and files that they leave or replace."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from manglecp.pack import SandboxPolicy, read_pack
from manglecp.toolhost import ActionResult
from manglecp.toolhost.action_hosts import serve_actions
from tests.adversarial._hosted import value
from tests.adversarial._leftovers import call_of, is_free, leaving, pool_of, wait_until_free, wait_until_held
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import error, nothing_left, pids_of
from tests.toolhost.rights import asking
from tests.toolhost.sandbox.confined import Identity, identities, require
from tests.workspace.acting import Served, serving
from tests.workspace.repositories import layered

pytestmark = pytest.mark.no_cover
HOW = ["daemon", pytest.param("deaf", marks=pytest.mark.soak), "breeding"]


@pytest.fixture(params=identities(), ids=lambda identity: identity.name)
def identity(request: pytest.FixtureRequest) -> Identity:
    require("standard")
    chosen: Identity = request.param
    return chosen


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("profile", ["spawn", "standard"])
def test_an_answer_counts_when_all_processes_of_its_call_are_dead(profile: str, how: str, identity: Identity) -> None:
    async def main() -> None:
        async with pool_of(command) as pool:
            assert value(await pool.call(call_of("leave", how=how, lock=str(lock)))) == 2
            assert is_free(lock), "it was answered while a process of the call was alive"

    with leaving(identity, profile) as (command, workspace), nothing_left():
        lock = workspace / "lock"
        asyncio.run(main())


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("end", ["cancellation", pytest.param("deadline", marks=pytest.mark.soak)])
def test_a_lost_call_is_reported_when_all_of_its_processes_are_dead(end: str, how: str, identity: Identity) -> None:
    async def main() -> None:
        async with pool_of(command) as pool:
            assert isinstance(await pool.call(call_of("litter")), ActionResult), "it is up"
            timeout = patience(3) if end == "deadline" else None
            call = call_of("leave", timeout=timeout, how=how, lock=str(lock), hang=True)
            task = asyncio.create_task(pool.call(call))
            await asyncio.to_thread(wait_until_held, lock)
            if end == "cancellation":
                assert pool.cancel(call.call_id)
            assert error(await task)[1] == "outcome_unknown"
            assert is_free(lock)

    with leaving(identity, "spawn") as (command, workspace), nothing_left():
        lock = workspace / "lock"
        asyncio.run(main())


@pytest.mark.parametrize("how", HOW)
def test_without_a_namespace_a_supervisor_kills_until_no_process_is_left(how: str, identity: Identity) -> None:
    async def main() -> None:
        async with pool_of(command) as pool:
            pid = value(await pool.call(call_of("leave", how=how, lock=str(lock))))
            assert pid > 2, "there is no namespace"
            assert is_free(lock)
            place = Path(value(await pool.call(call_of("litter"))))
            assert place.parent.parent == workspace / "temporary"

    with leaving(identity, "spawn", namespace=False) as (command, workspace), nothing_left():
        lock = workspace / "lock"
        asyncio.run(main())
        assert not list((workspace / "temporary").iterdir())


SERVER = """
import asyncio, os, pickle, sys
from tests.adversarial._leftovers import call_of, pool_of
from tests.toolhost.dispatch.hosts import pids_of

async def main():
    command, lock = pickle.loads(bytes.fromhex(sys.argv[1]))
    async with pool_of(command) as pool:
        task = asyncio.create_task(pool.call(call_of("leave", how="daemon", lock=lock, hang=True)))
        while not pids_of(pool):
            await asyncio.sleep(0.01)
        print(pids_of(pool)[0], flush=True)
        await task

asyncio.run(main())
"""


@pytest.mark.parametrize("namespace", [True, False], ids=["namespace", "supervisor"])
def test_kill_9_of_the_server_leaves_no_process_and_no_file(namespace: bool, identity: Identity) -> None:
    with leaving(identity, "spawn", namespace=namespace) as (command, workspace):
        lock = workspace / "lock"
        argument = pickle.dumps((command, str(lock))).hex()
        server = subprocess.Popen([sys.executable, "-c", SERVER, argument], stdout=subprocess.PIPE)
        try:
            wait_until_held(lock)
        finally:
            server.kill()
            server.communicate()
        wait_until_free(lock)
        deadline = time.monotonic() + patience(10)
        while list((workspace / "temporary").iterdir()):
            assert time.monotonic() < deadline, "a temporary folder was left behind"
            time.sleep(0.01)


def test_kill_9_of_the_supervisor_ends_its_namespace(identity: Identity) -> None:
    async def main() -> None:
        async with pool_of(command) as pool:
            assert isinstance(await pool.call(call_of("litter")), ActionResult)
            task = asyncio.create_task(pool.call(call_of("leave", how="deaf", lock=str(lock), hang=True)))
            await asyncio.to_thread(wait_until_held, lock)
            os.kill(pids_of(pool)[0], signal.SIGKILL)
            assert error(await task) == ("crash", "outcome_unknown")
            await asyncio.to_thread(wait_until_free, lock)

    with leaving(identity, "spawn") as (command, workspace):
        lock = workspace / "lock"
        asyncio.run(main())


def test_a_child_changes_no_limit_of_its_host(identity: Identity) -> None:
    async def main() -> None:
        async with pool_of(command) as pool:
            assert value(await pool.call(call_of("squeeze"))) == []

    with leaving(identity, "spawn") as (command, _):
        asyncio.run(main())


UNDECLARED = '''
import ctypes, multiprocessing, os, platform, socket, subprocess, threading
from pathlib import Path
from manglecp import action

CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]


def fork():
    if not os.fork():
        Path("late").touch()
        os._exit(0)
    os.wait()


def clone():
    child = ctypes.CDLL(None, use_errno=True).syscall(CLONE, 17, 0, 0, 0, 0)
    if not child:
        os._exit(0)
    if child < 0:
        raise OSError(ctypes.get_errno(), "clone")
    os.wait()


WAYS = {
    "fork": fork,
    "clone": clone,
    "spawn": lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
    "program": lambda: subprocess.run(["true"], check=True),
    "worker": lambda: multiprocessing.get_context("fork").Process(target=print).start(),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "thread": lambda: threading.Thread(target=str).start(),
    "socket": lambda: socket.socket().close(),
    "file": lambda: Path("file").write_text("x"),
}


def tried(ways):
    able = []
    for name in ways:
        try:
            WAYS[name]()
            able.append(name)
        except OSError:
            pass
    return {"able": able, "pid": os.getpid()}


@action(effects=["filesystem", "network"])
def plain() -> dict[str, object]:
    """Does not declare that it starts programs."""
    return tried(WAYS)


@action(effects=["process"])
def declared() -> dict[str, object]:
    """Declares it."""
    return tried([name for name in WAYS if name != "exec"])
'''


def test_what_does_not_declare_processes_creates_none_in_any_profile(tmp_path: Path) -> None:
    """Its host serves further calls, so a process would outlive the call."""
    require("standard")
    for name in ("pack/rules", "work"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "pack/rules/a.mg").write_text("p(1).")
    (tmp_path / "pack/pack.toml").write_text('[sandbox]\nprofile = "standard"\n')
    (tmp_path / "pack/actions.py").write_text(UNDECLARED)

    async def main() -> None:
        weaker = SandboxPolicy(allow_weaker=True)
        async with serve_actions(
            read_pack(tmp_path / "pack"), size=1, workspace=tmp_path / "work", sandbox=weaker
        ) as served:

            async def call(name: str) -> Any:
                aid = f"AID.PACK.{name.upper()}.v1"
                return value(await served.call(aid, **asking(aid)))

            first, second = await call("plain"), await call("plain")
            assert first == second, "the host is used again"
            assert first["able"] == ["thread", "socket", "file"]
            everything = ["fork", "clone", "spawn", "program", "worker", "thread", "socket", "file"]
            assert (await call("declared"))["able"] == everything

    with nothing_left():
        asyncio.run(main())


# A test of a repository that stays alive and replaces what later calls work on: the index of a commit, and the record
# of a test run, in every folder that it can write.
STAYING = """
import os, subprocess, tempfile, time
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN = Path(os.environ["HOME"]).parent


def git(*arguments):
    places = {"GIT_INDEX_FILE": f"{OWN}/forged", "GIT_DIR": f"{ROOT}/.git", "GIT_CONFIG_GLOBAL": "/dev/null"}
    environ = {**os.environ, **places, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", f"safe.directory={ROOT}", *arguments]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout


def replace(folder, forged):
    for index in folder.rglob("commit-*/index"):
        index.with_name("new").write_bytes(forged)
        index.with_name("new").replace(index)
    for record in folder.rglob("report.jsonl"):
        if record.parent != OWN:
            record.write_text(record.read_text().replace('"outcome": "failed"', '"outcome": "passed"'))


def is_writable(folder):
    try:
        (folder / "probe").touch()
    except OSError:
        return False
    return True


def test_stay():
    writable = [place for place in Path(tempfile.gettempdir()).parents if is_writable(place)][-1:]
    git("read-tree", "HEAD")
    blob = git("rev-parse", "HEAD:README.md").strip()
    git("update-index", "--add", "--cacheinfo", f"100644,{blob},other.txt")
    forged = (OWN / "forged").read_bytes()
    if os.fork():
        return
    if os.fork():
        os._exit(0)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for place in writable:
            try:
                replace(place, forged)
            except OSError:
                pass
    os._exit(0)
"""


def test_a_test_of_one_call_reaches_neither_a_commit_nor_a_test_run_of_another(tmp_path: Path) -> None:
    repository = layered(tmp_path / "pricing")
    repository.write(
        {
            "tests/test_staying.py": STAYING,
            "tests/test_failing.py": "import time\n\n\ndef test_failing():\n    time.sleep(0.3)\n    assert False\n",
            "named.txt": "x\n",
            "other.txt": "x\n",
        }
    )

    async def work(served: Served) -> None:
        run = await served.call("run_tests", tests=["tests/test_staying.py"])
        assert run["outcome"] == "passed", run["output"]
        assert not _test_processes(repository.root)
        for number in range(3):
            repository.write({"named.txt": f"{number}\n"})
            made: dict[str, Any] = await served.call("commit", paths=["named.txt"], message="x", branch="work")
            assert made["files"] == ["named.txt"]
            assert repository.git("diff-tree", "-r", "--name-only", "--no-commit-id", "work") == "named.txt"
        run = await served.call("run_tests", tests=["tests/test_failing.py"])
        assert (run["failed"], run["passed"]) == (["tests/test_failing.py::test_failing"], [])

    serving(repository.root, work, folder=tmp_path)
    assert not (repository.root / ".tmp").exists()


def _test_processes(root: Path) -> list[bytes]:
    """Return the command lines of processes that run tests of this repository."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = entry.read_bytes().replace(b"\0", b" ")
            if b" -m pytest " in line and f"--rootdir={root} ".encode() in line:
                found.append(line)
    return found
