"""Secrets of ``@lifespan``: when a host gets them, when it is replaced, and what a lifespan connects to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from manglecp.mangle import Program
from manglecp.pack import PackError, SecretProvider, SecretSource, SecretUse, read_pack
from manglecp.toolhost.action_hosts import serve_actions
from manglecp.toolhost.dispatch.messages import ActionResult
from manglecp.toolhost.dispatch.process import HostProcess
from manglecp.toolhost.external_hosts import serve_externals
from manglecp.toolhost.generator_hosts import serve_facts
from tests.deadlines import patience
from tests.toolhost.conversation import host
from tests.toolhost.dispatch.hosts import error
from tests.toolhost.sandbox.confined import require
from tests.toolhost.test_egress import Echo, echo, wait_until

__all__ = ["echo"]
SETTINGS = "[secrets.DSN]\n[secrets.TOKEN]\n[params.database]\n"
ACTIONS = '''
import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from typing import Annotated

from manglecp import Context, Secret, action, lifespan

DATABASE = dict(effects=["network"], mutates=False, egress=["{database}"])


@lifespan
async def opened(context: Context, dsn: Annotated[str, Secret("DSN")]) -> AsyncIterator[dict]:
    if "refused" in dsn:
        print(f"wrong: {dsn}", file=sys.stderr)
        raise PermissionError(f"wrong credential {dsn}")
    host, _, port = context.settings["database"].rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(dsn.encode())
    answer = connection.recv(999).decode()
    threading.Thread(target=connect_when_told, args=(host, int(port)), daemon=True).start()
    yield {"connection": connection, "dsn": answer}
    connection.close()


def connect_when_told(host: str, port: int) -> None:
    while not os.path.exists("go"):
        time.sleep(0.01)
    try:
        with socket.create_connection((host, port), timeout=60) as connection:
            connection.sendall(b"between calls")
            answer = connection.recv(99).decode() or "closed"
    except OSError as problem:
        answer = type(problem).__name__
    with open("found", "w") as file:
        file.write(answer)


@action(**DATABASE)
def ask(context: Context[dict], text: str) -> list[str | int]:
    """Ask over the connection of the lifespan."""
    context.state["connection"].sendall(text.encode())
    return [os.getpid(), context.state["connection"].recv(99).decode(), len(context.state["dsn"])]


@action(**DATABASE)
def leak(context: Context[dict]) -> str:
    return "it is " + context.state["dsn"]


@action(concurrency=4, **DATABASE)
async def wait(context: Context[dict], started: str, end: str) -> int:
    open(started, "w").close()
    while not os.path.exists(end):
        await asyncio.sleep(0.01)
    return len(context.state["dsn"])


@action(**DATABASE)
def also(token: Annotated[str, Secret("TOKEN")]) -> int:
    return os.getpid()
'''
FIRST, SECOND = "postgres://first-canary@db", "postgres://second-canary-2@db"
Call = Callable[..., Coroutine[Any, Any, Any]]


@pytest.fixture
def serve(tmp_path: Path, echo: Echo, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    require("strict")
    folder = tmp_path / "pack"
    folder.mkdir()
    (tmp_path / "work").mkdir()
    (folder / "pack.toml").write_text(SETTINGS)
    (folder / "actions.py").write_text(ACTIONS)
    (tmp_path / "TOKEN").write_text("token-canary")
    sources = {name: SecretSource("file", (str(tmp_path / name),)) for name in ("DSN", "TOKEN")}
    lines: list[list[str]] = []
    started = HostProcess.start

    def start(command: Any, **options: Any) -> HostProcess:
        lines.append([*command.argv, *command.environ.values()])
        return started(command, **options)

    monkeypatch.setattr(HostProcess, "start", start)

    def run(work: Callable[[Call], Awaitable[None]], *, size: int = 1) -> None:
        async def main() -> None:
            pack = read_pack(folder, params={"database": f"127.0.0.1:{echo.port}"})
            options: dict[str, Any] = {"size": size, "secrets": SecretProvider(sources), "workspace": tmp_path / "work"}
            async with serve_actions(pack, **options) as dispatcher:

                async def call(name: str, **inputs: Any) -> Any:
                    result = await dispatcher.call(f"AID.PACK.{name.upper()}.v1", inputs=inputs)
                    return json.loads(result.output_json) if isinstance(result, ActionResult) else result

                await work(call)

        asyncio.run(main())
        wait_until(lambda: echo.open == 0)
        assert "canary" not in str(lines), "a value is in the command line or the environment of a host"

    return run


def test_a_lifespan_connects_with_its_secret_and_afterwards_only_calls_connect(
    serve: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "DSN").write_text(FIRST)

    found = tmp_path / "work" / "found"

    async def work(call: Call) -> None:
        pid, answer, length = await call("ask", text="hello")
        assert (answer, length) == ("hello", len(FIRST))
        (tmp_path / "work" / "go").touch()
        await asyncio.to_thread(wait_until, lambda: found.exists() and found.read_text() != "")
        assert found.read_text() in ("closed", "ConnectionResetError", "BrokenPipeError")
        assert await call("ask", text="again") == [pid, "again", len(FIRST)], "its own connection is still open"
        assert await call("leak") == "it is [secret DSN]"
        assert await call("also") != pid, "the actions of a host take the same secrets"

    serve(work)


def test_a_new_value_replaces_the_host_at_the_next_call(serve: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "DSN").write_text(FIRST)

    async def work(call: Call) -> None:
        pid, _, length = await call("ask", text="a")
        (tmp_path / "TOKEN").write_text("token-canary-2")
        assert (await call("ask", text="a"))[0] == pid, "the lifespan does not take TOKEN"
        (tmp_path / "DSN").write_text(SECOND)
        new_pid, _, new_length = await call("ask", text="a")
        assert (new_pid != pid, length, new_length) == (True, len(FIRST), len(SECOND))
        assert (await call("ask", text="a"))[0] == new_pid

    serve(work)


def test_a_running_call_keeps_its_host_when_the_value_changes(serve: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "DSN").write_text(FIRST)
    started, later = tmp_path / "work" / "started", tmp_path / "work" / "later"

    async def work(call: Call) -> None:
        running = asyncio.create_task(call("wait", started="started", end="end"))
        await asyncio.to_thread(wait_until, started.exists)
        (tmp_path / "DSN").write_text(SECOND)
        after = asyncio.create_task(call("wait", started="later", end="end"))
        await asyncio.sleep(0.1)
        assert not later.exists(), "the only host has the old value"
        (tmp_path / "work" / "end").touch()
        assert [await running, await after] == [len(FIRST), len(SECOND)]

    serve(work)


def test_all_hosts_are_replaced(serve: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "DSN").write_text(FIRST)

    async def work(call: Call) -> None:
        await asyncio.gather(*[call("ask", text="a") for _ in range(4)])
        (tmp_path / "DSN").write_text(SECOND)
        answers = await asyncio.gather(*[call("ask", text="a") for _ in range(6)])
        assert {length for _, _, length in answers} == {len(SECOND)}

    serve(work, size=2)


def test_a_start_that_fails_has_no_value_in_its_error(serve: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "DSN").write_text("postgres://refused-canary@db")

    async def work(call: Call) -> None:
        refused = await call("ask", text="a")
        assert error(refused) == ("crash", "no_host")
        expected = "the lifespan opened cannot start: PermissionError: wrong credential [secret DSN]"
        assert expected in refused["detail"]
        assert "canary" not in str(refused)
        (tmp_path / "DSN").write_text(FIRST)
        async with asyncio.timeout(patience(30)):  # a failed start is repeated with increasing pauses
            while isinstance(answer := await call("ask", text="a"), dict):
                await asyncio.sleep(0.05)
        assert answer[2] == len(FIRST)

    serve(work)


def test_without_a_value_no_call_is_sent(serve: Callable[..., None], tmp_path: Path) -> None:
    async def work(call: Call) -> None:
        refused = await call("ask", text="a")
        assert error(refused) == ("exception", "no_secret")
        assert refused["detail"] == f"the secret DSN has no value: the file {tmp_path / 'DSN'} is missing or empty"

    serve(work)


def test_every_action_of_the_file_takes_the_secrets_of_its_lifespan(tmp_path: Path) -> None:
    (tmp_path / "pack.toml").write_text(SETTINGS)
    (tmp_path / "actions.py").write_text(ACTIONS)
    pack = read_pack(tmp_path, params={"database": "127.0.0.1:1"})
    at_start = SecretUse("DSN", required=True, at_start=True)
    assert pack.actions["ask"].secrets == (at_start,)
    assert pack.actions["also"].secrets == (SecretUse("TOKEN", required=True), at_start)
    (tmp_path / "pack.toml").write_text(SETTINGS.replace("[secrets.DSN]\n", ""))
    with pytest.raises(PackError, match=r"pack\.toml declares no secret DSN"):
        read_pack(tmp_path, params={"database": "127.0.0.1:1"})


EXTERNALS = """
from typing import Annotated
from manglecp import Context, Secret, external, facts, lifespan

