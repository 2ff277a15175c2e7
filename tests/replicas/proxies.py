"""What stands before the replicas: nginx with the configuration of the manual, or something simple where there is none.

Where ``MANGLECP_REQUIRE_NGINX`` is 1 there has to be one. The other proxy knows no HTTP: it hands connections to one
replica after the other, and to the next one if a replica takes none. Both speak TLS to clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.deadlines import patience

__all__ = ["has_nginx", "page_configuration", "proxy"]

PATIENCE: Final = patience(60.0)
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "deploy.md"
_MAIN: Final = """
{user}daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
worker_processes 1;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""


def page_configuration() -> str:
    """What the manual says nginx needs."""
    (found,) = re.findall(r"^```nginx\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return str(found)


def _nginx() -> str | None:
    return shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")


def has_nginx() -> bool:
    return _nginx() is not None


@contextmanager
def proxy(
    folder: Path, replicas: Sequence[int], certificate: Path, key: Path, *, changes: Sequence[tuple[str, str]] = ()
) -> Iterator[int]:
    """The port at which it listens, for the replicas at these. ``changes`` replace texts of the manual."""
    program = _nginx()
    if program is None and os.environ.get("MANGLECP_REQUIRE_NGINX") == "1":
        pytest.fail("nginx is required here; Debian has it in the package nginx")
    with (
        _simple(replicas, certificate, key)
        if program is None
        else _real(program, folder, replicas, certificate, key, changes) as port
    ):
        yield port


# --- nginx -----------------------------------------------------------------------------------------------------------


@contextmanager
def _real(
    program: str,
    folder: Path,
    replicas: Sequence[int],
    certificate: Path,
    key: Path,
    changes: Sequence[tuple[str, str]],
) -> Iterator[int]:
    folder.mkdir()
    port = _free_port()
    site = page_configuration()
    for given, ours in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("/etc/manglecp/tls/cert.pem", str(certificate)),
        ("/etc/manglecp/tls/key.pem", str(key)),
        *((f"127.0.0.1:{8001 + n}", f"127.0.0.1:{one}") for n, one in enumerate(replicas)),
        *changes,
    ):
        assert given in site, f"the manual has no {given}"
        site = site.replace(given, ours)
    (folder / "site.conf").write_text(site)
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(_MAIN.format(folder=folder, user=user))
    command = [program, "-p", str(folder), "-e", str(folder / "nginx.log"), "-c", str(folder / "nginx.conf")]
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        limit = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            log = folder / "nginx.log"
            assert running.poll() is None, log.read_text() if log.exists() else "nginx did not start"
            assert time.monotonic() < limit, "nginx does not listen"
            time.sleep(0.02)
        yield port
    finally:
        running.terminate()
        running.wait(PATIENCE)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# --- where there is none ---------------------------------------------------------------------------------------------


@contextmanager
def _simple(replicas: Sequence[int], certificate: Path, key: Path) -> Iterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    turns = itertools.cycle(range(len(replicas)))
    loop = asyncio.new_event_loop()
    bound = socket.create_server(("127.0.0.1", 0))
    stop = asyncio.Event()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = next(turns)
        for n in range(len(replicas)):
            with contextlib.suppress(OSError):
                answers, asks = await asyncio.open_connection("127.0.0.1", replicas[(first + n) % len(replicas)])
                await asyncio.gather(_pump(reader, asks), _pump(answers, writer))
                return
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(one, sock=bound, ssl=context)
        await stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield int(bound.getsockname()[1])
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
        loop.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
