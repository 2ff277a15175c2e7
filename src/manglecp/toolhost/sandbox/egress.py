"""The network of a host with egress: every allowed destination is a listening socket on the loopback device.

The network namespace of the host is empty but for this device. A name becomes an address 127.80.0.N in a private hosts
file, an IP address is assigned to the device. The listening sockets belong to the broker (:mod:`..host.broker`), a
process outside the namespace, which connects to the real destination. Where there is no listening socket, the kernel
refuses the connection.
"""

import os
import socket
import struct
from collections.abc import Iterable, Sequence
from fcntl import ioctl

from manglecp.base.destination import Destination, parse_destination

from .policy import Unsupported

# What a client of a network service reads: the trust store and well-known names. Not /etc/ssl: it has private keys.
_TRUST_STORE = (
    "/etc/ssl/certs /etc/ssl/cert.pem /etc/ssl/openssl.cnf /etc/pki/tls/certs /etc/pki/ca-trust/extracted"
    " /usr/share/ca-certificates /usr/local/share/ca-certificates"
)
READABLE = (*_TRUST_STORE.split(), "/etc/services", "/etc/protocols")
_BACKLOG = 128
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_IFF_UP_LOOPBACK_RUNNING = 0x1 | 0x8 | 0x40
_LOOPBACK_INDEX = 1  # the first device of a network namespace


def open_listeners(texts: Sequence[str], channel: int) -> None:
    """Listen at every destination, in a network namespace of this process, and send the sockets over ``channel``.

    Closes ``channel``. Raises OSError.
    """
    destinations = [parse_destination(text) for text in texts]
    with socket.socket(fileno=channel) as broker:
        _set_up_loopback(destinations)
        addresses = _addresses_of_names(destinations)
        listeners = []
        for destination in destinations:
            family = socket.AF_INET6 if ":" in destination.host else socket.AF_INET
            listener = socket.socket(family, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((addresses.get(destination.host, destination.host), destination.port))
            listener.listen(_BACKLOG)
            listeners.append(listener)
        socket.send_fds(broker, [b"listeners"], [listener.fileno() for listener in listeners])
        for listener in listeners:
            listener.close()


def _set_up_loopback(destinations: Iterable[Destination]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        ioctl(control, _SIOCSIFFLAGS, struct.pack("=16sH22x", b"lo", _IFF_UP_LOOPBACK_RUNNING))
        for index, host in enumerate({each.host for each in destinations if each.is_address}):
            if ":" not in host and not host.startswith("127."):
                address = struct.pack("=H2x4s8x", socket.AF_INET, socket.inet_aton(host))
                ioctl(control, _SIOCSIFADDR, struct.pack("=16s16s8x", f"lo:{index}".encode(), address))
            elif ":" in host and host != "::1":
                with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control6:
                    address = socket.inet_pton(socket.AF_INET6, host)
                    ioctl(control6, _SIOCSIFADDR, struct.pack("=16sIi", address, 128, _LOOPBACK_INDEX))


def _addresses_of_names(destinations: Iterable[Destination]) -> dict[str, str]:
    names = dict.fromkeys(each.host for each in destinations if not each.is_address)
    return {name: f"127.80.0.{number}" for number, name in enumerate(names, 1)}


def network_files(texts: Iterable[str]) -> dict[str, str]:
    """Return the content of the files from which libraries resolve names, by the path that the content replaces."""
    if not os.access("/etc/hosts", os.F_OK):
        raise Unsupported("there is no file /etc/hosts, over which the names of the destinations are mounted")
    addresses = _addresses_of_names(map(parse_destination, texts))
    lines = [f"{address} {name}" for name, address in {"localhost": "127.0.0.1", **addresses}.items()]
    files = {"/etc/hosts": "\n".join(lines) + "\n", "/etc/nsswitch.conf": "hosts: files\n", "/etc/resolv.conf": ""}
    return {path: content for path, content in files.items() if os.access(path, os.F_OK)}
