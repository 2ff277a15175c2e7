"""A scene to attack: sockets and a process that do not belong to the worker, and folders that do."""

import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from .attacks import Scene
from .confined import Identity, end, identities, start_victim


@pytest.fixture(scope="session", params=identities(), ids=lambda identity: identity.name)
def identity(request: pytest.FixtureRequest) -> Identity:
    chosen: Identity = request.param
    return chosen


@pytest.fixture
def workspace(identity: Identity) -> Iterator[str]:
    """A folder that the identity owns, below one that everybody can enter (pytest's own is closed to others)."""
    with tempfile.TemporaryDirectory(prefix="manglecp-sandbox-") as name:
        shutil.chown(name, identity.uid, identity.uid)
        yield name


@pytest.fixture(scope="session")
def scene(identity: Identity) -> Iterator[Scene]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="manglecp-sandbox-")))
        shutil.chown(folder, identity.uid, identity.uid)
        path, abstract = str(folder / "socket"), folder.name
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
        tcp6 = None
        with suppress(OSError):  # not every machine has IPv6, not even for itself
            tcp6 = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6, backlog=128))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        for address in (path, "\0" + abstract):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(address)
            listener.listen()
        datagrams = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        datagrams.bind(path + ".datagram")
        for address in (path, path + ".datagram"):
            shutil.chown(address, identity.uid, identity.uid)
        victim = start_victim(identity)
        stack.callback(end, victim)
        yield Scene(
            workspace=str(folder),
            outside=str(folder),
            tcp=tcp.getsockname()[1],
            tcp6=0 if tcp6 is None else tcp6.getsockname()[1],
            udp=udp.getsockname()[1],
            socket_path=path,
            abstract=abstract,
            victim=victim.pid,
        )
