"""Seccomp: which system calls a host may make.

The filter is a deny-list: an allow-list breaks with every release of a C library, and seccomp is not the only mechanism
here. Two rules compensate: a call newer than the lists returns ENOSYS, as on an older kernel, and a call of another
architecture kills the process.

A refused call returns EPERM. `clone3` and `openat2` return ENOSYS instead: their flags are behind a pointer that a
filter cannot follow, and the C library falls back to `clone` and `openat`. Reading an extended attribute by path
returns ENOTSUP, as on a file system without them, so that copying a file with its attributes does not fail.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from .kernel import NEWEST, address, audit_architecture, c_buffer, call, number
from .policy import Profile, Unsupported

_TRACING = "ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd migrate_pages move_pages"
_MOUNTS = (
    "mount umount2 move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick mount_setattr pivot_root chroot"
    " setns unshare open_by_handle_at name_to_handle_at fanotify_init fanotify_mark quotactl quotactl_fd"
)
# Large parts of the kernel, rarely needed by tools, and the place of many past escapes.
_KERNEL = (
    "bpf perf_event_open keyctl add_key request_key io_uring_setup io_uring_enter io_uring_register userfaultfd"
    " init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct syslog"
    " settimeofday clock_settime clock_adjtime sethostname setdomainname iopl ioperm modify_ldt personality"
    " lookup_dcookie nfsservctl vhangup"
)
_IDENTITY = "setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset"
# The dispatcher kills the process group of a host: no process leaves it.
_GROUPS = "setsid setpgid"
_REFUSED_EVERYWHERE = f"{_TRACING} {_MOUNTS} {_KERNEL} {_IDENTITY} {_GROUPS}"

# A network namespace does not hide sockets that have a path, nor the System V objects of the user.
_COMMUNICATION = (
    "socket connect bind shmget shmat shmctl msgget msgsnd msgrcv msgctl semget semop semctl semtimedop"
    " mq_open mq_unlink"
)
# Landlock checks neither watches nor attribute reads: both disclose files that cannot be opened.
_WATCHING = "inotify_add_watch"
_ATTRIBUTES = "getxattr lgetxattr listxattr llistxattr getxattrat listxattrat"
# A program in memory has no path that Landlock could check.
_HIDDEN_PROGRAMS = "memfd_create memfd_secret execveat"
_PROGRAMS = "execve execveat fork vfork"
# Ways to send signals beside those that _argument_tests limits; a process without children needs neither.
_OTHER_SIGNALS = "tkill pidfd_send_signal"

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; and CLONE_PARENT: a child put under our parent.
_FORBIDDEN_CLONE_FLAGS = 0x7E02_8000
_CLONE_THREAD = 0x1_0000
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type into the parent's terminal
# The owner of a descriptor gets a signal of choice when it can be read: a way to kill without calling kill.
_OWNER_BY_FCNTL = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX
_WATCH_BY_FCNTL = (1024, 1026)  # F_SETLEASE, F_NOTIFY: notifications and delays when other processes open a file
_OWNER_BY_IOCTL = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
# The calls that set a file mode, by the index of that argument. A setuid file would give its owner's rights to others.
_MODE_CALLS = {1: "chmod fchmod creat mknod mkdir", 2: "fchmodat fchmodat2 open mknodat mkdirat", 3: "openat"}
_SET_ID = 0o6000  # S_ISUID, S_ISGID
_AF_UNIX = 1
_AF_INET = 2
_AF_INET6 = 10
_IPPROTO_TCP = 6
_SOCK_STREAM = 1
_SOCK_TYPE_MASK = 0xF
_PRIO_PROCESS = 0
_PR_SET_PDEATHSIG = 1
_IOPRIO_WHO_PROCESS = 1

_ALL_BITS = 0xFFFF_FFFF


class _Test(NamedTuple):
    """A call passes if its argument with this index, masked, is one of the values; with `negated`, none of them."""

    argument: int
    values: tuple[int, ...]
    mask: int = _ALL_BITS
    negated: bool = False


def _argument_tests(profile: Profile, own_pid: int, may_fork: bool) -> dict[str, tuple[_Test, ...]]:
    """Return the tests of system calls, by name; a call is allowed if it passes all of its tests."""
    tests: dict[str, tuple[_Test, ...]] = {
        "ioctl": (_Test(1, _TERMINAL_INPUT, negated=True),),
        "prctl": (_Test(0, (_PR_SET_PDEATHSIG,), negated=True),),  # no host outlives its parent
    }
    for argument, names in _MODE_CALLS.items():
        tests |= {name: (_Test(argument, (0,), mask=_SET_ID),) for name in names.split()}
    if may_fork:
        tests["clone"] = (_Test(0, (0,), mask=_FORBIDDEN_CLONE_FLAGS),)
    else:  # threads, and no processes
        tests["clone"] = (_Test(0, (_CLONE_THREAD,), mask=_FORBIDDEN_CLONE_FLAGS | _CLONE_THREAD),)
    if profile != "standard":
        tests["ioctl"] = (_Test(1, _TERMINAL_INPUT + _OWNER_BY_IOCTL, negated=True),)
        tests["fcntl"] = (_Test(1, _OWNER_BY_FCNTL + _WATCH_BY_FCNTL, negated=True),)
        # An event loop wakes itself through a pair of streams. A datagram socket could send to any path.
        tests["socketpair"] = (_Test(0, (_AF_UNIX,)), _Test(1, (_SOCK_STREAM,), mask=_SOCK_TYPE_MASK))
        # A process may change only itself, named by 0: for a child, the id of the host is another process.
        for name in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
            tests[name] = (_Test(0, (0,)),)
        tests["setpriority"] = (_Test(0, (_PRIO_PROCESS,)), _Test(1, (0,)))
        tests["ioprio_set"] = (_Test(0, (_IOPRIO_WHO_PROCESS,)), _Test(1, (0,)))
    if profile == "strict":
        for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            tests[name] = (_Test(0, (own_pid,)),)
    return tests


_REFUSED: dict[Profile, str] = {
    "standard": _REFUSED_EVERYWHERE,
    "spawn": f"{_REFUSED_EVERYWHERE} {_COMMUNICATION} {_WATCHING} {_HIDDEN_PROGRAMS}",
    "strict": f"{_REFUSED_EVERYWHERE} {_COMMUNICATION} {_WATCHING} {_OTHER_SIGNALS}",
}


# Instructions of classic BPF, offsets in seccomp_data, and results of a filter.
_LOAD = 0x20
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
_FAIL = 0x0005_0000  # SECCOMP_RET_ERRNO: the call fails with the error in the low bits
_EPERM = _FAIL | 1
_ENOSYS = _FAIL | 38
_ENOTSUP = _FAIL | 95


def _instruction(code: int, operand: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return an instruction; a conditional jump skips ``if_true`` or ``if_false`` instructions."""
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _compile_tests(tests: tuple[_Test, ...]) -> Iterator[bytes]:
    for test in tests:
        yield _instruction(_LOAD, _ARGUMENTS_AT + 8 * test.argument)
        yield _instruction(_AND, test.mask)
        count = len(test.values)
        for index, value in enumerate(test.values):  # if equal, skip the other comparisons and one more instruction
            yield _instruction(_JUMP_EQUAL, value, if_true=count - index)
        if test.negated:
            yield _instruction(_JUMP, 1)  # no value is equal: skip the refusal
        yield _instruction(_RETURN, _EPERM)
    yield _instruction(_RETURN, _ALLOW)


