"""The configuration in which an MCP host lists its servers, and its entries with a relay in front of each server."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from manglecp.base.files import replace_file
from manglecp.wire import Fault, decode

_SECTIONS: Final = (("mcpServers",), ("servers",), ("mcp", "servers"))
"""Where hosts list servers: Claude and Cursor, mcp.json of VS Code, its settings.json."""
_RELAY: Final = ("guard", "relay", "--config")
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_TEXT: Final = r'("(?:\\.|[^"\\])*")'
_COMMENT: Final = re.compile(_TEXT + r"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA: Final = re.compile(_TEXT + r"|,(?=\s*[}\]])")
_GAP: Final = re.compile(r"[\s,:]*")
_decoder: Final = json.JSONDecoder()
_MAX_BYTES: Final = 16_777_216


class GuardError(Exception):
    """A configuration, a lock or a server that the guard cannot use."""


class RelayOptions(NamedTuple):
    """The options of the relays of a configuration."""

    rules: Path | None = None
    enforce: bool = False


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server that the host starts as a process."""

    name: str
    command: tuple[str, ...]
    """Of the server itself, also if a relay stands in front of it."""
    env: Mapping[str, str]
    cwd: str | None
    env_file: str | None
    """A file with more variables, which only the host reads."""
    relay: RelayOptions | None
    """None if the host starts the server without a relay."""

    def expanded(self) -> ServerEntry:
        """Return the entry with the values of environment variables. Raises :class:`GuardError` for other variables."""
        if self.env_file is not None:
            raise GuardError(f"{self.name}: only the host reads its envFile; write NAME=${{env:NAME}} in env instead")
        env = {name: self._expand(value) for name, value in self.env.items()}
        command = tuple(map(self._expand, self.command))
        return replace(self, command=command, env=env, cwd=self.cwd and self._expand(self.cwd))

    def _expand(self, text: str) -> str:
        expanded = _VARIABLE.sub(lambda found: os.environ.get(found[1], found[2] or found[0]), text)
        if (start := expanded.find("${")) >= 0:
            variable = expanded[start : expanded.find("}", start) + 1] or "${"  # the rest of the text may be a secret
            raise GuardError(
                f"{self.name}: only the host can replace the variable {variable}; write ${{env:NAME}}, "
                "and set NAME where the host and manglecp run"
            )
        return expanded


