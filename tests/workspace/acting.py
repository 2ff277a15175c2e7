"""The actions of the workspace pack, called as functions, or by hosts that are locked in."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from manglecp.pack import SandboxPolicy, read_pack
from manglecp.toolhost import ActionResult, Dispatcher, serve_actions
from manglecp.toolhost.context import Context, Reports
from tests.toolhost.dispatch.hosts import nothing_left
from tests.toolhost.rights import asking

__all__ = ["Refusal", "Served", "context", "serving"]

_PACK: Final = Path(__file__).parents[2] / "examples" / "workspace"
_TOML: Final = """
[params.root]
kind = "folder"
writable = true
[params.python]
default = "python3"
[params.author_name]
default = "manglecp"
[params.author_email]
default = "manglecp@localhost"
[params.protected_branches]
default = ""
"""


class Refusal(Exception):
    """What a host said instead of a result."""


def context(root: Path, **settings: str) -> Context:
    """What an action is given that works in this repository."""
    return Context({}, Reports(None), {}, {"root": str(root.resolve()), "python": sys.executable, **settings})


class Served:
    """Hosts of the pack for one repository."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher: Final = dispatcher

    async def call(self, action: str, **inputs: Any) -> Any:
        aid = f"AID.WORKSPACE.{action.upper()}.v1"
        asked: dict[str, Any] = {"inputs": inputs}
        if self.dispatcher.actions[aid].tier > 0:
            asked = asking(aid, **asked)
        answer = await self.dispatcher.call(aid, **asked)
        if not isinstance(answer, ActionResult):
            raise Refusal(answer["detail"])
        return json.loads(answer.output_json)


def serving(
    root: Path,
    work: Callable[[Served], Awaitable[None]],
    *,
    folder: Path,
    programs: tuple[str, ...] = ("git", "python"),
    more: str = "",
    **settings: str,
) -> None:
    """Do the work with hosts of a pack that has these actions, and ``more``; ``folder`` is where it is made."""
    pack = folder / "workspace"
    shutil.copytree(_PACK / "repository", pack / "repository", ignore=shutil.ignore_patterns("__pycache__"))
    (pack / "actions.py").write_text((_PACK / "actions.py").read_text("utf-8") + more, "utf-8")
    (pack / "rules").mkdir()
    (pack / "rules" / "a.mg").write_text("p(1).")
    (pack / "pack.toml").write_text(_TOML)
    given = {"root": str(root), "python": sys.executable, **settings}

    async def main() -> None:
        # The profile spawn is never complete for root, whose processes the kernel does not limit.
        hosts = serve_actions(read_pack(pack, given), size=1, programs=programs, sandbox=SandboxPolicy(degrade=True))
        async with hosts as dispatcher:
            await work(Served(dispatcher))

    with nothing_left():
        asyncio.run(main())
