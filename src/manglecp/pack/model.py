"""A pack as it was read: its settings, its texts, and the descriptions of its Python files. Immutable.

Nothing of it was run in this process: rules are text that was not analysed yet, Python files were described by a host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from manglecp.base.diagnostic import Diagnostic
from manglecp.harness.policy import PolicyPackage
from manglecp.mangle import Source
from manglecp.pack.governance import default_governance
from manglecp.pack.settings import (
    Settings,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillText:
    """A skill with its whole text."""

    skill_id: str
    name: str
    description: str
    content: str
    content_type: str = "text/markdown"
    resources: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionDescription:
    """An action as its host lists it. ``name`` is what rules call it."""

    name: str
    aid: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    effects: tuple[str, ...] = ("none",)
    tier: int = 0
    mutates: bool = True
    reversible: bool = False
    idempotent: bool = False
    timeout: float | None = None
    spawn: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalDescription:
    """An external predicate as ``externals.py`` declares it: ``@external("similar(Text, Count, Id)", mode="++-")``."""

    predicate: str
    arity: int
    mode: str
    description: str = ""
    deterministic: bool = True
    seconds: float = 5.0
    arguments: tuple[str, ...] = ()
    """What its declaration calls them."""
    aid: str = ""
    """The action that answers it in its host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorDescription:
    """A function of ``facts.py`` that gives facts: ``@facts("file", "symbol", every=1)``."""

    name: str
    aid: str
    predicates: tuple[str, ...]
    description: str = ""
    every: float = 5.0
    """Seconds between the end of a pass and the next."""
    seconds: float = 60.0
    """How long a pass may take."""
    changes: bool = False
    """Does only the first pass of a process give everything?"""
    settings: tuple[str, ...] = ()
    """The params that it takes."""
    cache: bool = False
    spawn: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """Everything that a folder holds."""

    settings: Settings
    sources: tuple[Source, ...]
    """Rule files; names are paths relative to the pack, trust comes from the folder."""
    fact_files: tuple[str, ...] = ()
    """Absolute paths of base facts, in the order of their names."""
    fact_digests: Mapping[str, str] = field(default_factory=dict)
    """By path, the SHA-256 of the bytes that the digest covers; the fact reader refuses any others."""
    skills: Mapping[str, SkillText] = field(default_factory=dict)
    actions: Mapping[str, ActionDescription] = field(default_factory=dict)
    """By the name of their function."""
    externals: Mapping[str, ExternalDescription] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    """The values of the settings' params."""
    governance: PolicyPackage = field(default_factory=default_governance)
    """The policies of its invocations: those in ``governance/``, or those that ship with manglecp. Where the settings
    pin a digest, it is the one of this package."""
    digest: str = ""
    """SHA-256 over name, content, params and policies: another digest is another pack."""
    folder: str = ""
    actions_file: str | None = None
    """Absolute path of the plugin that its actions are, and the hash of what was described."""
    plugin_sha256: str | None = None
    externals_file: str | None = None
    externals_sha256: str | None = None
    generators: Mapping[str, GeneratorDescription] = field(default_factory=dict)
    """What gives facts while the pack is served, by the name of its function."""
    generators_file: str | None = None
    generators_sha256: str | None = None
    warnings: tuple[Diagnostic, ...] = ()

    @property
    def name(self) -> str:
        """What ``pack.toml`` calls it."""
        return self.settings.name

    @property
    def readable(self) -> tuple[str, ...]:
        """The folders that were named for its hosts to read, absolute."""
        return self._folders(writable=False)

    @property
    def writable(self) -> tuple[str, ...]:
        """The folders that were named for its actions to write, absolute. What only looks may read them."""
        return self._folders(writable=True)

    def _folders(self, *, writable: bool) -> tuple[str, ...]:
        named = (param.name for param in self.settings.params if param.kind == "folder" and param.writable is writable)
        return tuple(dict.fromkeys(self.params[name] for name in named if self.params.get(name)))
