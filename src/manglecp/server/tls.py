"""The certificate of a server and its private key. Their files are checked before the server listens.

A certificate can be renewed while the server runs: new connections use the new one.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from manglecp.server.binding import ListenOptions, ServeError

_NO_PASSWORD: Final = ""  # with None, OpenSSL would ask for the password of an encrypted key on the terminal


class Tls:
    """The files of a certificate and its key, and the TLS context that uses them."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.certificate = certificate
        self.key = key
        self._context: ssl.SSLContext | None = None

    @classmethod
    def of(cls, listen_options: ListenOptions) -> Tls | None:
        """Return the certificate that the options name, or None."""
        certificate = listen_options.certificate
        return None if certificate is None else cls(certificate, listen_options.key or certificate)

    def context(self) -> ssl.SSLContext:
        """Return the context, for TLS 1.2 or newer (requirement SEC-34). Raises ServeError for an invalid file."""
        if self._context is None:
            self._context = self._load()
        return self._context

    def renew(self) -> None:
        """Read the files again. Raises ServeError for an invalid file, without any change."""
        self._load()  # validates the files: the context in use must not get a certificate without its key
        if self._context is not None:
            self._context.load_cert_chain(self.certificate, self.key, _NO_PASSWORD)

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key, _NO_PASSWORD)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ServeError(self._describe(error)) from None
        return context

    def _describe(self, error: Exception) -> str:
        """Return why the files could not be loaded, and what to do."""
        texts = {}
        for file in (self.certificate, self.key):
            try:
                texts[file] = file.read_bytes()
            except OSError as cause:
                return f"{file} cannot be read: {cause.strerror}"
        if b"-----BEGIN CERTIFICATE-----" not in texts[self.certificate]:
            return f"{self.certificate} contains no certificate in PEM form; pass one with --tls-cert"
        if b"PRIVATE KEY-----" not in texts[self.key]:
            return f"{self.key} contains no key in PEM form; pass the file of the certificate's key with --tls-key"
        if b"ENCRYPTED" in texts[self.key]:
            return f"the key in {self.key} is protected by a password; pass a file with the unprotected key"
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            return f"the key in {self.key} is not that of the certificate in {self.certificate}"
        return f"{self.certificate} and {self.key} cannot be used: one of them is damaged"