def program(
    profile: Profile, own_pid: int, machine: str | None = None, *, may_fork: bool = True, may_connect: bool = False
) -> bytes:
    """Return the BPF program for a process with this id; ``machine`` is this machine's architecture by default.

    ``may_fork`` is whether ``standard`` and ``spawn`` permit processes and programs; ``strict`` never does.
    ``may_connect`` is whether ``spawn`` and ``strict`` permit TCP connections; ``standard`` permits every socket.
    """
    may_fork = may_fork and profile != "strict"
    architecture = audit_architecture(machine)
    if architecture is None:
        raise Unsupported("the filter is written for x86_64 and aarch64")
    instructions = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_JUMP_EQUAL, architecture, if_true=1),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NUMBER_AT),
        _instruction(_JUMP_GREATER, NEWEST, if_false=1),  # also every call of x32, which sets a high bit
        _instruction(_RETURN, _ENOSYS),
    ]
    bodies = {name: [_instruction(_RETURN, _ENOSYS)] for name in ("clone3", "openat2")}
    if profile != "standard":
        bodies |= {name: [_instruction(_RETURN, _ENOTSUP)] for name in _ATTRIBUTES.split()}
    bodies |= {name: [_instruction(_RETURN, _EPERM)] for name in _REFUSED[profile].split()}
    if not may_fork:
        bodies |= {name: [_instruction(_RETURN, _EPERM)] for name in _PROGRAMS.split()}
    argument_tests = _argument_tests(profile, own_pid, may_fork)
    if may_connect and profile != "standard":
        del bodies["connect"]  # only the sockets that may be created here can be connected
        tcp = (_Test(1, (_SOCK_STREAM,), mask=_SOCK_TYPE_MASK), _Test(2, (0, _IPPROTO_TCP)))
        argument_tests["socket"] = (_Test(0, (_AF_INET, _AF_INET6)), *tcp)
    bodies |= {name: list(_compile_tests(tests)) for name, tests in argument_tests.items()}
    for name, body in bodies.items():
        call_number = number(name, machine)
        if call_number is not None:
            # A body always returns, so the number is still loaded for the next comparison.
            instructions += [_instruction(_JUMP_EQUAL, call_number, if_false=len(body)), *body]
    instructions.append(_instruction(_RETURN, _ALLOW))
    return b"".join(instructions)


_SET_MODE_FILTER = 1
_ALL_THREADS = 1  # SECCOMP_FILTER_FLAG_TSYNC


def restrict_calls(profile: Profile, own_pid: int, may_fork: bool = True, may_connect: bool = False) -> None:
    """Install the filter for all threads and children of this process, for good."""
    code = c_buffer(program(profile, own_pid, may_fork=may_fork, may_connect=may_connect))
    sock_fprog = c_buffer(struct.pack("=H6xQ", len(code) // 8, address(code)))  # an instruction has 8 bytes
    call("seccomp", _SET_MODE_FILTER, _ALL_THREADS, address(sock_fprog))
