"""Starts host processes: settings, limits, programs that actions may start, and the command line.

========================== ================================ =======
variable                   meaning                          default
========================== ================================ =======
MACHINA_TOOLHOST_TIMEOUT    seconds that a call may take      30
MACHINA_TOOLHOST_POOL_SIZE  hosts that are kept per plugin    2
========================== ================================ =======

``MACHINA_TOOLHOST_TIMEOUT_MS`` belongs to the C++ client, where it has two meanings; it is not read here.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypedDict, TypeVar, Unpack

from manglecp.pack import PythonEnvironment, SandboxPolicy, SecretUse, host_argv
from manglecp.toolhost.context import SETTINGS
from manglecp.toolhost.dispatch.messages import MAX_TIMEOUT, is_timeout
from manglecp.toolhost.sandbox import CONTAINED, Profile

TIMEOUT_VARIABLE: Final = "MACHINA_TOOLHOST_TIMEOUT"
DEFAULT_TIMEOUT: Final = 30.0
DEFAULT_POOL_SIZE: Final = 2
MAX_POOL_SIZE: Final = 64


class SettingError(ValueError):
    """An environment variable holds an invalid value; the text names the variable and the valid range."""


_SIZES: Final = f"a whole number from 1 to {MAX_POOL_SIZE} is expected"
_TIMEOUTS: Final = f"seconds are expected, more than 0 and at most {MAX_TIMEOUT:.0f}"
Number = TypeVar("Number", int, float)


def _is_size(size: object) -> bool:
    return type(size) is int and 1 <= size <= MAX_POOL_SIZE


def _is_positive_timeout(timeout: object) -> bool:
    return is_timeout(timeout) and timeout != 0


def check_settings(size: object, timeout: object) -> None:
    """Raise ValueError for an invalid pool size or timeout; None is valid: the environment decides instead."""
    if size is not None and not _is_size(size):
        raise ValueError(f"size is {size!r}: {_SIZES}")
    if timeout is not None and not _is_positive_timeout(timeout):
        raise ValueError(f"timeout is {timeout!r}: {_TIMEOUTS}")


def default_timeout(environ: Mapping[str, str]) -> float:
    return _read(environ, TIMEOUT_VARIABLE, float, _is_positive_timeout, _TIMEOUTS) or DEFAULT_TIMEOUT


def default_pool_size(environ: Mapping[str, str]) -> int:
    return _read(environ, "MACHINA_TOOLHOST_POOL_SIZE", int, _is_size, _SIZES) or DEFAULT_POOL_SIZE


def _read(
    environ: Mapping[str, str], name: str, parse: type[Number], is_valid: Callable[[object], bool], expected: str
) -> Number | None:
    """Return the value of a variable; None if it is absent or empty. Raises :class:`SettingError`."""
    text = environ.get(name, "").strip()
    if not text:
        return None
    with contextlib.suppress(ValueError):
        value = parse(text)
        if is_valid(value):
            return value
    raise SettingError(f"{name}={text!r}: {expected}")


class PoolLimits(NamedTuple):
    queued: int = 1_024
    """The most calls that wait for a host."""
    attempts: int = 3
    """The most hosts that one call is tried on."""
    calls_per_host: int = 10_000
    """Calls after which a host is replaced."""
    growth: int = 268_435_456
    """Bytes by which the resident memory of a host may grow after its first answer before the host is replaced."""
    health_interval: float = 5.0
    """Seconds between two health checks of a host."""
    health_timeout: float = 5.0
    start_timeout: float = 20.0
    backoff: float = 0.05
    """Seconds before a failed start is repeated; doubled with each failure, up to ``max_backoff``."""
    max_backoff: float = 5.0


EVERY: Final = "*"  # in a list of allowed programs: every program that an action names

_PYTHON: Final = re.compile(r"python(\d(\.\d+)?t?)?")  # python, python3, python3.14t
_SYSTEM_PREFIXES: Final = frozenset({Path("/"), Path("/usr"), Path("/usr/local")})
"""Folders whose ``lib`` and ``lib64`` every sandbox allows."""
_MAX_PTH_FILES: Final = 200
_MAX_PTH_BYTES: Final = 65_536
_MAX_WIDE_PARTS: Final = 2
"""A folder with at most this many path parts is *wide*: it holds more than one project.

