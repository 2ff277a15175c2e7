"""A network to attack from a host with egress: names, servers and addresses, in namespaces of its own.

Run as a program in a new mount and network namespace. Reads a JSON object from standard input: ``command`` is the argv
of the host, whose egress is `EGRESS`; ``attempts`` are calls of its plugin. Prints a JSON object: the outcome of each
attempt, what the servers have received, and what dispatch has logged.
"""

import asyncio
import ctypes
import json
import logging
import os
import socket
import socketserver
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from manglecp.base.destination import parse_destination
from manglecp.toolhost import HostCommand
from manglecp.toolhost.dispatch.pool import Pool
from manglecp.toolhost.sandbox.egress import _set_up_loopback
from tests.adversarial._leftovers import call_of
from tests.deadlines import patience
from tests.toolhost.dispatch.hosts import QUICK

PUBLIC, OTHER, PRIVATE = "93.184.215.14", "93.184.215.15", "10.1.2.3"
NAMES: dict[str, list[str]] = {  # what the name server answers, one answer after the other; the last one for ever
    "api.test": [PUBLIC],
    "other.test": [OTHER],
    "listed.test": [PRIVATE],
    "private.test": [PRIVATE],
    "rebound.test": [PUBLIC, PRIVATE],
    "loopback.test": ["127.0.0.1"],
    "metadata.test": ["169.254.169.254"],
    "cloud.test": ["168.63.129.16"],
    "shared.test": ["100.100.100.200"],
    "zero.test": ["0.0.0.0"],
    "multicast.test": ["224.0.0.1"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "six.test": ["::1"],
    "local.test": ["fe80::1"],
    "unique.test": ["fd00:ec2::254"],
    "sixtofour.test": ["2002:7f00:1::1"],
    "translated.test": ["64:ff9b::a01:203"],
    "alias.test": ["private.test"],
    "unknown.test": [],
}
REFUSED = [name for name in NAMES if name not in ("api.test", "other.test", "listed.test", "rebound.test")]
EGRESS = (
    *(f"{name}:80" for name in NAMES if name != "other.test"),
    "api.test:81",  # nothing listens there
    "127.0.0.1:8001",
    "[::1]:8001",
    "10.1.2.3:8001",
)

PLUGIN = r'''
import ctypes, os, signal, socket, subprocess, sys, threading, time, urllib.request
from manglecp import action

KEPT = []


def get(url):
    return urllib.request.urlopen(url, timeout=30).read().decode()


def dial(host, port=80):
    with socket.create_connection((host, port), timeout=30) as connection:
        connection.sendall(b"GET /dialled HTTP/1.0\r\n\r\n")
        return connection.recv(999).decode()


def dial_ipv6(host, port=80):
    with socket.socket(socket.AF_INET6) as connection:
        connection.connect((host, port))
        return "connected"


def fast_open(host, port):
    with socket.socket() as connection:
        connection.sendto(b"GET /fast HTTP/1.0\r\n\r\n", 0x20000000, (host, port))  # MSG_FASTOPEN
        return connection.recv(999).decode()


def open_socket(*arguments):
    return repr(socket.socket(*arguments))


def connect_pair(path):
    left, right = socket.socketpair()
    right.close()
    left.connect(path)
    return "connected"


def unix_pair_datagram(path):
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return left.sendto(b"x", path)


def listen():
    server = socket.create_server(("0.0.0.0", 0))
    return repr(server)


def kill_neighbours():
    done = []
    for pid in [*range(os.getpid() - 6, os.getpid() + 7), os.getppid(), 0, -1]:
        if pid not in (os.getpid(), 1):
            try:
                os.kill(pid, signal.SIGKILL)
                done.append(pid)
            except OSError:
                pass
    return done and "killed " + repr(done)


def read_neighbours():
    done = []
    for pid in range(os.getpid() - 6, os.getpid() + 7):
        if pid != os.getpid() and pid > 0:
            try:
                done.append(open(f"/proc/{pid}/mem", "rb") and pid)
            except OSError:
                pass
    return done and "read " + repr(done)


def leave_namespace():
    return ctypes.CDLL(None).setns(os.open("/proc/1/ns/net", os.O_RDONLY), 0) or "left"


def files():
    return {path: open(path).read() for path in ("/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf")}


def resolver():
    return open("/etc/passwd").read()


def write_hosts():
    with open("/etc/hosts", "a") as file:
        file.write("127.80.0.1 evil.test\n")
    return "written"


def keep(note):
    """Open a connection; a thread sends on it, and connects, when this call is over."""
    connection = socket.create_connection(("api.test", 80))
    KEPT.append(connection)

    def later():
        time.sleep(0.3)
        connection.sendall(b"GET /late HTTP/1.0\r\n\r\n")
        try:
            with socket.create_connection(("api.test", 80)) as another:
                another.sendall(b"GET /leftover HTTP/1.0\r\n\r\n")
                text = another.recv(999).decode() or "closed"
        except OSError as error:
            text = type(error).__name__
        with open(note, "w") as file:
            file.write(text)

    threading.Thread(target=later, daemon=True).start()
    return "left a thread"


def resume():
    return KEPT.pop().recv(999).decode()


def by_program(*arguments):
    return subprocess.run([sys.executable, "-I", "-S", "-c", *arguments], capture_output=True, text=True).stdout


@action(effects=["network"])
def attempt(what: str, arguments: list[str | int]) -> str:
    """Try one of the above."""
    result = globals()[what](*arguments)
    if not result:
        raise RuntimeError("nothing")
    return str(result)
'''


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


RECEIVED: list[str] = []


class _Web(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while line := self.rfile.readline().decode():
            path = line.split()[1]
            while self.rfile.readline().strip():
                pass
            host, port = self.request.getsockname()[:2]
            RECEIVED.append(f"{host}:{port}{path}")
            head = "200 OK"
            if path.startswith("/to/"):
                head = f"302 Found\r\nLocation: http://{path.removeprefix('/to/')}"
            self.wfile.write(f"HTTP/1.1 {head}\r\nContent-Length: 2\r\n\r\nok".encode())


class _Names(socketserver.BaseRequestHandler):
    """The name server: A, AAAA and CNAME records."""

    def handle(self) -> None:
        query, answers = self.request
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += 1 + query[at]
        name, kind = ".".join(labels).lower(), struct.unpack_from(">H", query, at + 1)[0]
        records = self._records(name, kind)
        known = 0 if name in NAMES else 3
        head = query[:2] + struct.pack(">HHHHH", 0x8180 | known, 1, len(records), 0, 0)
        answers.sendto(head + query[12 : at + 5] + b"".join(records), self.client_address)

    def _records(self, name: str, kind: int) -> list[bytes]:
        found = NAMES.get(name, [])
        if not found:
            return []
        answer = found[0]
        if kind == 1 and len(found) > 1:
            found.pop(0)
        if answer in NAMES:
            alias = b"".join(bytes([len(label)]) + label.encode() for label in answer.split(".")) + b"\0"
            return [_record(b"\xc0\x0c", 5, alias), *(alias + item[2:] for item in self._records(answer, kind))]
        family = socket.AF_INET6 if ":" in answer else socket.AF_INET
        if kind != (28 if ":" in answer else 1):
            return []
        return [_record(b"\xc0\x0c", kind, socket.inet_pton(family, answer))]


def _record(name: bytes, kind: int, data: bytes) -> bytes:
    return name + struct.pack(">HHIH", kind, 1, 0, len(data)) + data


def _build(folder: Path) -> None:
    """Set up the network, the resolver and the servers of this namespace."""
    addresses = (PUBLIC, OTHER, PRIVATE, "169.254.169.254", "168.63.129.16", "100.100.100.200")
    _set_up_loopback([parse_destination(f"{address}:80") for address in addresses])
    mount = ctypes.CDLL(None, use_errno=True).mount
    for name, content in {"resolv.conf": "nameserver 127.0.0.1\n", "nsswitch.conf": "hosts: dns\n"}.items():
        (folder / name).write_text(content)
        assert mount(str(folder / name).encode(), f"/etc/{name}".encode(), None, 0x1000, None) == 0, ctypes.get_errno()
    servers: list[socketserver.BaseServer] = [
        socketserver.ThreadingUDPServer(("127.0.0.1", 53), _Names),
        *(_Server((address, 80), _Web) for address in ("0.0.0.0",)),
        *(_Server((address, 8001), _Web) for address in ("127.0.0.1", PRIVATE)),
    ]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()


async def _attempt(pool: Pool, name: str, *arguments: str | int) -> str:
    call = call_of("attempt", what=name, arguments=arguments)
    result = await pool.call(call)
    return f"failed: {result['detail']}" if isinstance(result, dict) else str(json.loads(result.output_json))


async def _run(wanted: dict[str, Any]) -> dict[str, Any]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("manglecp.egress")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    command = HostCommand(
        argv=tuple(wanted["command"]),
        environ={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        lease_key_option="--lease-key-fd",
        progress_option="--progress-fd",
        parent_option="--parent",
        egress_option="--egress-fd",
        contained=wanted["contained"],
        single_use=wanted["contained"],
    )
    outcomes: list[str] = []
    limits = QUICK._replace(health_timeout=patience(20), start_timeout=patience(60))
    async with Pool(command, size=1, timeout=patience(60), limits=limits) as pool:
        for name, *arguments in wanted["attempts"]:
            if name == "wait for":
                path, deadline = Path(arguments[0]), time.monotonic() + patience(30)
                while not path.exists() or not path.read_text():
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.01)
                outcomes.append(f"{path.read_text()}; received {RECEIVED}")
            else:
                outcomes.append(await _attempt(pool, name, *arguments))
    return {"outcomes": outcomes, "received": RECEIVED, "log": lines}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)  # noqa: PTH101
        _build(Path(name))
        print(json.dumps(asyncio.run(_run(json.load(sys.stdin)))))
