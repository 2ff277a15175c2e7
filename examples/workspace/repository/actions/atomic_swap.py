"""Replace several files as a unit: all of them, or none.

Each new content is written to a temporary file next to its target and synced. Then ``renameat2`` exchanges the two
files atomically, so the old content survives, even if another process wrote it a moment ago. After the exchange the old
content is compared with the expected one; if it differs, all exchanges are reversed.

A lock on the folder serialises the changes of this pack; the exchange protects against all other processes. If the
process ends in between, temporary files named ``.manglecp-*`` remain. The same change, repeated, completes and removes
them.
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

from ..refusal import Refusal
from .roots import FileMissing, Root, path_components, read_at

__all__ = ["FileReplacement", "lock_repository", "replace_files"]

_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_PATIENCE: Final = 20.0
_CLOSED: Final = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EXDEV)
_UNABLE: Final = (errno.EINVAL, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class FileReplacement:
    """A file with its expected content before and its content after the change; None stands for a missing file.

    If both are equal, only the temporary file of an earlier attempt is removed.
    """

    path: str
    before: bytes | None
    after: bytes | None
    mode: int = 0o644


@contextmanager
def lock_repository(root: Root) -> Iterator[None]:
    """Hold the exclusive lock of the repository. Raises :class:`Refusal` if it is not free after 20 seconds."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(root.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Refusal("another change of this repository is in progress: try again") from None
            time.sleep(0.02)
    try:
        yield
    finally:
        fcntl.flock(root.descriptor, fcntl.LOCK_UN)


def replace_files(root: Root, changes: Sequence[FileReplacement], label: str) -> None:
    """Apply all changes; the caller holds :func:`lock_repository`. A repeated change must have the same ``label``."""
    with ExitStack() as stack:
        replacements = []
        for number, change in enumerate(changes):
            with suppress(*([FileMissing] if change.before is change.after is None else [])):
                replacements.append(stack.enter_context(_open_replacement(root, change, f".manglecp-{label}-{number}")))
        swapped: list[_Replacement] = []
        at = ""
        try:
            for replacement in replacements:
                at = replacement.change.path
                replacement.stage()
            for replacement in replacements:
                at = replacement.change.path
                replacement.swap()
                swapped.append(replacement)
                replacement.verify()
        except BaseException as error:
            _swap_back(swapped)
            for replacement in replacements:
                replacement.remove_spare()
            if isinstance(error, OSError):
                raise _refusal(at, error) from None
            raise
        for replacement in replacements:
            replacement.remove_spare()
            with suppress(OSError):  # not all file systems can sync a folder
                os.fsync(replacement.folder)


def _swap_back(swapped: list[_Replacement]) -> None:
    lost = []
    for replacement in reversed(swapped):
        try:
            replacement.swap_back()
        except OSError:
            replacement.keeps_spare = True
            lost.append(f"{replacement.change.path!r} (its old content is in {replacement.spare!r} in the same folder)")
    if lost:
        raise RuntimeError(f"a change was cancelled, and these files could not be restored: {', '.join(lost)}")


@dataclass(slots=True)
class _Replacement:
    """A file in its open folder, with the name of its temporary file."""

    change: FileReplacement
    folder: int
    name: str
    spare: str
    keeps_spare: bool = field(default=False)

    def stage(self) -> None:
        with suppress(FileNotFoundError):  # left by a process that was ended
            os.unlink(self.spare, dir_fd=self.folder)
        if self.change.after is None or self.is_unchanged:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.spare, flags, 0o600, dir_fd=self.folder)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(self.change.after)
            stream.flush()
            os.fchmod(stream.fileno(), self.change.mode & 0o777)
            os.fsync(stream.fileno())

    @property
    def is_unchanged(self) -> bool:
        return self.change.before == self.change.after

    def swap(self) -> None:
        if self.is_unchanged:
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
        found = read_at(self.folder, self.name if self.is_unchanged else self.spare, self.change.path)
        if found is None or found.data != self.change.before:
            raise Refusal(f"{self.change.path!r} was changed by another process at the same time: read it again")

    def swap_back(self) -> None:
        if self.is_unchanged:
            return
        if self.change.before is None:
            _rename(self.folder, self.name, self.spare, _NOREPLACE)
        elif self.change.after is None:
            _rename(self.folder, self.spare, self.name, _NOREPLACE)
        else:
            _rename(self.folder, self.spare, self.name, _EXCHANGE)

    def remove_spare(self) -> None:
        if not self.keeps_spare:
            with suppress(OSError):
                os.unlink(self.spare, dir_fd=self.folder)


@contextmanager
def _open_replacement(root: Root, change: FileReplacement, spare: str) -> Iterator[_Replacement]:
    *folders, name = path_components(change.path)
    created = _make_folders(root, folders) if change.before is None and change.after is not None else []
    with root.folder(tuple(folders)) as folder:
        try:
            yield _Replacement(change, folder, name, spare)
        finally:
            if change.after is None:
                _remove_empty(root, [tuple(folders[:depth]) for depth in range(len(folders), 0, -1)])
            _remove_empty(root, created)


def _make_folders(root: Root, folders: list[str]) -> list[tuple[str, ...]]:
    """Create missing folders, and return those that were created, deepest first."""
    created: list[tuple[str, ...]] = []
    for depth in range(1, len(folders) + 1):
        with root.folder(tuple(folders[: depth - 1])) as above:
            try:
                os.mkdir(folders[depth - 1], 0o755, dir_fd=above)
                created.insert(0, tuple(folders[:depth]))
            except FileExistsError:
                continue
            except OSError as error:
                raise _refusal("/".join(folders[:depth]), error) from None
    return created


def _remove_empty(root: Root, folders: list[tuple[str, ...]]) -> None:
    """Remove folders that are empty, as git does."""
    with suppress(OSError, FileMissing):
        for folder in folders:
            with root.folder(folder[:-1]) as above:
                os.rmdir(folder[-1], dir_fd=above)


_libc: Final = ctypes.CDLL(None, use_errno=True)


def _rename(folder: int, old: str, new: str, flags: int) -> None:
    """Call ``renameat2``, which Python does not wrap. With either flag it never overwrites a file."""
    call = getattr(_libc, "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(folder, os.fsencode(old), folder, os.fsencode(new), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), new)


def _refusal(path: str, error: OSError) -> Refusal:
    if error.errno in _UNABLE:
        return Refusal(
            "this file system cannot exchange two files atomically, so nothing was changed: clone to another one"
        )
    if error.errno in _CLOSED:
        why = "Actions cannot write to the folders from which manglecp itself runs"
        return Refusal(f"{path!r} cannot be written: {error.strerror}. {why}")
    if error.errno in (errno.EEXIST, errno.ENOENT):
        return Refusal(f"{path!r} was changed by another process at the same time: read it again")
    return Refusal(f"{path!r} cannot be changed: {error.strerror}")
