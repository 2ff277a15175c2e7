"""The lock beside a configuration: the definition of each tool, pinned by digest, and the class a person accepted."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from manglecp.base.digest import digest, digest_text
from manglecp.base.files import replace_file
from manglecp.base.json import Uncanonical
from manglecp.base.text import find_invisible_in
from manglecp.guard.frames import find_variant
from manglecp.guard.host_config import GuardError

ToolClass: TypeAlias = Literal["read", "open_read", "write", "destructive", "unknown"]
CLASSES: Final[tuple[str, ...]] = get_args(ToolClass)
"""The later ones are stricter."""
FILE: Final = "manglecp.lock"
_MEMBERS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_UNPINNED: Final = frozenset({"icons", "execution"})
"""Images, and whether calls can be tasks, which servers of both eras list in one of them."""
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME: Final = 64


class PinnedTool(msgspec.Struct, frozen=True):
    """A tool as a person accepted it."""

    tool_class: ToolClass = msgspec.field(name="class")
    digest: str
    definition: dict[str, Any]


Servers: TypeAlias = dict[str, dict[str, PinnedTool]]


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    version: Literal[1] = 1
    configurations: dict[str, Servers] = {}
    instructions: dict[str, dict[str, str]] = {}


class Lock:
    """The pins of one configuration. Configurations in the same folder share the file."""

    def __init__(self, config: Path) -> None:
        """Read the lock; without a file, nothing is pinned. Raises :class:`GuardError` for an invalid one."""
        self.path = config.with_name(FILE)
        self.config = config.name
        self._document = _Document()
        try:
            self._document = msgspec.json.decode(self.path.read_bytes(), type=_Document)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise GuardError(f"{self.path}: {error.strerror}") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise GuardError(f"{self.path}: {error}") from None
        self.servers = self._document.configurations.get(self.config, {})
        self.instructions = self._document.instructions.get(self.config, {})
        """The texts that servers send when a host connects, by server."""
        for server, tools in self.servers.items():
            for name, tool in tools.items():
                if definition_digest(tool.definition) != tool.digest or tool.definition.get("name") != name:
                    raise GuardError(f"{self.path}: {server}.{name}: the definition does not have the pinned digest")
        qualified_names(self.servers)

    def write(self, servers: Servers, instructions: dict[str, str]) -> None:
        """Replace the pins of the configuration. Raises OSError, and :class:`GuardError` for names that collide."""
        qualified_names(servers)
        self.servers, self.instructions = servers, instructions
        self._document.configurations[self.config] = servers
        self._document.instructions[self.config] = instructions
        content = msgspec.json.format(msgspec.json.encode(self._document, order="sorted"), indent=2)
        replace_file(self.path, [content, b"\n"], 0o644)


def qualified_names(servers: Mapping[str, Mapping[str, object]]) -> dict[str, tuple[str, str]]:
    """Return the server and the name of each tool by its name in rules. Raises :class:`GuardError` for a collision."""
    names: dict[str, tuple[str, str]] = {}
    for server, tools in servers.items():
        for tool in tools:
            name = qualified_name(server, tool)
            if name in names:
                raise GuardError(f"{server}.{tool} and {'.'.join(names[name])} have the same name in rules: {name}")
            names[name] = server, tool
    return names


def qualified_name(server: str, tool: str) -> str:
    """Return the name of a tool in rules: ``SERVER__TOOL``, or with a digest where that is no name."""
    name = f"{server}__{tool}"
    if len(name) <= _MAX_NAME and _OTHER.search(name) is None:
        return name
    return f"{_OTHER.sub('_', name)[: _MAX_NAME - 9]}-{digest_text(name)[-8:]}"


def definition_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a listed tool that are pinned: all that a host may show to a model."""
    return {name: value for name, value in tool.items() if name not in _UNPINNED}


def parameters(definition: Mapping[str, Any]) -> Collection[str]:
    """Return the names of the parameters that a definition declares."""
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else ()


def definition_digest(definition: Mapping[str, Any]) -> str:
    """Return the digest of a definition; an empty text if it has no canonical form."""
    try:
        return digest(dict(definition))
    except Uncanonical:
        return ""


def find_flaw(tool: Mapping[str, Any]) -> str | None:
    """Return why a listed tool cannot be pinned, or None."""
    definition = definition_of(tool)
    name = definition.get("name")
    if not isinstance(name, str) or not name:
        return "it has no name"
    if (variant := find_variant(tool, _MEMBERS)) is not None:
        return variant
    if (invisible := find_invisible_in(definition)) is not None:
        return f"its definition has the invisible character {invisible[1]} at {invisible[0]}"
    return None if definition_digest(definition) else "its definition has no canonical form"


def propose_class(definition: Mapping[str, Any]) -> ToolClass:
    """Return the class that the annotations state, with the defaults of MCP; ``unknown`` without annotations."""
    annotations = definition.get("annotations")
    if not isinstance(annotations, dict) or not any(isinstance(annotations.get(hint), bool) for hint in _HINTS):
        return "unknown"
    if annotations.get("readOnlyHint") is True:
        return "read" if annotations.get("openWorldHint") is False else "open_read"
    return "write" if annotations.get("destructiveHint") is False else "destructive"


def pin(
    tools: Sequence[Mapping[str, Any]], before: Mapping[str, PinnedTool]
) -> tuple[dict[str, PinnedTool], list[str]]:
    """Return the pins of the tools that a server lists, and why others cannot be pinned.

    A class that a person set stays, but for a stricter one that the changed annotations propose.
    """
    pins: dict[str, PinnedTool] = {}
    problems: list[str] = []
    counts = Counter(repr(tool.get("name")) for tool in tools)
    for tool in tools:
        definition = definition_of(tool)
        name = definition.get("name")
        flaw = find_flaw(tool) if counts[repr(name)] == 1 else "two tools of the server have this name"
        if flaw is not None:
            problems.append(f"{name if isinstance(name, str) else '-'}: {flaw}")
            continue
        old, tool_class = before.get(str(name)), propose_class(definition)
        if old is not None and old.tool_class != (old_proposal := propose_class(old.definition)):
            is_same = old_proposal == tool_class
            tool_class = old.tool_class if is_same else max(old.tool_class, tool_class, key=CLASSES.index)
        pins[str(name)] = PinnedTool(tool_class, definition_digest(definition), definition)
    return pins, list(dict.fromkeys(problems))


def changes(before: Mapping[str, PinnedTool | str], after: Mapping[str, PinnedTool | str]) -> Iterator[str]:
    """Yield a unified diff of the definitions or texts that differ."""
    for name in sorted({*before, *after}):
        old, new = (_lines(pins.get(name)) for pins in (before, after))
        if old != new:
            yield from difflib.unified_diff(old, new, f"{name} (pinned)", f"{name} (listed)", lineterm="", n=2)


def _lines(tool: PinnedTool | str | None) -> list[str]:
    if tool is None or isinstance(tool, str):
        return [] if tool is None else tool.split("\n")
    text = json.dumps(tool.definition, indent=1, sort_keys=True, ensure_ascii=False)
    return [f"class: {tool.tool_class}", *text.split("\n")]
