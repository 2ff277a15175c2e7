"""Folders that outlive the hosts of a pack: what a generator has worked out and need not work out again.

A folder belongs to one pack with one set of settings and one content of ``facts.py``: another content may write what
this one cannot read. Folders that nobody has opened for a month are removed when another one is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Final

from manglecp.pack import Pack

__all__ = ["cache_folder"]

_OLD: Final = 30 * 86_400


def cache_root() -> Path:
    """Where this user's caches are."""
    if given := os.environ.get("MANGLECP_CACHE_DIR"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "manglecp"


def cache_folder(pack: Pack, root: Path | None = None) -> Path:
    """The folder of a pack, made if it is not there; OSError if it cannot be."""
    about = json.dumps([pack.name, sorted(pack.params.items()), pack.generators_sha256]).encode()
    within = (root or cache_root()).absolute() / "facts" / pack.name
    folder = within / hashlib.sha256(about).hexdigest()[:32]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    os.utime(folder)
    _tidy(within, folder)
    return folder


def _tidy(within: Path, kept: Path) -> None:
    oldest = time.time() - _OLD
    for other in within.iterdir():
        with contextlib.suppress(OSError):
            if other != kept and not other.is_symlink() and other.stat().st_mtime < oldest:
                shutil.rmtree(other, ignore_errors=True)
