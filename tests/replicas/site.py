"""Two replicas of one server: processes that share nothing but a PostgreSQL, behind a proxy.

Each serves its own copy of the pack, as on a machine of its own. What must hold is asked of the store and of the file
of effects, never of a replica that took part.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from manglecp.client import ApprovalRequest, Client
from manglecp.store import Run, RunState, Store, open_store
from tests.processes import Logging
from tests.replicas.pack import write_pack
from tests.replicas.proxies import PATIENCE, proxy
from tests.server.certificates import certificate

__all__ = ["CLAIM_MS", "JSON", "TOKENS", "Replica", "Site", "opened"]

CLAIM_MS: Final = 3_000
JSON: Final = {"content-type": "application/json"}
TOKENS: Final = {name: f"token-of-{name}" for name in ("ann", "bob", "eve", "kim")}
APPROVERS: Final = ("eve", "kim")


class Replica(Logging):
    """``manglecp serve`` as a process."""

    def __init__(self, folder: Path, url: str, tokens: Path, workspace: Path) -> None:
        self.folder = folder
        self.log = folder / "stderr"
        write_pack(folder / "pack")
        (folder / "server.toml").write_text(
            f"worker = {{ claim_ms = {CLAIM_MS}, pause_ms = 100 }}\nstates = {{ grace_ms = 20000 }}\n"
        )
        self._given = [
            *("--store", url, "--tokens", str(tokens), "--workspace", str(workspace), "--degrade"),
            *("--config", str(folder / "server.toml"), "--trusted-proxy", "127.0.0.1"),
        ]
        self.port = 0
        self.start()

    def start(self) -> None:
        """Again at the address that it had before."""
        command = [sys.executable, "-m", "manglecp", "serve", str(self.folder / "pack"), *self._given]
        environ = {
            "MANGLECP_STATE_DIR": str(self.folder / "state"),
            "MACHINA_TOOLHOST_POOL_SIZE": "6",
            "MACHINA_TOOLHOST_TIMEOUT": "300",
        }
        with self.log.open("wb") as stderr:
            self.popen = subprocess.Popen(
                [*command, "--http", f"127.0.0.1:{self.port}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env={**os.environ, **environ},
            )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def listening(self) -> None:
        self.until(lambda: "serving at " in self.said())
        self.port = int(self.said().split("serving at ")[1].split('"')[0].rpartition(":")[2])

    def ready(self) -> None:
        self.until(lambda: self.status() == 200)

    def status(self) -> int | None:
        """What the check for readiness gets."""
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/ready", timeout=PATIENCE, trust_env=False).status_code
        return None

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait(PATIENCE)

    def leave(self) -> None:
        """Ask it to go; whoever wants to know waits for the process."""
        self.popen.send_signal(signal.SIGTERM)


@dataclass
class Site:
    folder: Path
    store: Store
    replicas: list[Replica]
    port: int
    trusting: ssl.SSLContext
    workspace: Path

    @property
    def url(self) -> str:
        """Of the proxy."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def socket(self) -> str:
        return f"wss://127.0.0.1:{self.port}/ws"

    def client(self, who: str = "ann", target: str | Replica | None = None, **more: Any) -> Client:
        """Through the proxy, or of one replica. What needs approval is approved by eve, in the same way."""
        url = target.url if isinstance(target, Replica) else target or self.url
        tls: dict[str, Any] = {} if url.startswith("http:") else {"tls": self.trusting}

        async def approve(request: ApprovalRequest) -> bool:
            assert request.approval is not None
            async with Client(url, token=TOKENS["eve"], **tls) as approver:
                return (await approver.approve(request.approval)).state == "approved"

        return Client(url, token=TOKENS[who], on_confirm=approve, **tls, **more)

    # --- what actions did --------------------------------------------------------------------------------------------

    def effects(self) -> Counter[str]:
        place = self.workspace / "effects"
        return Counter(place.read_text().splitlines() if place.exists() else [])

    def waiting(self, case: str) -> bool:
        """Has the slow read of this case begun?"""
        return (self.workspace / f"waiting.{case}").exists()

    def open_gate(self, name: str) -> None:
        (self.workspace / name).touch()

    async def until(self, reached: Callable[[], bool]) -> None:
        limit = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < limit, self.told()
            await asyncio.sleep(0.02)

    def told(self) -> str:
        """For whoever has to find out what went wrong."""
        said = "\n".join(replica.said()[-5_000:] for replica in self.replicas)
        return f"{self.runs()}\n{self.effects()}\n{sorted(self.workspace.iterdir())}\n{said}"

    # --- what is written down ----------------------------------------------------------------------------------------

    def runs(self) -> list[Run]:
        with self.store.read_transaction() as tx:
            return list(self.store.runs.list(tx, limit=10_000))

    def owners(self) -> Counter[int]:
        """How many runs are under way in which process."""
        held = [run.owner for run in self.runs() if run.state == RunState.RUNNING and run.owner]
        return Counter(int(owner.split("/")[1]) for owner in held)

    def verify(self) -> None:
        with self.store.read_transaction() as tx:
            assert not self.store.ledger.verify(tx).findings


@contextmanager
def opened(folder: Path, url: str) -> Iterator[Site]:
    workspace = folder / "workspace"
    workspace.mkdir()
    tokens = folder / "tokens.toml"
    tokens.touch(0o600)
    tokens.write_text("\n".join(_token(name) for name in TOKENS))
    public, private = certificate(folder)
    for name in ("a", "b"):
        (folder / name).mkdir()
    store = open_store(url)
    replicas = [Replica(folder / name, url, tokens, workspace) for name in ("a", "b")]
    try:
        for one in replicas:
            one.listening()
        with proxy(folder / "proxy", [one.port for one in replicas], public, private) as port:
            for one in replicas:
                one.ready()
            trusting = ssl.create_default_context(cafile=public)
            site = Site(folder, store, replicas, port, trusting, workspace)
            yield site
            site.verify()
    finally:
        for one in replicas:
            if one.popen.poll() is None:
                one.kill()
        store.close()
        shutil.rmtree(workspace)


def _token(name: str) -> str:
    permissions = ["read_metrics", "approve"] if name in APPROVERS else ["read_metrics"]
    return (
        f'[[token]]\nsha256 = "{hashlib.sha256(TOKENS[name].encode()).hexdigest()}"\nidentity = "{name}"\n'
        f"permissions = {json.dumps(permissions)}\n"
    )
