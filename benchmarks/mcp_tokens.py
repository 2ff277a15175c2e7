"""The tokens that a model reads and writes over MCP for one task: find a tool among many, and call it once.

Three servers have the same tools: one that lists all of them; FastMCP with its tool search, if it is installed; and
``manglecp mcp serve``, with 15 tools to an intent. Counted are the instructions, the list of tools, and the name, the
arguments and the text of each call. A host that sends the list with every turn multiplies the first column.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from _table import print_table
from mcp import Client
from mcp.server.mcpserver import MCPServer

from manglecp.intent.tokens import counter
from manglecp.invoke import PackOptions
from manglecp.mcp_server import McpOptions, PackSource, make_server
from manglecp.pack import SandboxPolicy
from manglecp.server import open_core
from manglecp.server.auth import LOCAL
from manglecp.store import open_store

PER_INTENT = 15
VERBS = ("restart", "scale", "inspect", "drain", "archive", "restore", "rotate", "compare", "measure", "tag")
ARGS = {"service": "payments", "reason": "errors since the release"}


def name_of(number: int) -> str:
    return f"{VERBS[number % len(VERBS)]}_group_{number // len(VERBS)}"


def source_of(number: int) -> str:
    name = name_of(number)
    return (
        f"def {name}(service: str, reason: str, limit: int = 10, dry_run: bool = False) -> dict:\n"
        f'    """{VERBS[number % len(VERBS)].capitalize()} the instances of a service in group {number // len(VERBS)}, '
        f'at most limit of them, and report what was done and what is left."""\n'
        f'    return {{"service": service, "done": limit, "left": 0}}\n'
    )


def write_pack(folder: Path, count: int) -> Path:
    pack = folder / "pack"
    (pack / "rules").mkdir(parents=True)
    actions = (f"@action(effects=[])\n{source_of(number)}" for number in range(count))
    (pack / "actions.py").write_text("from manglecp import action\n\n" + "\n".join(actions))
    groups = range(-(-count // PER_INTENT))
    intents = (f'[[intents]]\nname = "work_{g}"\ndescription = "Work on the services of area {g}."\n' for g in groups)
    (pack / "pack.toml").write_text("[pack]\nname = 'many'\n" + "".join(intents))
    facts = (f'of("{name_of(number)}", "work_{number // PER_INTENT}").\n' for number in range(count))
    rule = "Decl of(Tool, Intent) bound [/string, /string].\nmandatory(Tool) :- intent(Intent), of(Tool, Intent).\n"
    (pack / "rules" / "tools.mg").write_text(rule + "".join(facts))
    return pack


class Exchange:
    """Counts the tokens of a conversation with one server."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.listed = self.called = 0

    async def open(self) -> Exchange:
        listed = await self.client.list_tools()
        tools = getattr(listed, "tools", listed)  # FastMCP returns them without their envelope
        shown = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in tools]
        self.listed = _count(getattr(self.client, "instructions", None) or "") + _count(json.dumps(shown))
        return self

    async def call(self, name: str, args: dict[str, Any]) -> Any:
        result = await self.client.call_tool(name, args)
        texts = [getattr(content, "text", "") for content in result.content]
        assert not result.is_error, texts
        self.called += _count(name + json.dumps(args)) + _count("".join(texts))
        return result


def _count(text: str) -> int:
    return int(counter().count(text.encode()))


async def ours(count: int) -> Exchange:
    with tempfile.TemporaryDirectory() as folder:
        options = PackOptions(write_pack(Path(folder), count), sandbox=SandboxPolicy(degrade=True))
        async with open_core(options, lambda: open_store(":memory:")) as core:
            await core.revisions.wait_until_loaded()
            source = PackSource(core)
            async with source.client(LOCAL) as client:
                server = make_server(source, await client.ready(), McpOptions(LOCAL))
            async with Client(server) as mcp_client:
                exchange = await Exchange(mcp_client).open()
                found = await exchange.call("declare_intent", {"intent": "work_0"})
                handle = next(t["handle"] for t in found.structured_content["tools"] if t["name"] == name_of(1))
                await exchange.call("invoke", {"handle": handle, "args": ARGS})
            await core.drain()
    return exchange


async def plain(count: int) -> Exchange:
    server = MCPServer("many")
    add_tools(server, count)
    async with Client(server) as client:
        exchange = await Exchange(client).open()
        await exchange.call(name_of(1), ARGS)
    return exchange


async def searched(count: int) -> Exchange | None:
    try:
        from fastmcp import Client as FastClient, FastMCP
        from fastmcp.server.transforms.search import BM25SearchTransform
    except ImportError:
        return None
    server = FastMCP("many")
    add_tools(server, count)
    server.add_transform(BM25SearchTransform())
    async with FastClient(server) as client:
        exchange = await Exchange(client).open()
        await exchange.call("search_tools", {"query": "scale the instances of a service in group 0"})
        await exchange.call("call_tool", {"name": name_of(1), "arguments": ARGS})
    return exchange


def add_tools(server: Any, count: int) -> None:
    for number in range(count):
        names: dict[str, Any] = {}
        exec(source_of(number), names)
        server.add_tool(names[name_of(number)])


async def main() -> int:
    rows = []
    for count in (10, 100, 1_000):
        servers = (("all tools listed", plain), ("FastMCP, tool search", searched), ("manglecp mcp serve", ours))
        for name, measure in servers:
            exchange = await measure(count)
            if exchange is not None:
                total = exchange.listed + exchange.called
                rows.append([f"{count:,}", name, f"{exchange.listed:,}", f"{exchange.called:,}", f"{total:,}"])
    print(f"Tokens ({counter().by}) of one task\n")
    print_table(["tools", "server", "instructions and list", "calls", "together"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
