"""The configuration files of MCP hosts: JSON with an object of servers by name."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from manglecp.base.files import replace_file
from manglecp.wire import Fault, decode


class HostConfig(NamedTuple):
    """Where a host has its servers, for a user and for a project; ``project`` is None if it has only the former."""

    user: Callable[[], Path]
    project: str | None
    key: str
    entry: Mapping[str, Any] = {}


def _application_folder(name: str) -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / name
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / name


HOSTS: Final[Mapping[str, HostConfig]] = {
    "claude-code": HostConfig(lambda: Path.home() / ".claude.json", ".mcp.json", "mcpServers", {"type": "stdio"}),
    "claude-desktop": HostConfig(
        lambda: _application_folder("Claude") / "claude_desktop_config.json", None, "mcpServers"
    ),
    "cursor": HostConfig(lambda: Path.home() / ".cursor" / "mcp.json", ".cursor/mcp.json", "mcpServers"),
    "vscode": HostConfig(
        lambda: _application_folder("Code") / "User" / "mcp.json", ".vscode/mcp.json", "servers", {"type": "stdio"}
    ),
}


@dataclass(frozen=True, slots=True)
class Installation:
    """A planned change of one configuration file."""

    path: Path
    before: str
    after: str

    @property
    def is_unchanged(self) -> bool:
        return self.before == self.after

    @property
    def difference(self) -> str:
        """The change, as a unified diff."""
        lines = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), str(self.path), str(self.path), lineterm=""
        )
        return "\n".join(lines)

    def write(self) -> None:
        """Replace the file atomically, with its permissions; a link stays one. Raises ValueError if it changed."""
        path = self.path.resolve()
        if _read(path) != self.before:
            raise ValueError(f"{self.path} was changed meanwhile; repeat the command")
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        replace_file(path, [self.after.encode()], mode)


def plan_installation(
    host: str, name: str, command: Sequence[str], options: Sequence[str] = (), *, folder: Path | None = None
) -> Installation:
    """Return the change that adds an entry which starts ``command``, for the user or for a project's folder.

    An entry of the same command keeps its other members and, unless there are ``options``, its further arguments.
    Raises ValueError if the file is no JSON object, has another entry of this name, or the host has no configuration
    for projects.
    """
    config = HOSTS[host]
    if folder is not None and config.project is None:
        raise ValueError(f"{host} has no configuration for a project; leave --project out")
    path = config.user() if folder is None else folder / str(config.project)
    before, arguments = _read(path), list(command[1:])
    entry = {**config.entry, "command": command[0], "args": [*arguments, *options]}
    remedy = f"add the entry to {config.key} by hand: {json.dumps({name: entry})}"
    try:
        document: Any = decode(before.strip().encode() or b"{}")
    except Fault as fault:
        raise ValueError(f"{path}: {fault}; {remedy}") from None
    servers = document.setdefault(config.key, {}) if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise ValueError(f"{path} has no object {config.key}; {remedy}")
    previous = servers.get(name)
    if previous:
        former = previous.get("args") if isinstance(previous, dict) else None
        if not isinstance(former, list) or former[: len(arguments)] != arguments:
            raise ValueError(f"{path} has another server {name}; remove it, or pass --name")
        entry = {**previous, **entry, "args": [*arguments, *(options or former[len(arguments) :])]}
    if previous == entry:
        return Installation(path, before, before)
    servers[name] = entry
    return Installation(path, before, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
