"""Landlock: which files may be used, and which processes a signal reaches.

A ruleset lists the access rights that it handles; these are refused except below paths for which rules grant them. The
kernel checks the file that is really opened, so symbolic links, `..` and `/proc/self/root` do not help, and a file
cannot be linked or moved to a place where more is allowed.
"""

import os
import stat
import struct
from collections.abc import Iterable, Iterator

from .kernel import address, c_buffer, call
from .policy import Unsupported

_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_REMOVE_DIR = 1 << 4
_REMOVE_FILE = 1 << 5
_MAKE_DIR = 1 << 7
_MAKE_REG = 1 << 8
_MAKE_FIFO = 1 << 10
_MAKE_SYM = 1 << 12
_REFER = 1 << 13  # ABI 2
_TRUNCATE = 1 << 14  # ABI 3
_IOCTL_DEV = 1 << 15  # ABI 5
_ALL_OF_ABI_3 = (1 << 15) - 1

READ = _READ_FILE | _READ_DIR
EXECUTE = _EXECUTE | _READ_FILE
USE_DEVICE = _READ_FILE | _WRITE_FILE
# The rights of a workspace. Not among them: to make devices or sockets, and to execute what was written.
_MAKE = _MAKE_DIR | _MAKE_REG | _MAKE_FIFO | _MAKE_SYM
WRITE = READ | _WRITE_FILE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE | _REFER
EVERYTHING_BUT_WRITE = READ | _EXECUTE | _IOCTL_DEV
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

_SCOPE_ABSTRACT_SOCKETS = 1 << 0
_SCOPE_SIGNALS = 1 << 1

_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

Rule = tuple[str, int]  # a path, and the rights that are granted below it


def version() -> int:
    """Return the ABI version of Landlock in this kernel; raises OSError if it has none."""
    return call("landlock_create_ruleset", 0, 0, _CREATE_RULESET_VERSION)


def restrict_files(rules: Iterable[Rule]) -> None:
    """Allow only the access that rules grant. Before ABI 3 a file could be truncated without the right to write it."""
    abi = version()
    if abi < 3:
        raise Unsupported(f"Landlock ABI {abi}, 3 is needed (Linux 6.2)")
    _restrict(_ALL_OF_ABI_3 | (_IOCTL_DEV if abi >= 5 else 0), 0, rules)


def restrict_scopes() -> None:
    """Limit signals and abstract sockets to this process and its children (a Landlock domain)."""
    abi = version()
    if abi < 6:
        raise Unsupported(f"Landlock ABI {abi}, 6 is needed (Linux 6.12)")
    # A ruleset that does not grant _REFER forbids moving files between folders, so this one grants it everywhere.
    _restrict(_REFER, _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS, [("/", _REFER)])


def _restrict(handled: int, scopes: int, rules: Iterable[Rule]) -> None:
    # Rights on files, rights on the network (none: a namespace removes it), scopes. Old kernels accept only the first.
    attributes = c_buffer(struct.pack("=QQQ", handled, 0, scopes) if scopes else struct.pack("=Q", handled))
    ruleset = call("landlock_create_ruleset", address(attributes), len(attributes), 0)
    try:
        for path, rights in rules:
            _allow(ruleset, path, rights & handled)
        call("landlock_restrict_self", ruleset)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS  # the kernel refuses the rights of folders for other files
        rule = c_buffer(struct.pack("=Qi", rights, descriptor))
        call("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, address(rule), 0)
    finally:
        os.close(descriptor)


_ELF_HEADER_BYTES = 64
_PROGRAM_HEADER_BYTES = 56
_PT_INTERP = 3  # the segment with the path of the loader


def files_to_execute(path: str) -> Iterator[str]:
    """Yield the files that the kernel executes to start a program: its own, and its dynamic loader if it has one."""
    yield path
    loader = _loader(path)
    if loader:
        yield loader


def _loader(path: str) -> str | None:
    """Return the loader of a dynamically linked 64-bit program; None for other files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        header = os.pread(descriptor, _ELF_HEADER_BYTES, 0)
        if len(header) < _ELF_HEADER_BYTES or header[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
            return None
        (table,) = struct.unpack_from("<Q", header, 32)  # e_phoff: where the program headers begin
        entry_size, count = struct.unpack_from("<HH", header, 54)  # e_phentsize, e_phnum
        for index in range(count):
            entry = os.pread(descriptor, _PROGRAM_HEADER_BYTES, table + index * entry_size)
            segment_type, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", entry)
            if segment_type == _PT_INTERP:
                return os.fsdecode(os.pread(descriptor, length, offset).rstrip(b"\0"))
        return None
    finally:
        os.close(descriptor)
