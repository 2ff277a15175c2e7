"""Digests of what logs hold.

Some JSON has no canonical form: numbers such as ``1e-7``, keys with letters other than ASCII. A log may still hold it,
and refusing the whole turn would hide everything else in it. Such a value is carried as text: the JSON of the value,
keys in order and everything but ASCII escaped.
"""

from __future__ import annotations

import hashlib
import json

from manglecp.base.digest import digest_bytes
from manglecp.base.json import Uncanonical
from manglecp.harness import canonical
from manglecp.wire import JSON

__all__ = ["RunningDigest", "canonical_bytes", "carried", "digest_bytes", "digest_of"]


def carried(value: JSON) -> JSON:
    """The value, or its text if it has no canonical form."""
    try:
        canonical(value)
    except Uncanonical:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    return value


def canonical_bytes(value: JSON) -> bytes:
    """The canonical JSON of the value, or of its text if it has none."""
    try:
        return canonical(value)
    except Uncanonical:
        return canonical(carried(value))


def digest_of(value: JSON) -> str:
    """``sha256:`` and the hash of :func:`canonical_bytes`."""
    return digest_bytes(canonical_bytes(value))


class RunningDigest:
    """The digest of a JSON list that grows: each item is hashed once, however often the digest is asked for."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(b"[")
        self._empty = True

    def append(self, item: JSON) -> None:
        """Hash one more item."""
        if not self._empty:
            self._hash.update(b",")
        self._hash.update(canonical_bytes(item))
        self._empty = False

    def digest(self) -> str:
        """That of the list so far; it may go on growing."""
        whole = self._hash.copy()
        whole.update(b"]")
        return "sha256:" + whole.hexdigest()
