"""A host locks itself in, after its plugin was found and before anything of it runs.

What the plugin is left with beside the interpreter: its own folder to read, and the workspaces. A folder that is not
its own, such as `/tmp` or somebody's home, is not opened because a plugin lies in it; of that it can read its file. The
first workspace is also where it works and keeps its temporary files; without one it can write nothing, and `tempfile`
says so.

A host leads its process group before it is locked in, for nobody can leave the group afterwards and whoever ends the
host ends the group.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from manglecp.toolhost.host.arguments import Confinement
from manglecp.toolhost.plugin import Source

__all__ = ["ConfinementError", "confine"]

# What lies directly in one of these is the system's, everybody's or somebody's.
_DIVIDED: Final = ("", "/dev", "/home", "/run", "/usr", "/usr/local", "/var")
_WORLD_WRITABLE: Final = 0o002


class ConfinementError(Exception):
    """The host cannot be locked in as it was told to. It must not go on: what it has given up it cannot get back."""

    def __init__(self, reason: str, manifest: dict[str, Any]) -> None:
        super().__init__(reason)
        self.manifest = manifest


def confine(asked: Confinement, source: Source) -> dict[str, Any]:
    """Lock this process in; what a listing says about it."""
    if asked.profile == "none":
        return _manifest("none")
    from manglecp.toolhost.sandbox import Policy, SandboxUnavailable, apply

    # By the name that it was given, too: a link that leads to a plugin must not lie where it could be replaced.
    named = (os.path.abspath(source.where),) if os.path.isfile(source.where) else ()  # noqa: PTH100, PTH113  # pathlib is slow
    code = (*_code(source), *named)
    limits: dict[str, Any] = dict(asked.limits)
    policy = Policy(asked.workspace, asked.readable, asked.executables, asked.user, code=code, **limits)
    try:
        if os.getpgrp() != os.getpid():
            os.setpgid(0, 0)
        if asked.workspace:
            os.chdir(asked.workspace[0])
        enforcement = apply(asked.profile, policy, degrade=asked.degrade)
    except SandboxUnavailable as error:
        found = error.enforcement
        raise ConfinementError(str(error), _manifest(asked.profile, found.active, dict(found.missing))) from error
    except (OSError, RuntimeError, ValueError) as error:  # a path that is missing or closed; threads that were started
        raise ConfinementError(f"sandbox profile {asked.profile!r}: {error}", _manifest(asked.profile)) from error
    manifest = _manifest(asked.profile, enforcement.active, dict(enforcement.missing))
    _check_interpreter(manifest)
    sys.path[:] = filter(_is_open, sys.path)
    _move_temporary_files(asked.workspace)
    return manifest


def _code(source: Source) -> tuple[str, ...]:
    """What belongs to the plugin: its folder, or its file and the package that it is."""
    if not _is_shared(source.root):
        return (source.root,)
    folder, _, name = source.path.rpartition("/")
    if name == "__init__.py" and not _is_shared(folder):
        return (folder,)
    if folder != source.root:  # in a package: the outermost one
        return (f"{source.root.rstrip('/')}/{source.path[len(source.root) :].strip('/').partition('/')[0]}",)
    return (source.path,)


def _is_shared(folder: str) -> bool:
    """Whether others keep something there: a folder of the system, of all users, or a home."""
    home = os.path.realpath(os.environ.get("HOME") or "/")
    if folder.rpartition("/")[0] in _DIVIDED or f"{home}/".startswith(f"{folder.rstrip('/')}/"):
        return True
    return bool(os.stat(folder).st_mode & _WORLD_WRITABLE)  # noqa: PTH116  # pathlib would be the slowest import


def _manifest(profile: str, active: tuple[str, ...] = (), missing: dict[Any, str] | None = None) -> dict[str, Any]:
    return {"profile": profile, "active": list(active), "missing": missing or {}}


def _check_interpreter(manifest: dict[str, Any]) -> None:
    """Whoever we have become, the plugin will want to import something."""
    for folder in (os.__file__.rpartition("/")[0], __file__.rpartition("/")[0]):
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ConfinementError(
                f"sandbox profile {manifest['profile']!r}: {folder!r}, which the host itself is made of, is closed to"
                f" user {os.geteuid()} without privileges",
                manifest,
            )


def _is_open(folder: str) -> bool:
    """Whether imports can look there. In a closed folder they would trip over what they remember of it."""
    try:
        os.scandir(folder or ".").close()
    except PermissionError:
        return False
    except OSError:  # an archive, or nothing at all
        pass
    return True


def _move_temporary_files(workspace: tuple[str, ...]) -> None:
    # By now this can do no harm whatever lies there already.
    os.environ.pop("TMPDIR", None)
    if workspace:
        folder = f"{workspace[0]}/.tmp"
        try:
            os.mkdir(folder, 0o700)  # noqa: PTH102  # pathlib would be the slowest import of a worker
        except OSError:
            if not os.access(folder, os.W_OK | os.X_OK):
                folder = workspace[0]
        os.environ["TMPDIR"] = folder
