"""Servers of the registries, direct and through the guard: the same results for the same calls. `make interop`."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from manglecp.invoke import ApprovalService, OperatorApprovals
from manglecp.store import open_store
from tests.guard.hosts import Host, Setup
from tests.interop.install import FOLDER, NODE_BIN, node_path

CALLS: Final = int(os.environ.get("MANGLECP_INTEROP_CALLS") or 500)
SEED: Final = 20_260_728
_PYTHON: Final = FOLDER / "python" / "bin"
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}[T ][\d:.]+(?:[+-]\d{2}:\d{2}|Z)?")
_CLOCK: Final = re.compile(
    r'(\\?"(?:time_difference|day_of_week|is_dst)\\?": )[^,}\\]+|\w{3} \w{3} \d+ \d{4} [\d:]+ [^"\\]*'
)
_RANDOM: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")
_REQUEST: Final = re.compile(r"was not executed: it needs an approval.* manglecp approvals approve (ap-\w+) ")


class Server(NamedTuple):
    command: tuple[str, ...]
    prepare: Callable[[Path], None]
    """Makes the same files in the same folder for each run."""
    texts: tuple[str, ...]
    """Values of text arguments; ``@`` stands for the folder."""


def _git(folder: Path) -> None:
    repository = folder / "repo"
    repository.mkdir()
    for command in (("init", "-q", "-b", "main"), ("config", "user.name", "a"), ("config", "user.email", "a@b.c")):
        subprocess.run(["git", *command], cwd=repository, check=True)
    for number in range(3):
        (repository / f"f{number}.txt").write_text(f"{number}\n")
        subprocess.run(["git", "add", "."], cwd=repository, check=True)
        subprocess.run(["git", "commit", "-q", "-m", f"c{number}"], cwd=repository, check=True)


def _files(folder: Path) -> None:
    (folder / "d").mkdir()
    for name in ("a.txt", "b.txt", "d/c.txt"):
        (folder / name).write_text(f"text of {name}\n" * 5)


def _nothing(folder: Path) -> None:
    del folder


_ZONES: Final = ("UTC", "Europe/Berlin", "Asia/Tokyo", "Nowhere/City", "12:30", "25:00")
_PATHS: Final = ("@/a.txt", "@/b.txt", "@/d", "@/d/c.txt", "@/new.txt", "@", "/etc/passwd", "text", "*.txt", "")
_SQL: Final = (
    "SELECT 1",
    "CREATE TABLE t (a INT)",
    "INSERT INTO t VALUES (1)",
    "SELECT * FROM t",
    "DROP TABLE t",
    "t",
    "no",
)
SERVERS: Final = {
    "time": Server((str(_PYTHON / "mcp-server-time"), "--local-timezone", "UTC"), _nothing, _ZONES),
    "git": Server((str(_PYTHON / "mcp-server-git"),), _git, ("@/repo", "@/none", "main", "b1", "HEAD", "f1.txt", "m")),
    "fetch": Server(
        (str(_PYTHON / "mcp-server-fetch"), "--ignore-robots-txt"), _files, ("http://127.0.0.1:@port/a.txt", "x")
    ),
    "sqlite": Server((str(FOLDER / "sqlite/bin/mcp-server-sqlite"), "--db-path", "@/t.db"), _nothing, _SQL),
    "filesystem": Server((str(NODE_BIN / "mcp-server-filesystem"), "@"), _files, _PATHS),
    "memory": Server((str(NODE_BIN / "mcp-server-memory"),), _nothing, ("a", "b", "c", "knows", "person", "")),
}


def _value(rng: random.Random, schema: dict[str, Any], texts: tuple[str, ...]) -> Any:
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return _value(rng, rng.choice(options), texts)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type")
    if kind == "object":
        required, properties = schema.get("required", ()), schema.get("properties", {})
        chosen = [name for name in properties if name in required or rng.random() < 0.3]
        return {name: _value(rng, properties[name], texts) for name in chosen}
    if kind == "array":
        return [_value(rng, schema.get("items", {}), texts) for _ in range(rng.randrange(3))]
    if kind in ("integer", "number"):
        return rng.randrange(1, 5)
    return rng.random() < 0.5 if kind == "boolean" else None if kind == "null" else rng.choice(texts)


class _Run(NamedTuple):
    tools: list[Any]
    results: list[str]
    """Normalised."""


def _call(host: Host, params: dict[str, Any]) -> dict[str, Any]:
    request = host.send("tools/call", params)
    message = host.receive()
    while "method" in message:
        message = host.receive()
    assert message["id"] == request
    return message


def _run(host: Host, texts: tuple[str, ...], approvals: OperatorApprovals | None) -> _Run:
    """Make seeded random calls. With ``approvals``, a call that needs an approval gets one and is repeated."""
    rng = random.Random(SEED)
    host.initialize()
    host.send_raw(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    tools = host.request("tools/list")["result"]["tools"]
    results = []
    for _ in range(CALLS):
        tool = rng.choice(tools)
        params = {"name": tool["name"], "arguments": _value(rng, tool["inputSchema"], texts)}
        message = _call(host, params)
        if approvals is not None and (found := _REQUEST.search(json.dumps(message))):
            asyncio.run(approvals.approve(found[1]))
            message = _call(host, params)
        text = json.dumps([params, message.get("result"), message.get("error")])
        results.append(_RANDOM.sub("", _CLOCK.sub("", _TIME.sub("T", text))))
    return _Run(tools, results)


@pytest.fixture(scope="module")
def web() -> Iterator[int]:
    folder = FOLDER / "web"
    folder.mkdir(exist_ok=True)
    (folder / "a.txt").write_text("A page.\n" * 500)

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.soak
@pytest.mark.parametrize("name", SERVERS)
def test_the_guard_changes_no_result(name: str, tmp_path: Path, web: int, monkeypatch: pytest.MonkeyPatch) -> None:
    server = SERVERS[name]
    assert Path(server.command[0]).exists(), "run `make interop`, which installs the servers"
    work = tmp_path / "work"
    command, texts = (
        tuple(text.replace("@port", str(web)).replace("@", str(work)) for text in part)
        for part in (server.command, server.texts)
    )
    setup = Setup(tmp_path)
    env = {
        "MEMORY_FILE_PATH": str(work / "memory.jsonl"),
        "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
        "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
        "NO_PROXY": "127.0.0.1",
        "PATH": node_path(),
    }
    for variable, value in env.items():  # of this process and of the servers that it starts
        monkeypatch.setenv(variable, value)
    setup.write_config({name: {"command": command[0], "args": list(command[1:]), "env": env}})
    runs = []
    for mode in ("direct", "shadow", "enforce"):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        if mode != "direct":
            shown = setup.cli("guard", str(setup.config), "--yes", f"--{mode}")
            assert "not pinned" not in shown, shown  # usable with the starter policy
            assert "not guarded" not in shown, shown
            shutil.rmtree(work)  # the probe may have made files
            work.mkdir()
        server.prepare(work)
        with setup.host(name) as host, closing(open_store(setup.store if mode == "enforce" else ":memory:")) as store:
            approvals = OperatorApprovals(ApprovalService(store, time.time_ns))
            runs.append(_run(host, texts, approvals if mode == "enforce" else None))
    direct, *guarded = runs
    for tools, results in guarded:
        assert tools == direct.tools
        assert results == direct.results
    rows = setup.report()
    tried = {mode: sum(row["calls"] for row in rows if row["mode"] == mode) for mode in ("shadow", "enforced")}
    assert tried == {"shadow": CALLS, "enforced": CALLS + sum(row["approved"] for row in rows)}
    assert not [row for row in rows if row["verdict"] == "deny"]
