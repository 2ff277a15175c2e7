"""The filter itself, run by a small model of the kernel's machine: for both architectures, whichever this one is."""

import errno
import struct
from pathlib import Path

import pytest

from manglecp.toolhost.sandbox import Profile
from manglecp.toolhost.sandbox.kernel import NEWEST, audit_architecture, number
from manglecp.toolhost.sandbox.landlock import files_to_execute
from manglecp.toolhost.sandbox.policy import Unsupported
from manglecp.toolhost.sandbox.seccomp import program

MACHINES = ("x86_64", "aarch64")
PID = 4242


def answer(code: bytes, data: bytes) -> str:
    """What the kernel would do with this call."""
    lines = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, operand = lines[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0x05:
                at += operand
            case 0x15:
                at += if_true if accumulator == operand else if_false
            case 0x25:
                at += if_true if accumulator > operand else if_false
            case 0x06:
                if operand == 0x7FFF_0000:
                    return "allow"
                return "kill" if operand == 0x8000_0000 else errno.errorcode[operand & 0xFFFF]
            case _:
                raise AssertionError(f"unknown operation {operation:#x}")


def ask(profile: Profile, machine: str, call: str | int, *arguments: int, may_fork: bool = True) -> str:
    found = number(call, machine) if isinstance(call, str) else call
    assert found is not None
    padded = (*arguments, *([0] * (6 - len(arguments))))
    data = struct.pack("=IIQ6Q", found, audit_architecture(machine) or 0, 0, *padded)
    return answer(program(profile, PID, machine, may_fork=may_fork), data)


THREAD = 0x3D0F00  # what the C library asks for
NEW_USER = 0x1000_0000
PARENT = 0x8000
CHILD = 17  # SIGCHLD
NO_ATTRIBUTES = errno.errorcode[errno.ENOTSUP]  # it has two names

# call, arguments: answers in standard, spawn and strict
CASES: list[tuple[str, tuple[int, ...], str, str, str]] = [
    ("ptrace", (), "EPERM", "EPERM", "EPERM"),
    ("mount", (), "EPERM", "EPERM", "EPERM"),
    ("io_uring_setup", (), "EPERM", "EPERM", "EPERM"),
    ("setsid", (), "EPERM", "EPERM", "EPERM"),
    ("setresuid", (), "EPERM", "EPERM", "EPERM"),
    ("clone3", (), "ENOSYS", "ENOSYS", "ENOSYS"),
    ("clone", (THREAD,), "allow", "allow", "allow"),
    ("clone", (CHILD,), "allow", "allow", "EPERM"),
    ("clone", (CHILD | NEW_USER,), "EPERM", "EPERM", "EPERM"),
    ("clone", (THREAD | NEW_USER,), "EPERM", "EPERM", "EPERM"),
    ("clone", (CHILD | PARENT,), "EPERM", "EPERM", "EPERM"),
    ("execve", (), "allow", "allow", "EPERM"),
    ("execveat", (), "allow", "EPERM", "EPERM"),
    ("memfd_create", (), "allow", "EPERM", "allow"),
    ("socket", (2, 1), "allow", "EPERM", "EPERM"),
    ("socketpair", (1, 1 | 0o2000000), "allow", "allow", "allow"),
    ("socketpair", (1, 2), "allow", "EPERM", "EPERM"),
    ("socketpair", (2, 1), "allow", "EPERM", "EPERM"),
    ("kill", (PID, 9), "allow", "allow", "allow"),
    ("kill", (1, 9), "allow", "allow", "EPERM"),
    ("kill", (2**64 - 1, 9), "allow", "allow", "EPERM"),
    ("kill", (0, 9), "allow", "allow", "EPERM"),
    ("tgkill", (PID, 7, 9), "allow", "allow", "allow"),
    ("prlimit64", (0,), "allow", "allow", "allow"),
    ("prlimit64", (PID,), "allow", "EPERM", "EPERM"),
    ("prlimit64", (1,), "allow", "EPERM", "EPERM"),
    ("setpriority", (0, 0, 5), "allow", "allow", "allow"),
    ("setpriority", (2, 0, 5), "allow", "EPERM", "EPERM"),
    ("setpriority", (0, PID, 5), "allow", "EPERM", "EPERM"),
    ("ioprio_set", (1, 0), "allow", "allow", "allow"),
    ("ioprio_set", (1, PID), "allow", "EPERM", "EPERM"),
    *((f"sched_set{what}", (0,), "allow", "allow", "allow") for what in ("affinity", "scheduler", "param", "attr")),
    *((f"sched_set{what}", (PID,), "allow", "EPERM", "EPERM") for what in ("affinity", "scheduler", "param", "attr")),
    ("prctl", (1, 0), "EPERM", "EPERM", "EPERM"),
    ("prctl", (15, 0), "allow", "allow", "allow"),
    ("fcntl", (0, 3), "allow", "allow", "allow"),
    ("fcntl", (0, 8, 1), "allow", "EPERM", "EPERM"),
    ("ioctl", (0, 0x8901), "allow", "EPERM", "EPERM"),
    ("ioctl", (0, 0x5401), "allow", "allow", "allow"),
    ("ioctl", (0, 0x5412), "EPERM", "EPERM", "EPERM"),
    ("ioctl", (0, 0xDEAD_0000_541C), "EPERM", "EPERM", "EPERM"),
    ("fchmod", (3, 0o100777), "allow", "allow", "allow"),
    ("fchmod", (3, 0o1777), "allow", "allow", "allow"),
    ("fchmod", (3, 0o4755), "EPERM", "EPERM", "EPERM"),
    ("fchmod", (3, 0o2755), "EPERM", "EPERM", "EPERM"),
    ("fchmodat", (0, 0, 0o6755), "EPERM", "EPERM", "EPERM"),
    ("fchmodat2", (0, 0, 0o4755, 0), "EPERM", "EPERM", "EPERM"),
    ("openat", (0, 0, 0o101, 0o4755), "EPERM", "EPERM", "EPERM"),
    ("openat", (0, 0, 0o6101, 0o755), "allow", "allow", "allow"),
    ("mknodat", (0, 0, 0o104755, 0), "EPERM", "EPERM", "EPERM"),
    ("mknodat", (0, 0, 0o100755, 0), "allow", "allow", "allow"),
    ("mkdirat", (0, 0, 0o2755), "EPERM", "EPERM", "EPERM"),
    ("openat2", (0, 0), "ENOSYS", "ENOSYS", "ENOSYS"),
    ("inotify_add_watch", (3, 0, 1), "allow", "EPERM", "EPERM"),
    ("fanotify_mark", (3, 0, 1), "EPERM", "EPERM", "EPERM"),
    ("fcntl", (0, 1024, 0), "allow", "EPERM", "EPERM"),
    ("fcntl", (0, 1026, 0), "allow", "EPERM", "EPERM"),
    ("getxattr", (), "allow", NO_ATTRIBUTES, NO_ATTRIBUTES),
    ("listxattrat", (), "allow", NO_ATTRIBUTES, NO_ATTRIBUTES),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("call", "arguments", "standard", "spawn", "strict"), CASES)
def test_answers(machine: str, call: str, arguments: tuple[int, ...], standard: str, spawn: str, strict: str) -> None:
    answers = [ask(profile, machine, call, *arguments) for profile in ("standard", "spawn", "strict")]
    assert answers == [standard, spawn, strict]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("profile", ["standard", "spawn"])
def test_a_profile_that_permits_processes_can_be_without_them(machine: str, profile: Profile) -> None:
    for call in ("execve", "execveat", *(("fork", "vfork") if machine == "x86_64" else ())):
        assert ask(profile, machine, call, may_fork=False) == "EPERM"
    assert ask(profile, machine, "clone", CHILD, may_fork=False) == "EPERM"
    assert ask(profile, machine, "clone", THREAD, may_fork=False) == "allow"
    assert ask(profile, machine, "clone", THREAD | NEW_USER, may_fork=False) == "EPERM"


@pytest.mark.parametrize(("call", "at"), [("chmod", 1), ("open", 2), ("creat", 1), ("mknod", 1), ("mkdir", 1)])
def test_the_old_names_of_calls_are_judged_alike(call: str, at: int) -> None:
    for mode, expected in ((0o755, "allow"), (0o4755, "EPERM"), (0o2755, "EPERM")):
        assert ask("standard", "x86_64", call, *[0] * at, mode) == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_that_nobody_has_looked_at_is_unknown(machine: str) -> None:
    assert ask("standard", machine, NEWEST) == "allow"
    assert ask("standard", machine, NEWEST + 1) == "ENOSYS"
    assert ask("standard", machine, 0x4000_0000 + 59) == "ENOSYS"  # execve as x32 numbers it


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_for_another_architecture_ends_the_process(machine: str) -> None:
    as_i386 = struct.pack("=IIQ6Q", 11, 0x4000_0003, 0, *([0] * 6))
    assert answer(program("standard", PID, machine), as_i386) == "kill"


def test_an_architecture_without_a_table_is_not_supported() -> None:
    with pytest.raises(Unsupported, match="x86_64 and aarch64"):
        program("strict", PID, "riscv64")


def test_a_program_brings_its_loader(tmp_path: Path) -> None:
    shell = str(Path("/bin/sh").resolve())
    path, loader = files_to_execute(shell)
    assert path == shell
    assert Path(loader).name.startswith("ld-")
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert list(files_to_execute(str(script))) == [str(script)]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("profile", ["spawn", "strict"])
def test_egress_permits_tcp_sockets_and_nothing_else(profile: Profile, machine: str) -> None:
    code = program(profile, PID, machine, may_connect=True)

    def ask_with_egress(call: str, *arguments: int) -> str:
        padded = (*arguments, *([0] * (6 - len(arguments))))
        return answer(code, struct.pack("=IIQ6Q", number(call, machine), audit_architecture(machine) or 0, 0, *padded))

    flags = 0o2004000  # SOCK_CLOEXEC, SOCK_NONBLOCK
    for arguments in [(2, 1), (10, 1), (2, 1 | flags, 6), (10, 1 | flags, 6)]:
        assert ask_with_egress("socket", *arguments) == "allow"
    for arguments in [
        (2, 2),
        (10, 2),
        (2, 3),
        (2, 1, 262),
        (2, 1, 132),
        (2, 5),
        (1, 1),
        (1, 2),
        (16, 3),
        (17, 3),
        (40, 1),
    ]:
        assert ask_with_egress("socket", *arguments) == "EPERM"
    assert ask_with_egress("connect") == "allow"
    assert ask_with_egress("bind") == ask_with_egress("shmget") == ask_with_egress("mq_open") == "EPERM"
    assert program("standard", PID, machine, may_connect=True) == program("standard", PID, machine)
