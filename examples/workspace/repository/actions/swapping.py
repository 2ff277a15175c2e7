"""Changing several files as one: all of them, or none.

Each new content is written and synced beside its file first. Then names are swapped in one step each: the kernel
exchanges the two files, so what was there is never lost, not even what somebody else wrote a moment ago. It is looked
at after the swap, when nobody can put anything in its place any more, and if it is not what was expected, everything is
swapped back.

A lock on the repository's folder keeps changes that are made here apart. Others do not know it; the swap is for them.

If the process is ended in between, some files are changed and some are not, and the names that begin with
``.manglecp-`` hold the rest. The same change made again finishes it, and removes them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from ..refusal import Refused
from .roots import Absent, Root, plain, read_at

__all__ = ["Change", "locked", "swap_all"]

_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_PATIENCE: Final = 20.0
_CLOSED: Final = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EXDEV)
_UNABLE: Final = (errno.EINVAL, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class Change:
    """A file, what it has to be before, and what it will be. None: there is no such file.

    Of one that is the same before and after, only what an earlier attempt left beside it is removed.
    """

    path: str
    before: bytes | None
    after: bytes | None
    mode: int = 0o644


@contextmanager
def locked(root: Root) -> Iterator[None]:
    """No other change is made here meanwhile."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(root.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Refused("another change of this repository is under way: try again") from None
            time.sleep(0.02)
    try:
        yield
    finally:
        fcntl.flock(root.descriptor, fcntl.LOCK_UN)


def swap_all(root: Root, changes: Sequence[Change], label: str) -> None:
    """Make all changes, within :func:`locked`. The same ``label`` is the same change, if it has to be made again."""
    with ExitStack() as stack:
        places = []
        for number, change in enumerate(changes):
            with suppress(*([Absent] if change.before is change.after is None else [])):
                places.append(stack.enter_context(_placed(root, change, f".manglecp-{label}-{number}")))
        swapped: list[_Place] = []
        at = ""
        try:
            for place in places:
                at = place.change.path
                place.stage()
            for place in places:
                at = place.change.path
                place.swap()
                swapped.append(place)
                place.verify()
        except BaseException as error:
            _put_back(swapped)
            for place in places:
                place.tidy()
            if isinstance(error, OSError):
                raise _refusal(at, error) from None
            raise
        for place in places:
            place.tidy()
            with suppress(OSError):  # a file system that cannot sync a folder has other ways
                os.fsync(place.folder)


def _put_back(swapped: list[_Place]) -> None:
    lost = []
    for place in reversed(swapped):
        try:
            place.swap_back()
        except OSError:
            place.kept = True
            lost.append(f"{place.change.path!r} (what it was is in {place.spare!r} beside it)")
    if lost:
        raise RuntimeError(f"a change was given up, and these could not be put back: {', '.join(lost)}")


@dataclass(slots=True)
class _Place:
    """A file in its folder, which is held open, and the name beside it."""

    change: Change
    folder: int
    name: str
    spare: str
    kept: bool = field(default=False)

    def stage(self) -> None:
        with suppress(FileNotFoundError):  # left by one that was ended
            os.unlink(self.spare, dir_fd=self.folder)
        if self.change.after is None or self.is_idle:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.spare, flags, 0o600, dir_fd=self.folder)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(self.change.after)
            stream.flush()
            os.fchmod(stream.fileno(), self.change.mode & 0o777)
            os.fsync(stream.fileno())

    @property
    def is_idle(self) -> bool:
        return self.change.before == self.change.after

    def swap(self) -> None:
        if self.is_idle:
            return
        if self.change.before is None:
            _rename(self.folder, self.spare, self.name, _NOREPLACE)
        elif self.change.after is None:
            _rename(self.folder, self.name, self.spare, _NOREPLACE)
        else:
            _rename(self.folder, self.spare, self.name, _EXCHANGE)

    def verify(self) -> None:
        if self.change.before is None:
            return
        found = read_at(self.folder, self.name if self.is_idle else self.spare, self.change.path)
        if found is None or found.data != self.change.before:
            raise Refused(f"{self.change.path!r} was changed by somebody else at the same time: read it again")

    def swap_back(self) -> None:
        if self.is_idle:
            return
        if self.change.before is None:
            _rename(self.folder, self.name, self.spare, _NOREPLACE)
        elif self.change.after is None:
            _rename(self.folder, self.spare, self.name, _NOREPLACE)
        else:
            _rename(self.folder, self.spare, self.name, _EXCHANGE)

    def tidy(self) -> None:
        if not self.kept:
            with suppress(OSError):
                os.unlink(self.spare, dir_fd=self.folder)


@contextmanager
def _placed(root: Root, change: Change, spare: str) -> Iterator[_Place]:
    *folders, name = plain(change.path)
    made = _make_folders(root, folders) if change.before is None and change.after is not None else []
    with root.folder(tuple(folders)) as folder:
        try:
            yield _Place(change, folder, name, spare)
        finally:
            if change.after is None:
                _remove_empty(root, [tuple(folders[:depth]) for depth in range(len(folders), 0, -1)])
            _remove_empty(root, made)


def _make_folders(root: Root, folders: list[str]) -> list[tuple[str, ...]]:
    """Make what is missing; the folders that were made, deepest first."""
    made: list[tuple[str, ...]] = []
    for depth in range(1, len(folders) + 1):
        with root.folder(tuple(folders[: depth - 1])) as above:
            try:
                os.mkdir(folders[depth - 1], 0o755, dir_fd=above)
                made.insert(0, tuple(folders[:depth]))
            except FileExistsError:
                continue
            except OSError as error:
                raise _refusal("/".join(folders[:depth]), error) from None
    return made


def _remove_empty(root: Root, folders: list[tuple[str, ...]]) -> None:
    """As git does with folders that have nothing in them any more."""
    with suppress(OSError, Absent):
        for folder in folders:
            with root.folder(folder[:-1]) as above:
                os.rmdir(folder[-1], dir_fd=above)


_libc: Final = ctypes.CDLL(None, use_errno=True)


def _rename(folder: int, old: str, new: str, flags: int) -> None:
    """``renameat2``, which Python has no name for: never over something that is there."""
    call = getattr(_libc, "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(folder, os.fsencode(old), folder, os.fsencode(new), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), new)


def _refusal(path: str, error: OSError) -> Refused:
    if error.errno in _UNABLE:
        return Refused(
            "this file system cannot swap two files in one step, so nothing is changed here: clone to another one"
        )
    if error.errno in _CLOSED:
        why = "What manglecp itself runs from is closed to actions"
        return Refused(f"{path!r} cannot be written: {error.strerror}. {why}")
    if error.errno in (errno.EEXIST, errno.ENOENT):
        return Refused(f"{path!r} was changed by somebody else at the same time: read it again")
    return Refused(f"{path!r} cannot be changed: {error.strerror}")