class HostConfig:
    """A configuration file as it was read."""

    def __init__(self, path: Path) -> None:
        """Read a file. Raises :class:`GuardError` for one without servers."""
        self.path = path.resolve()
        try:
            if self.path.stat().st_size > _MAX_BYTES:
                raise GuardError(f"{path}: the file has more than {_MAX_BYTES:,} bytes")
            self.text = self.path.read_bytes().decode()
            self._json = _blank_comments(self.text)
            document = decode(self._json.encode())
        except (OSError, UnicodeDecodeError) as error:
            raise GuardError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
        except Fault as fault:
            raise GuardError(f"{path}: {fault.message}") from None
        self._document: Any = document
        """Without relays."""
        projects = _member(document, ("projects",))
        self.projects = [
            folder
            for folder, project in (projects.items() if isinstance(projects, dict) else ())
            if _member(project, ("mcpServers",))
        ]
        """The folders for which Claude Code has servers of the scope local, which are not guarded."""
        found = next((keys for keys in _SECTIONS if isinstance(_member(document, keys), dict)), None)
        if found is None:
            hint = "; those of a project have to be in its .mcp.json (scope project)" if self.projects else ""
            raise GuardError(f'{path}: no servers; expected an object "mcpServers" (Claude, Cursor) or "servers"{hint}')
        self._keys = found
        self._commands: dict[str, list[str]] = {}
        """As they are in the file."""
        self.entries: dict[str, ServerEntry] = {}
        self.remote: list[str] = []
        """The names of servers that the host reaches by a URL, which are not guarded."""
        for name, entry in _member(document, found).items():
            if isinstance(entry, dict) and isinstance(entry.get("command"), str):
                self.entries[name] = self._read_entry(name, entry)
            elif isinstance(entry, dict) and "url" in entry:
                self.remote.append(name)
            else:
                raise GuardError(f"{path}: {name}: neither a command nor a url")

    def _read_entry(self, name: str, entry: dict[str, Any]) -> ServerEntry:
        args, env = entry.get("args", []), entry.get("env", {})
        if not (isinstance(args, list) and all(isinstance(arg, str) for arg in args)):
            raise GuardError(f"{self.path}: {name}: args is not a list of texts")
        if not isinstance(env, dict):
            raise GuardError(f"{self.path}: {name}: env is not an object")
        if not isinstance(entry.get("cwd"), str | None):
            raise GuardError(f"{self.path}: {name}: cwd is not a text")
        self._commands[name] = [entry["command"], *args]
        command, relay = unwrap(self._commands[name])
        if not command:
            raise GuardError(f"{self.path}: {name}: the relay has no server; `manglecp guard remove` restores nothing")
        entry |= {"command": command[0], "args": command[1:]}
        texts = {key: str(value) for key, value in env.items() if value is not None}
        return ServerEntry(name, tuple(command), texts, entry.get("cwd"), entry.get("envFile"), relay)

    def render(self, relays: Mapping[str, RelayOptions | None]) -> tuple[str, list[str]]:
        """Return the text of the file with these relays, and the changes; None removes the relay of a server.

        The changes are those of commands, because environment variables may be secrets.
        """
        changes: list[str] = []
        edits: list[tuple[int, int, str]] = []
        section = _find_members(self._json, self._keys)
        for name, options in relays.items():
            entry, before = self.entries[name], self._commands[name]
            command = list(entry.command) if options is None else self._relay_command(entry, options)
            if command == before:
                continue
            changes += [f"{name}:", f"- {shlex.join(before)}", f"+ {shlex.join(command)}"]
            members = _members(self._json, section[name][0])
            (start, end), program, args = members["command"], *(_json_text(part) for part in (command[0], command[1:]))
            if "args" in members:
                edits.append((*members["args"], args))
            else:
                program += f', "args": {args}'
            edits.append((start, end, program))
        text = self.text
        for start, end, new in sorted(edits, reverse=True):
            text = text[:start] + new + text[end:]
        if not any(relays.get(name, entry.relay) for name, entry in self.entries.items()):
            with suppress(GuardError):  # there is no backup
                backup = HostConfig(self._backup)
                if backup._document == self._document:
                    text = backup.text
        return text, changes

    def write(self, text: str) -> Path | None:
        """Replace the file; return the backup that was made if no server had a relay before. Raises OSError."""
        backup = None
        if not any(entry.relay for entry in self.entries.values()):
            backup = self._backup
            shutil.copy2(self.path, backup)
        replace_file(self.path, [text.encode()], self.path.stat().st_mode & 0o777)
        return backup

    @property
    def _backup(self) -> Path:
        return self.path.with_name(f"{self.path.name}.before-guard")

    def _relay_command(self, entry: ServerEntry, options: RelayOptions) -> list[str]:
        # PYTHONPATH in the entry, and the folder in which the host starts the relay, may have other modules.
        launcher = [sys.executable, "-E", "-P", "-m", "manglecp"]
        rules = [] if options.rules is None else ["--rules", str(options.rules.resolve())]
        enforce = ["--enforce"] if options.enforce else []
        return [*launcher, *_RELAY, str(self.path), *rules, *enforce, "--", entry.name, *entry.command]


def unwrap(command: Sequence[str]) -> tuple[list[str], RelayOptions | None]:
    """Return the command of the server and the options of the relay in front of it; None if there is no relay."""
    if "--" not in command:
        return list(command), None
    end = command.index("--")
    own = list(command[:end])
    starts = [index for index in range(1, end) if tuple(own[index : index + len(_RELAY)]) == _RELAY]
    if not starts:
        return list(command), None
    options = own[starts[0] :]
    rules = Path(options[options.index("--rules") + 1]) if "--rules" in options else None
    return list(command[end + 2 :]), RelayOptions(rules, "--enforce" in options)


def _blank_comments(text: str) -> str:
    """Return the text with blanks for comments and last commas, which VS Code permits; positions stay the same."""
    for pattern in (_COMMENT, _LAST_COMMA):
        text = pattern.sub(lambda found: found[1] or " " * len(found[0]), text)
    return text


def _members(text: str, start: int) -> dict[str, tuple[int, int]]:
    """Return the start and end of the value of each member of the object at ``start`` in a valid JSON text."""
    members: dict[str, tuple[int, int]] = {}
    position = start + 1
    while text[position := _skip_gap(text, position)] != "}":
        name, end = _decoder.raw_decode(text, position)
        position = _skip_gap(text, end)
        _, end = _decoder.raw_decode(text, position)
        members[name] = position, end
        position = end
    return members


def _find_members(text: str, keys: Sequence[str]) -> dict[str, tuple[int, int]]:
    members = _members(text, _skip_gap(text, 0))
    for key in keys:
        members = _members(text, members[key][0])
    return members


def _skip_gap(text: str, position: int) -> int:
    found = _GAP.match(text, position)
    return position if found is None else found.end()


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _member(document: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document
