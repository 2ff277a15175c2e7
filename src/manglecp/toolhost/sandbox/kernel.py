"""System calls by name, through ctypes: a failed call raises an `OSError` that names it.

The table has only the calls that the sandbox makes or filters. Numbers from 424 on are the same on every architecture.
"""

import ctypes
import os
from typing import TypeAlias

from .policy import Unsupported

# Name, number on x86_64, number on aarch64 (- where the architecture never had the call); sorted down the columns.
_TABLE = """
    acct 163 89                 io_uring_setup 425 425            msgrcv 70 188                semop 65 193
    add_key 248 217             ioctl 16 29                       msgsnd 69 189                semtimedop 220 192
    bind 49 200                 ioperm 173 -                      name_to_handle_at 303 264    setdomainname 171 162
    bpf 321 280                 iopl 172 -                        nfsservctl 180 42            setfsgid 123 152
    capset 126 91               ioprio_set 251 30                 open 2 -                     setfsuid 122 151
    chmod 90 -                  kcmp 312 272                      open_by_handle_at 304 265    setgid 106 144
    chroot 161 51               kexec_file_load 320 294           open_tree 428 428            setgroups 116 159
    clock_adjtime 305 266       kexec_load 246 104                open_tree_attr 467 467       sethostname 170 161
    clock_settime 227 112       keyctl 250 219                    openat 257 56                setns 308 268
    clone 56 220                kill 62 129                       openat2 437 437              setpgid 109 154
    clone3 435 435              landlock_add_rule 445 445         perf_event_open 298 241      setpriority 141 140
    connect 42 203              landlock_create_ruleset 444 444   personality 135 92           setregid 114 143
    creat 85 -                  landlock_restrict_self 446 446    pidfd_getfd 438 438          setresgid 119 149
    delete_module 176 106       lgetxattr 192 9                   pidfd_send_signal 424 424    setresuid 117 147
    execve 59 221               listxattr 194 11                  pivot_root 155 41            setreuid 113 145
    execveat 322 281            listxattrat 465 465               prctl 157 167                setsid 112 157
    fanotify_init 300 262       llistxattr 195 12                 prlimit64 302 261            settimeofday 164 170
    fanotify_mark 301 263       lookup_dcookie 212 18             process_madvise 440 440      setuid 105 146
    fchmod 91 52                memfd_create 319 279              process_vm_readv 310 270     shmat 30 196
    fchmodat 268 53             memfd_secret 447 447              process_vm_writev 311 271    shmctl 31 195
    fchmodat2 452 452           migrate_pages 256 238             ptrace 101 117               shmget 29 194
    fcntl 72 25                 mkdir 83 -                        quotactl 179 60              socket 41 198
    finit_module 313 273        mkdirat 258 34                    quotactl_fd 443 443          socketpair 53 199
    fork 57 -                   mknod 133 -                       reboot 169 142               swapoff 168 225
    fsconfig 431 431            mknodat 259 33                    request_key 249 218          swapon 167 224
    fsmount 432 432             modify_ldt 154 -                  rt_sigqueueinfo 129 138      syslog 103 116
    fsopen 430 430              mount 165 40                      rt_tgsigqueueinfo 297 240    tgkill 234 131
    fspick 433 433              mount_setattr 442 442             sched_setaffinity 203 122    tkill 200 130
    getxattr 191 8              move_mount 429 429                sched_setattr 314 274        umount2 166 39
    getxattrat 464 464          move_pages 279 239                sched_setparam 142 118       unshare 272 97
    init_module 175 105         mq_open 240 180                   sched_setscheduler 144 119   userfaultfd 323 282
    inotify_add_watch 254 27    mq_unlink 241 181                 seccomp 317 277              vfork 58 -
    io_uring_enter 426 426      msgctl 71 187                     semctl 66 191                vhangup 153 58
    io_uring_register 427 427   msgget 68 186                     semget 64 190
"""
_WORDS = _TABLE.split()
_NUMBERS = {
    name: (int(x86_64), None if aarch64 == "-" else int(aarch64))
    for name, x86_64, aarch64 in zip(_WORDS[::3], _WORDS[1::3], _WORDS[2::3], strict=True)
}

NEWEST = 469  # the highest number that was reviewed for the lists of :mod:`.seccomp` (`file_setattr`, Linux 6.17)

_COLUMNS = {"x86_64": 0, "aarch64": 1}  # indexes into the values of _NUMBERS
_AUDIT_ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}


def number(name: str, machine: str | None = None) -> int | None:
    """Return the number of a call; None if the architecture lacks the call, or is not in the table."""
    column = _COLUMNS.get(machine or os.uname().machine)
    return None if column is None else _NUMBERS[name][column]


def audit_architecture(machine: str | None = None) -> int | None:
    """Return the audit constant by which seccomp identifies an architecture; None if it is not in the table."""
    return _AUDIT_ARCHITECTURES.get(machine or os.uname().machine)


Buffer: TypeAlias = "ctypes.Array[ctypes.c_char]"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.syscall.argtypes = [ctypes.c_long] * 7


def call(name: str, *arguments: int) -> int:
    """Make a system call by name; raises OSError. Pointers are passed as addresses of buffers that are kept alive."""
    call_number = number(name)
    if call_number is None:
        raise Unsupported(f"no system call {name} on {os.uname().machine}")
    padded = (*arguments, *([0] * (6 - len(arguments))))  # a system call has six arguments
    result: int = _libc.syscall(call_number, *padded)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def prctl(option: int, value: int = 0) -> None:
    call("prctl", option, value)


def address(buffer: Buffer) -> int:
    """Return the address of a buffer, which the caller has to keep alive."""
    return ctypes.addressof(buffer)


def c_string(text: str) -> Buffer:
    """Return a buffer with the text, encoded as a path, and a NUL."""
    return ctypes.create_string_buffer(os.fsencode(text))


def c_buffer(content: bytes) -> Buffer:
    """Return a buffer with exactly these bytes."""
    return ctypes.create_string_buffer(content, len(content))
