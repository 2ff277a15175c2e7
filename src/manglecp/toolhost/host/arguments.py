"""The command line of a host.

The positional arguments are those of the IPC contract: a mode, a plugin, perhaps an action id; or ``tool_exec`` and an
action id, as the dispatch of the C++ toolhost starts a host. The options are not in the contract and may stand
anywhere. Only the number of positional arguments is checked here: by the contract, an error of the plugin is reported
before one of the mode or the action id.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple, cast

TYPE_CHECKING = False  # type checkers assume True; a host that is not sandboxed does not load the sandbox
if TYPE_CHECKING:
    from manglecp.toolhost.sandbox import Profile

USAGE: Final = (
    "usage: manglecp toolhost --list PLUGIN | --run PLUGIN AID | --serve PLUGIN | tool_exec AID\n"
    "       [--sandbox none|standard|spawn|strict [--workspace PATH]... [--read-only] [--no-processes]\n"
    "        [--writable PATH]... [--readable PATH]... [--executable PATH]... [--user UID:GID]\n"
    "        [--limit NAME=N]... [--degrade] [--egress HOST:PORT]... [--private HOST:PORT]... [--egress-fd N]]\n"
    "       [--sha256 HEX] [--lease-key-fd N] [--progress-fd N] [--pipe-leases] [--parent PID]\n"
    "       [--ignore-extra-inputs] [--concurrent] [--packages FOLDER] [--start-secrets]\n"
)
_SINGLE: Final = (
    "--lease-key-fd", "--progress-fd", "--sha256", "--sandbox", "--user", "--parent", "--packages", "--egress-fd",
)  # fmt: skip
_REPEATABLE: Final = ("--workspace", "--writable", "--readable", "--executable", "--limit", "--egress", "--private")
_FLAGS: Final = (
    "--pipe-leases", "--ignore-extra-inputs", "--degrade", "--read-only", "--no-processes", "--concurrent",
    "--start-secrets",
)  # fmt: skip
_NEED_SANDBOX: Final = (*_REPEATABLE, "--egress-fd", "--user", "--degrade", "--read-only", "--no-processes")
_LIMITS: Final = ("memory", "file_size", "open_files", "processes", "cpu_seconds", "temporary")
_PROFILES: Final = ("none", "standard", "spawn", "strict")
_PLUGIN_VARIABLE: Final = "MANGLECP_TOOLHOST_PLUGIN"  # the plugin of tool_exec, whose command line names no plugin
_EXTRA_INPUTS_VARIABLE: Final = "MANGLECP_TOOLHOST_IGNORE_EXTRA_INPUTS"  # a C++ runner passes no options
KEY_BYTES: Final = 32
_TOO_MANY_DIGITS: Final = 19  # a number with fewer digits fits into 63 bits
_STANDARD_ERROR: Final = 2


class UsageError(Exception):
    """An invalid command line."""


class Confinement(NamedTuple):
    """The sandbox options. Paths are absolute."""

    profile: Profile
    workspace: tuple[str, ...]
    """The first is the working directory of the host."""
    writable: tuple[str, ...]
    readable: tuple[str, ...]
    executables: tuple[str, ...]
    user: tuple[int, int] | None
    """User id and group id to become."""
    degrade: bool
    """Whether to start without the mechanisms that the kernel does not support."""
    limits: tuple[tuple[str, int], ...] = ()
    """Fields of the sandbox policy, and their values."""
    read_only: bool = False
    """Whether workspaces can only be read."""
    may_fork: bool = True
    """Whether processes can be created and programs started, if the profile permits it."""
    egress: tuple[str, ...] = ()
    """Destinations to which connections are allowed."""
    private: tuple[str, ...] = ()
    """Destinations that may have a private address."""
    egress_fd: int | None = None
    """The descriptor over which dispatch announces calls to the broker, and gets reports of connections."""


class Arguments(NamedTuple):
    positionals: list[str]
    """The mode, the plugin, and what follows: in run mode an action id."""
    sha256: str | None
    """The expected digest of the plugin."""
    progress_fd: int | None
    lease_key: bytes | None
    pipe_leases: bool
    """Whether leases may be requested on standard input."""
    confinement: Confinement
    parent: int | None = None
    """The id of the process with which the host ends."""
    ignore_extra_inputs: bool = False
    """Whether to drop inputs that an action has no parameter for."""
    concurrent: bool = False
    """Whether serve mode works on several calls at the same time."""
    packages: str | None = None
    """The virtual environment whose packages the plugin can import."""
    start_secrets: bool = False
    """Whether the first line of standard input has the secrets of the lifespan: a JSON object of values by name."""


def parse_arguments(argv: list[str]) -> Arguments:
    """Parse the command line and read the lease key; raises :class:`UsageError`."""
    positionals: list[str] = []
    options: dict[str, list[str]] = {}  # values by option
    words = iter(argv)
    for word in words:
        if word in _FLAGS:
            options[word] = []
        elif word in _SINGLE or word in _REPEATABLE:
            value = next(words, None)
            if value is None:
                raise UsageError(f"{word} needs a value")
            if word in _SINGLE and word in options:
                raise UsageError(f"{word} is given twice")
            options.setdefault(word, []).append(value)
        elif positionals and word.startswith("--"):  # the first positional is the mode, also if it is unknown
            raise UsageError(f"unknown option: {word}")
        else:
            positionals.append(word)
    if positionals[:1] == ["tool_exec"]:
        if not os.environ.get(_PLUGIN_VARIABLE):
            raise UsageError(f"tool_exec needs a plugin: set {_PLUGIN_VARIABLE}")
        positionals.insert(1, os.environ[_PLUGIN_VARIABLE])
    if len(positionals) < 2:
        raise UsageError("a mode and a plugin are needed")
    parent = _value(options, "--parent")
    return Arguments(
        positionals,
        _value(options, "--sha256"),
        _parse_descriptor(options, "--progress-fd"),
        _read_key(_parse_descriptor(options, "--lease-key-fd")),
        "--pipe-leases" in options,
        _parse_confinement(options),
        None if parent is None else _parse_number(parent, f"--parent: {parent} is not a process"),
        "--ignore-extra-inputs" in options or os.environ.get(_EXTRA_INPUTS_VARIABLE) in ("1", "true"),
        "--concurrent" in options,
        _value(options, "--packages"),
        "--start-secrets" in options,
    )


def _value(options: dict[str, list[str]], option: str) -> str | None:
    return options[option][0] if option in options else None


def _parse_confinement(options: dict[str, list[str]]) -> Confinement:
    profile = options.get("--sandbox", ["none"])[0]
    if profile not in _PROFILES:
        raise UsageError(f"--sandbox: {profile} is not one of {', '.join(_PROFILES)}")
    if profile == "none" and (misplaced := [option for option in _NEED_SANDBOX if option in options]):
        raise UsageError(f"{misplaced[0]} needs a sandbox: give --sandbox")
    if profile != "spawn" and "--executable" in options:
        raise UsageError("--executable: only the profile spawn starts programs")
    if profile == "standard" and "--egress" in options:
        raise UsageError("--egress: the profile standard permits every destination")
    return Confinement(
        cast("Profile", profile),
        _parse_paths(options, "--workspace"),
        _parse_paths(options, "--writable"),
        _parse_paths(options, "--readable"),
        _parse_paths(options, "--executable"),
        _parse_user(_value(options, "--user")),
        "--degrade" in options,
        tuple(dict(map(_parse_limit, options.get("--limit", []))).items()),  # the last value of a repeated limit counts
        "--read-only" in options,
        "--no-processes" not in options,
        _parse_destinations(options, "--egress"),
        _parse_destinations(options, "--private"),
        _parse_descriptor(options, "--egress-fd"),
    )


def _parse_destinations(options: dict[str, list[str]], option: str) -> tuple[str, ...]:
    if option not in options:
        return ()
    from manglecp.base.destination import canonical_destinations  # a host without egress does not load it

    try:
        return canonical_destinations(options[option])
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _parse_paths(options: dict[str, list[str]], option: str) -> tuple[str, ...]:
    """Return the absolute paths of an option, without repetition."""
    return tuple(dict.fromkeys(map(os.path.abspath, options.get(option, []))))


def _parse_user(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    user, _, group = text.partition(":")
    problem = f"--user: {text} is not UID:GID"
    return _parse_number(user, problem), _parse_number(group, problem)


def _parse_limit(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    field = name.replace("-", "_")
    if field not in _LIMITS:
        raise UsageError(f"--limit: {name} is not one of {', '.join(_LIMITS).replace('_', '-')}")
    problem = f"--limit: {text} is not NAME=N with a positive whole number"
    if number := _parse_number(value, problem):
        return field, number
    raise UsageError(problem)


def _parse_number(text: str, problem: str) -> int:
    """Return a whole number. Raises :class:`UsageError` with the text ``problem``."""
    if not (text.isdecimal() and text.isascii() and len(text) < _TOO_MANY_DIGITS):
        raise UsageError(problem)
    return int(text)


def _parse_descriptor(options: dict[str, list[str]], option: str) -> int | None:
    text = _value(options, option)
    if text is None:
        return None
    try:
        number = int(text)
        os.fstat(number)
    except (ValueError, OSError, OverflowError):
        raise UsageError(f"{option}: {text} is not an open descriptor") from None
    if number <= _STANDARD_ERROR:
        raise UsageError(f"{option}: {text} is a standard stream")
    return number


def _read_key(descriptor: int | None) -> bytes | None:
    """Read the lease key, before any code of the plugin runs.

    The writer may keep its end open, so the end of the pipe is not awaited: a key that is too long is refused only if
    its surplus can be read already.
    """
    if descriptor is None:
        return None
    key = b""
    try:
        while len(key) < KEY_BYTES and (chunk := os.read(descriptor, KEY_BYTES + 1 - len(key))):
            key += chunk
        os.close(descriptor)
    except OSError as error:
        raise UsageError(f"--lease-key-fd: {error.strerror}") from None
    if len(key) != KEY_BYTES:
        raise UsageError(f"--lease-key-fd: a key has {KEY_BYTES} bytes")
    return key
