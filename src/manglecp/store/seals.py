"""Encryption of values with the store key.

Without a key a value is stored as it is, behind a marker byte. With one it is encrypted and authenticated (AES-256-GCM,
random nonce) together with its place, for example table, run, step and column. A process with access to the database
can delete such a value, but not read, alter or move it. A store with a key refuses plain values, which could be forged.
The first eight bytes of the key's digest come first, which distinguishes a wrong key from a damaged value.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

from manglecp.base.extras import missing_extra
from manglecp.base.json import canonical
from manglecp.store.errors import Invalid, Unusable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32

_PLAIN: Final = b"\0"
_SEALED: Final = b"\1"
_KEY_ID: Final = 8
_NONCE: Final = 12


class Seals:
    """Seals and opens values under one key, or under none."""

    __slots__ = ("_cipher", "_key_id")

    def __init__(self, key: bytes | None = None) -> None:
        self._cipher: AESGCM | None = None
        self._key_id = b""
        if key is None:
            return
        if len(key) != KEY_BYTES:
            raise Invalid("store key", f"it needs {KEY_BYTES} random bytes, and this one has {len(key)}")
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise Unusable(f"store key: {missing_extra('cryptography', 'encryption')}") from None
        self._cipher = AESGCM(key)
        self._key_id = hashlib.sha256(b"manglecp store key\0" + key).digest()[:_KEY_ID]

    def seal(self, value: bytes, *place: str) -> bytes:
        """Seal a value for ``place``; it can be opened only for the same place."""
        if self._cipher is None:
            return _PLAIN + value
        nonce = os.urandom(_NONCE)
        return _SEALED + self._key_id + nonce + self._cipher.encrypt(nonce, value, canonical(place))

    def unseal(self, sealed: bytes, *place: str) -> bytes:
        """Return the value that was sealed for this place. Raises :class:`Unusable`."""
        where = "/".join(place)
        match sealed[:1]:
            case b"\0" if self._cipher is None:
                return sealed[1:]
            case b"\0":
                raise Unusable(
                    f"{where} was stored without a key, and this store has one. "
                    "Finish or abandon the runs that began without it, without the key."
                )
            case b"\1" if self._cipher is None:
                raise Unusable(f"{where} is sealed; configure the store key that it was sealed with")
            case b"\1":
                return self._open(sealed[1:], where, canonical(place))
        raise Unusable(f"{where} is damaged: it is not a sealed value")

    def _open(self, sealed: bytes, where: str, about: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        assert self._cipher is not None
        if sealed[:_KEY_ID] != self._key_id:
            raise Unusable(f"{where} is sealed with another store key than the one configured")
        nonce, secret = sealed[_KEY_ID : _KEY_ID + _NONCE], sealed[_KEY_ID + _NONCE :]
        try:
            return self._cipher.decrypt(nonce, secret, about)
        except (InvalidTag, ValueError):
            raise Unusable(f"{where} does not open: it was changed, or moved from another row") from None
