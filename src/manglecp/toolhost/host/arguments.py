"""The command line of a host.

Positions are the contract's: a mode, a plugin, perhaps an AID. Options are ours and may stand anywhere, because
dispatch appends them. The number of positions is checked here; the contract wants their content checked after the
plugin.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple, cast

TYPE_CHECKING = False  # as typing has it; only a confined host loads the sandbox
if TYPE_CHECKING:
    from manglecp.toolhost.sandbox import Profile

USAGE: Final = (
    "usage: manglecp toolhost --list PLUGIN | --run PLUGIN AID | --serve PLUGIN\n"
    "       [--sandbox none|standard|spawn|strict [--workspace PATH]... [--read-only]\n"
    "        [--writable PATH]... [--readable PATH]... [--executable PATH]... [--user UID:GID]\n"
    "        [--limit NAME=N]... [--degrade]]\n"
    "       [--sha256 HEX] [--lease-key-fd N] [--progress-fd N] [--pipe-leases] [--parent PID]\n"
)
_ONCE: Final = ("--lease-key-fd", "--progress-fd", "--sha256", "--sandbox", "--user", "--parent")
_REPEATED: Final = ("--workspace", "--writable", "--readable", "--executable", "--limit")
_FLAGS: Final = ("--pipe-leases", "--degrade", "--read-only")
_ONLY_CONFINED: Final = (*_REPEATED, "--user", "--degrade", "--read-only")
_LIMITS: Final = ("memory", "file_size", "open_files", "processes", "cpu_seconds", "temporary")
_PROFILES: Final = ("none", "standard", "spawn", "strict")
_KEY_SIZE: Final = 32
_DIGITS: Final = 19  # fewer make a number that the kernel can hold
_STANDARD_ERROR: Final = 2


class Usage(Exception):
    """An invalid command line."""


class Confinement(NamedTuple):
    """The sandbox options. Paths are absolute."""

    profile: Profile
    workspace: tuple[str, ...]
    """The host works in the first."""
    writable: tuple[str, ...]
    readable: tuple[str, ...]
    executables: tuple[str, ...]
    user: tuple[int, int] | None
    degrade: bool
    limits: tuple[tuple[str, int], ...] = ()
    """Overrides of fields of the sandbox policy."""
    read_only: bool = False
    """Whether workspaces are read, and not written."""


class Arguments(NamedTuple):
    positions: list[str]
    sha256: str | None
    progress: int | None
    lease_key: bytes | None
    pipe_leases: bool
    confinement: Confinement
    parent: int | None = None


def read(argv: list[str]) -> Arguments:
    """Parse the command line and read the lease key; raises :class:`Usage`."""
    positions: list[str] = []
    given: dict[str, list[str]] = {}
    rest = iter(argv)
    for word in rest:
        if word in _FLAGS:
            given[word] = []
        elif word in _ONCE or word in _REPEATED:
            value = next(rest, None)
            if value is None:
                raise Usage(f"{word} needs a value")
            if word in _ONCE and word in given:
                raise Usage(f"{word} is given twice")
            given.setdefault(word, []).append(value)
        elif positions and word.startswith("--"):  # the first position is the mode, also if it is unknown
            raise Usage(f"unknown option: {word}")
        else:
            positions.append(word)
    if len(positions) < 2:
        raise Usage("a mode and a plugin are needed")
    confinement = _confinement(given)
    return Arguments(
        positions,
        given.get("--sha256", [None])[0],
        _descriptor(given, "--progress-fd"),
        _key(_descriptor(given, "--lease-key-fd")),
        "--pipe-leases" in given,
        confinement,
        _parent(given.get("--parent", [None])[0]),
    )


def _confinement(given: dict[str, list[str]]) -> Confinement:
    profile = given.get("--sandbox", ["none"])[0]
    if profile not in _PROFILES:
        raise Usage(f"--sandbox: {profile} is not one of {', '.join(_PROFILES)}")
    if profile == "none" and (idle := [option for option in _ONLY_CONFINED if option in given]):
        raise Usage(f"{idle[0]} needs a sandbox: give --sandbox")
    if profile != "spawn" and "--executable" in given:
        raise Usage("--executable: only the profile spawn starts programs")
    return Confinement(
        cast("Profile", profile),
        _paths(given, "--workspace"),
        _paths(given, "--writable"),
        _paths(given, "--readable"),
        _paths(given, "--executable"),
        _user(given.get("--user", [None])[0]),
        "--degrade" in given,
        tuple(dict(map(_limit, given.get("--limit", []))).items()),
        "--read-only" in given,
    )


def _paths(given: dict[str, list[str]], option: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(os.path.abspath, given.get(option, []))))


def _user(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    user, _, group = text.partition(":")
    if not (user.isdecimal() and group.isdecimal()):
        raise Usage(f"--user: {text} is not UID:GID")
    return int(user), int(group)


def _limit(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    field = name.replace("-", "_")
    if field not in _LIMITS:
        raise Usage(f"--limit: {name} is not one of {', '.join(_LIMITS).replace('_', '-')}")
    if not (value.isdecimal() and value.isascii() and 0 < len(value) < _DIGITS and int(value)):
        raise Usage(f"--limit: {text} is not NAME=N with a positive whole number")
    return field, int(value)


def _parent(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isdecimal() and text.isascii() and len(text) < _DIGITS):
        raise Usage(f"--parent: {text} is not a process")
    return int(text)


def _descriptor(given: dict[str, list[str]], option: str) -> int | None:
    text = given.get(option, [None])[0]
    if text is None:
        return None
    try:
        number = int(text)
        os.fstat(number)
    except (ValueError, OSError, OverflowError):
        raise Usage(f"{option}: {text} is not an open descriptor") from None
    if number <= _STANDARD_ERROR:
        raise Usage(f"{option}: {text} is a standard stream")
    return number


def _key(descriptor: int | None) -> bytes | None:
    """Read the lease key, before any code of the plugin runs.

    The writer may keep its end open; surplus bytes are detected if they are there already.
    """
    if descriptor is None:
        return None
    key = b""
    try:
        while len(key) < _KEY_SIZE and (chunk := os.read(descriptor, _KEY_SIZE + 1 - len(key))):
            key += chunk
        os.close(descriptor)
    except OSError as error:
        raise Usage(f"--lease-key-fd: {error.strerror}") from None
    if len(key) != _KEY_SIZE:
        raise Usage(f"--lease-key-fd: a key has {_KEY_SIZE} bytes")
    return key
