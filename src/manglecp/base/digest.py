"""SHA-256 digests, written as ``sha256:`` followed by 64 hexadecimal digits."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from manglecp.base.json import canonical


def digest(value: Any) -> str:
    """Return the digest of the canonical JSON of a value. Raises :class:`~manglecp.base.json.Uncanonical`."""
    return digest_bytes(canonical(value))


def digest_text(text: str) -> str:
    """Return the digest of the UTF-8 bytes of a text."""
    return digest_bytes(text.encode())


def digest_bytes(data: bytes) -> str:
    return "sha256:" + sha256(data).hexdigest()
