"""User, capabilities and resource limits of the process."""

import os
import resource
import struct

from .kernel import address, c_buffer, call, prctl
from .policy import Policy, Unsupported

_PR_SET_PDEATHSIG = 1
_PR_GET_PDEATHSIG = 2
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x2008_0522
_MAX_CAPABILITIES = 64


def become(user: int, group: int) -> None:
    """Change user and group for good, and drop supplementary groups."""
    parent = os.getppid()
    signal = death_signal()
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    # A change of user makes root the owner of /proc/self, where the maps of a user namespace are written later.
    prctl(_PR_SET_DUMPABLE, 1)
    if signal:  # a change of user also clears the death signal, and a host must not outlive its parent
        die_with_parent(signal)
        if os.getppid() != parent:  # the parent ended before the signal was set again
            os._exit(1)


def death_signal() -> int:
    """Return the signal that this process gets when its parent ends; 0 if none."""
    buffer = c_buffer(bytes(4))
    prctl(_PR_GET_PDEATHSIG, address(buffer))
    signal: int = struct.unpack("=i", buffer.raw)[0]
    return signal


def die_with_parent(signal: int) -> None:
    """Make the kernel send this signal when the parent ends. The caller has to check that the parent still runs."""
    prctl(_PR_SET_PDEATHSIG, signal)


def drop_capabilities() -> None:
    """Drop all capabilities; with an empty bounding set, programs that root starts do not regain any."""
    for capability in range(_MAX_CAPABILITIES):
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError:  # past the last capability; or without CAP_SETPCAP: no_new_privs prevents regaining any
            break
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = c_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    no_capabilities = c_buffer(bytes(24))  # twice 32 bits each of effective, permitted and inheritable
    call("capset", address(header), address(no_capabilities))


def refuse_new_privileges() -> None:
    """Set no_new_privs: setuid bits and file capabilities have no effect from here on."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def refuse_dumps() -> None:
    """Prevent tracing and reading of memory by processes of the same user, and core dumps."""
    prctl(_PR_SET_DUMPABLE, 0)


def limit_resources(policy: Policy) -> None:
    """Limit memory, file sizes, open files and CPU time for good. No core dumps."""
    _lower_limit(resource.RLIMIT_AS, policy.memory)
    _lower_limit(resource.RLIMIT_FSIZE, policy.file_size)
    _lower_limit(resource.RLIMIT_NOFILE, policy.open_files)
    if policy.cpu_seconds is not None:
        _lower_limit(resource.RLIMIT_CPU, policy.cpu_seconds)
    _lower_limit(resource.RLIMIT_CORE, 0)


def limit_processes(policy: Policy) -> None:
    """Limit processes. Call it in a user namespace: outside, all processes of the user are counted."""
    if os.getuid() == 0:
        raise Unsupported(
            "the kernel does not limit the processes of root; run as another user, or go without this limit (--degrade)"
        )
    _lower_limit(resource.RLIMIT_NPROC, policy.processes)


def _lower_limit(limit: int, value: int) -> None:
    _, hard = resource.getrlimit(limit)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(limit, (value, value))
