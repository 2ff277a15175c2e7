"""A supervisor for a host that may start programs: no program outlives the host.

    supervisor   stays outside; kills the host on SIGHUP, SIGINT or the end of its own parent; exits as the host did
    init         process 1 of a new PID namespace; reaps orphans, and exits with the host
    host         returns from :func:`contain`; it and all of its descendants are in the namespace

The kernel kills every process of a PID namespace, also those that fork meanwhile, before it reports the end of init.
So when the supervisor has exited, no process is left. If there is no namespace, the supervisor adopts orphans (child
subreaper) and kills until it has no descendant; in this mode, processes may outlive a killed supervisor.
"""

import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from .kernel import call, prctl
from .policy import REMEDIES, Unsupported
from .privileges import death_signal, die_with_parent, refuse_dumps

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the C module behind signal, without its enums

_CLONE_NEWPID = 0x2000_0000
_PR_SET_CHILD_SUBREAPER = 36
_SIGNAL_STATUS = 128  # added to the number of a signal in an exit status, as by a shell
_MAX_DESCRIPTORS = 1 << 20


class Uncontained(Unsupported):
    """There is no PID namespace. The supervisor is a subreaper, and removes the folder ``temporary`` when it exits."""

    def __init__(self, reason: str, temporary: str) -> None:
        super().__init__(reason)
        self.temporary = temporary


def contain() -> None:
    """Become the supervisor of a new host, and return in that host, in a new PID namespace.

    If the kernel refuses the namespace, it raises :class:`Uncontained` in the host, which has a supervisor anyway.
    """
    namespace_error: OSError | None = None
    temporary = ""
    try:
        call("unshare", _CLONE_NEWPID)
    except OSError as error:
        from tempfile import mkdtemp  # slow to import

        namespace_error = error
        temporary = mkdtemp(prefix="manglecp-", dir=os.environ.get("TMPDIR") or "/tmp")
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    supervisor = os.pidfd_open(os.getpid())
    if child := os.fork():
        _run_and_exit(_supervise, child, temporary)
    die_with_parent(signal.SIGKILL)
    if select.select([supervisor], [], [], 0)[0]:  # the supervisor ended before the death signal was set
        os._exit(1)
    os.close(supervisor)
    os.setpgid(0, 0)  # one group for SIGTERM; no descendant can signal the supervisor's group
    if namespace_error is None and (host := os.fork()):
        _run_and_exit(_reap_orphans, host)  # this process is the init of the namespace
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if namespace_error is not None:
        raise Uncontained(f"{namespace_error}; {REMEDIES['pid_namespace']}", temporary)


def _run_and_exit(task: Callable[..., int], *arguments: Any) -> NoReturn:
    status = 1
    try:
        status = task(*arguments)
    finally:  # also after an error, which must not continue in the caller's code
        os._exit(status)


def _supervise(child: int, temporary: str) -> int:
    """Wait for the child (init, or else the host) and return its exit status, or end by the signal that ended it."""

    def kill(*_: object) -> None:
        os.kill(child, signal.SIGKILL)  # the child is not reaped yet, so its id cannot be reused

    os.closerange(0, _MAX_DESCRIPTORS)  # only the host holds the pipes, so that they are closed when it ends
    with suppress(OSError):  # the child does the same, perhaps too late for the first signal
        os.setpgid(child, child)
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(child, signal.SIGTERM))
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, kill)
    if death_signal():  # SIGHUP in place of it: the supervisor has to survive, and kill the host
        die_with_parent(signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # does not reap: the group of the child stays valid
    signal.pthread_sigmask(signal.SIG_SETMASK, (signal.SIGTERM, signal.SIGHUP, signal.SIGINT))
    os.killpg(child, signal.SIGKILL)  # without a namespace: all at the same time, so that no fork escapes
    status = _kill_descendants(child)
    if temporary:
        import shutil

        shutil.rmtree(temporary, ignore_errors=True)
    if status > _SIGNAL_STATUS:
        with suppress(OSError, ValueError):  # the action of SIGKILL cannot be set
            signal.signal(status - _SIGNAL_STATUS, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        with suppress(OSError):  # an exit status above 128 that does not stand for a signal
            os.kill(os.getpid(), status - _SIGNAL_STATUS)
    return status


def _kill_descendants(child: int) -> int:
    """Kill and reap until no descendant is left; return the exit status of the child."""
    child_status = 0
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:  # no child has exited: kill all, and wait for one
                for descendant in _children():
                    os.kill(descendant, signal.SIGKILL)
                pid, status = os.wait()
        except ChildProcessError:
            return child_status
        if pid == child:
            child_status = _exit_status(status)


def _children() -> list[int]:
    """Return the process ids of the children of this process, adopted orphans included."""
    pids = []
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208  # pathlib would be the slowest import
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                after_name = file.read().rpartition(b")")[2].split()  # state, parent, ...; a name may contain spaces
        except OSError:  # gone in the meantime
            continue
        if int(after_name[1]) == os.getpid():
            pids.append(int(name))
    return pids


def _reap_orphans(host: int) -> int:
    """Be the init of the namespace, with all signals blocked, until the host exits; return its exit status."""
    os.closerange(0, _MAX_DESCRIPTORS)
    refuse_dumps()
    while True:
        pid, status = os.wait()
        if pid == host:
            return _exit_status(status)


def _exit_status(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _SIGNAL_STATUS - code
