"""Starting a host: what it inherits, and what it does not.

It gets its three standard streams as pipes, a session of its own, two descriptors if it knows what to do with them, and
a handful of harmless variables. It does not outlive the process that started it. Our own host is told to lock itself in
unless somebody answers for its plugin.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from manglecp.toolhost.context import SETTINGS
from manglecp.toolhost.sandbox import Profile

__all__ = ["HostCommand", "Launched", "launch"]

_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_PR_SET_PDEATHSIG: Final = 1
_prctl: Final = ctypes.CDLL(None).prctl  # looked up before any fork: a child may only call it


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCommand:
    """How to start the host of one plugin.

    A host of ours takes the numbers of two inherited descriptors: one to read its lease key from, one to write progress
    and logs to; and that of its parent, to end with it. A foreign host knows none of these options; if it enforces
    leases, ``issues_leases`` has them asked for on the pipe.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    lease_key_option: str | None = None
    progress_option: str | None = None
    parent_option: str | None = None
    issues_leases: bool = False

    @classmethod
    def for_plugin(
        cls,
        plugin: str,
        environ: Mapping[str, str],
        *,
        sha256: str | None = None,
        sandbox: Profile = "strict",
        workspace: Sequence[str] = (),
        readable: Sequence[str] = (),
        executables: Sequence[str] = (),
        user: tuple[int, int] | None = None,
        degrade: bool = False,
        limits: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> HostCommand:
        """Our own host, serving a Python file or module, whose content may be pinned.

        A plugin is somebody else's code unless the caller says ``sandbox="none"``. The paths, the user that root
        becomes and ``degrade`` are those of :mod:`manglecp.toolhost.sandbox`, and ``limits`` are fields of its policy:
        ``memory``, ``file_size``, ``open_files``, ``processes``, ``cpu_seconds``. ``settings`` are what its actions may
        know. They are told in the environment, which no other user can read, as the command line can be. A host that
        cannot be locked in ends at once.
        """
        options = ["--sandbox", sandbox]
        for option, paths in (("--workspace", workspace), ("--readable", readable), ("--executable", executables)):
            for path in paths:
                options += [option, path]
        if user is not None:
            options += ["--user", f"{user[0]}:{user[1]}"]
        for name, value in (limits or {}).items():
            options += ["--limit", f"{name}={value}"]
        if degrade:
            options.append("--degrade")
        if sha256 is not None:
            options += ["--sha256", sha256]
        return cls(
            argv=(sys.executable, "-I", "-m", "manglecp.toolhost.host", "--serve", plugin, *options),
            environ={**cls.inherited(environ), **({SETTINGS: json.dumps(dict(settings))} if settings else {})},
            lease_key_option="--lease-key-fd",
            progress_option="--progress-fd",
            parent_option="--parent",
        )

    def listing(self) -> HostCommand:
        """The command that lists what this one serves."""
        argv = list(self.argv)
        argv[argv.index("--serve")] = "--list"
        return HostCommand(argv=tuple(argv), environ=self.environ, parent_option=self.parent_option)

    @staticmethod
    def inherited(environ: Mapping[str, str]) -> dict[str, str]:
        """What a host needs of our environment. Everything else, secrets first, stays here."""
        return {name: environ[name] for name in _INHERITED if name in environ}


class Launched(NamedTuple):
    """A process that was just started, and our ends of what it shares with us."""

    process: subprocess.Popen[bytes]
    lease_key: bytes | None
    progress: int | None


def launch(command: HostCommand, *, heard: bool = True) -> Launched:
    """Start the process; OSError if it cannot be. What it reports goes nowhere unless it is ``heard``.

    To be called in a thread that lives as long as the host may: the kernel takes the end of the *thread* that forked
    for the end of the parent.
    """
    argv = list(command.argv)
    if command.parent_option is not None:
        argv += [command.parent_option, str(os.getpid())]
    theirs: list[int] = []
    progress: int | None = None
    lease_key: bytes | None = None
    try:
        if command.lease_key_option is not None:
            lease_key = secrets.token_bytes(32)
            key_end, written = os.pipe()
            theirs.append(key_end)
            os.write(written, lease_key)
            os.close(written)
            argv += [command.lease_key_option, str(key_end)]
        if command.progress_option is not None:
            if heard:
                progress, events_end = os.pipe()
            else:  # nobody need be woken for what is thrown away
                events_end = os.open(os.devnull, os.O_WRONLY)
            theirs.append(events_end)
            argv += [command.progress_option, str(events_end)]
        process = subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(command.environ),
            start_new_session=True,
            pass_fds=theirs,
            # Code here would mean a fork that copies our tables of pages, and everything waits for it. Only a foreign
            # host needs it: ours binds itself.
            preexec_fn=_dying_with(os.getpid()) if command.parent_option is None else None,
        )
    except BaseException:
        if progress is not None:
            os.close(progress)
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    return Launched(process, lease_key, progress)


def _dying_with(parent: int) -> Callable[[], None]:
    """Run in the child before it becomes the host: no host outlives the process that started it."""

    def bind() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel knew
            os._exit(1)

    return bind
