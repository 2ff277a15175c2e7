"""Case 36: secrets of the operator, given away by accident: in answers, logs, stores, events, files and processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from manglecp import Client
from manglecp.client import ClientError
from tests.adversarial._leaking import CANARIES, clean, leaking_pack
from tests.server.desk import PATIENCE
from tests.server.test_serve import process
from tests.store.postgres import postgres_url

__all__ = ["postgres_url"]
pytestmark = pytest.mark.no_cover
ACTIONS = {"leak_env": "ENV_TOKEN", "leak_file": "FILE_TOKEN", "leak_command": "COMMAND_TOKEN"}
WAYS = ["result", "text", "key", "chain", "locals", "print", "exit", "slots", "process"]
# By what a text is truncated to: how much precedes the value, so that the end of the text is inside of the value.
TRUNCATED = [("report", 490), ("error", 1_975), ("raise", 3_970), ("group", 3_970), ("raise", 15_980), ("die", 8_170)]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the operator has the values: ``server.toml``."""
    monkeypatch.setenv("A_VARIABLE", CANARIES["ENV_TOKEN"])
    (tmp_path / "token").write_text(CANARIES["FILE_TOKEN"] + "\n")
    (tmp_path / "vault").write_text(CANARIES["COMMAND_TOKEN"])
    config = tmp_path / "server.toml"
    config.write_text(
        '[secrets]\nENV_TOKEN.env = "A_VARIABLE"\n'
        f'FILE_TOKEN.file = "{tmp_path}/token"\nCOMMAND_TOKEN.command = ["cat", "{tmp_path}/vault"]\n'
    )
    return config


async def _leak(url: str) -> list[str]:
    """What clients get from all actions in all ways: messages, notifications and errors."""
    heard: list[str] = []

    async with Client(f"ws{url.removeprefix('http')}/ws", on_progress=lambda each: heard.append(repr(each))) as client:
        heard.append(repr(client.manifest))
        found = await client.evaluate("any")
        heard.append(repr(found))
        for name in ACTIONS:
            for how, pad in [*((how, 0) for how in WAYS), *TRUNCATED]:
                try:
                    result = await client.invoke(found[name], {"how": how, "pad": pad})
                    heard.append(f"{how} succeeded: {result!r} {result.result!r}")
                except ClientError as error:
                    heard.append(f"{how} failed: {error!r} {vars(error)}")
        heard.append(repr(await client.invoke(found["whose"], {})))
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False) as http:
        for path in ("/metrics", "/health", "/ready", "/.well-known/manglecp/manifest.json"):
            heard.append((await http.get(path)).text)
    return heard


def _processes() -> Iterator[bytes]:
    """The command line of every process, and the environment of each host."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                command = (folder / "cmdline").read_bytes()
                yield command
                if b"manglecp.toolhost.host" in command:
                    yield (folder / "environ").read_bytes()
            except OSError:  # it has ended
                continue


def _rows(url: str) -> Iterator[str | bytes]:
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'manglecp'"
        ).fetchall()
        assert len(tables) > 5
        for (table,) in tables:
            for (row,) in connection.execute(f"SELECT row_to_json(t)::text FROM {table} t").fetchall():
                yield row
                for text in _byte_strings(json.loads(row)):
                    yield bytes.fromhex(text)


def _byte_strings(value: Any) -> Iterator[str]:
    for member in value.values():
        if isinstance(member, str) and member.startswith("\\x"):
            yield member[2:]


def _shown(pack: Path, store: str, folder: Path) -> Iterator[str]:
    """What the operator sees of runs and decisions."""

    def run(*args: str) -> str:
        environ = {**os.environ, **CANARIES, "MANGLECP_STATE_DIR": str(folder / "state"), "MANGLECP_STORE": store}
        done = subprocess.run(
            [sys.executable, "-m", "manglecp", *args], env=environ, capture_output=True, text=True, timeout=PATIENCE
        )
        return done.stdout + done.stderr

    runs = json.loads(run("runs", "list", "--json"))
    failed = [each["run_id"] for each in runs if each["state"] != "succeeded"]
    assert failed
    yield json.dumps(runs)
    yield run("runs", "show", failed[0])
    yield run("runs", "show", failed[-1], "--json")
    yield run("decisions", "list", "--json")
    yield run("ledger", "list", "--json")
    checked = run("check", str(pack), "--json")  # this runs the generators
    assert '"secrets"' in checked
    yield checked


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_secrets_that_actions_leak_by_accident_are_found_nowhere(
    dialect: str, tmp_path: Path, source: Path, request: pytest.FixtureRequest
) -> None:
    store = str(tmp_path / "state.db") if dialect == "sqlite" else request.getfixturevalue("postgres_url")
    pack, folder = leaking_pack(tmp_path), tmp_path / "server"
    folder.mkdir()
    options = ["--http", "127.0.0.1:0", "--store", store, "--config", str(source), "--log-level", "debug"]
    with process(folder, "serve", str(pack), *options) as server:
        heard = asyncio.run(_leak(server.url()))
        clean(_processes())
        assert server.end() == 0
        log = server.said()
    clean([*heard, log])
    said = "\n".join(heard)
    for name in CANARIES:
        assert f"[secret {name}]" in said, "the actions had it"
        assert f"[secret {name}]" in log, "tracebacks were logged"
    assert said.count(" succeeded: ") >= 3 * 5
    if dialect == "postgresql":
        clean(_rows(store))
    else:
        clean(file.read_bytes() for file in tmp_path.glob("state.db*"))
        clean(_shown(pack, store, folder))
    clean(file.read_bytes() for file in folder.rglob("*") if file.is_file())
