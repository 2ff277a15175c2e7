"""Changes of a file of tokens: add and remove entries, and keep the rest of the text.

The file is replaced atomically, with mode 0600, and only if the old and the new text are valid. A lock of its folder
serialises concurrent changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from manglecp.server.auth.tokens import TokensError, TokensFile

__all__ = ["TokenEditor"]

_MIN_PREFIX: Final = 6
_HEADER: Final = re.compile(r"^[ \t]*\[\[[ \t]*token[ \t]*\]\]", re.MULTILINE)
_COMMENTS: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*\Z")


class TokenEditor:
    """Edits one file. All methods raise :class:`TokensError`, and then the file is unchanged."""

    def __init__(self, file: Path) -> None:
        self._path = file.resolve()  # a link is kept, and its target replaced

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries as they are in the file."""
        return self._read()[1]

    def add(self, identity: str, permissions: Iterable[str] = (), expires: datetime | None = None) -> str:
        """Add an entry for a new token, and return the token. A missing file is created."""
        token = secrets.token_urlsafe(32)
        lines = [
            f"[[token]]  # made on {datetime.now(UTC):%Y-%m-%d}",
            f'sha256 = "{hashlib.sha256(token.encode()).hexdigest()}"',
            f"identity = {json.dumps(identity, ensure_ascii=False)}",
        ]
        if granted := sorted(set(permissions)):
            lines.append(f"permissions = {json.dumps(granted, ensure_ascii=False)}")
        if expires is not None:
            lines.append(f"expires = {expires.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
        with self._locked():
            before = self._read()[0].rstrip("\n") if self._path.exists() else ""
            self._replace("\n".join([*([before, ""] if before else []), *lines, ""]))
        return token

    def revoke(self, name: str) -> list[dict[str, Any]]:
        """Remove and return the entries of an identity, or the one whose hash begins with ``name``."""
        with self._locked():
            text, entries = self._read()
            gone = [number for number, one in enumerate(entries) if one["identity"] == name]
            if not gone and len(name) >= _MIN_PREFIX:
                gone = [number for number, one in enumerate(entries) if one["sha256"].startswith(name.lower())]
                if len(gone) > 1:
                    raise TokensError(f"several hashes begin with {name}: give more digits")
            if not gone:
                names = ", ".join(sorted({one["identity"] for one in entries})) or "nobody"
                raise TokensError(f"{self._path.name} has no token of {name}, only of {names}")
            stay = [one for number, one in enumerate(entries) if number not in gone]
            self._replace(_without(text, gone), stay)
        return [entries[number] for number in gone]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise TokensError(f"{self._path.parent} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _read(self, path: Path | None = None) -> tuple[str, list[dict[str, Any]]]:
        """Return the text and the entries of a valid file."""
        TokensFile(path or self._path)  # raises for an invalid file
        text = (path or self._path).read_text("utf-8")
        return text, tomllib.loads(text).get("token", [])

    def _replace(self, text: str, expected: list[dict[str, Any]] | None = None) -> None:
        path = self._path
        try:
            fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # with mode 0600
            draft = Path(name)
            try:
                with os.fdopen(fd, "w", encoding="utf-8") as stream:
                    stream.write(text)
                    stream.flush()
                    os.fsync(stream.fileno())
                if expected is not None and self._read(draft)[1] != expected:
                    raise TokensError(f"{path.name} has an unusual layout: remove the entry with an editor")
                self._read(draft)
                if path.exists():
                    owner = path.stat()
                    os.chown(draft, owner.st_uid, owner.st_gid)
                draft.replace(path)
            except TokensError as error:
                raise TokensError(str(error).replace(draft.name, path.name)) from None
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise TokensError(f"{path.name} cannot be written: {error.strerror}") from None


def _without(text: str, gone: list[int]) -> str:
    """Remove entries by number. Comments behind an entry stay, because they belong to the next one."""
    starts = [found.start() for found in _HEADER.finditer(text)]
    for number in reversed([one for one in gone if one < len(starts)]):
        start, end = starts[number], starts[number + 1] if number + 1 < len(starts) else len(text)
        entry = _COMMENTS.sub("", text[start:end])
        text = text[:start] + text[start + len(entry) :].lstrip("\n")
    return text
