"""MCP hosts: the client of the SDK, with a user who answers forms."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import mcp_types as types
from mcp import Client

from manglecp.intent import Identity
from manglecp.invoke import PackOptions
from manglecp.mcp_server import McpOptions, PackSource, make_server
from manglecp.pack import SandboxPolicy
from manglecp.server import Core, open_core
from manglecp.server.auth import LOCAL
from manglecp.store import open_store
from tests.mcp_server.desk import write_pack

MODERN: Final = "auto"  # discovers 2026-07-28
LEGACY: Final = "legacy"
COMPLAINT: Final = 'complaint("A-1")'


@dataclass
class User:
    """Answers forms in turn; None cancels."""

    answers: list[bool | None] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)

    async def answer(self, _context: Any, params: Any) -> types.ElicitResult:
        self.forms.append(params.message)
        decision = self.answers.pop(0)
        if decision is None:
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action="accept", content={"approve": decision})


def host(target: Any, mode: str, user: User | None = None) -> Client:
    """A host; without a user it cannot show forms."""
    answer: Any = None if user is None else user.answer
    return Client(target, mode=mode, elicitation_callback=answer)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Core]:
    """A pack with its workspace and its store in the folder."""
    pack = folder / "desk" if (folder / "desk").exists() else write_pack(folder)
    options = PackOptions(pack, workspace=(folder,), sandbox=SandboxPolicy(degrade=True))
    async with open_core(options, lambda: open_store(str(folder / "store"))) as core:
        await core.revisions.wait_until_loaded()
        yield core
        await core.drain()


async def mcp(core: Core, *, direct: str | None = None, attested: bool = True, identity: Identity = LOCAL) -> Any:
    """A server of MCP for the core."""
    source = PackSource(core, " --store store", attested)
    async with source.client(identity) as client:
        return make_server(source, await client.ready(), McpOptions(identity, direct))


async def handles(client: Client, intent: str = "help", facts: Sequence[str] = (COMPLAINT,)) -> dict[str, str]:
    """Declare an intent, and return the handles of the tools by name."""
    result = await client.call_tool("declare_intent", {"intent": intent, "facts": list(facts)})
    assert not result.is_error, text(result)
    return {tool["name"]: tool["handle"] for tool in result.structured_content["tools"]}


async def invoke(client: Client, handle: str, **args: Any) -> types.CallToolResult:
    return await client.call_tool("invoke", {"handle": handle, "args": args})


def text(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text
