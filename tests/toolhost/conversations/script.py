"""Scripts and casts, as they are read from their files.

A *conversation* starts a host with ``arguments``. In list and run mode it has one ``request`` (or ``stdin``, raw text)
and one ``expect``; in serve mode it has ``step``s. Every string may hold ``<role.member>`` of the cast, ``<plugin>``,
``<any>`` (the first listed AID) or something that an earlier step captured. A string that is nothing but one of these
becomes its value, whatever its type.

A *cast* says which tool plays which role. A conversation whose roles nobody plays is left out, and said to be.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["SCRIPTS", "Cast", "Conversation", "Step", "conversations", "filled", "read_cast"]

SCRIPTS: Final = Path(__file__).parent / "scripts"
_NAME: Final = re.compile(r"<([a-z_]+(?:\.[a-z_]+)?)>")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One line to a serving host, and its answer."""

    send: Any = None
    line: str | None = None
    hex: str | None = None
    pad: int = 0
    """Bytes that the line is filled up to with spaces."""
    repeat: int = 1
    """How often the line is sent, all of them before the first answer is read; ``<n>`` counts."""
    unterminated: bool = False
    """The line has no newline, and the input ends after it."""
    wait: float = 0.0
    """Seconds before it is sent: what is waited for is the clock of the host."""
    expect: Mapping[str, Any] = field(default_factory=dict)
    capture: Mapping[str, str] = field(default_factory=dict)
    """Names for parts of the answer, as dotted paths."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One life of a host."""

    name: str
    arguments: tuple[str, ...]
    rows: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    ours: bool = False
    leases: bool = False
    """The host is started with what makes it issue leases on the pipe."""
    environ: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    request: Any = None
    stdin: str = ""
    pad: int = 0
    end: str = "empty line"
    exit: int = 0
    expect: Mapping[str, Any] | None = None
    stderr: str = "anything"
    script: str = ""

    @property
    def serves(self) -> bool:
        """Whether it is a conversation of lines."""
        return self.arguments[:1] == ("--serve",) and self.exit == 0


@dataclass(frozen=True)
class Cast:
    """Who plays which role, and how this host is told to issue leases."""

    roles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lease_options: tuple[str, ...] = ()

    def plays(self, conversation: Conversation) -> bool:
        """Whether all roles are taken."""
        return all(role in self.roles for role in conversation.needs)


def conversations() -> list[Conversation]:
    """All of them, in the order of files and lines."""
    return [
        _conversation(file.stem, table)
        for file in sorted(SCRIPTS.glob("*.toml"))
        for table in tomllib.loads(file.read_text("utf-8"))["conversation"]
    ]


def read_cast(file: Path) -> Cast:
    """A cast from its file."""
    roles = tomllib.loads(file.read_text("utf-8"))
    options = roles.pop("host", {}).get("lease_options", [])
    return Cast(roles, tuple(options))


def filled(value: Any, names: Mapping[str, Any]) -> Any:
    """The value with its names replaced."""
    if isinstance(value, dict):
        return {filled(name, names): filled(member, names) for name, member in value.items()}
    if isinstance(value, list):
        return [filled(member, names) for member in value]
    if not isinstance(value, str):
        return value
    whole = _NAME.fullmatch(value)
    if whole is not None:
        return names[whole[1]]
    return _NAME.sub(lambda found: str(names[found[1]]), value)


def _conversation(script: str, table: dict[str, Any]) -> Conversation:
    steps = tuple(Step(**step) for step in table.pop("step", []))
    for name in ("arguments", "rows", "needs"):
        table[name] = tuple(table.get(name, ()))
    return Conversation(script=script, steps=steps, **table)
