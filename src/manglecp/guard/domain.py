"""The domain of a guard: the starter policy and the developer's rules, over the tools of the lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Final

from manglecp.base.digest import digest
from manglecp.base.source import Source, Trust
from manglecp.guard.host_config import GuardError
from manglecp.guard.lock import PinnedTool, Servers, ToolClass, parameters, qualified_names
from manglecp.intent import Domain
from manglecp.mangle import Fact, ParseError, parse
from manglecp.pack import ActionDescription, DomainSettings, Pack, Settings

STARTER: Final = "starter.mg"
_EFFECTS: Final[Mapping[ToolClass, str]] = {
    "read": "none",
    "open_read": "network",
    "write": "x-write",
    # Not "destructive": for that effect, the kernel demands an approval even of tools that the rules exempt.
    "destructive": "x-destructive",
    "unknown": "x-unknown",
}


def load_guard_domain(config: Path, servers: Servers, rules: Path | None) -> Domain:
    """Return the domain of the pinned tools. Its digest covers the configuration, the pins, the classes and the rules.

    Raises :class:`.PackError` if the rules are invalid, :class:`.GuardError` if their folder is empty or unreadable.
    """
    sources = [Source(STARTER, (files(__package__) / STARTER).read_text("utf-8"), Trust.POLICY), *_read_rules(rules)]
    names = qualified_names(servers)
    tools = {name: servers[server][tool_name] for name, (server, tool_name) in names.items()}
    content = {
        "configuration": str(config),
        "tools": {name: [tool.digest, tool.tool_class] for name, tool in tools.items()},
        "rules": [[source.name, source.text] for source in sources],
    }
    pack = Pack(
        settings=Settings(name="guard", domain=DomainSettings(id="guard"), permissions=_roles(sources)),
        sources=tuple(sources),
        actions={name: _describe(name, tool) for name, tool in tools.items()},
        digest=digest(content),
    )
    facts = [Fact("tool_class", (name, tool.tool_class)) for name, tool in tools.items()]
    facts += [Fact("tool_of", (name, server, tool_name)) for name, (server, tool_name) in names.items()]
    return Domain.load(pack, facts=facts)


def _read_rules(folder: Path | None) -> list[Source]:
    paths = [] if folder is None else sorted(folder.rglob("*.mg"))
    if folder is not None and not paths:
        raise GuardError(f"{folder}: no file with rules, *.mg")
    try:
        return [Source(str(path.relative_to(folder or path)), path.read_text("utf-8"), Trust.POLICY) for path in paths]
    except (OSError, UnicodeDecodeError) as error:
        raise GuardError(f"{folder}: {error}") from None


def _roles(sources: Sequence[Source]) -> tuple[str, ...]:
    """Return the roles of approvers that rules name: a guard has no pack.toml that declares them."""
    heads = []
    for source in sources:
        with suppress(ParseError):  # Domain.load reports it
            heads += [clause.head for clause in parse(source).clauses]
    roles = [head.args[1] for head in heads if head.key == ("needs_approval", 2)]
    return tuple(sorted({role for role in roles if isinstance(role, str)}))


def _describe(name: str, tool: PinnedTool) -> ActionDescription:
    description = tool.definition.get("description")
    return ActionDescription(
        name=name,
        aid=name,
        description=description if isinstance(description, str) else "",
        input_schema={"type": "object", "properties": {param: {} for param in parameters(tool.definition)}},
        output_schema={},
        effects=(_EFFECTS[tool.tool_class],),
        mutates=tool.tool_class not in ("read", "open_read"),
    )
