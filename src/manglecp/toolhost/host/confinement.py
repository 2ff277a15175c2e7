"""The steps of a host before it runs its plugin: parent death signal, imports from source only, sandbox.

The plugin keeps the interpreter, its own folder to read, the workspaces, and a temporary folder of this host alone. If
its own folder is shared, such as ``/tmp`` or a home, the plugin can read only its package or file. Its working
directory is the first workspace, which may be read-only, or ``/``.

A host becomes the leader of its process group before it is sandboxed: the dispatcher kills the group, and no process
can leave the group afterwards. A host of a profile that permits processes then becomes a supervisor, and the plugin
runs in a descendant, with a group of its own.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from types import CodeType
from typing import Any, Final

from manglecp.toolhost.host.arguments import Confinement
from manglecp.toolhost.plugin import Source

TYPE_CHECKING = False  # type checkers assume True; a host that is not sandboxed does not load the sandbox
if TYPE_CHECKING:
    from manglecp.toolhost.sandbox import Enforcement

_SIGKILL: Final = 9


def die_with(parent: int) -> None:
    """Set the parent death signal; exit at once if the parent is gone already.

    ``parent`` is the process id of the parent. A ``preexec_fn`` in the parent would do the same, but fork slowly.
    """
    from manglecp.toolhost.sandbox.privileges import die_with_parent  # slow, and unused by a host without --parent

    die_with_parent(_SIGKILL)
    if os.getppid() != parent:  # the parent ended before the signal was set
        os._exit(1)


class _SourceOnlyLoader(SourceFileLoader):
    """Loads a source file and ignores its bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def compile_all_below(folder: str) -> None:
    """Make every later import from this folder and the folders below it compile from source.

    Bytecode in ``__pycache__`` is covered by no digest, so code written there would run unseen. Libraries of the
    interpreter that lie below the folder keep their bytecode. Folders that the digest of a pack ignores are not
    searched.
    """
    prefix = _with_slash(folder)
    libraries = tuple(path for path in map(_with_slash, sys.path) if path.startswith(prefix) and path != prefix)

    def is_covered(path: str) -> bool:
        return _with_slash(path).startswith(prefix) and not _with_slash(path).startswith(libraries)

    def path_hook(path: str) -> FileFinder:
        if not is_covered(path):
            raise ImportError(path)  # makes Python try the next hook
        if _is_ignored(path[len(prefix) :]):
            return FileFinder(path)  # without loaders: no module is found
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_SourceOnlyLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, path_hook)
    for path in list(filter(is_covered, sys.path_importer_cache)):
        del sys.path_importer_cache[path]


def _is_ignored(path: str) -> bool:
    """Return whether a folder belongs to tools and not to the pack, see :mod:`manglecp.pack.folder`."""
    return any(part in ("__pycache__", "node_modules") or part.startswith(".") for part in path.split("/"))


def _with_slash(folder: str) -> str:
    return f"{folder.rstrip('/')}/"


# A folder directly in one of these belongs to the system, to all users, or is the home of a user. "" stands for "/".
_PARENTS_OF_SHARED: Final = ("", "/dev", "/home", "/run", "/usr", "/usr/local", "/var")
_WORLD_WRITABLE: Final = 0o002


class ConfinementError(Exception):
    """The host cannot be sandboxed as requested. It must exit: a partial sandbox cannot be undone.

    ``manifest`` describes the sandbox so far: ``profile``, ``active`` mechanisms, and ``missing`` ones with reasons.
    """

    def __init__(self, reason: str, manifest: dict[str, Any]) -> None:
        super().__init__(reason)
        self.manifest = manifest


