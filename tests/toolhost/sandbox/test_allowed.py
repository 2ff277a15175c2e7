"""What honest plugins do still works in `strict`, as ourselves and as nobody."""

from pathlib import Path

import pytest

from manglecp.toolhost.sandbox import Policy

from .confined import Identity, require, run

HONEST = {
    "threads": """
import threading
results = []
threads = [threading.Thread(target=results.append, args=(n,)) for n in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert sorted(results) == list(range(8))
""",
    "late imports": """
import decimal, email.message, sqlite3, ssl, unittest, xml.etree.ElementTree, zoneinfo
import manglecp.toolhost.sandbox.landlock
sqlite3.connect(":memory:").execute("select 1")
""",
    "an event loop": """
import asyncio
async def main():
    await asyncio.sleep(0)
    return await asyncio.to_thread(len, "abc")
assert asyncio.run(main()) == 3
""",
    "files of the workspace": """
import os, pathlib, shutil
here = pathlib.Path(WORKSPACE)
(here / "a" / "b").mkdir(parents=True)
(here / "a" / "file").write_text("text")
shutil.copy2(here / "a" / "file", here / "a" / "b" / "copy")
(here / "a" / "b" / "copy").chmod(0o700)
(here / "a" / "b" / "copy").rename(here / "moved")
(here / "link").symlink_to("moved")
(here / "hard").hardlink_to(here / "moved")
assert (here / "link").read_text() == "text"
shutil.rmtree(here / "a")
assert sorted(os.listdir(here)) == ["hard", "link", "moved"]
""",
    "a relative path of the workspace": """
import pathlib
pathlib.Path("relative").write_text("x")
""",
    "a database in the workspace": """
import sqlite3
with sqlite3.connect(WORKSPACE + "/db") as db:
    db.execute("pragma journal_mode=wal")
    db.execute("create table t(x)")
""",
    "time zones": """
import datetime, time
time.localtime()
datetime.datetime.now().astimezone()
""",
    "chance": """
import os, random, secrets, uuid
open("/dev/urandom", "rb").read(1)
os.urandom(8), secrets.token_hex(), random.random(), uuid.uuid4()
""",
    "output to nowhere": """
open("/dev/null", "w").write("x")
""",
    "signals to oneself": """
import os, signal
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
assert len(seen) == 2
""",
    "foreign functions": """
import ctypes
assert ctypes.CDLL(None).abs(-3) == 3
callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 7)
assert callback() == 7
""",
}


@pytest.mark.parametrize("what", HONEST)
def test_strict_allows(what: str, workspace: str, identity: Identity) -> None:
    require("strict")
    before = f"import os; os.chdir({workspace!r}); WORKSPACE = {workspace!r}"
    outcome = run("strict", HONEST[what], Policy(workspace=(workspace,)), before=before, identity=identity)
    assert outcome.returncode == 0, outcome.stderr


def test_a_named_file_can_be_read_but_not_written(workspace: str, identity: Identity) -> None:
    require("strict")
    data = Path(workspace) / "data"
    data.write_text("known")
    data.chmod(0o666)
    code = f"""
assert open({str(data)!r}).read() == "known"
try:
    open({str(data)!r}, "w")
except OSError:
    print("stopped")
"""
    assert run("strict", code, Policy(readable=(str(data),)), identity=identity).stdout == "stopped\n"


def test_standard_leaves_the_network_programs_and_reading_but_not_writing(workspace: str, identity: Identity) -> None:
    require("standard")
    code = f"""
import pathlib, socket, subprocess
pathlib.Path("/etc/passwd").read_text()
socket.create_server(("127.0.0.1", 0)).close()
assert subprocess.run(["/bin/echo", "hello"], capture_output=True, check=True).stdout == b"hello\\n"
pathlib.Path({workspace!r}, "file").write_text("x")
for elsewhere in ("/tmp/manglecp-elsewhere", "/etc/manglecp-elsewhere", "/run/lock/manglecp-elsewhere"):
    try:
        pathlib.Path(elsewhere).write_text("x")
    except PermissionError:
        print("stopped")
"""
    outcome = run("standard", code, Policy(workspace=(workspace,)), identity=identity)
    assert outcome.stdout.split() == ["stopped"] * 3, outcome


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6755])
def test_standard_makes_no_file_that_runs_as_its_owner(mode: int, workspace: str, identity: Identity) -> None:
    require("standard")
    code = f"""
import os
path = os.path.join({workspace!r}, "program")
open(path, "w").close()
os.chmod(path, 0o1755)
for what in (lambda: os.chmod(path, {mode}), lambda: os.open(path + "2", os.O_CREAT | os.O_WRONLY, {mode})):
    try:
        what()
    except PermissionError:
        print("stopped", oct(os.stat(path).st_mode))
"""
    outcome = run("standard", code, Policy(workspace=(workspace,)), identity=identity)
    assert outcome.stdout.splitlines() == ["stopped 0o101755"] * 2, outcome


def test_files_are_copied_with_what_can_be_known_of_them(workspace: str, identity: Identity) -> None:
    require("strict")
    code = f"""
import os, shutil
os.chdir({workspace!r})
open("one", "w").write("x")
print(open(shutil.copy2("one", "two")).read(), os.listdir("."))
"""
    outcome = run("strict", code, Policy(workspace=(workspace,)), identity=identity)
    assert outcome.stdout.startswith("x "), outcome
