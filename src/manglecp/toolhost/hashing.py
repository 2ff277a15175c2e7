"""SHA-256 and HMAC-SHA256 as a host needs them: few bytes at a time, and soon after its start.

CPython has an implementation of its own beside that of OpenSSL. A host takes that: it is there at once, and to load
OpenSSL takes as long as thousands of digests of the few hundred bytes of a request. Over more bytes OpenSSL is so much
quicker that it gets them. A process that has loaded it already, such as a server, leaves everything to it; so does one
whose interpreter was built without the other.
"""

from __future__ import annotations

import sys
from _operator import _compare_digest as same  # what hmac.compare_digest is without OpenSSL
from typing import TYPE_CHECKING, Final

__all__ = ["Mac", "hex_digest", "same"]

if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        if "_hashlib" in sys.modules:
            from hashlib import sha256
        elif sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:
        from hashlib import sha256

_BLOCK: Final = 64
_FEW: Final = 1_024


def hex_digest(data: bytes) -> str:
    """SHA-256, in hexadecimal."""
    if len(data) <= _FEW:
        return sha256(data).hexdigest()
    from hashlib import sha256 as of_openssl

    return of_openssl(data).hexdigest()


class Mac:
    """HMAC-SHA256 (RFC 2104) under one key, whose two first blocks are hashed once."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = (sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
        self._inner: Final = sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer: Final = sha256(bytes(byte ^ 0x5C for byte in block))

    def __call__(self, message: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()
