"""What the walk needs: a folder of its own, two people whom the server knows, and the server."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import sys
import tomllib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tools.demo.showing import Unexpected

__all__ = ["Person", "Place", "Server"]

MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


@dataclass
class Person:
    """Somebody the server knows. The agent has the token; the secret that consent is signed with stays away from it."""

    name: str
    permissions: list[str]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def entry(self) -> str:
        return (
            f'[[token]]\nsha256 = "{hashlib.sha256(self.token.encode()).hexdigest()}"\nidentity = "{self.name}"\n'
            f'permissions = {json.dumps(self.permissions)}\nconfirmation_secret = "{self.secret.hex()}"\n'
        )


class Place:
    """A folder with all that belongs to this walk."""

    def __init__(self, folder: Path, pack: Path) -> None:
        self.pack = pack
        self.workspace = folder / "workspace"
        self.table = self.workspace / "app" / "routes.toml"
        self.store = folder / "store.db"
        self.export = folder / "ledger.jsonl"
        self.kim, self.lee = Person("kim", ["fix"]), Person("lee", [])
        self.tokens = folder / "tokens.toml"
        self.tokens.touch(mode=0o600)
        self.tokens.write_text(self.kim.entry() + self.lee.entry(), encoding="utf-8")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("MANGLECP_")}
        self.environment["MANGLECP_STATE_DIR"] = str(folder / "state")
        request = json.loads(self._recorded("diagnose_error.json"))["payload"]
        self.recorded_at = datetime.fromisoformat(request["eval_time"])
        self.moved_by = datetime.now(UTC).replace(microsecond=0) - self.recorded_at
        shutil.copytree(pack / "recorded" / "app", self.workspace / "app")
        for name in ("session.har", "api.log"):
            (self.workspace / name).write_text(self._moved(self._recorded(name)), encoding="utf-8")
        self.facts: list[dict[str, Any]] = json.loads(self._moved(json.dumps(request["facts"])))

    def _recorded(self, name: str) -> str:
        return (self.pack / "recorded" / name).read_text(encoding="utf-8")

    def _moved(self, text: str) -> str:
        """With every moment in it as long ago as it was when it was recorded."""
        return MOMENT.sub(
            lambda found: (datetime.fromisoformat(found[0]) + self.moved_by).isoformat(timespec="seconds"), text
        )

    def routes(self) -> dict[str, str]:
        routes: dict[str, str] = tomllib.loads(self.table.read_text(encoding="utf-8"))["routes"]
        return routes

    async def command(self, *args: str) -> tuple[int, str]:
        """What ``manglecp`` says to this, and its exit status."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "manglecp", *args),
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        told, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, told.decode("utf-8", "replace").rstrip("\n")


class Server:
    """``manglecp serve`` as a process of its own, on a free port of this machine."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said: list[str] = []
        self._address: str | None = None
        self._known = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, place: Place) -> AsyncIterator[Server]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "manglecp", "serve", str(place.pack), "--http", "127.0.0.1:0"),
            *("--tokens", str(place.tokens), "--store", str(place.store), "--workspace", str(place.workspace)),
            *("--degrade", "--log-format", "text"),
            env=place.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        server = cls(process)
        try:
            yield server
        finally:
            await server.stop()

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.said.append(line.decode("utf-8", "replace").rstrip("\n"))
            _, found, url = self.said[-1].partition("serving at ")
            if found:
                self._address = url.split()[0].replace("http://", "ws://") + "/ws"
                self._known.set()
        self._known.set()

    async def url(self) -> str:
        await self._known.wait()
        if self._address is None:
            raise Unexpected("the server ended before it served")
        return self._address

    async def stop(self) -> int:
        """Asked to end as a service manager does it; its exit status."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(30):
                status = await self._process.wait()
        except TimeoutError:
            self._process.kill()
            status = await self._process.wait()
        await self._listening
        return status
