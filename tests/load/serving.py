"""A server as a process, and what it holds: descriptors, threads, processes, memory, and what its metrics say.

The figures are those of the process and of its tool hosts. They are looked at from the outside, so that nothing that a
server forgets about can hide.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from click.testing import CliRunner

from manglecp.cli import cli
from tests.deadlines import patience
from tests.processes import Logging

__all__ = ["METRICS_TOKEN", "PATIENCE", "Figures", "Server", "serve"]

PATIENCE: Final = patience(120.0)
"""Seconds after which something has failed, on however slow a machine."""
METRICS_TOKEN: Final = "figures"
_OPEN_RATES: Final = "[rates]\npeer = { per_second = 0 }\n"
"""Every client of a test comes from one address."""
_GAUGES: Final = ("sessions", "pending_requests", "evaluations", "waiting_evaluations", "invocations")
_FAULTS: Final = re.compile(
    r"Traceback|\"level\": \"(?:error|critical)\"|Exception ignored|was never (?:awaited|retrieved)"
)


@dataclass(frozen=True)
class Figures:
    """What a server holds."""

    descriptors: int
    threads: int
    processes: int
    kilobytes: int
    """Of memory that belongs to the process alone; that of its tool hosts is their own business."""

    def no_more_than(self, before: Figures, *, kilobytes: int, descriptors: int = 12, threads: int = 4) -> bool:
        """Each of four threads has a connection to the store, of three files, from when it is first needed."""
        return (
            self.descriptors <= before.descriptors + descriptors
            and self.threads <= before.threads + threads
            and self.processes <= before.processes
            and self.kilobytes <= before.kilobytes + kilobytes
        )


class Server(Logging):
    def __init__(self, folder: Path, popen: subprocess.Popen[bytes], *, auth: bool) -> None:
        self.popen = popen
        self.log = folder / "stderr"
        self._auth = auth
        self.port = 0
        self.hosts: tuple[int, ...] = ()
        """The processes that it started, as they were when somebody looked."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def faults(self) -> list[str]:
        """Lines on standard error that no client should be able to cause."""
        return [line for line in self.said().splitlines() if _FAULTS.search(line)]

    def figures(self) -> Figures:
        root = Path(f"/proc/{self.popen.pid}")
        status = dict(line.split(":", 1) for line in (root / "status").read_text().splitlines())
        self.hosts = tuple(_children(self.popen.pid))
        return Figures(
            descriptors=sum(1 for _ in (root / "fd").iterdir()),
            threads=int(status["Threads"]),
            processes=len(self.hosts),
            kilobytes=int(status["RssAnon"].split()[0]),
        )

    def busy(self) -> dict[str, float]:
        """What is under way, as the server sees it; nothing that is zero."""
        headers = {"authorization": f"Bearer {METRICS_TOKEN}"} if self._auth else {}
        answer = httpx.get(f"{self.url}/metrics", headers=headers, timeout=PATIENCE, trust_env=False)
        assert answer.status_code == 200, answer.text
        found = {}
        for name in _GAUGES:
            said = re.search(rf"^manglecp_server_{name} (\S+)$", answer.text, re.MULTILINE)
            assert said is not None, name
            found[name] = float(said[1])
        return {name: value for name, value in found.items() if value}

    async def at_rest(self, before: Figures, *, kilobytes: int) -> Figures:
        """The figures once nothing is under way and nothing is held that was not held before."""
        limit = time.monotonic() + PATIENCE
        while True:
            busy, now = await asyncio.to_thread(self.busy), self.figures()
            if not busy and now.no_more_than(before, kilobytes=kilobytes):
                return now
            assert time.monotonic() < limit, f"{busy} is under way; {before} became {now}"
            await asyncio.sleep(0.2)

    def ask_to_end(self) -> None:
        self.popen.send_signal(signal.SIGTERM)

    def ended(self) -> int:
        """The exit code, once there is one."""
        return self.popen.wait(PATIENCE)

    def left(self) -> list[int]:
        """Those of its processes that are still there."""
        return [one for one in self.hosts if Path(f"/proc/{one}/exe").exists()]


def _children(process: int) -> list[int]:
    """Whichever thread started them."""
    found = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):
            found += [int(one) for one in (thread / "children").read_text().split()]
    return found


@contextlib.contextmanager
def serve(
    folder: Path,
    *,
    stdio: bool = False,
    identities: tuple[str, ...] = (),
    config: str = _OPEN_RATES,
    store: str = ":memory:",
    more: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """The pack that ``manglecp new`` makes, served by a process of its own until the block ends.

    ``identities`` are those whom the server knows; each one's token is its name. None: everybody may ask. ``more`` is
    what is added to files of the pack.
    """
    pack = folder / "drafts"
    made = CliRunner().invoke(cli, ["new", str(pack)])
    assert made.exit_code == 0, made.output
    for name, text in (more or {}).items():
        with (pack / name).open("a") as file:
            file.write(text)
    (folder / "server.toml").write_text(config)
    args = ["serve", str(pack), "--store", store, "--degrade", "--config", str(folder / "server.toml")]
    args += ["--log-level", "warning", *(["--stdio"] if stdio else ["--http", "127.0.0.1:0"])]
    if identities:
        args += ["--tokens", str(_tokens(folder, identities))]
    with (folder / "stderr").open("wb") as stderr:
        popen = subprocess.Popen(
            [sys.executable, "-m", "manglecp", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={
                **os.environ,
                "MANGLECP_STATE_DIR": str(folder / "state"),
                "MALLOC_MMAP_THRESHOLD_": "131072",  # large buffers return to the system when they are freed
            },
        )
    server = Server(folder, popen, auth=bool(identities))
    try:
        if not stdio:
            server.until(lambda: "serving at " in server.said())
            server.port = int(server.said().split("serving at ")[1].split('"')[0].rpartition(":")[2])
            server.until(lambda: _ready(server))
        yield server
    finally:
        if popen.poll() is None:
            popen.kill()
            popen.wait(PATIENCE)
        for stream in (popen.stdin, popen.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _ready(server: Server) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{server.url}/ready", timeout=PATIENCE, trust_env=False).status_code == 200
    return False


def _tokens(folder: Path, identities: tuple[str, ...]) -> Path:
    path = folder / "tokens.toml"
    rights = {**dict.fromkeys(identities, "[]"), METRICS_TOKEN: '["read_metrics"]'}
    entries = [
        f'[[token]]\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n'
        f'identity = "{name}"\npermissions = {permissions}\n'
        for name, permissions in rights.items()
    ]
    path.write_text("".join(entries))
    path.chmod(0o600)
    return path