known = []


@lifespan
def opened(dsn: Annotated[str, Secret("DSN")], *, token: Annotated[str, Secret("TOKEN")] = "none"):
    known.append(len(dsn))
    known.append(token)
    yield
"""


def test_externals_and_generators_take_the_secrets_of_their_lifespans(tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    (folder / "rules").mkdir(parents=True)
    (folder / "pack.toml").write_text("[secrets.DSN]\n[secrets.TOKEN]\n")
    (folder / "rules" / "a.mg").write_text(
        'Decl length(A) descr [external(), mode("-")] bound [/number].\nDecl found(A) bound [/number].\n'
    )
    (folder / "externals.py").write_text(
        EXTERNALS + '\n@external("length(A)", mode="-", seconds=60)\ndef length():\n    return [known[0]]\n'
    )
    (folder / "facts.py").write_text(
        EXTERNALS + '\n@facts("found")\ndef find():\n    """Find."""\n    yield "found", known[0]\n'
    )
    provider = SecretProvider({name: SecretSource("file", (str(tmp_path / name),)) for name in ("DSN", "TOKEN")})
    (tmp_path / "DSN").write_text(FIRST)
    pack = read_pack(folder)
    with (
        serve_externals(pack, size=1, secrets=provider) as externals,
        serve_facts(pack, cache=False, secrets=provider) as generators,
    ):
        assert generators is not None
        assert [fact.args for fact in generators.begin(Program.load(pack.sources).predicates)] == [(len(FIRST),)]
        assert externals["length"].answer([()]) == [[(len(FIRST),)]]
        (tmp_path / "DSN").write_text(SECOND)
        assert [fact.args for fact in generators.run_pass("find").added] == [(len(SECOND),)]
        assert externals["length"].answer([()]) == [[(len(SECOND),)]]


def test_a_host_without_dispatch_has_no_secrets(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(
        EXTERNALS + "\nfrom manglecp import action\n@action(effects=[])\ndef act() -> int:\n    return known[0]\n"
    )
    done = host("--run", str(tmp_path / "plugin.py"), "AID.PLUGIN.ACT.v1", stdin=b"{}")
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"] == "the lifespan opened has no value of the secret DSN"
