"""The page about the client is right: its program runs, and its tables have every option and every code."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import manglecp.client
from manglecp import Client, Server
from manglecp.base.lazy import exported_names
from manglecp.client import ServerError
from manglecp.client.transports import MemoryTransport
from manglecp.client.transports.http import HttpTransport
from manglecp.client.transports.stdio import StdioTransport
from manglecp.client.transports.websocket import WebSocketTransport
from manglecp.server import TokenEditor
from manglecp.wire import CODES
from tests.client.scripted import Scripted, condensed, done, tool, tools
from tests.docs.test_pages import ROOT, fences

PAGE = (ROOT / "docs" / "reference" / "client.md").read_text(encoding="utf-8")


def column(heading: str) -> set[str]:
    """The names in the first column of the tables under a heading."""
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return {name for row in re.findall(r"^\| (`[^|]*) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)", row)}


async def test_the_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    known: dict[str, Any] = {}
    exec(fences("reference/client.md")[0], known)  # our own page
    server = Scripted(tools(condensed()), tools(tool()), done())
    assert await known["diagnose"](server, [{"pred": "p", "args": [1]}], {"n": 1}) == ({"ok": True}, ())
    assert capsys.readouterr().out == "['t']\n"


@pytest.mark.no_cover
@pytest.mark.parametrize("approved", [True, False])
async def test_an_approver_decides_as_the_page_shows(tmp_path: Path, approved: bool) -> None:
    known: dict[str, Any] = {}
    exec(fences("reference/client.md")[1], known)  # our own page
    (tmp_path / "notes.txt").write_text("Version 2")
    editor = TokenEditor(tmp_path / "tokens.toml")
    agent, approver = editor.add("kim"), editor.add("ann", ["approve"])
    pack, deciding = ROOT / "tools" / "demo" / "release", []
    async with (
        Server(pack, workspace=[tmp_path], tokens=tmp_path / "tokens.toml", degrade=True) as server,
        Client(server, token=agent) as client,
    ):

        def notify(approval: str) -> None:
            work = known["approve"](server, approver, approval, lambda text: approved and "Version 2" in text)
            deciding.append(asyncio.create_task(work))

        tool = (await client.evaluate("release"))["publish_notes"]
        if approved:
            await known["pay"](client, tool, {}, notify)
        else:
            with pytest.raises(ServerError) as refused:
                await known["pay"](client, tool, {}, notify)
            assert refused.value.details["reason"] == "denied"
        await asyncio.gather(*deciding)
    assert (tmp_path / "published.txt").exists() == approved


@pytest.mark.parametrize("made", [Client, HttpTransport, WebSocketTransport, StdioTransport, MemoryTransport])
def test_every_option_is_in_the_tables(made: type) -> None:
    given = inspect.signature(made).parameters.values()
    assert {one.name for one in given if one.kind is one.KEYWORD_ONLY} <= column("Options")


def test_every_error_and_every_code_is_in_the_tables() -> None:
    assert {name for name in exported_names(manglecp.client.__file__) if name in column("Errors")} == {
        "ConnectionLost",
        "ResponseTimeout",
        "RequestRefused",
        "ServerError",
        "InvalidResponse",
    }
    sources = Path(manglecp.client.__file__).parent.rglob("*.py")
    used = {code for path in sources for code in re.findall(r'Refused\(\s*"([a-z_]+)"', path.read_text())}
    assert used - CODES.keys() == {code for code in column("Errors") if code[0].islower()}
