"""The broker of a host with egress: connects the listening sockets of the host to the destinations.

The host forks the broker before it enters the sandbox, so the broker keeps the network of the machine. The broker runs
no code of the plugin, and the kernel kills it with the host. It accepts connections, and sends data of the host, only
while a call is open. It resolves a name for each connection, and connects only to an address that it has checked.

Messages of dispatch are ``+CALL`` and ``-CALL``: a call begins or ends. The broker sends one JSON object for each
connection. Without dispatch, in a host that was started by hand, a call is always open.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fcntl import ioctl
from functools import partial
from termios import FIONREAD
from time import monotonic
from typing import Final

from manglecp.base.destination import Destination, parse_destination
from manglecp.toolhost.sandbox import privileges

MAX_CONNECTIONS: Final = 128
CONNECT_SECONDS: Final = 10.0  # for each address of a name
IDLE_SECONDS: Final = 600  # without data, after which a connection is closed
_CHUNK: Final = 262_144  # bytes that one connection buffers in each direction
_THREAD_STACK: Final = 1_048_576
_MAX_DESCRIPTORS: Final = 1 << 20
_BY_HAND: Final = "by hand"  # the call that is open without dispatch


def start_broker(
    egress: Sequence[str], private: Sequence[str], control: int | None, user: tuple[int, int] | None
) -> int:
    """Fork the broker. Return the descriptor over which the host sends its listening sockets to the broker.

    ``private`` are the destinations that may have a private address; ``control`` is the descriptor of the messages,
    which only the broker keeps; ``user`` is the user and group that the broker becomes.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if not os.fork():
        try:
            _give_up_rights(parent, user, sorted({theirs.fileno(), *(() if control is None else (control,))}))
            messages = None if control is None else socket.socket(fileno=control)
            Broker(egress, private, messages).serve(theirs)
        finally:
            os._exit(1)
    theirs.close()
    if control is not None:
        os.close(control)
    return ours.detach()


def _give_up_rights(parent: int, user: tuple[int, int] | None, descriptors: Sequence[int]) -> None:
    """Confine the broker: it ends with the process ``parent``, and keeps only these descriptors."""
    for number in (signal.SIGTERM, signal.SIGINT):  # the broker works until the host is dead
        signal.signal(number, signal.SIG_IGN)
    if user is not None:
        privileges.become(*user)
    privileges.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # the host ended before the death signal was set
        os._exit(1)
    privileges.drop_capabilities()
    privileges.refuse_new_privileges()
    privileges.refuse_dumps()
    first = 0
    for descriptor in (*descriptors, _MAX_DESCRIPTORS):
        os.closerange(first, descriptor)
        first = descriptor + 1


class Broker:
    """Relays the connections of one host, each with two threads; ``control`` is the socket of the messages."""

    def __init__(self, egress: Sequence[str], private: Sequence[str], control: socket.socket | None) -> None:
        self._destinations = list(map(parse_destination, egress))
        self._private = frozenset(private)
        self._control = control
        self._calls: dict[str, None] = {_BY_HAND: None} if control is None else {}  # the open calls, in their order
        self._is_open = threading.Event()  # whether a call is open
        self._closing = threading.Lock()
        self._connections: set[_Connection] = set()
        self._threads = ThreadPoolExecutor(2 * MAX_CONNECTIONS)
        if self._calls:
            self._is_open.set()

    def serve(self, channel: socket.socket) -> None:
        """Receive the listening sockets over ``channel`` and relay their connections, until dispatch ends."""
        threading.stack_size(_THREAD_STACK)
        descriptors = socket.recv_fds(channel, 64, len(self._destinations))[1]  # none: the host cannot listen
        poller = select.poll()
        listeners: dict[int, tuple[socket.socket, Destination]] = {}
        for descriptor, destination in zip(descriptors, self._destinations, strict=False):
            listener = socket.socket(fileno=descriptor)
            listener.setblocking(False)
            listeners[descriptor] = listener, destination
            poller.register(descriptor, select.POLLIN)
        if self._control is not None:
            poller.register(self._control, select.POLLIN)
        while True:
            for descriptor, _ in poller.poll():
                if descriptor in listeners:
                    self._accept(*listeners[descriptor])
                elif not self._read_control():
                    return

    def _read_control(self) -> bool:
        """Read all messages; return False if dispatch has ended."""
        with suppress(BlockingIOError):
            while self._control is not None:
                message = self._control.recv(4_096, socket.MSG_DONTWAIT).decode()
                if not message:
                    return False
                if message[0] == "+":
                    self._calls[message[1:]] = None
                    self._is_open.set()
                else:
                    self._calls.pop(message[1:], None)
                    if not self._calls:
                        with self._closing:
                            for connection in list(self._connections):
                                connection.count_sent()
                            self._is_open.clear()
        return True

    def _accept(self, listener: socket.socket, destination: Destination) -> None:
        try:
            connection = _Connection(listener.accept()[0])
        except OSError:  # the host has closed the connection already
            return
        self._read_control()  # dispatch announces a call before it sends the call
        if self._calls and len(self._connections) < MAX_CONNECTIONS:
            self._connections.add(connection)
            self._threads.submit(self._carry, connection, destination, list(self._calls))
            return
        if self._calls:
            message = f"no connection to {destination}: the host has {MAX_CONNECTIONS} connections already"
            self._report(message, list(self._calls), failed=True)
        connection.abort()

    def _carry(self, connection: _Connection, destination: Destination, calls: list[str]) -> None:
        """Connect to the destination, and relay data until both directions have ended; ``calls`` were open then."""
        try:
            server, address = self._connect(destination)
        except OSError as error:
            self._report(f"no connection to {destination}: {error.strerror or error}", calls, failed=True)
            connection.abort()
        else:
            self._report(f"connected to {destination} at {address}", calls)
            connection.relay(server, partial(connection.receive, self._is_open, self._closing), self._threads)
        finally:
            self._connections.discard(connection)

    def _connect(self, destination: Destination) -> tuple[socket.socket, str]:
        """Return a connected socket, and its address. Raises OSError, for a private address PermissionError."""
        flags = socket.AI_NUMERICHOST if destination.is_address else 0
        targets = socket.getaddrinfo(*destination[:2], type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=flags)
        problem: OSError | None = None
        for family, kind, protocol, _, target in targets:
            address = str(target[0])
            if not (destination.is_address or str(destination) in self._private or is_public(address)):
                permit = f'private = ["{destination}"] in [egress] of server.toml, or --private {destination}'
                reason = f"{destination.host} has the address {address}, which is not public"
                problem = problem or PermissionError(f"{reason}; the operator permits it with {permit}")
                continue
            server = socket.socket(family, kind, protocol)
            try:
                server.settimeout(CONNECT_SECONDS)
                server.connect(target)
                server.settimeout(None)
            except OSError as error:
                server.close()
                problem = error
            else:
                return server, address
        raise problem or OSError("the name has no address")

    def _report(self, message: str, calls: list[str], *, failed: bool = False) -> None:
        if self._control is not None:
            report = {"message": message, "failed": failed, "calls": calls}
            with suppress(OSError):  # dispatch has ended, and the main thread sees it as well
                self._control.send(json.dumps(report).encode())


