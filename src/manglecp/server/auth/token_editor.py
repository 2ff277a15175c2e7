"""Changes to a file of tokens: add and remove entries, and keep all other text.

The file is replaced atomically, with mode 0600, and only if the old and the new text are valid. A lock of its folder
serialises concurrent changes.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from manglecp.base.files import lock_folder, replace_file
from manglecp.server.auth.tokens import TokensError, parse_tokens, read_tokens

_MIN_PREFIX: Final = 6  # the fewest hexadecimal digits of a hash that name a token
_ENTRY_HEADER: Final = re.compile(r"^[ \t]*\[\[[ \t]*token[ \t]*\]\]", re.MULTILINE)
_FINAL_COMMENTS: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*\Z")


class _Content(NamedTuple):
    text: str
    entries: list[dict[str, Any]]  # the tables of the text


class TokenEditor:
    """Edits one file. A method that raises :class:`TokensError` leaves the file unchanged."""

    def __init__(self, file: Path) -> None:
        self._path = file.resolve()  # a symbolic link stays: its target is replaced

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
        if permission_names := sorted(set(permissions)):
            lines.append(f"permissions = {json.dumps(permission_names, ensure_ascii=False)}")
        if expires is not None:
            lines.append(f"expires = {expires.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
        with self._locked():
            before = self._read().text.rstrip("\n") if self._path.exists() else ""
            entry = "\n".join(lines) + "\n"
            self._replace(f"{before}\n\n{entry}" if before else entry)
        return token

    def revoke(self, name: str) -> list[dict[str, Any]]:
        """Remove and return the entries of an identity; if there is none, the entry whose hash begins with ``name``."""
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
            remaining = [entry for index, entry in enumerate(entries) if index not in indices]
            self._replace(_remove_entries(text, indices), remaining)
        return [entries[index] for index in indices]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the file against other editors."""
        try:
            with lock_folder(self._path.parent):
                yield
        except OSError as error:
            raise TokensError(f"{self._path.parent} cannot be opened: {error.strerror}") from None

    def _read(self) -> _Content:
        """Return the content of the file. Raises TokensError if it is not valid."""
        return self._parse(read_tokens(self._path))

    def _parse(self, text: str) -> _Content:
        parse_tokens(self._path.name, text)  # raises if the text is not valid
        return _Content(text, tomllib.loads(text).get("token", []))

    def _replace(self, text: str, expected: list[dict[str, Any]] | None = None) -> None:
        """Write the text, if it is valid and has the expected entries (None: any)."""
        path, entries = self._path, self._parse(text).entries
        if expected is not None and entries != expected:
            raise TokensError(f"{path.name} has an unusual layout: remove the entry with an editor")
        try:
            owner = (path.stat().st_uid, path.stat().st_gid) if path.exists() else None
            replace_file(path, [text.encode()], 0o600, owner=owner)
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
