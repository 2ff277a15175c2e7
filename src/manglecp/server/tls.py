"""The certificate of a server and its key. What is wrong with their files is said before anything listens.

A certificate is renewed while the server runs: connections that come later see the new one.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from manglecp.server.binding import ListenOptions, ServeError

__all__ = ["Tls"]


class Tls:
    """The two files, and what is made of them."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.certificate = certificate
        self.key = key
        self._used: ssl.SSLContext | None = None

    @classmethod
    def of(cls, listening: ListenOptions) -> Tls | None:
        """None if there is no certificate."""
        found = listening.certificate
        return None if found is None else cls(found, listening.key or found)

    def context(self) -> ssl.SSLContext:
        """TLS 1.2 or newer (SEC-34), always the same; Refused says which file is not what it should be."""
        if self._used is None:
            self._used = self._loaded()
        return self._used

    def renew(self) -> None:
        """Read the files again. If something is wrong with them, Refused says so, and nothing has changed."""
        self._loaded()
        if self._used is not None:
            self._used.load_cert_chain(self.certificate, self.key, "")

    def _loaded(self) -> ssl.SSLContext:
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            made.load_cert_chain(self.certificate, self.key, "")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ServeError(self._trouble(error)) from None
        return made

    def _trouble(self, error: Exception) -> str:
        texts = {}
        for file in (self.certificate, self.key):
            try:
                texts[file] = file.read_bytes()
            except OSError as unread:
                return f"{file} cannot be read: {unread.strerror}"
        if b"-----BEGIN CERTIFICATE-----" not in texts[self.certificate]:
            return f"{self.certificate} holds no certificate in PEM form; --tls-cert names one"
        if b"PRIVATE KEY-----" not in texts[self.key]:
            return f"{self.key} holds no key in PEM form; --tls-key names the file of the certificate's key"
        if b"ENCRYPTED" in texts[self.key]:
            return f"the key in {self.key} is protected by a password; a server needs it without, in a file of its own"
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            return f"the key in {self.key} is not that of the certificate in {self.certificate}"
        return f"{self.certificate} and {self.key} cannot be used: one of them is damaged"