class _Connection:
    """A connection that the host has made; ``client`` is the socket."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._used_at = monotonic()
        self._sent = 0  # bytes that the host sent before the last call ended, and that are not received yet

    def abort(self) -> None:
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))  # close sends a reset
        self._client.close()

    def count_sent(self) -> None:
        """Let :meth:`receive` return what the host has sent so far, although the call ends."""
        with suppress(OSError, ValueError):  # the connection has ended
            self._sent = int.from_bytes(ioctl(self._client, FIONREAD, bytes(4)), sys.byteorder)

    def receive(self, is_open: threading.Event, closing: threading.Lock) -> bytes:
        """Return what the host has sent during a call, otherwise wait for the next call. Raises OSError."""
        self._client.recv(1, socket.MSG_PEEK)  # waits without the lock
        while True:
            with closing:
                if is_open.is_set():
                    return self._client.recv(_CHUNK)
                if self._sent:
                    data = self._client.recv(min(self._sent, _CHUNK))
                    self._sent -= len(data)
                    return data
            is_open.wait()

    def relay(self, server: socket.socket, receive: Callable[[], bytes], threads: ThreadPoolExecutor) -> None:
        """Relay data until both directions have ended, then close both; ``receive`` returns data for ``server``."""
        with self._client, server:
            for end in (self._client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for timeout in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                    end.setsockopt(socket.SOL_SOCKET, timeout, struct.pack("@ll", IDLE_SECONDS, 0))
            answers = threads.submit(self._pump, server, self._client, partial(server.recv, _CHUNK))
            self._pump(self._client, server, receive)
            answers.result()

    def _pump(self, source: socket.socket, sink: socket.socket, receive: Callable[[], bytes]) -> None:
        try:
            while True:
                try:
                    data = receive()
                except BlockingIOError:  # the timeout of the socket
                    if monotonic() - self._used_at >= IDLE_SECONDS:
                        raise
                    continue
                if not data:
                    return sink.shutdown(socket.SHUT_WR)
                self._used_at = monotonic()
                sink.sendall(data)
        except OSError:
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)  # ends the other direction as well


def is_public(address: str) -> bool:
    """Return whether this is an address of the public internet, and no service of a cloud for its own machines."""
    from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network  # only the broker needs it

    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        embedded = ip.ipv4_mapped or ip.sixtofour
        if ip in ip_network("64:ff9b::/96"):  # translated by NAT64
            embedded = IPv4Address(int(ip) & 0xFFFF_FFFF)
        if embedded is None:
            return ip in ip_network("2000::/3") and ip.is_global
        ip = embedded
    is_cloud_service = any(ip in ip_network(network) for network in ("168.63.129.16/32", "192.0.0.0/24"))
    return ip.is_global and not ip.is_multicast and not is_cloud_service
