"""Client libraries in a strict host with egress, unchanged: HTTP, HTTPS, redis, PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from manglecp.pack import SandboxPolicy, read_pack
from manglecp.toolhost import ActionResult, HostCall, serve_actions
from tests.deadlines import patience
from tests.store.postgres import empty_database
from tests.toolhost.rights import authorised
from tests.toolhost.sandbox.confined import require

pytestmark = pytest.mark.no_cover

ACTIONS = '''
import asyncio
from manglecp import action

SESSIONS = {{}}


def with_urllib(url):
    import ssl, urllib.request
    return urllib.request.urlopen(url, context=ssl.create_default_context(cafile="{ca}")).read().decode()


def with_httpx(url):
    import httpx, ssl
    return httpx.get(url, verify=ssl.create_default_context(cafile="{ca}")).text


def with_httpx2(url):
    import httpx2, ssl
    return httpx2.get(url, verify=ssl.create_default_context(cafile="{ca}")).text


def with_async_httpx(url):
    import httpx, ssl
    async def main():
        async with httpx.AsyncClient(verify=ssl.create_default_context(cafile="{ca}")) as client:
            return (await client.get(url)).text
    return asyncio.run(main())


def with_requests(url):
    import requests
    session = SESSIONS.setdefault("requests", requests.Session())
    return session.get(url, verify="{ca}").text


def with_aiohttp(url):
    import aiohttp, ssl
    async def main():
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile="{ca}"))
        async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as answer:
            return await answer.text()
    return asyncio.run(main())


@action(effects=["network"], egress={egress})
def get(library: str, url: str) -> str:
    """Get a page with a library."""
    return globals()["with_" + library](url)


@action(effects=["network", "database"], egress={egress})
def ping() -> bool:
    """Ping redis, again on the same connection."""
    import redis
    client = SESSIONS.setdefault("redis", redis.Redis("localhost", {redis}, protocol=2))
    return client.ping() and client.ping()


@action(effects=["network", "database"], egress={egress})
def query(statement: str) -> list[int]:
    """Query a database, with and without an event loop."""
    import psycopg
    address = "host=localhost port={database_port} dbname={database} user={user} connect_timeout=60"

    async def query_async():
        async with await psycopg.AsyncConnection.connect(address) as connection:
            return (await (await connection.execute(statement)).fetchone())[0]

    with psycopg.connect(address) as connection:
        return [connection.execute(statement).fetchone()[0], asyncio.run(query_async())]


@action(effects=["network"], egress={egress})
def default_certificates() -> int:
    """Count the certificates that the machine trusts."""
    import ssl
    return len(ssl.create_default_context().get_ca_certs())


@action(effects=["network"], egress={egress})
def elsewhere(library: str) -> str:
    """Connect to what is not declared."""
    return globals()["with_" + library]("http://elsewhere.test/")
'''
LIBRARIES = ["urllib", "httpx", "httpx2", "async_httpx", "requests", "aiohttp"]
CONNECTIONS: list[str] = []


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class _Web(socketserver.StreamRequestHandler):
    context: ssl.SSLContext | None = None

    def setup(self) -> None:
        if self.context is not None:
            self.request = self.context.wrap_socket(self.request, server_side=True)
        super().setup()
        CONNECTIONS.append(type(self).__name__)

    def handle(self) -> None:
        while self.rfile.readline().strip():
            while self.rfile.readline().strip():
                pass
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok")

    def finish(self) -> None:
        super().finish()
        self.request.close()


class _SecureWeb(_Web):
    pass


class _Redis(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.read(1):
            words = []
            for _ in range(int(self.rfile.readline())):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2].upper())
            self.wfile.write(b"+PONG\r\n" if words == [b"PING"] else b"+OK\r\n")


def _relay_to(path: str) -> type[socketserver.BaseRequestHandler]:
    """Return the handler of a port behind which a server with a Unix socket stands."""

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as server:
                server.connect(path)
                ends = {self.request: server, server: self.request}
                while True:
                    for end in select.select([*ends], [], [])[0]:
                        data = end.recv(65_536)
                        if not data:
                            return
                        ends[end].sendall(data)

    return Relay


def _certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return the context of a server, and the file of its certificate, which is for the name localhost."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    file, key_file = folder / "ca.pem", folder.parent / "key.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    formats = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *formats))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key_file)
    return context, file


@contextmanager
def _serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Everything that the actions of one pack have returned, by action and arguments."""
    require("strict")
    folder = tmp_path_factory.mktemp("clients") / "pack"
    folder.mkdir()
    _SecureWeb.context, ca = _certificate(folder)
    outcomes: dict[str, Any] = {}
    with ExitStack() as stack:
        web, secure, redis = (stack.enter_context(_serving(handler)) for handler in (_Web, _SecureWeb, _Redis))
        database = conninfo_to_dict(stack.enter_context(empty_database()))
        relay = _relay_to(f"{database['host']}/.s.PGSQL.{database.get('port', 5432)}")
        database_port = stack.enter_context(_serving(relay))
        egress = tuple(f"localhost:{port}" for port in (web, secure, redis, database_port))
        names = {"database": database["dbname"], "user": database["user"], "database_port": database_port}
        text = ACTIONS.format(egress=list(egress), ca=ca, redis=redis, **names)
        (folder / "actions.py").write_text(text)
        policy = SandboxPolicy(private=egress)

        async def main() -> None:
            async with serve_actions(pack, size=1, sandbox=policy) as dispatcher:

                async def call(name: str, key: str, **inputs: str) -> None:
                    wanted = authorised(
                        HostCall(aid=f"AID.PACK.{name}.v1", input_json=json.dumps(inputs), tier=2, timeout=patience(60))
                    )
                    result = await dispatcher.call(
                        wanted.aid,
                        input_json=wanted.input_json,
                        call_id=wanted.call_id,
                        authority=wanted.authority,
                        timeout=patience(60),
                    )
                    is_result = isinstance(result, ActionResult)
                    outcomes[key] = json.loads(result.output_json) if is_result else result["detail"]  # type: ignore[union-attr,index]

                for library in LIBRARIES:
                    await call("GET", f"http {library}", library=library, url=f"http://localhost:{web}/")
                    await call("GET", f"https {library}", library=library, url=f"https://localhost:{secure}/")
                    await call("ELSEWHERE", f"elsewhere {library}", library=library)
                count = len(CONNECTIONS)
                for _ in range(3):
                    await call("GET", "kept", library="requests", url=f"http://localhost:{web}/")
                outcomes["new connections"] = len(CONNECTIONS) - count
                await call("PING", "ping")
                await call("QUERY", "query", statement="select 6 * 7")
                await call("DEFAULT_CERTIFICATES", "certificates")

        pack = read_pack(folder, sandbox=policy)
        asyncio.run(main())
    return outcomes


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_client_library_works_unchanged(outcomes: dict[str, Any], scheme: str, library: str) -> None:
    assert outcomes[f"{scheme} {library}"] == "ok"


@pytest.mark.parametrize("library", LIBRARIES)
def test_its_error_names_what_to_declare(outcomes: dict[str, Any], library: str) -> None:
    error = outcomes[f"elsewhere {library}"]
    assert (
        'to connect to elsewhere.test:80, declare @action(effects=["network"], egress=["elsewhere.test:80", ' in error
    )


def test_a_pooled_connection_is_kept_between_calls(outcomes: dict[str, Any]) -> None:
    assert (outcomes["kept"], outcomes["new connections"]) == ("ok", 0)


def test_redis_and_postgresql_are_reached(outcomes: dict[str, Any]) -> None:
    assert outcomes["ping"] is True
    assert outcomes["query"] == [42, 42]


def test_the_certificates_of_the_machine_are_readable(outcomes: dict[str, Any]) -> None:
    context = ssl.create_default_context()
    assert outcomes["certificates"] == len(context.get_ca_certs())
