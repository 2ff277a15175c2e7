"""Files of one repository, and of nothing else.

A path is plain text that names components below the root. What it names is reached as :mod:`repository.opening` does.

``.git`` is git's: it holds credentials, and what is written there is run. No action reads or writes in it by name.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from ..opening import FOLDER, Stopped, file_in, folder_below, read_at_most
from ..protection import is_within
from ..refusal import Refused

__all__ = ["LARGEST", "Content", "Root", "is_git", "plain"]

LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a file that actions read."""
_LONGEST: Final = 1024
_COMPONENT: Final = 255
_NO_FOLDER: Final = (errno.ELOOP, errno.ENOTDIR)


def plain(path: str) -> tuple[str, ...]:
    """The components of a relative path; :class:`Refused` for every other way to write one.

    A policy goes by names, so a file must have one name only.
    """
    parts = tuple(path.split("/"))
    if not path or len(path) > _LONGEST:
        raise Refused(f"a path has 1 to {_LONGEST} characters")
    if path.startswith("/"):
        raise Refused(f"{path!r} is absolute: paths are relative to the repository")
    if "\\" in path:
        raise Refused(f"{path!r} has a backslash: folders are parted by '/'")
    if not path.isprintable():
        raise Refused(f"{path!r} has characters that nobody sees")
    for part in parts:
        if part in ("", ".", ".."):
            raise Refused(f"{path!r} is no plain path: write it without '.', '..' and empty parts")
        if len(part.encode("utf-8", "surrogatepass")) > _COMPONENT:
            raise Refused(f"{path!r}: a part is longer than {_COMPONENT} bytes")
        if is_git(part):
            raise Refused(f"{path!r} lies in what belongs to git")
    return parts


def is_git(name: str) -> bool:
    """Whether some file system takes the name for ``.git``."""
    return name.rstrip(" .").casefold() in (".git", "git~1")


class Content(NamedTuple):
    """A file that was read, and what it was when it was."""

    data: bytes
    mode: int


class Root:
    """The folder that ``--set root=PATH`` names, held open."""

    def __init__(self, descriptor: int, path: str, protected: str) -> None:
        self.descriptor: Final = descriptor
        self.path: Final = path
        self._protected: Final = protected

    @classmethod
    @contextmanager
    def opened(cls, settings: Mapping[str, str]) -> Iterator[Root]:
        path = settings.get("root", "")
        if not path.startswith("/"):
            raise Refused("the setting 'root' names no folder: serve the pack with --set root=PATH")
        try:
            descriptor = os.open(path, FOLDER)
        except OSError as error:
            raise Refused(f"the repository cannot be opened: {error.strerror}") from None
        try:
            yield cls(descriptor, path, settings.get("protected", ""))
        finally:
            os.close(descriptor)

    @contextmanager
    def folder(self, parts: tuple[str, ...]) -> Iterator[int]:
        """A folder below the root, opened component by component."""
        try:
            with folder_below(self.descriptor, parts) as folder:
                yield folder
        except Stopped as stopped:
            raise _refusal(stopped) from None

    def read(self, path: str) -> Content:
        """A file as it is; :class:`Refused` unless it is a plain one of bearable size."""
        content = self.look(path)
        if content is None:
            raise Refused(f"there is no file {path!r}")
        return content

    def look(self, path: str) -> Content | None:
        """The same; None if there is nothing of that name, or no folder for it."""
        *folders, name = plain(path)
        try:
            with self.folder(tuple(folders)) as folder:
                return read_at(folder, name, path)
        except Absent:
            return None

    def refuse_protected(self, path: str) -> None:
        """Rules say the same before; but on this disk a path may have more spellings than they know."""
        if is_within(path, "protected", self._protected):
            raise Refused(f"{path!r} is protected: a person has to change it")

    def kind(self, path: str) -> str | None:
        """``file``, ``folder``, ``other`` or, if there is nothing, None."""
        *folders, name = plain(path)
        try:
            with self.folder(tuple(folders)) as folder:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except (Absent, FileNotFoundError):
            return None
        return "file" if stat.S_ISREG(found) else "folder" if stat.S_ISDIR(found) else "other"


class Absent(Refused):
    """There is nothing of that name."""


def read_at(folder: int, name: str, path: str) -> Content | None:
    """A plain file in an open folder; None if there is none."""
    try:
        with file_in(folder, name, path) as descriptor:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise Refused(f"{path!r} is no plain file")
            if about.st_size > LARGEST:
                raise Refused(
                    f"{path!r} has {about.st_size:,} bytes, and {LARGEST:,} are the most: a person has to look at it"
                )
            data = read_at_most(descriptor, LARGEST)
    except Stopped as stopped:
        if stopped.errno == errno.ENOENT:
            return None
        raise _refusal(stopped) from None
    if data is None:
        raise Refused(f"{path!r} grows while it is read: try again")
    return Content(data, stat.S_IMODE(about.st_mode))


def _refusal(stopped: Stopped) -> Refused:
    path = stopped.filename
    if stopped.errno == errno.ENOENT:
        return Absent(f"there is no {path!r}")
    if stopped.is_link:
        return Refused(f"{path!r} is a symbolic link: it is not followed")
    if stopped.errno in _NO_FOLDER:
        return Refused(f"{path!r} is no folder")
    return Refused(f"{path!r} cannot be opened: {stopped.strerror}")
