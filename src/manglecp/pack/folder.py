"""Bounded reads of the files of a pack, and the digest of the folder.

Names are relative to the folder, with slashes. Hidden files and backups (``~``) are not part of the pack, but its
actions can read them, so the digest covers them. Hidden folders, ``__pycache__`` and ``node_modules`` are ignored: the
processes that run the actions import nothing from them. Links must lead to a file of the folder. A file is hashed when
it is read, so that the digest covers the bytes that were used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from manglecp.base.text import find_invisible, replace_invisible
from manglecp.pack.diagnostics import Problems

MAX_FILES: Final = 10_000  # including links and folders
MAX_DEPTH: Final = 16  # levels of nested folders
MAX_FILE_BYTES: Final = 1 << 30
MAX_BYTES: Final = 1 << 32  # limit for all files together
_CHUNK_BYTES: Final = 1 << 20
_DIGEST_FORMAT: Final = b"manglecp-pack-1"  # must change if the digest covers other data
_IGNORED: Final = frozenset({"__pycache__", "node_modules"})


class Folder:
    """The files of a folder, listed once; errors are reported to ``problems``."""

    def __init__(self, root: Path, problems: Problems) -> None:
        self.root: Final = root
        self._problems = problems
        self._digests: dict[str, bytes] = {}
        self._unreadable: set[str] = set()
        self._links: dict[str, str] = {}  # the name of the target by the name of the link
        self._bytes_left = MAX_BYTES
        self._all_names: Final = tuple(sorted(self._walk(root)))
        self.names: Final = tuple(name for name in self._all_names if not _is_excluded(name))

    def _walk(self, root: Path) -> Iterator[str]:
        pending, count = [("", 0)], 0  # ``pending`` has folders and their depths
        while pending:
            folder, depth = pending.pop()
            try:
                with os.scandir(root / folder) as entries:
                    sorted_entries = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                self._problems.add(folder, f"the folder cannot be read: {error.strerror}")
                continue
            for entry in sorted_entries:
                if is_ignored(entry):
                    continue
                name = f"{folder}/{entry.name}" if folder else entry.name
                count += 1
                if count > MAX_FILES:
                    self._problems.add("", f"the folder has more than {MAX_FILES:,} files", fix="is it a pack?")
                    return
                if not entry.name.isprintable() or find_invisible(entry.name) is not None:
                    self._problems.add(replace_invisible(name), "the name is not printable", fix="rename it")
                elif entry.is_symlink():
                    if self._check_link(name):
                        yield name
                elif entry.is_dir(follow_symlinks=False):
                    if depth == MAX_DEPTH:
                        self._problems.add(name, f"folders are nested more than {MAX_DEPTH} deep")
                    else:
                        pending.append((name, depth + 1))
                else:
                    yield name

    def _check_link(self, name: str) -> bool:
        """Return whether a link leads to a file of the folder; report other links, unless they may be an editor's."""
        try:
            target = (self.root / name).resolve(strict=True)
        except (OSError, RuntimeError):  # RuntimeError: a cycle of links
            if not _is_excluded(name):  # some editors mark an open file with a hidden link that leads nowhere
                self._problems.add(name, "the link leads nowhere")
            return False
        is_dot_link = name.rpartition("/")[2].startswith(".")
        is_inside = target.is_relative_to(self.root)
        target_name = str(target.relative_to(self.root)) if is_inside else ""
        if is_dot_link and not (is_inside and target.is_file()):
            return False  # a hidden link is ignored like a hidden folder
        if not is_inside:
            self._problems.add(name, "the link leads out of the pack", fix="copy its target")
        elif not target.is_file():
            self._problems.add(name, "a link in a pack has to lead to a file", fix="copy its target")
        elif _has_ignored_name(target_name.split("/")[:-1]) or (_is_excluded(target_name) and not _is_excluded(name)):
            self._problems.add(name, "the link leads to a file that is not part of the pack")
        else:
            self._links[name] = target_name
            return True
        return False

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """Return the bytes of a file; None, and report a problem, if it cannot be read."""
        data = b"".join(self._chunks(name, max_bytes))
        if name in self._unreadable:
            return None
        self._digests[name] = hashlib.sha256(data).digest()
        return data

    def text(self, name: str, max_bytes: int) -> str | None:
        """Return a file as text, without a byte order mark; None, and report a problem, if it is not text in UTF-8."""
        data = self.read(name, max_bytes)
        if data is None:
            return None
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            self._problems.add(name, f"not UTF-8: byte {data[error.start]:#04x}", line=line)
            return None
        if "\0" in text:
            self._problems.add(name, "the text holds a NUL character", line=text.count("\n", 0, text.index("\0")) + 1)
            return None
        return text

    def has_digest(self, name: str) -> bool:
        """Return whether a file was read, by :meth:`read` or :meth:`digest`."""
        return name in self._digests

    def sha256(self, name: str) -> str:
        """Return the digest of a file that was read."""
        return self._digests[name].hex()

    def digest(self, pack_name: str, governance_digest: str, params: Mapping[str, str]) -> str:
        """Return the SHA-256 over name, governance, params and files of the pack; read files that were not read yet."""
        parts = [_DIGEST_FORMAT, b"pack", pack_name.encode(), b"governance", governance_digest.encode()]
        for name in self._all_names:
            if name not in self._digests and name not in self._unreadable:
                content = hashlib.sha256()
                for chunk in self._chunks(name, MAX_FILE_BYTES):
                    content.update(chunk)
                if name not in self._unreadable:
                    self._digests[name] = content.digest()
            parts += [b"file", name.encode(), self._digests.get(name, b"")]
        for key in sorted(params):
            parts += [b"param", key.encode(), params[key].encode()]
        # Length-prefixed, so that the encoding is injective.
        return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()

    def _report_unreadable(self, name: str, message: str, fix: str | None = None) -> None:
        self._unreadable.add(name)
        self._problems.add(name, message, fix=fix)

    def _chunks(self, name: str, max_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of a regular file; report one that cannot be read.

        The file may have been replaced since it was listed: a pipe does not block, and a link is not followed.
        """
        if self._bytes_left < 0:  # an earlier file exceeded the limit, which was reported
            self._unreadable.add(name)
            return
        try:
            descriptor = open_inside(self.root, self._links.get(name, name))
        except OSError as error:
            self._report_unreadable(name, f"the file cannot be read: {error.strerror}")
            return
        with open(descriptor, "rb") as file:  # noqa: PTH123  # pathlib cannot open a descriptor
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                self._report_unreadable(name, "neither a file nor a folder", fix="remove it from the pack")
                return
            file_bytes_left = max_bytes
            try:
                while chunk := file.read(_CHUNK_BYTES):
                    file_bytes_left -= len(chunk)
                    self._bytes_left -= len(chunk)
                    if file_bytes_left < 0:
                        self._report_unreadable(name, f"the file has more than {max_bytes:,} bytes")
                        return
                    if self._bytes_left < 0:
                        message = f"with it, the files of the pack have more than {MAX_BYTES:,} bytes"
                        self._report_unreadable(name, message)
                        return
                    yield chunk
            except OSError as error:
                self._report_unreadable(name, f"the file cannot be read: {error.strerror}")


def is_ignored(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder that is part neither of the pack nor of the pack's digest."""
    return _has_ignored_name((entry.name,)) and entry.is_dir(follow_symlinks=False)


def _has_ignored_name(names: Iterable[str]) -> bool:
    return any(name in _IGNORED or name.startswith(".") for name in names)


def _is_excluded(name: str) -> bool:
    """Return whether a file is hidden or a backup: part of the digest, but not of the pack."""
    return any(part.startswith(".") or part.endswith("~") for part in name.split("/"))


_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # O_NONBLOCK for a pipe


def open_inside(root: Path, name: str) -> int:
    """Return a descriptor of a file of the folder, without following links. Raises ``OSError``."""
    *folders, file = name.split("/")
    if {"", ".", ".."} & {*folders, file}:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    parent = os.open(root, _FOLDER_FLAGS)
    try:
        for folder in folders:
            child = os.open(folder, _FOLDER_FLAGS, dir_fd=parent)
            os.close(parent)
            parent = child
        return os.open(file, _FILE_FLAGS, dir_fd=parent)
    finally:
        os.close(parent)
