"""Access to the files of one repository, confined to its root.

Paths are relative and are opened component by component (:mod:`repository.confined_open`). No action reads or writes in
``.git`` by path: it can hold credentials, and git executes hooks in it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from ..confined_open import FOLDER, OpenError, open_file, open_folder, read_at_most
from ..protection import matches_bounds
from ..refusal import Refusal

__all__ = ["LARGEST", "Content", "Root", "is_git", "path_components"]

LARGEST: Final = 4 * 1024 * 1024
"""The largest file, in bytes, that actions read."""
_LONGEST: Final = 1024
_COMPONENT: Final = 255
_NO_FOLDER: Final = (errno.ELOOP, errno.ENOTDIR)


def path_components(path: str) -> tuple[str, ...]:
    """Return the components of a relative path.

    Raises :class:`Refusal` for any other spelling: the policy compares paths as text, so each file must have one path.
    """
    parts = tuple(path.split("/"))
    if not path or len(path) > _LONGEST:
        raise Refusal(f"a path has 1 to {_LONGEST} characters")
    if path.startswith("/"):
        raise Refusal(f"{path!r} is absolute: paths are relative to the repository")
    if "\\" in path:
        raise Refusal(f"{path!r} has a backslash: separate folders by '/'")
    if not path.isprintable():
        raise Refusal(f"{path!r} has characters that are not printable")
    for part in parts:
        if part in ("", ".", ".."):
            raise Refusal(f"{path!r} is not a plain path: write it without '.', '..' and empty parts")
        if len(part.encode("utf-8", "surrogatepass")) > _COMPONENT:
            raise Refusal(f"{path!r}: a part is longer than {_COMPONENT} bytes")
        if is_git(part):
            raise Refusal(f"{path!r} is in the .git folder, which actions do not access")
    return parts


def is_git(name: str) -> bool:
    """Return whether a file system could treat the name as ``.git``."""
    return name.rstrip(" .").casefold() in (".git", "git~1")


class Content(NamedTuple):
    """The bytes and the mode of a file at the time of reading."""

    data: bytes
    mode: int


class Root:
    """The folder of the setting ``root``, as an open file descriptor."""

    def __init__(self, descriptor: int, path: str, protected: str) -> None:
        self.descriptor: Final = descriptor
        self.path: Final = path
        self._protected: Final = protected

    @classmethod
    @contextmanager
    def open(cls, settings: Mapping[str, str]) -> Iterator[Root]:
        path = settings.get("root", "")
        if not path.startswith("/"):
            raise Refusal("the setting 'root' is not an absolute path: serve the pack with --set root=PATH")
        try:
            descriptor = os.open(path, FOLDER)
        except OSError as error:
            raise Refusal(f"the repository cannot be opened: {error.strerror}") from None
        try:
            yield cls(descriptor, path, settings.get("protected", ""))
        finally:
            os.close(descriptor)

    @contextmanager
    def folder(self, parts: tuple[str, ...]) -> Iterator[int]:
        """Open a folder below the root, component by component."""
        try:
            with open_folder(self.descriptor, parts) as folder:
                yield folder
        except OpenError as error:
            raise _refusal(error) from None

    def read(self, path: str) -> Content:
        """Return the content of a file. Raises :class:`Refusal` unless it is a regular file within the size limit."""
        content = self.read_optional(path)
        if content is None:
            raise Refusal(f"there is no file {path!r}")
        return content

    def read_optional(self, path: str) -> Content | None:
        """Like :meth:`read`, but return None if the file or its folder does not exist."""
        *folders, name = path_components(path)
        try:
            with self.folder(tuple(folders)) as folder:
                return read_at(folder, name, path)
        except FileMissing:
            return None

    def refuse_protected(self, path: str) -> None:
        """Raise :class:`Refusal` for a protected path, in all spellings that a file system treats as equal."""
        if matches_bounds(path, "protected", self._protected):
            raise Refusal(f"{path!r} is protected: a person has to change it")

    def kind(self, path: str) -> str | None:
        """Return ``file``, ``folder`` or ``other``; None if the path does not exist."""
        *folders, name = path_components(path)
        try:
            with self.folder(tuple(folders)) as folder:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except (FileMissing, FileNotFoundError):
            return None
        return "file" if stat.S_ISREG(found) else "folder" if stat.S_ISDIR(found) else "other"


class FileMissing(Refusal):
    """The path does not exist."""


def read_at(folder: int, name: str, path: str) -> Content | None:
    """Return the content of a regular file in an open folder; None if it does not exist."""
    try:
        with open_file(folder, name, path) as descriptor:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Refusal(f"{path!r} is not a regular file")
            if status.st_size > LARGEST:
                raise Refusal(
                    f"{path!r} has {status.st_size:,} bytes, and the limit is {LARGEST:,}: a person has to look at it"
                )
            data = read_at_most(descriptor, LARGEST)
    except OpenError as error:
        if error.errno == errno.ENOENT:
            return None
        raise _refusal(error) from None
    if data is None:
        raise Refusal(f"{path!r} grows while it is read: try again")
    return Content(data, stat.S_IMODE(status.st_mode))


def _refusal(error: OpenError) -> Refusal:
    path = error.filename
    if error.errno == errno.ENOENT:
        return FileMissing(f"there is no {path!r}")
    if error.is_link:
        return Refusal(f"{path!r} is a symbolic link: it is not followed")
    if error.errno in _NO_FOLDER:
        return Refusal(f"{path!r} is not a folder")
    return Refusal(f"{path!r} cannot be opened: {error.strerror}")
