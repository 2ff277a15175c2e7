"""Encryption of values with the store key.

Without a key a sealed value is a zero byte and the plain value. With a key it is a byte 1, the key id, a random nonce,
and the value encrypted with AES-256-GCM. The key id (the first bytes of a digest of the key) distinguishes a wrong key
from a damaged value. The *place* of a value, for example table, run, step and column, is authenticated with it: a
process with access to the database can delete the value, but not read, alter or move it. A store with a key refuses
plain values, which could be forged.
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
_ENCRYPTED: Final = b"\1"
_KEY_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12


class Seals:
    """Seals and unseals values with one key, or without a key."""

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
        self._key_id = hashlib.sha256(b"manglecp store key\0" + key).digest()[:_KEY_ID_BYTES]

    def seal(self, value: bytes, *place: str) -> bytes:
        """Seal a value; :meth:`unseal` returns it only for the same ``place``."""
        if self._cipher is None:
            return _PLAIN + value
        nonce = os.urandom(_NONCE_BYTES)
        return _ENCRYPTED + self._key_id + nonce + self._cipher.encrypt(nonce, value, canonical(place))

    def unseal(self, sealed: bytes, *place: str) -> bytes:
        """Return a value that was sealed for this place. Raises :class:`Unusable` for any other bytes, place or key."""
        place_text = "/".join(place)
        form, content = sealed[:1], sealed[1:]
        if form not in (_PLAIN, _ENCRYPTED):
            raise Unusable(f"{place_text} is damaged: it is not a sealed value")
        if self._cipher is None:
            if form == _ENCRYPTED:
                raise Unusable(f"{place_text} is sealed; configure the store key that it was sealed with")
            return content
        if form == _PLAIN:
            raise Unusable(
                f"{place_text} was stored without a key, and this store has one. "
                "Remove the key, finish or abandon the runs that began without it, and configure it again."
            )
        return self._decrypt(content, place_text, canonical(place))

    def _decrypt(self, sealed: bytes, where: str, authenticated: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        assert self._cipher is not None
        if sealed[:_KEY_ID_BYTES] != self._key_id:
            raise Unusable(f"{where} is sealed with another store key than the one configured")
        nonce, ciphertext = sealed[_KEY_ID_BYTES:][:_NONCE_BYTES], sealed[_KEY_ID_BYTES + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, ciphertext, authenticated)
        except (InvalidTag, ValueError):
            raise Unusable(f"{where} does not open: it was changed, or moved from another row") from None
