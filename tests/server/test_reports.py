"""What an action reports, logs and raises, from its own process to clients, the server's log and the operator."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from manglecp import Client, Server
from manglecp.cli import cli
from manglecp.client import ServerError
from manglecp.wire.messages import ProgressPayload
from tests.server.desk import PATIENCE
from tests.server.test_serve import Process, process

pytestmark = pytest.mark.no_cover

ACTIONS = '''
import os, threading, time
from pathlib import Path
from manglecp import ActionError, Context, action

NEAR = {"order": "A-9", "near": [1]}

def wait_for(name: str) -> None:
    until = time.monotonic() + 60
    while not Path(name).exists() and time.monotonic() < until:
        time.sleep(0.01)


@action(effects=["none"])
def work(context: Context, mark: str, parts: int) -> dict:
    """Work through the parts.

    This line is not told.
    """
    for n in range(1, parts + 1):
        context.progress(n - 0.5, parts, f"part {n} of {mark}\\u202e {context.settings['api_token']} password=hunter2")
        context.log(f"did part {n} of {mark}, token {context.settings['api_token']}", "warning")
        wait_for(f"{mark}-{n}")
    return {"parts": parts}


@action(effects=["none"])
def haunt(context: Context) -> None:
    """Report on after the end."""
    def report() -> None:
        while True:
            context.progress(1, 1, "a ghost")
            time.sleep(0.002)
    threading.Thread(target=report, daemon=True).start()


@action(effects=["none"])
def flood(context: Context, count: int) -> dict:
    """Report without end."""
    start = time.monotonic()
    for n in range(count):
        context.progress(n, count, f"line {n}")
        context.log(f"line {n}")
    return {"seconds": time.monotonic() - start}


@action(effects=["none"])
def forge(context: Context) -> dict:
    """Report for any call and with any value, on every descriptor."""
    lines = ['{"event":"progress","call_id":"x","message":"forged"}', '{"event":"log","call_id":null}', "[[[[", "\\x00"]
    lines += ['{"event":"progress","call_id":"%s","done":1%s,"total":1}' % (context._call["call_id"], "0" * 400)]
    for descriptor in range(3, 256):
        for line in lines:
            try:
                if os.fstat(descriptor).st_mode & 0o170000 == 0o010000 and not os.get_blocking(descriptor):
                    os.write(descriptor, line.encode() + b"\\n")
            except OSError:
                pass
    return {}


@action(effects=["none"])
def find(how: str) -> dict:
    """Find an order."""
    if how == "code":
        raise ActionError("No order A-9; ask for its number\\u202e", code="x-no_order", data=NEAR)
    if how == "plain":
        raise ActionError("No order A-9, password=hunter2")
    if how == "reserved":
        raise ActionError("It is taken", code="x-request_key_conflict")
    if how == "invalid":
        raise ActionError("It is taken", code="no_order")
    if how == "large":
        raise ActionError("m" * 9_000, code="x-large", data="d" * 20_000)
    if how == "odd":
        raise ActionError("half a pair \\ud800", code="x-odd", data=object())
    raise RuntimeError("SELECT secret FROM orders\\npassword=hunter2")


@action(effects=["filesystem"])
def write(text: str) -> dict:
    """Write a file."""
    Path("written").write_text(text)
    return {}


@action(effects=["filesystem"])
def spoil(how: str) -> dict:
    """Fail at an effect."""
    raise ActionError("The disk is full", code="x-disk_full", data={"free": 0})
'''
RULES = """
macro("work", "Works."). macro_step("work", 1, "work").
macro("haunt", "Haunts."). macro_step("haunt", 1, "haunt").
macro("flood", "Floods."). macro_step("flood", 1, "flood").
macro("forge", "Forges."). macro_step("forge", 1, "forge"). macro_step("forge", 2, "forge").
macro("find", "Finds."). macro_step("find", 1, "find").
macro("spoil", "Spoils."). macro_step("spoil", 1, "spoil").
macro("lenient", "Goes on."). macro_step("lenient", 1, "find"). macro_step("lenient", 2, "forge").
on_error("lenient", 1, "continue").
macro("late", "Fails late."). macro_step("late", 1, "write"). macro_step("late", 2, "spoil").
arg_value("late", 1, "text", "x").
relevant(T, 50) :- intent("go"), macro(T, _).
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    (folder / "pack" / "rules").mkdir(parents=True)
    (folder / "pack" / "rules" / "tools.mg").write_text(RULES)
    (folder / "pack" / "actions.py").write_text(ACTIONS)
    (folder / "pack" / "pack.toml").write_text(
        '[pack]\nname = "reports"\n[[intents]]\nname = "go"\ndescription = "Go"\n'
        '[params.api_token]\ndescription = "A secret."\ndefault = "sesame-4711"\n'
    )
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Process]:
    """One host serves all calls without effects, so that a report could reach the wrong one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MACHINA_TOOLHOST_POOL_SIZE", "1")
        with process(folder, *arguments(folder, "--http", "127.0.0.1:0")) as made:
            made.url()
            yield made


def arguments(folder: Path, *more: str) -> tuple[str, ...]:
    store = ("--store", str(folder / "store.db"), "--workspace", str(folder))
    return "serve", str(folder / "pack"), "--degrade", "--log-format", "json", *store, *more


@asynccontextmanager
async def connected(way: str, folder: Path, server: Process) -> AsyncIterator[Client]:
    if way == "memory":
        async with Server(folder / "pack", workspace=[folder], degrade=True) as embedded, Client(embedded) as client:
            yield client
        return
    url = server.url()
    targets: dict[str, Any] = {"http": url, "websocket": url.replace("http:", "ws:").rstrip("/") + "/ws"}
    command = [sys.executable, "-m", "manglecp", *arguments(folder, "--stdio")]
    async with Client(targets.get(way, command)) as client:
        await client.ready()
        yield client


class Listener:
    """Collects progress, and lets a call of ``work`` continue when its report has arrived."""

    def __init__(self, folder: Path, mark: str) -> None:
        self.folder = folder
        self.mark = mark
        self.told: list[ProgressPayload] = []

    def __call__(self, payload: ProgressPayload) -> None:
        self.told.append(payload)
        if payload.detail is not None and ": part " in payload.detail:
            (self.folder / f"{self.mark}-{payload.detail.split()[2]}").touch()


async def fails(client: Client, tool: str, **args: Any) -> ServerError:
    await client.evaluate("go")
    with pytest.raises(ServerError) as caught:
        await client.invoke(tool, args)
    return caught.value


def details(error: ServerError) -> Any:
    assert error.details is not None
    return error.details


@pytest.mark.req("PROG-01", "PROG-02", "PROG-03", "PROG-05", "PROG-06")
@pytest.mark.parametrize("way", ["websocket", "stdio", "memory"])
async def test_progress_inside_an_action_reaches_its_caller(way: str, folder: Path, server: Process) -> None:
    listener = Listener(folder, way)
    async with connected(way, folder, server) as client, asyncio.timeout(PATIENCE):
        await client.evaluate("go")
        await client.invoke("work", {"mark": way, "parts": 4}, on_progress=listener)
    clean = f"of {way}\\u202e [redacted] password=[redacted]"
    parts = [("running", f"work: part {n} {clean}", round(100 * (n - 0.5) / 4)) for n in range(1, 5)]
    expected = [("started", "work: Work through the parts.", 0), *parts, ("finalizing", None, 100)]
    assert [(one.status, one.detail, one.percent) for one in listener.told] == expected


@pytest.mark.req("PROG-04", "OBS-11")
async def test_logs_of_actions_are_in_the_log_of_the_server_on_every_transport(folder: Path, server: Process) -> None:
    for name in ("http-1", "http-2"):
        (folder / name).touch()
    told: list[ProgressPayload] = []
    async with connected("http", folder, server) as client:
        await client.evaluate("go")
        await client.invoke("work", {"mark": "http", "parts": 2}, on_progress=told.append)
    assert told == []
    server.until(lambda: "did part 2 of http" in server.said())
    (line,) = [line for line in server.lines() if "did part 2 of http" in line["message"]]
    assert (line["logger"], line["level"], line["action"]) == ("manglecp.actions", "warning", "work")
    assert line["message"] == f"work: did part 2 of http, token [redacted] (run {line['run_id']})"


@pytest.mark.req("PROG-05", "SEC-28")
async def test_reports_of_one_run_never_reach_the_caller_of_another(folder: Path, server: Process) -> None:
    listeners = [Listener(folder, mark) for mark in ("amber", "birch", "cedar")]
    one_client, other_client = (connected("websocket", folder, server) for _ in range(2))
    async with asyncio.timeout(PATIENCE), one_client as first, other_client as second:
        for client in (first, second):
            await client.evaluate("go")
        await first.invoke("haunt", {}, on_progress=listeners[2])
        clients = (first, second, second)  # two clients, and two runs of one client
        invoked = [
            client.invoke("work", {"mark": one.mark, "parts": 2}, on_progress=one)
            for client, one in zip(clients, listeners, strict=True)
        ]
        await asyncio.gather(*invoked)
        await first.invoke("forge", {}, on_progress=listeners[0])
    for listener in listeners:
        texts = " ".join(one.detail or "" for one in listener.told)
        assert f"part 2 of {listener.mark}" in texts
        assert not {"amber", "birch", "cedar", "forged"} & set(texts.replace("\\", " ").split()) - {listener.mark}
    assert "ghost" not in str([one.told for one in listeners[:2]])


@pytest.mark.req("PROG-01")
async def test_a_flood_of_reports_floods_neither_client_nor_log(folder: Path, server: Process) -> None:
    told: list[ProgressPayload] = []
    async with connected("websocket", folder, server) as client, asyncio.timeout(PATIENCE):
        await client.evaluate("go")
        flood = asyncio.create_task(client.invoke("flood", {"count": 60_000}, on_progress=told.append))
        evaluations = 0
        while not flood.done():
            await client.evaluate("go")  # the server goes on to answer
            evaluations += 1
            await asyncio.sleep(0.02)
        seconds = (await flood).result["seconds"]
    assert evaluations > 3
    assert 3 < len(told) < seconds / 0.1 + 10
    percents = [one.percent or 0 for one in told]
    assert percents == sorted(percents)
    server.until(lambda: "more lines are not logged" in server.said())
    assert server.said().count("flood: line ") == 1_000
    assert "lines and progress reports of this or earlier calls were lost" in server.said()


@pytest.mark.req("ERR-33", "OBS-11")
@pytest.mark.parametrize("way", ["http", "websocket", "stdio"])
async def test_an_action_error_reaches_the_client(way: str, folder: Path, server: Process) -> None:
    async with connected(way, folder, server) as client:
        error = await fails(client, "find", how="code")
        assert (error.code, error.message) == ("x-no_order", "No order A-9; ask for its number\\u202e")
        data = {"order": "A-9", "near": [1]}
        assert details(error)["cause"] == {"message": error.message, "code": "x-no_order", "data": data}
        assert details(error)["events"][0]["detail"] == error.message
        plain = await fails(client, "find", how="plain")
        assert plain.code == "execution_failed"
        text = "No order A-9, password=[redacted]"
        assert plain.message == f"Step 1 (find) failed: {text}; nothing was changed"
        assert details(plain)["cause"] == {"message": text}
        effect = await fails(client, "spoil", how="x")
        assert (effect.code, effect.message) == ("x-disk_full", "The disk is full")
        late = await fails(client, "late", how="x")
        assert late.code == "execution_failed"
        assert late.message == "Step 2 (spoil) failed: The disk is full; 1 effect happened and stands"
        assert details(late)["cause"] == {"message": "The disk is full", "code": "x-disk_full", "data": {"free": 0}}


async def test_an_action_error_is_bounded_and_cannot_imitate_the_server(folder: Path, server: Process) -> None:
    async with connected("websocket", folder, server) as client:
        reserved = await fails(client, "find", how="reserved")
        assert (reserved.code, details(reserved)["cause"]["code"]) == ("execution_failed", "x-request_key_conflict")
        invalid = await fails(client, "find", how="invalid")
        assert invalid.message == "Step 1 (find) failed; nothing was changed"
        assert "cause" not in details(invalid)
        large = await fails(client, "find", how="large")
        assert (large.code, large.message, details(large)["cause"].get("data")) == ("x-large", "m" * 2_000, None)
        odd = await fails(client, "find", how="odd")
        assert (odd.code, odd.message) == ("x-odd", "half a pair \\ud800")
        await client.evaluate("go")
        outcome = await client.invoke("lenient", {"how": "code"})
        assert outcome.response.observability.events[0].detail == "No order A-9; ask for its number\\u202e"
        first = [await _keyed(client, "same-key") for _ in range(2)]
        assert first[0] == first[1]
    said = server.said()
    assert "ValueError: 'no_order' is no code of an action" in said
    assert "its data are not sent: ValueError: 20002 characters of JSON" in said


async def _keyed(client: Client, key: str) -> tuple[str, Any]:
    with pytest.raises(ServerError) as caught:
        await client.invoke("find", {"how": "code"}, request_key=key)
    return caught.value.code, details(caught.value)["run_id"]


@pytest.mark.req("OBS-10", "OBS-11")
async def test_another_exception_reaches_the_operator_only(folder: Path, server: Process) -> None:
    async with connected("http", folder, server) as client:
        error = await fails(client, "find", how="exception")
        late = await fails(client, "late", how="x")
    assert error.code == "execution_failed"
    assert error.message == "Step 1 (find) failed; nothing was changed"
    assert details(error)["events"][0]["detail"] == "The action reported an error"
    assert "SELECT" not in json.dumps(details(error))
    run = details(error)["run_id"]
    server.until(lambda: run in server.said())
    (line,) = [line for line in server.lines() if line.get("run_id") == run]
    assert (line["level"], line["action"]) == ("warning", "find")
    assert "Traceback (most recent call last):" in line["message"]
    assert "RuntimeError: SELECT secret FROM orders" in line["message"]
    assert "hunter2" not in server.said()
    shown = show(folder, run)
    assert shown.startswith(f"run {run}: failed")
    assert 'raise RuntimeError("SELECT secret' in shown
    assert "hunter2" not in shown
    assert "ActionError: The disk is full" in show(folder, details(late)["run_id"])


def show(folder: Path, run: str, *more: str) -> str:
    result = CliRunner().invoke(cli, ["runs", "show", run, "--store", str(folder / "store.db"), *more])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_local_call_shows_logs_and_failures(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "here-1").touch()
    store = str(tmp_path / "store.db")
    common = ["--intent", "go", "--degrade", "--workspace", str(tmp_path), "--store", store]
    done = CliRunner().invoke(
        cli, ["call", str(folder / "pack"), "work", *common, "--arg", "mark=here", "--arg", "parts=1"]
    )
    assert done.exit_code == 0, done.output
    assert "warning: work: did part 1 of here, token [redacted]" in done.stderr
    failed = CliRunner().invoke(cli, ["call", str(folder / "pack"), "find", *common, "--arg", "how=code"])
    assert failed.exit_code == 1
    assert "error[x-no_order]: No order A-9" in failed.stderr
    run = failed.stderr.split()[-1]
    shown = show(tmp_path, run)
    assert shown.startswith(f"run {run}: without effects")
    assert "ActionError: No order A-9" in shown
    document = json.loads(show(tmp_path, run, "--json"))
    assert document["failures"].startswith("find failed in call ")
