"""An empty network namespace, a private temporary folder and a read-only disk.

Root with CAP_SYS_ADMIN creates these namespaces directly. Other users first create a user namespace with themselves as
the only user, which lets them create the other namespaces. A user namespace also counts its processes separately, so
that a limit on processes concerns this host and not all processes of the user.
"""

import os
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress

from .kernel import Buffer, address, c_buffer, c_string, call
from .policy import REMEDIES, Unsupported
from .shielding import NO_SHIELD, Shield

_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWNET = 0x4000_0000
_MS_NOSUID_NODEV_NOEXEC = 0xE
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 0x4_0000
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 0x1
_MOUNT_ATTR_NOSUID = 0x2
_MOUNT_ATTR_NODEV = 0x4
_MOUNT_ATTR_NOEXEC = 0x8
_DATA_ONLY = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | _MOUNT_ATTR_NOEXEC  # no programs and no devices
_CAP_NET_BIND_SERVICE = 10
_CAP_NET_ADMIN = 12
_CAP_SYS_ADMIN = 21
_MAX_FILES = 200_000  # in the temporary folder


def may_create(*, network: bool = False) -> bool:
    """Return whether this process may create namespaces, and set up a ``network``, without a user namespace."""
    with open("/proc/self/status") as file:  # noqa: PTH123  # pathlib would be the slowest import of a host
        (effective,) = (line.split()[1] for line in file if line.startswith("CapEff:"))
    needed = (_CAP_SYS_ADMIN, *((_CAP_NET_ADMIN, _CAP_NET_BIND_SERVICE) if network else ()))
    return os.geteuid() == 0 and all(int(effective, 16) >> capability & 1 for capability in needed)


def enter_user_namespace() -> None:
    """Enter a user namespace as the same user and group, with all capabilities inside. Raises :class:`Unsupported`."""
    user, group = os.geteuid(), os.getegid()
    try:
        call("unshare", _CLONE_NEWUSER)
        _write("/proc/self/setgroups", "deny")  # without this the kernel refuses a gid_map of an unprivileged process
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    except OSError as error:
        raise Unsupported(f"{error}; {REMEDIES['user_namespace']}") from error


def leave_network() -> None:
    """Enter an empty network namespace: not even the loopback device is up."""
    call("unshare", _CLONE_NEWNET)


def enter_mount_namespace(temporary: str, size: int, *, own_processes: bool) -> None:
    """Enter a private copy of all mounts, with an empty file system of at most ``size`` bytes at ``temporary``.

    No other process can reach that file system, and the kernel drops it with the last process of the namespace. With
    ``own_processes``, /proc shows only the processes of the PID namespace; where parts of /proc are hidden, as in many
    containers, the kernel refuses such a mount, and /proc stays as it is.
    """
    call("unshare", _CLONE_NEWNS)
    root = c_string("/")
    call("mount", 0, address(root), 0, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", temporary, f"size={size},nr_inodes={_MAX_FILES},mode=0700")
    if own_processes:
        with suppress(OSError):
            _mount("proc", "/proc")


def _mount(filesystem: str, folder: str, options: str = "") -> None:
    name, target, data = c_string(filesystem), c_string(folder), c_string(options)
    call("mount", address(name), address(target), address(name), _MS_NOSUID_NODEV_NOEXEC, address(data))


def replace_files(files: Mapping[str, str], folder: str) -> None:
    """Mount files with this content over the paths; ``folder`` is a temporary folder of the mount namespace."""
    for path, content in files.items():
        source = f"{folder}/network-file"
        _write(source, content, os.O_CREAT | os.O_EXCL)
        address_of_source, target = c_string(source), c_string(path)
        call("mount", address(address_of_source), address(target), 0, _MS_BIND)
        os.unlink(source)  # noqa: PTH108  # pathlib would be the slowest import of a host


def make_disk_read_only(writable: Iterable[str], shield: Shield = NO_SHIELD) -> None:
    """Make every mount read-only except the given folders without their shielded parts.

    Landlock does not handle changes of mode, owner, times and extended attributes; a read-only mount refuses them.
    Writable mounts are noexec, which also refuses to map a file as code, so that no loader can run a written file.
    """
    root = c_string("/")
    writable_paths = [c_string(folder) for folder in (*writable, *shield.mount_points)]
    for path in (*writable_paths, *map(c_string, shield.read_only)):
        call("mount", address(path), address(path), 0, _MS_BIND | _MS_REC)  # makes the path a mount of its own
    _set_mount_attributes(root, attributes=_MOUNT_ATTR_RDONLY, flags=_AT_RECURSIVE)
    for path in writable_paths:
        _set_mount_attributes(path, attributes=_DATA_ONLY, clear=_MOUNT_ATTR_RDONLY)
    # Re-enter the working folder: the process is still in the folder below the new mount, which is read-only.
    try:
        os.chdir(os.getcwd())  # noqa: PTH109  # pathlib would be the slowest import of a host
    except OSError:  # the user that root became may not enter it
        os.chdir("/")


def _set_mount_attributes(path: Buffer, *, attributes: int, clear: int = 0, flags: int = 0) -> None:
    change = c_buffer(struct.pack("=QQQQ", attributes, clear, 0, 0))  # propagation and user namespace stay
    call("mount_setattr", _AT_FDCWD, address(path), flags, address(change), len(change))


def _write(path: str, content: str, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o644)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)
