"""Read-only paths inside a writable workspace.

A workspace often contains the Python environment of this host, the plugin, or an allowed program. Code written there
would run outside a sandbox at the next start of a host. So these paths are *shielded*: bind-mounted over themselves,
read-only.

* A folder above a shielded path could be renamed and replaced. The kernel renames no mount point, so each folder that
  lies between the workspace and the shielded path becomes a mount point, too, and stays writable.
* Refused are: a path to shield that is reached by a symbolic link in a workspace (links cannot be mounted); a path to
  shield without a mount namespace (Landlock cannot revoke rights below a folder); a workspace in a shielded folder.
"""

# pathlib would be the slowest import of a host:
# ruff: noqa: PTH115, PTH118, PTH120

import os
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .policy import Policy

PACKAGE = __file__.rpartition("/toolhost/")[0]  # the folder of manglecp


class Shield(NamedTuple):
    """Real paths, parents first."""

    mount_points: tuple[str, ...]
    """Folders that are writable but cannot be moved."""
    read_only: tuple[str, ...]
    """The shielded paths."""


NO_SHIELD = Shield((), ())


def prefixes() -> tuple[str, ...]:
    """Return the folders of this Python and, in a virtual environment, of its base."""
    return tuple(dict.fromkeys((sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)))


def find_shield(policy: Policy) -> Shield:
    """Return what to shield in the workspaces of this policy; raises ValueError where that is impossible."""
    workspaces = tuple(os.path.realpath(path) for path in policy.workspace)
    read_only: list[str] = []
    if workspaces:
        for description, path in _trusted_paths(policy):
            _shield_path(read_only, description, path, workspaces)
    for program in policy.executables:
        for path in (os.path.realpath(program), *_links(program)):
            if _inside_any(path, workspaces) and not _inside_any(path, read_only):
                raise ValueError(f"a program in a workspace could be written before it is started: {program!r}")
    movable = {folder for path in read_only for workspace in workspaces for folder in _folders_between(workspace, path)}
    mount_points = sorted(folder for folder in movable if not _inside_any(folder, read_only))
    return Shield(tuple(mount_points), tuple(sorted(read_only)))


def _shield_path(read_only: list[str], description: str, path: str, workspaces: tuple[str, ...]) -> None:
    """Add a path to ``read_only`` if it lies in a workspace; raises ValueError if it cannot be shielded."""
    real = os.path.realpath(path)
    for link in _links(path):
        if _inside_any(link, workspaces) and not _inside_any(link, read_only):
            raise ValueError(f"{description}, {path!r}, is reached by the link {link!r}, which lies in a workspace")
    exists = os.access(real, os.F_OK)
    for workspace in workspaces:
        if exists and within(workspace, real):
            raise ValueError(f"the workspace {workspace!r} lies in {description}, {real!r}")
    if _inside_any(real, workspaces) and not _inside_any(real, read_only):
        if not exists:
            raise ValueError(f"{description}, {real!r}, does not exist, and could be created in a workspace")
        read_only[:] = [*(shielded for shielded in read_only if not within(shielded, real)), real]


def _inside_any(path: str, folders: Iterable[str]) -> bool:
    return any(within(path, folder) for folder in folders)


def within(path: str, folder: str) -> bool:
    """Return whether the path is the folder or inside of it, lexically."""
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _trusted_paths(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield description and path of all code that hosts run outside a sandbox, enclosing folders first."""
    for prefix in prefixes():
        if prefix not in ("/", "/usr", "/usr/local"):  # these folders hold more than the environment of an interpreter
            yield "the environment of the interpreter", prefix
    for prefix in prefixes():
        for folder in dict.fromkeys(("bin", "lib", sys.platlibdir)):
            yield "the interpreter", f"{prefix}/{folder}"
    if sys.executable:
        yield "the interpreter", sys.executable
    yield "the package of the host", PACKAGE
    for folder in sys.path:
        if folder.startswith("/"):
            yield "a folder that the host imports from", folder
    for path in policy.code:
        yield "the plugin", path


def _folders_between(workspace: str, path: str) -> Iterator[str]:
    """Yield the folders above the path and below the workspace."""
    folder = os.path.dirname(path)
    while folder != workspace and within(folder, workspace):
        yield folder
        folder = os.path.dirname(folder)


def _links(path: str) -> Iterator[str]:
    """Yield every symbolic link on the way to this path, as the real path of the link itself."""
    parts = path.split("/")[::-1]  # a stack: the next part is the last
    resolved, links_left = "/", 40  # the kernel, too, follows at most 40 links
    while parts and links_left:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            resolved = os.path.dirname(resolved)
            continue
        resolved = os.path.join(resolved, part)
        try:
            target = os.readlink(resolved)
        except OSError:  # not a link, or missing
            continue
        yield resolved
        links_left -= 1
        resolved = "/" if target.startswith("/") else os.path.dirname(resolved)
        parts += target.split("/")[::-1]
