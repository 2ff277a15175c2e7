"""The environment of the demo: a temporary folder, three users with tokens, and the server process."""

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

from tools.demo.terminal import StepFailed

__all__ = ["Environment", "ServerProcess", "User"]

MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


@dataclass
class User:
    """A user of the server. Agents get the tokens of kim and lee, but not that of the approver."""

    name: str
    permissions: list[str]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def entry(self) -> str:
        return (
            f'[[token]]\nsha256 = "{hashlib.sha256(self.token.encode()).hexdigest()}"\nidentity = "{self.name}"\n'
            f"permissions = {json.dumps(self.permissions)}\n"
        )


class Environment:
    """The files of the demo, in one folder."""

    def __init__(self, folder: Path, pack: Path) -> None:
        self.pack = pack
        self.workspace = folder / "workspace"
        self.table = self.workspace / "app" / "routes.toml"
        self.store = folder / "store.db"
        self.export = folder / "ledger.jsonl"
        self.kim, self.lee, self.ann = User("kim", ["fix"]), User("lee", []), User("ann", ["approve"])
        self.tokens = folder / "tokens.toml"
        self.tokens.touch(mode=0o600)
        self.tokens.write_text("".join(one.entry() for one in (self.kim, self.lee, self.ann)), encoding="utf-8")
        self.release = folder / "release"
        self.release.mkdir()
        (self.release / "notes.txt").write_text("Version 2: faster.\n", encoding="utf-8")
        self.guarded = folder / "guarded"
        self.guarded.mkdir()
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith("MANGLECP_")}
        self.variables["MANGLECP_STATE_DIR"] = str(folder / "state")
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
        """Return the text with all timestamps moved by the time since the recording."""
        return MOMENT.sub(
            lambda found: (datetime.fromisoformat(found[0]) + self.moved_by).isoformat(timespec="seconds"), text
        )

    def routes(self) -> dict[str, str]:
        routes: dict[str, str] = tomllib.loads(self.table.read_text(encoding="utf-8"))["routes"]
        return routes

    async def command(self, *args: str) -> tuple[int, str]:
        """Run a ``manglecp`` command; return its exit status and its output."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "manglecp", *args),
            env=self.variables,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode("utf-8", "replace").rstrip("\n")


class ServerProcess:
    """A ``manglecp serve`` process on a free port."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.log: list[str] = []
        self._address: str | None = None
        self._has_address = asyncio.Event()
        self._reader = asyncio.create_task(self._read_log())

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, environment: Environment) -> AsyncIterator[ServerProcess]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "manglecp", "serve", str(environment.pack), "--http", "127.0.0.1:0"),
            *(
                "--tokens",
                str(environment.tokens),
                "--store",
                str(environment.store),
                "--workspace",
                str(environment.workspace),
            ),
            *("--degrade", "--log-format", "text"),
            env=environment.variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        server = cls(process)
        try:
            yield server
        finally:
            await server.stop()

    async def _read_log(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.log.append(line.decode("utf-8", "replace").rstrip("\n"))
            _, found, url = self.log[-1].partition("serving at ")
            if found:
                self._address = url.split()[0].replace("http://", "ws://") + "/ws"
                self._has_address.set()
        self._has_address.set()

    async def url(self) -> str:
        await self._has_address.wait()
        if self._address is None:
            raise StepFailed("the server ended before it accepted connections")
        return self._address

    async def stop(self) -> int:
        """Send SIGTERM, wait for the end, and return the exit status."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(30):
                status = await self._process.wait()
        except TimeoutError:
            self._process.kill()
            status = await self._process.wait()
        await self._reader
        return status
