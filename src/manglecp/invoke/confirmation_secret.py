"""The confirmation secret of this machine's user: a file that only the user can read.

A process that can read it approves in the user's name; a sandboxed agent cannot.
"""

from __future__ import annotations

import os
import secrets as chance
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from manglecp.invoke.approval import Secrets
from manglecp.store import Unusable, state_directory

SECRET_FILE: Final = "confirmation.key"
_SECRET_BYTES: Final = 32


def local_secrets(folder: Path | None = None) -> Secrets:
    """The confirmation secret of this user, made when it is first needed."""
    path = (folder or state_directory()) / SECRET_FILE
    if not path.exists():
        _make_secret(path)
    try:
        about = path.stat()
        secret = path.read_bytes()
    except OSError as error:
        raise Unusable(f"the confirmation secret {path} cannot be read: {error.strerror}") from None
    if stat.S_IMODE(about.st_mode) & 0o077:
        raise Unusable(f"the confirmation secret {path} is open to others; remove it, and a new one is made")
    if len(secret) != _SECRET_BYTES:
        raise Unusable(f"the confirmation secret {path} is damaged; remove it, and a new one is made")
    return Secrets(local=secret)


def _make_secret(path: Path) -> None:
    """Whole or not at all; of two that make one at the same time, the first wins."""
    mine = path.with_name(f".{path.name}.{chance.token_hex(8)}")
    try:
        descriptor = os.open(mine, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, chance.token_bytes(_SECRET_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with suppress(FileExistsError):
            path.hardlink_to(mine)
    except OSError as error:
        raise Unusable(f"the confirmation secret {path} cannot be made: {error.strerror}") from None
    finally:
        mine.unlink(missing_ok=True)
