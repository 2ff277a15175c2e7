"""The policy of a sandbox, and the result of applying it."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Profile = Literal["none", "standard", "spawn", "strict"]

Mechanism = Literal[
    "user",
    "user_namespace",
    "pid_namespace",
    "network_namespace",
    "egress",
    "mount_namespace",
    "capabilities",
    "no_new_privs",
    "landlock_files",
    "landlock_scopes",
    "undumpable",
    "limits",
    "process_limit",
    "seccomp",
]

_NAMESPACES = (
    "set the sysctls user.max_pid_namespaces and user.max_user_namespaces above 0, and where they exist"
    " kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0"
)
_IN_CONTAINER = "; in a container, run with --security-opt seccomp=unconfined, or with --cap-add SYS_ADMIN"
_LANDLOCK = "add landlock to the kernel parameter lsm="
REMEDIES: Mapping[Mechanism, str] = {
    "user_namespace": f"{_NAMESPACES}; root also needs CAP_SETFCAP",
    "pid_namespace": _NAMESPACES,
    "network_namespace": _NAMESPACES + _IN_CONTAINER,
    "egress": "see network_namespace; an IPv6 address needs the sysctl net.ipv6.conf.all.disable_ipv6=0",
    "mount_namespace": f"{_NAMESPACES}{_IN_CONTAINER}; needs Linux 5.12",
    "landlock_files": f"use Linux 6.2 or newer, and {_LANDLOCK}",
    "landlock_scopes": f"use Linux 6.12 or newer, and {_LANDLOCK}",
    "process_limit": "run as another user than root",
    "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64",
}
"""The flags and kernel settings that make a mechanism available."""
MiB = 1 << 20


class Policy(NamedTuple):
    """The resources of a host, the process that is sandboxed. All paths are absolute and exist."""

    workspace: tuple[str, ...] = ()
    """Folders that may be read and written: the only writable places."""
    readable: tuple[str, ...] = ()
    """Files and folders that may be read besides the interpreter and the libraries: the plugin, its data."""
    executables: tuple[str, ...] = ()
    """Programs that profile `spawn` may start. A script needs its interpreter listed as well."""
    user: tuple[int, int] | None = None
    """User id and group id to become first, which only root can do. The kernel does not limit the processes of root."""
    memory: int = 2048 * MiB
    """Address space of each process, in bytes."""
    file_size: int = 256 * MiB
    """Bytes of one file."""
    open_files: int = 256
    processes: int = 64
    """Processes and threads of the host together; limited only in `spawn` and `strict`."""
    cpu_seconds: int | None = None
    """CPU time of each process over its life. None: no limit; the dispatcher enforces the deadline of a call."""
    temporary: int = 1024 * MiB
    """Bytes in the temporary folder, which is held in memory."""
    code: tuple[str, ...] = ()
    """Files and folders of the plugin. They may be read, and never written, not even in a workspace."""
    egress: tuple[str, ...] = ()
    """Destinations `HOST:PORT` that `spawn` and `strict` may connect to, in canonical form."""
    broker: int = -1
    """The descriptor of the broker of these destinations, over which it gets the listening sockets."""
    may_fork: bool = True
    """Whether `standard` and `spawn` may create processes and start programs; `strict` never may."""


class Enforcement(NamedTuple):
    """The sandbox as it was applied: the active mechanisms, and the missing ones with reasons."""

    profile: Profile
    active_mechanisms: tuple[Mechanism, ...]
    missing_mechanisms: Mapping[Mechanism, str]
    temporary: str | None = None
    """A writable folder of this host alone, which is removed with the host."""

    @property
    def complete(self) -> bool:
        return not self.missing_mechanisms


class SandboxUnavailable(RuntimeError):
    """The kernel cannot enforce the profile. The process may be partly confined: it must exit."""

    def __init__(self, enforcement: Enforcement) -> None:
        self.enforcement = enforcement
        reasons = "; ".join(f"{mechanism}: {reason}" for mechanism, reason in enforcement.missing_mechanisms.items())
        profile = f"sandbox profile {enforcement.profile!r}"
        super().__init__(f"{profile} cannot be enforced here ({reasons}); --degrade continues without them")


class PathClosed(ValueError):
    """The host's user has no access to a path of the policy: an error of the caller, not of the kernel."""


class Unsupported(Exception):
    """A mechanism is unavailable; the text is the reason."""