These are ``/`` and the folders directly in it.
"""
_BASE_BIN: Final = re.compile(r"^home\s*=\s*(\S.*?)\s*$", re.MULTILINE)
"""The line of ``pyvenv.cfg`` with the ``bin`` folder of the base interpreter."""


class ProgramFinder:
    """Resolves programs on the ``PATH`` of ``environ``; ``settings`` may give a name or path to use instead."""

    def __init__(self, environ: Mapping[str, str], settings: Mapping[str, str] | None = None) -> None:
        folders = environ.get("PATH", os.defpath).split(os.pathsep)
        # A relative folder of PATH would depend on the working directory.
        self._search_path = os.pathsep.join(folder for folder in folders if folder.startswith("/"))
        self._settings = settings or {}

    def find(self, name: str) -> str | None:
        """Return the path of a program, by name or absolute path; None if there is none."""
        program = self._settings.get(name, name)
        if program.startswith("/"):
            return shutil.which(program)
        if not program or "/" in program or not self._search_path:  # which() would replace an empty search path
            return None
        return shutil.which(program, path=self._search_path)

    def startable(self, name: str, allowed: Iterable[str]) -> str | None:
        """Return the path of the program if it exists and is allowed, by name or by path; else None."""
        path = self.find(name)
        if path is None:
            return None
        return path if any(entry in (EVERY, name) or self.find(entry) == path for entry in allowed) else None


def library_paths(program: str) -> Iterator[str]:
    """Yield the paths that a Python interpreter reads beside the system libraries; none for other programs.

    They are its libraries, those of its base environment, and the folders of editable installs, found in
    ``pyvenv.cfg`` and ``.pth`` files, without running the interpreter. Hidden folders, and wide ones, which hold
    more than a project (a home, ``/opt``), are omitted.
    """
    path = Path(program)
    if _PYTHON.fullmatch(path.name):
        yield from _environment_paths(path.parent.parent)
        yield from _environment_paths(path.resolve().parent.parent)


def _environment_paths(prefix: Path) -> Iterator[str]:
    venv_file = prefix / "pyvenv.cfg"
    if venv_file.is_file():
        yield str(venv_file)
        if base_bin := _BASE_BIN.search(venv_file.read_text(encoding="utf-8", errors="replace")):
            yield from _library_folders(Path(base_bin[1]).resolve().parent)
    yield from _library_folders(prefix)


def _library_folders(prefix: Path) -> Iterator[str]:
    if prefix not in _SYSTEM_PREFIXES:
        yield from (str(folder) for folder in (prefix / "lib", prefix / "lib64") if folder.is_dir())
        for file in sorted(prefix.glob("lib/python3*/site-packages/*.pth"))[:_MAX_PTH_FILES]:
            yield from _editable_installs(file)


def _editable_installs(file: Path) -> Iterator[str]:
    """Yield the folders that a ``.pth`` file adds to the import path, except hidden and wide folders."""
    home = Path.home()
    for line in file.read_bytes()[:_MAX_PTH_BYTES].decode(errors="replace").splitlines():
        folder = Path(line.strip())
        is_hidden = any(part.startswith(".") for part in folder.parts)
        is_wide = len(folder.parts) <= _MAX_WIDE_PARTS or home.is_relative_to(folder)
        if folder.is_absolute() and not is_hidden and not is_wide and folder.is_dir():
            yield str(folder)


_INHERITED_VARIABLES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_PR_SET_PDEATHSIG: Final = 1  # from <sys/prctl.h>
_prctl: Final = ctypes.CDLL(None).prctl  # looked up here, because a child between fork and exec must not load libraries


class HostOptions(TypedDict, total=False):
    """Options of the command of our own host."""

    workspace: Sequence[str]
    """Folders that the host may write; the first is its working directory."""
    read_only: bool
    """Whether the workspace can only be read."""
    writable: Sequence[str]
    readable: Sequence[str]
    policy: SandboxPolicy | None
    settings: Mapping[str, str] | None
    """Passed in the environment, which other users cannot read, unlike the command line."""
    single_use: bool | None
    """Whether the host serves one call; None: only if the profile is ``spawn``."""
    egress: Sequence[str]
    """Destinations that the host may connect to, in the profiles ``strict`` and ``spawn``."""
    may_fork: bool
    """Whether the profiles ``standard`` and ``spawn`` permit processes; by default they do."""
    concurrency: int
    """The number of calls that the host works on at the same time; 1 by default."""
    start_secrets: Sequence[SecretUse]
    """The secrets of the lifespan."""
    python: PythonEnvironment | None
    """The virtual environment of the pack; None: the host runs in the environment of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCommand:
    """The command that starts the host of one plugin.

    Our own host has options for two inherited descriptors (its lease key; progress and logs) and for the process id of
    its parent; the host ends when its parent ends. A foreign host has no such options. If it ``issues_leases``, its
    calls above tier 0 need a lease, which the host itself issues when it is asked on its pipe.

    The process of a ``contained`` host is a supervisor, which kills all processes of the host on SIGHUP. A
    ``single_use`` host serves one call, whose answer is returned when all processes of the host are dead.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    lease_key_option: str | None = None
    progress_option: str | None = None
    parent_option: str | None = None
    issues_leases: bool = False
    contained: bool = False
    single_use: bool = False
    concurrency: int = 1
    egress_option: str | None = None
    start_secrets: tuple[SecretUse, ...] = ()
    """Secrets whose values the host expects in the first line of its stdin."""

    @classmethod
    def for_plugin(
        cls,
        plugin: str,
        environ: Mapping[str, str],
        *,
        sha256: str | None = None,
        sandbox: Profile = "strict",
        executables: Sequence[str] = (),
        **options: Unpack[HostOptions],
    ) -> HostCommand:
        """Return the command of our own host for a Python file or module.

        ``sha256``, if given, is the only digest of the content that the host accepts. ``executables`` are the programs
        that the host may start. A host that cannot be sandboxed as requested exits at once.
        """
        workspace, single_use = options.get("workspace", ()), options.get("single_use")
        words = ["--sandbox", sandbox]
        if sandbox != "none":  # the profile none has no restrictions, and takes no such options
            folders = {"--workspace": workspace, "--executable": executables}
            folders |= {"--writable": options.get("writable", ()), "--readable": options.get("readable", ())}
            words += [word for option, paths in folders.items() for path in paths for word in (option, path)]
            if options.get("read_only"):
                words.append("--read-only")
        if not options.get("may_fork", True) and sandbox in CONTAINED:
            words.append("--no-processes")
        egress = options.get("egress", ()) if sandbox in ("strict", "spawn") else ()
        words += [word for destination in egress for word in ("--egress", destination)]
        if (policy := options.get("policy")) is not None:
            words += policy.host_options(sandbox)
        if sha256 is not None:
            words += ["--sha256", sha256]
        settings, concurrency = options.get("settings"), options.get("concurrency", 1)
        if concurrency > 1:
            words.append("--concurrent")
        if start_secrets := tuple(options.get("start_secrets", ())):
            words.append("--start-secrets")
        return cls(
            argv=(*host_argv(options.get("python")), "--serve", plugin, *words),
            environ={**cls.inherited(environ), **({SETTINGS: json.dumps(dict(settings))} if settings else {})},
            lease_key_option="--lease-key-fd",
            progress_option="--progress-fd",
            parent_option="--parent",
            egress_option="--egress-fd" if egress else None,
            contained=sandbox in CONTAINED,
            single_use=sandbox == "spawn" if single_use is None else single_use,
            concurrency=concurrency,
            start_secrets=start_secrets,
        )

    @staticmethod
    def inherited(environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that a host inherits; secrets are not among them."""
        return {name: environ[name] for name in _INHERITED_VARIABLES if name in environ}


