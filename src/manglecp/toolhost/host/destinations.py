"""Names the destinations that a call tried to reach and that the egress of its host does not have."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

_EVENTS: Final = ("socket.getaddrinfo", "socket.connect", "socket.gethostbyname")
_MAX_NAMED: Final = 3
_ADDRESSES_OF_NAMES: Final = "127.80.0."  # see the sandbox: a name of the egress has such an address


class UndeclaredDestinations:
    """Observes name lookups and connections by audit events; libraries that do both in C are not observed."""

    def __init__(self, egress: Sequence[str]) -> None:
        self._egress = egress
        self._tried: dict[str, None] = {}
        sys.addaudithook(self._observe)

    def forget(self) -> None:
        """Forget the destinations of earlier calls."""
        self._tried.clear()

    def explain(self) -> str:
        """Return the end of an error message: the destinations, and the declaration that allows them; or nothing."""
        names = list(self._tried)[:_MAX_NAMED]
        if not names:
            return ""
        egress = ", ".join([f'"{name}"' for name in names] + (["…"] if self._egress else []))
        return f'; to connect to {" and ".join(names)}, declare @action(effects=["network"], egress=[{egress}])'

    def _observe(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS:
            return
        target = arguments[1] if event == "socket.connect" else arguments
        if not isinstance(target, tuple) or len(self._tried) >= _MAX_NAMED:  # a tuple: not a path of a Unix socket
            return
        host, port = target[0], target[1] if len(target) > 1 and type(target[1]) is int and target[1] else "PORT"
        host = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        if isinstance(host, str) and host and not host.startswith(_ADDRESSES_OF_NAMES):
            host = host.rpartition("@")[2]  # urllib passes on the user of a URL, which may be a credential
            name = f"[{host}]:{port}" if ":" in host else f"{host[:253]}:{port}"  # in its case: a label may be a secret
            if name.lower() not in self._egress:
                self._tried[name] = None