def confine(requested: Confinement, source: Source) -> tuple[dict[str, Any], str | None]:
    """Sandbox this process; return the manifest of the sandbox, and the temporary folder.

    For the profiles `standard` and `spawn` this returns in a descendant, for which this process waits. Raises
    :class:`ConfinementError`.
    """
    profile = requested.profile
    if profile == "none":
        return _manifest("none"), None
    from manglecp.toolhost.sandbox import Policy, SandboxUnavailable, apply

    code: tuple[str, ...] = (_plugin_path(source),)
    if os.path.isfile(source.where):  # noqa: PTH113  # pathlib is slow
        # Also the path as it was given: a link to the plugin must not be writable, because it could be replaced.
        code = (*code, os.path.abspath(source.where))  # noqa: PTH100
    limits: dict[str, Any] = dict(requested.limits)
    writable, readable = requested.writable, requested.readable
    if requested.read_only:
        readable = (*readable, *requested.workspace)
    else:
        writable = tuple(dict.fromkeys((*requested.workspace, *writable)))
    policy = Policy(
        writable, readable, requested.executables, requested.user, code=code, may_fork=requested.may_fork, **limits
    )
    try:
        if os.getpgrp() != os.getpid():
            os.setpgid(0, 0)
        if requested.egress:
            from manglecp.toolhost.host.broker import start_broker

            channel = start_broker(requested.egress, requested.private, requested.egress_fd, requested.user)
            policy = policy._replace(egress=requested.egress, broker=channel)
        # Without a workspace a relative path must fail: a file in the temporary folder would be lost silently.
        os.chdir(requested.workspace[0] if requested.workspace else "/")
        enforcement = apply(profile, policy, degrade=requested.degrade)
    except SandboxUnavailable as error:
        raise ConfinementError(str(error), _describe(error.enforcement)) from error
    except (OSError, RuntimeError, ValueError) as error:  # a path that is missing or inaccessible; running threads
        raise ConfinementError(f"sandbox profile {profile!r}: {error}", _manifest(profile)) from error
    manifest = _describe(enforcement)
    _check_interpreter(manifest)
    sys.path[:] = filter(_is_readable, sys.path)
    os.environ.pop("TMPDIR", None)
    if enforcement.temporary is not None:
        os.environ["TMPDIR"] = enforcement.temporary
    return manifest, enforcement.temporary


def _plugin_path(source: Source) -> str:
    """Return the path that belongs to the plugin: its folder; if that is shared, its package or its file."""
    if not _is_shared(source.root):
        return source.root
    folder, _, name = source.path.rpartition("/")
    if name == "__init__.py" and not _is_shared(folder):
        return folder
    if folder != source.root:  # a module in a package
        outermost_package = source.path[len(source.root) :].strip("/").partition("/")[0]
        return f"{source.root.rstrip('/')}/{outermost_package}"
    return source.path


def _is_shared(folder: str) -> bool:
    """Return whether a folder holds more than one project: it is the system's, world-writable, or a home."""
    home = os.path.realpath(os.environ.get("HOME") or "/")
    if folder.rpartition("/")[0] in _PARENTS_OF_SHARED or f"{home}/".startswith(f"{folder.rstrip('/')}/"):
        return True
    return bool(os.stat(folder).st_mode & _WORLD_WRITABLE)  # noqa: PTH116  # pathlib would be the slowest import


def _describe(enforcement: Enforcement) -> dict[str, Any]:
    missing = dict(enforcement.missing_mechanisms)
    return _manifest(enforcement.profile, enforcement.active_mechanisms, missing)


def _manifest(profile: str, active: tuple[str, ...] = (), missing: dict[Any, str] | None = None) -> dict[str, Any]:
    return {"profile": profile, "active": list(active), "missing": missing or {}}


def _check_interpreter(manifest: dict[str, Any]) -> None:
    """Raise :class:`ConfinementError` if the sandboxed host can no longer read its own modules."""
    for folder in (os.__file__.rpartition("/")[0], __file__.rpartition("/")[0]):
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ConfinementError(
                f"sandbox profile {manifest['profile']!r}: {folder!r}, which the host itself is made of, is closed to"
                f" user {os.geteuid()} without privileges",
                manifest,
            )


def _is_readable(folder: str) -> bool:
    """Return whether imports can search this folder. For any other folder the import caches would raise."""
    try:
        os.scandir(folder or ".").close()
    except PermissionError:
        return False
    except OSError:  # an archive, or missing
        pass
    return True
