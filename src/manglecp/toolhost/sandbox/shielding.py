"""Read-only paths inside a writable workspace.

A workspace often contains the environment of this host, the plugin, or an allowed program. Code written there would
run outside a sandbox at the next start of a host. So these paths are *shielded*: bind-mounted over themselves,
read-only.

* A folder above a shielded one could be renamed and replaced. The kernel renames no mount point, so each folder between
  the workspace and the shielded one becomes a mount, too.
* Refused are: a shielded path over a symbolic link in a workspace (links cannot be mounted); any path to shield without
  a mount namespace (Landlock cannot revoke a right below a folder); a workspace inside a shielded folder.
"""

# pathlib would be the slowest import of a worker:
# ruff: noqa: PTH115, PTH118, PTH120

import os
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .policy import Policy

PACKAGE = __file__.rpartition("/toolhost/")[0]


class Shield(NamedTuple):
    """Real paths, parents first."""

    held: tuple[str, ...]
    """Folders that are writable but cannot be moved."""
    read_only: tuple[str, ...]


NOTHING = Shield((), ())


def prefixes() -> tuple[str, ...]:
    """Return the folders of this Python and, in a virtual environment, of its base."""
    return tuple(dict.fromkeys((sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)))


def shield(policy: Policy) -> Shield:
    """Return what to shield in the workspaces of this policy; raises ValueError where that is impossible."""
    workspaces = tuple(os.path.realpath(path) for path in policy.workspace)
    read_only: list[str] = []
    if workspaces:
        for what, named in _trusted(policy):
            _add(read_only, what, named, workspaces)
    for program in policy.executables:
        for place in (os.path.realpath(program), *_links(program)):
            if _inside(place, workspaces) and not _inside(place, read_only):
                raise ValueError(f"a program in a workspace could be written before it is started: {program!r}")
    held = {folder for path in read_only for workspace in workspaces for folder in _between(workspace, path)}
    return Shield(tuple(sorted(folder for folder in held if not _inside(folder, read_only))), tuple(sorted(read_only)))


def _add(read_only: list[str], what: str, named: str, workspaces: tuple[str, ...]) -> None:
    real = os.path.realpath(named)
    for link in _links(named):
        if _inside(link, workspaces) and not _inside(link, read_only):
            raise ValueError(f"{what}, {named!r}, is reached by the link {link!r}, which lies in a workspace")
    exists = os.access(real, os.F_OK)
    for workspace in workspaces:
        if exists and within(workspace, real):
            raise ValueError(f"the workspace {workspace!r} lies in {what}, {real!r}")
    if _inside(real, workspaces) and not _inside(real, read_only):
        if not exists:
            raise ValueError(f"{what}, {real!r}, does not exist, and could be created in a workspace")
        read_only[:] = [*(path for path in read_only if not within(path, real)), real]


def _inside(path: str, folders: Iterable[str]) -> bool:
    return any(within(path, folder) for folder in folders)


def within(path: str, folder: str) -> bool:
    """Return whether the path is the folder or inside of it, lexically."""
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _trusted(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield what runs outside a sandbox, enclosing folders first."""
    for prefix in prefixes():
        if prefix not in ("/", "/usr", "/usr/local"):  # the whole system, and not only an interpreter
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


def _between(workspace: str, path: str) -> Iterator[str]:
    folder = os.path.dirname(path)
    while folder != workspace and within(folder, workspace):
        yield folder
        folder = os.path.dirname(folder)


def _links(path: str) -> Iterator[str]:
    """Yield every symbolic link on the way to this path, by its own real path."""
    here, rest, left = "/", path.split("/")[::-1], 40
    while rest and left:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            here = os.path.dirname(here)
            continue
        here = os.path.join(here, part)
        try:
            target = os.readlink(here)
        except OSError:  # not a link, or missing
            continue
        yield here
        left -= 1
        here = "/" if target.startswith("/") else os.path.dirname(here)
        rest += target.split("/")[::-1]
