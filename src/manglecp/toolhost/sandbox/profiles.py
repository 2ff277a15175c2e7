"""The four profiles: which mechanisms, in which order.

    none      nothing; for plugins that are as trusted as the operator
    standard  network, programs and files are available, but only the workspace is writable, and privileges never grow
    strict    no network, no programs, no files but the interpreter, the libraries, the plugin and the workspace
    spawn     as strict, but the named programs can be started; they are confined as the host is

In `standard` and `spawn`, which permit processes, the host is contained: it gets a supervisor and a PID namespace.

The order follows from dependencies: namespaces need capabilities, Landlock and seccomp need no_new_privs, and seccomp
comes last because it refuses system calls that the other steps make.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from . import containment, landlock, namespaces, privileges, seccomp
from .landlock import files_to_execute
from .policy import Enforcement, Mechanism, PathClosed, Policy, Profile, SandboxUnavailable, Unsupported
from .shielding import PACKAGE, Shield, find_shield, prefixes, within

PROFILES: tuple[Profile, ...] = ("none", "standard", "spawn", "strict")
CONTAINED: tuple[Profile, ...] = ("standard", "spawn")

# What an interpreter reads late: libraries, time zones, randomness. No configuration, no user or host names.
_LIBRARIES = (
    "/lib /lib64 /usr/lib /usr/lib64 /usr/local/lib /usr/share/zoneinfo /etc/ld.so.cache /etc/localtime"
    " /dev/urandom /dev/zero"
)

# The temporary folder is mounted over the first of these that contains no path of the policy.
_TEMPORARY_PLACES = ("/dev/shm", "/var/tmp", "/mnt", "/media")

# Mechanisms that `strict` uses where available, but does not need: it has no children, seccomp filters its signals, and
# its threads are bounded by the memory of their stacks.
_OPTIONAL: tuple[Mechanism, ...] = ("landlock_scopes", "process_limit")

_Step = tuple[Mechanism, Callable[[], None]]


def apply(profile: Profile, policy: Policy | None = None, *, degrade: bool = False) -> Enforcement:
    """Confine this process for good, and return the applied sandbox.

    Raises :class:`SandboxUnavailable` if a mechanism is missing; with `degrade` the result lists it instead. Call it
    before there are threads: some mechanisms confine only the calling thread. With a contained profile it returns in a
    descendant of the calling process; the calling process waits for the descendant, and exits as the descendant does.
    """
    if profile not in PROFILES:
        raise ValueError(f"unknown sandbox profile {profile!r}")
    if profile == "none":
        return Enforcement("none", (), {})
    policy = policy or Policy()
    _check_policy(policy)
    shield = find_shield(policy)
    if profile == "standard":  # this profile leaves the disk as it is mounted
        _refuse_shielded_paths(shield)
    active: list[Mechanism] = []
    missing: dict[Mechanism, str] = {}
    temporary: list[str] = []  # the steps append the temporary folders that they create
    for mechanism, step in _steps(profile, policy, shield, active, temporary):
        try:
            step()
        except (OSError, Unsupported) as error:
            if profile != "strict" or mechanism not in _OPTIONAL:
                missing[mechanism] = str(error)
        else:
            active.append(mechanism)
    enforcement = Enforcement(profile, tuple(active), missing, temporary[-1] if temporary else None)
    _check_access(policy)
    if missing and not degrade:
        raise SandboxUnavailable(enforcement)
    if "mount_namespace" in missing:
        _refuse_shielded_paths(shield)
    return enforcement


def measure(profile: Profile = "spawn", policy: Policy | None = None) -> Enforcement:
    """Return what :func:`apply` would return here with `degrade`, as measured in a child process."""
    # A new interpreter, not a fork: some libraries start threads in every fork.
    import subprocess  # slow to import, and only needed here

    import_root = os.path.abspath(__file__).removesuffix(__name__.replace(".", os.sep) + ".py")  # noqa: PTH100
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import {__name__} as m; m._measure_child(sys.argv[2])"
    argument = json.dumps([profile, policy or Policy()])
    command = [sys.executable, "-I", "-S", "-c", code, import_root, argument]
    completed = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    answer = json.loads(completed.stdout) if completed.stdout else "it was killed"
    if isinstance(answer, str):
        raise RuntimeError(f"the measurement of the sandbox ended without an answer: {answer}")
    active, missing = answer
    return Enforcement(profile, tuple(active), missing)


def _measure_child(argument: str) -> None:
    profile, fields = json.loads(argument)
    policy = Policy._make(tuple(value) if isinstance(value, list) else value for value in fields)
    try:
        if policy.egress:
            import socket

            _broker, host = socket.socketpair()
            policy = policy._replace(broker=host.detach())
        enforcement = apply(profile, policy, degrade=True)
        answer: object = [enforcement.active_mechanisms, dict(enforcement.missing_mechanisms)]
    except BaseException as error:
        answer = f"{type(error).__name__}: {error}"
    os.write(1, json.dumps(answer).encode())
    os._exit(0)  # a regular exit makes calls that the sandbox forbids


def _steps(
    profile: Profile, policy: Policy, shield: Shield, active: Sequence[Mechanism], temporary: list[str]
) -> Iterator[_Step]:
    """Yield each mechanism with its step, which runs before the next is yielded; some steps append to ``temporary``.

    ``active`` are the mechanisms whose steps have succeeded so far.
    """
    isolated = profile != "standard"  # without network, and with a read-only disk

    def contain() -> None:
        try:
            containment.contain()
        except containment.Uncontained as error:
            temporary.append(error.temporary)
            raise

    def listen() -> None:
        if "network_namespace" not in active:  # this would change the loopback device of the machine
            os.close(policy.broker)
            raise Unsupported("needs a network namespace")
        egress.open_listeners(policy.egress, policy.broker)

    def restrict_files() -> None:
        rules = list(_file_rules(profile, policy, temporary[-1:]))
        if "egress" in active:
            paths = (*egress.READABLE, *egress.network_files(policy.egress))
            rules += [(path, landlock.READ) for path in _existing(paths)]
        landlock.restrict_files(rules)

    def mount() -> None:
        folder = _temporary_folder(policy)
        namespaces.enter_mount_namespace(folder, policy.temporary, own_processes="pid_namespace" in active)
        if "egress" in active:
            namespaces.replace_files(egress.network_files(policy.egress), folder)
        if isolated:
            namespaces.make_disk_read_only((*policy.workspace, folder), shield)
        temporary.append(folder)

    if policy.egress:
        from . import egress  # loads the socket library, which other hosts do without
    if policy.user is not None:
        user, group = policy.user
        yield "user", lambda: privileges.become(user, group)
    if not namespaces.may_create(network=bool(policy.egress)):
        yield "user_namespace", namespaces.enter_user_namespace
    if profile in CONTAINED:
        yield "pid_namespace", contain
    if isolated:
        yield "network_namespace", namespaces.leave_network
        if policy.egress:
            yield "egress", listen
    yield "mount_namespace", mount
    yield "capabilities", privileges.drop_capabilities
    yield "no_new_privs", privileges.refuse_new_privileges
    yield "landlock_files", restrict_files
    if isolated:
        yield "landlock_scopes", landlock.restrict_scopes
    yield "undumpable", privileges.refuse_dumps
    yield "limits", lambda: privileges.limit_resources(policy)
    if isolated:
        yield "process_limit", lambda: privileges.limit_processes(policy)
    yield "seccomp", lambda: seccomp.restrict_calls(profile, os.getpid(), policy.may_fork, "egress" in active)


def _temporary_folder(policy: Policy) -> str:
    """Return the folder over which the temporary one is mounted; the mount hides the files in it."""
    used = (*policy.workspace, *policy.readable, *policy.executables, *policy.code, *prefixes(), PACKAGE)
    for folder in map(os.path.realpath, _TEMPORARY_PLACES):
        if os.access(folder, os.F_OK) and not any(within(os.path.realpath(path), folder) for path in used):
            return folder
    raise Unsupported(f"no place for a temporary folder: none of {', '.join(_TEMPORARY_PLACES)} is there and unused")


def _file_rules(profile: Profile, policy: Policy, temporary: Iterable[str]) -> Iterator[landlock.Rule]:
    yield "/dev/null", landlock.USE_DEVICE
    for path in (*policy.workspace, *temporary):
        yield path, landlock.WRITE
    if profile == "standard":
        yield "/", landlock.EVERYTHING_BUT_WRITE
        return
    for path in (*_interpreter_paths(), *policy.readable, *policy.code):
        yield path, landlock.READ
    if profile == "spawn":
        for program in policy.executables:
            for path in files_to_execute(program):
                yield path, landlock.EXECUTE


def _interpreter_paths() -> Iterator[str]:
    """Yield what late imports read: the standard library, installed packages, shared libraries, this package."""
    python = [f"{prefix}/{folder}" for prefix in prefixes() for folder in dict.fromkeys(("lib", sys.platlibdir))]
    yield from _existing(dict.fromkeys([*python, *_LIBRARIES.split(), PACKAGE]))


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if os.access(path, os.F_OK)]


def _check_policy(policy: Policy) -> None:
    """Raise for errors of the caller, which must not be mistaken for mechanisms that the kernel refuses."""
    for path in (*policy.workspace, *policy.readable, *policy.executables, *policy.code):
        if not path.startswith("/"):
            raise ValueError(f"not an absolute path: {path!r}")
        folder_flag = os.O_DIRECTORY if path in policy.workspace else 0
        os.close(os.open(path, os.O_PATH | os.O_CLOEXEC | folder_flag))  # raises OSError if it is missing
    if any(os.path.realpath(path) == "/" for path in policy.workspace):
        raise ValueError("the whole disk cannot be a workspace")
    with os.scandir("/proc/self/task") as threads:
        if len(list(threads)) != 1:
            raise RuntimeError("the sandbox has to be applied before there are threads")


def _refuse_shielded_paths(shield: Shield) -> None:
    """Raise ValueError if a path has to be shielded."""
    if shield.read_only:
        path = shield.read_only[0]
        raise ValueError(f"{path!r} lies in a workspace and cannot be shielded there without a mount namespace")


def _check_access(policy: Policy) -> None:
    """Raise :class:`PathClosed` for a path that this process lost access to, with its capabilities or its user."""
    required = (
        (policy.workspace, os.R_OK | os.W_OK | os.X_OK, "read and written"),
        ((*policy.code, *policy.readable), os.R_OK, "read"),
        (policy.executables, os.X_OK, "executed"),
    )
    for paths, rights, what in required:
        for path in paths:
            if not os.access(path, rights):
                raise PathClosed(f"{path!r} cannot be {what} by user {os.geteuid()} without privileges")
