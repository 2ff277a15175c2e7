"""Changes to a file of tokens: add and remove entries, and keep the rest of the text.

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
from typing import Any, Final, NamedTuple

from manglecp.server.auth.tokens import TokensError, TokensFile

_MIN_PREFIX: Final = 6  # hexadecimal digits by which a token can be named
_ENTRY_HEADER: Final = re.compile(r"^[ \t]*\[\[[ \t]*token[ \t]*\]\]", re.MULTILINE)
_FINAL_COMMENTS: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*\Z")


class _Content(NamedTuple):
    text: str
    entries: list[dict[str, Any]]  # the tables of the text


class TokenEditor:
    """Edits one file. All methods raise :class:`TokensError`, and then the file is unchanged."""

    def __init__(self, file: Path) -> None:
        self._path = file.resolve()  # a link is kept, and its target replaced

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries as they are in the file."""
        return self._read().entries

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
            before = self._read().text.rstrip("\n") if self._path.exists() else ""
            entry = "\n".join(lines) + "\n"
            self._replace(f"{before}\n\n{entry}" if before else entry)
        return token

    def revoke(self, name: str) -> list[dict[str, Any]]:
        """Remove and return the entries of the identity ``name``; if it has none, the entry whose hash begins so."""
        with self._locked():
            text, entries = self._read()
            indices = [index for index, entry in enumerate(entries) if entry["identity"] == name]
            if not indices and len(name) >= _MIN_PREFIX:
                indices = [index for index, entry in enumerate(entries) if entry["sha256"].startswith(name.lower())]
                if len(indices) > 1:
                    raise TokensError(f"several hashes begin with {name}: give more digits")
            if not indices:
                names = ", ".join(sorted({entry["identity"] for entry in entries}))
                raise TokensError(f"{self._path.name} has no token of {name}" + (f", only of {names}" if names else ""))
            others = [entry for index, entry in enumerate(entries) if index not in indices]
            self._replace(_remove_entries(text, indices), others)
        return [entries[index] for index in indices]

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

    def _read(self, path: Path | None = None) -> _Content:
        """Return the content of a valid file, by default the edited one. Raises TokensError."""
        TokensFile(path or self._path)  # raises for an invalid file
        text = (path or self._path).read_text("utf-8")
        return _Content(text, tomllib.loads(text).get("token", []))

    def _replace(self, text: str, expected: list[dict[str, Any]] | None = None) -> None:
        """Write the text, if it is a valid file that has the expected entries (None: any)."""
        path = self._path
        try:
            fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # with mode 0600
            draft = Path(name)
            try:
                with os.fdopen(fd, "w", encoding="utf-8") as stream:
                    stream.write(text)
                    stream.flush()
                    os.fsync(stream.fileno())
                entries = self._read(draft).entries  # raises if the text is invalid
                if expected is not None and entries != expected:
                    raise TokensError(f"{path.name} has an unusual layout: remove the entry with an editor")
                if path.exists():
                    status = path.stat()
                    os.chown(draft, status.st_uid, status.st_gid)
                draft.replace(path)
            except TokensError as error:
                raise TokensError(str(error).replace(draft.name, path.name)) from None  # the file that the caller named
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise TokensError(f"{path.name} cannot be written: {error.strerror}") from None


def _remove_entries(text: str, indices: list[int]) -> str:
    """Remove the entries with these indices. Comments after an entry stay, because they belong to the next one."""
    starts = [header.start() for header in _ENTRY_HEADER.finditer(text)]
    # From the last to the first, so that the starts of earlier entries stay valid. Entries of an inline array have no
    # header: they are not removed, and _replace then reports the layout.
    for index in reversed([index for index in indices if index < len(starts)]):
        start, end = starts[index], starts[index + 1] if index + 1 < len(starts) else len(text)
        entry = _FINAL_COMMENTS.sub("", text[start:end])
        text = text[:start] + text[start + len(entry) :].lstrip("\n")
    return text
