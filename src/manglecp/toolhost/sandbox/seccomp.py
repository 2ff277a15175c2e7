"""Seccomp: which system calls a worker may make.

The filter is a deny-list: an allow-list breaks with every release of a C library, and here it is not the only
mechanism. Two rules compensate: a call newer than the lists returns ENOSYS, as on an older kernel, and a call of
another architecture kills the process.

A refusal is EPERM. `clone3` and `openat2` are ENOSYS instead: their flags are behind a pointer that a filter cannot
follow, and the C library falls back to `clone` and `openat`. Reading an extended attribute by path returns what a file
system without them returns, so that copying a file with its attributes does not fail.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from .kernel import NEWEST, address, audit_architecture, call, number, packed
from .policy import Profile, Unsupported

_TRACING = "ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd migrate_pages move_pages"
_MOUNTS = (
    "mount umount2 move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick mount_setattr pivot_root chroot"
    " setns unshare open_by_handle_at name_to_handle_at fanotify_init fanotify_mark quotactl quotactl_fd"
)
# Large, rarely needed by tools, and the place of many past escapes.
_KERNEL = (
    "bpf perf_event_open keyctl add_key request_key io_uring_setup io_uring_enter io_uring_register userfaultfd"
    " init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct syslog"
    " settimeofday clock_settime clock_adjtime sethostname setdomainname iopl ioperm modify_ldt personality"
    " lookup_dcookie nfsservctl vhangup"
)
_IDENTITY = "setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset"
# Dispatch kills the process group of a worker: no process leaves it.
_GROUPS = "setsid setpgid"
_EVERYWHERE = f"{_TRACING} {_MOUNTS} {_KERNEL} {_IDENTITY} {_GROUPS}"

# A network namespace does not hide sockets that have a path, nor the System V objects of the user.
_TALKING = (
    "socket connect bind shmget shmat shmctl msgget msgsnd msgrcv msgctl semget semop semctl semtimedop"
    " mq_open mq_unlink"
)
# Landlock judges neither watches nor attribute reads: both disclose files that cannot be opened.
_WATCHING = "inotify_add_watch"
_ATTRIBUTES = "getxattr lgetxattr listxattr llistxattr getxattrat listxattrat"
# A program in memory has no path for Landlock to judge.
_HIDDEN_PROGRAMS = "memfd_create memfd_secret execveat"
_PROGRAMS = "execve execveat fork vfork"
# Neither is needed by a process that has no children.
_SIGNALS_BY_OTHER_NAMES = "tkill pidfd_send_signal"

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; and CLONE_PARENT: a child put under our parent.
_NEVER_CLONED = 0x7E02_8000
_CLONE_THREAD = 0x1_0000
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type into the parent's terminal
# The owner of a descriptor gets a signal of choice when it can be read: a way to kill without calling kill.
_OWNER_BY_FCNTL = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX
_WATCH_BY_FCNTL = (1024, 1026)  # F_SETLEASE, F_NOTIFY: notifications and delays when other processes open a file
_OWNER_BY_IOCTL = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
# Whose mode is which argument. A setuid file written here would give its owner's rights to every user.
_MODE_AT = {
    "chmod": 1,
    "fchmod": 1,
    "fchmodat": 2,
    "fchmodat2": 2,
    "open": 2,
    "openat": 3,
    "creat": 1,
    "mknod": 1,
    "mknodat": 2,
    "mkdir": 1,
    "mkdirat": 2,
}
_SET_ID = 0o6000  # S_ISUID, S_ISGID
_AF_UNIX = 1
_SOCK_STREAM = 1
_SOCK_TYPE = 0xF
_PRIO_PROCESS = 0
_PR_SET_PDEATHSIG = 1
_IOPRIO_WHO_PROCESS = 1

_WHOLE = 0xFFFF_FFFF


class _Test(NamedTuple):
    """A call passes if this argument, masked, is one of the values; or, with `unless`, if it is none of them."""

    argument: int
    values: tuple[int, ...]
    mask: int = _WHOLE
    unless: bool = False


def _judged(profile: Profile, own_pid: int) -> dict[str, tuple[_Test, ...]]:
    """Return the calls that pass if all of their tests do."""
    judged: dict[str, tuple[_Test, ...]] = {
        "ioctl": (_Test(1, _TERMINAL_INPUT, unless=True),),
        "prctl": (_Test(0, (_PR_SET_PDEATHSIG,), unless=True),),  # no worker outlives its parent
    }
    judged |= {name: (_Test(at, (0,), mask=_SET_ID),) for name, at in _MODE_AT.items()}
    if profile == "strict":
        judged["clone"] = (_Test(0, (_CLONE_THREAD,), mask=_NEVER_CLONED | _CLONE_THREAD),)
    else:
        judged["clone"] = (_Test(0, (0,), mask=_NEVER_CLONED),)
    if profile != "standard":
        judged["ioctl"] = (_Test(1, _TERMINAL_INPUT + _OWNER_BY_IOCTL, unless=True),)
        judged["fcntl"] = (_Test(1, _OWNER_BY_FCNTL + _WATCH_BY_FCNTL, unless=True),)
        # An event loop wakes itself through a pair of streams. A datagram socket could be sent anywhere.
        judged["socketpair"] = (_Test(0, (_AF_UNIX,)), _Test(1, (_SOCK_STREAM,), mask=_SOCK_TYPE))
        # Only of the caller itself: in a child, the id of the worker would be that of another process.
        for name in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
            judged[name] = (_Test(0, (0,)),)
        judged["setpriority"] = (_Test(0, (_PRIO_PROCESS,)), _Test(1, (0,)))
        judged["ioprio_set"] = (_Test(0, (_IOPRIO_WHO_PROCESS,)), _Test(1, (0,)))
    if profile == "strict":
        for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            judged[name] = (_Test(0, (own_pid,)),)
    return judged


_REFUSED: dict[Profile, str] = {
    "standard": _EVERYWHERE,
    "spawn": f"{_EVERYWHERE} {_TALKING} {_WATCHING} {_HIDDEN_PROGRAMS}",
    "strict": f"{_EVERYWHERE} {_TALKING} {_WATCHING} {_PROGRAMS} {_SIGNALS_BY_OTHER_NAMES}",
}


_LOAD = 0x20  # a word of seccomp_data
_AND = 0x54
_JUMP = 0x05
_JUMP_EQUAL = 0x15
_JUMP_GREATER = 0x25
_RETURN = 0x06

_NUMBER_AT = 0
_ARCHITECTURE_AT = 4
_ARGUMENTS_AT = 16  # eight bytes each, the low half first on both architectures

_ALLOW = 0x7FFF_0000
_KILL_PROCESS = 0x8000_0000
_REFUSE = 0x0005_0000 | 1  # EPERM
_UNKNOWN = 0x0005_0000 | 38  # ENOSYS
_UNSUPPORTED = 0x0005_0000 | 95  # ENOTSUP


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _body(tests: tuple[_Test, ...]) -> Iterator[bytes]:
    for test in tests:
        yield _instruction(_LOAD, _ARGUMENTS_AT + 8 * test.argument)
        yield _instruction(_AND, test.mask)
        count = len(test.values)
        for index, value in enumerate(test.values):  # a value met: over the next line that is not such a jump
            yield _instruction(_JUMP_EQUAL, value, count - index, 0)
        if test.unless:
            yield _instruction(_JUMP, 1)
        yield _instruction(_RETURN, _REFUSE)
    yield _instruction(_RETURN, _ALLOW)


def program(profile: Profile, own_pid: int, machine: str | None = None) -> bytes:
    architecture = audit_architecture(machine)
    if architecture is None:
        raise Unsupported("the filter is written for x86_64 and aarch64")
    lines = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_JUMP_EQUAL, architecture, 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NUMBER_AT),
        _instruction(_JUMP_GREATER, NEWEST, 0, 1),  # also every call of x32, which sets a high bit
        _instruction(_RETURN, _UNKNOWN),
    ]
    answers = {name: [_instruction(_RETURN, _UNKNOWN)] for name in ("clone3", "openat2")}
    if profile != "standard":
        answers |= {name: [_instruction(_RETURN, _UNSUPPORTED)] for name in _ATTRIBUTES.split()}
    answers |= {name: [_instruction(_RETURN, _REFUSE)] for name in _REFUSED[profile].split()}
    answers |= {name: list(_body(tests)) for name, tests in _judged(profile, own_pid).items()}
    for name, body in answers.items():
        found = number(name, machine)
        if found is not None:
            # A body always returns, so the number is still loaded for the next comparison.
            lines += [_instruction(_JUMP_EQUAL, found, 0, len(body)), *body]
    lines.append(_instruction(_RETURN, _ALLOW))
    return b"".join(lines)


_SET_MODE_FILTER = 1
_ALL_THREADS = 1


def restrict_calls(profile: Profile, own_pid: int) -> None:
    """Install the filter for all threads and children of this process, for good."""
    code = packed(program(profile, own_pid))
    described = packed(struct.pack("=H6xQ", len(code) // 8, address(code)))
    call("seccomp", _SET_MODE_FILTER, _ALL_THREADS, address(described))
