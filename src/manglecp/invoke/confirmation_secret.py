"""The confirmation secret of this machine's user: a file that only the user can read.

A process that can read it approves in the user's name; a sandboxed agent cannot.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Final

from manglecp.invoke.approval import Secrets
from manglecp.store import Unusable, state_directory

SECRET_FILE: Final = "confirmation.key"
_SECRET_BYTES: Final = 32


def local_secrets(folder: Path | None = None) -> Secrets:
    """Return the secret of this user, which is created at the first use. Raises :class:`Unusable`."""
    path = (folder or state_directory()) / SECRET_FILE
    if not path.exists():
        _create_secret(path)
    try:
        about = path.stat()
        secret = path.read_bytes()
    except OSError as error:
        raise Unusable(f"the confirmation secret {path} cannot be read: {error.strerror}") from None
    if stat.S_IMODE(about.st_mode) & 0o077:
        raise Unusable(
            f"the confirmation secret {path} can be read by other users; remove it, and a new one is created"
        )
    if len(secret) != _SECRET_BYTES:
        raise Unusable(f"the confirmation secret {path} is damaged; remove it, and a new one is created")
    return Secrets(local=secret)


def _create_secret(path: Path) -> None:
    """Write the file atomically; of two processes, the first one's secret stays."""
    temporary = path.with_name(f".{path.name}.{token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, token_bytes(_SECRET_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with suppress(FileExistsError):
            path.hardlink_to(temporary)
    except OSError as error:
        raise Unusable(f"the confirmation secret {path} cannot be created: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