class LaunchedHost(NamedTuple):
    """A started process, its lease key, and the read end of the pipe for its progress and logs."""

    process: subprocess.Popen[bytes]
    lease_key: bytes | None
    progress: int | None
    egress: socket.socket | None = None
    """The channel to the broker of the host."""


def launch(command: HostCommand) -> LaunchedHost:
    """Start the process; raises OSError.

    Call it in a thread that outlives the host: for the parent death signal, the parent is the *thread* that forked.
    """
    argv = list(command.argv)
    if command.parent_option is not None:
        argv += [command.parent_option, str(os.getpid())]
    inherited_fds: list[int] = []
    progress: int | None = None
    lease_key: bytes | None = None
    egress: socket.socket | None = None
    try:
        if command.egress_option is not None:
            egress, broker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            inherited_fds.append(broker.detach())
            argv += [command.egress_option, str(inherited_fds[-1])]
        if command.lease_key_option is not None:
            lease_key = secrets.token_bytes(32)
            key_read_end, key_write_end = os.pipe()
            inherited_fds.append(key_read_end)
            os.write(key_write_end, lease_key)
            os.close(key_write_end)
            argv += [command.lease_key_option, str(key_read_end)]
        if command.progress_option is not None:
            progress, report_fd = os.pipe()
            inherited_fds.append(report_fd)
            argv += [command.progress_option, str(report_fd)]
        process = subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(command.environ),
            start_new_session=True,
            pass_fds=inherited_fds,
            # A preexec_fn makes the fork copy our page tables, which blocks the event loop. Only a foreign host needs
            # it: ours sets its own parent death signal.
            preexec_fn=_death_signal_setter(os.getpid()) if command.parent_option is None else None,
        )
    except BaseException:
        if progress is not None:
            os.close(progress)
        if egress is not None:
            egress.close()
        raise
    finally:
        for descriptor in inherited_fds:
            os.close(descriptor)
    return LaunchedHost(process, lease_key, progress, egress)


def _death_signal_setter(parent: int) -> Callable[[], None]:
    """Return a ``preexec_fn`` that makes the kernel kill the host when ``parent``, the process that starts it, ends."""

    def set_death_signal() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the signal was set
            os._exit(1)

    return set_death_signal
