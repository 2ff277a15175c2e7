"""A pack as it was read: its settings, its texts, and what its actions say about themselves. Immutable.

Nothing in it was run in this process: rules are text that was not yet analysed, actions and externals are described by
a host that was asked for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from manglecp.harness.policy import PolicyPackage
from manglecp.mangle.source import Source
from manglecp.pack.default_governance import default_governance
from manglecp.pack.problems import Problem

__all__ = [
    "ActionDescription",
    "AuthSettings",
    "Disclosure",
    "DomainSettings",
    "ExternalDescription",
    "IntentSettings",
    "Invocation",
    "Limits",
    "Pack",
    "Param",
    "Profile",
    "Settings",
    "SkillText",
    "TokenCounting",
]

TokenCounting = Literal["auto", "estimate", "o200k_base", "cl100k_base"]
Profile = Literal["none", "standard", "spawn", "strict"]
"""How the hosts of a pack are locked in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSettings:
    id: str
    description: str = ""
    categories: tuple[str, ...] = ()
    affinities: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentSettings:
    name: str
    description: str
    required_facts: tuple[str, ...] = ()
    optional_facts: tuple[str, ...] = ()
    line: int | None = field(default=None, compare=False, repr=False)
    """Where its entry begins in ``pack.toml``, for messages about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the manifest publishes and the server enforces."""

    max_message_bytes: int = 16_777_216
    max_facts_per_request: int = 10_000
    max_derived_facts: int = 100_000
    max_intervals_per_atom: int = 1_000
    max_compute_ms: int = 10_000
    max_base_facts: int = 1_000_000
    """Facts that rules derive when the pack is loaded."""
    max_load_ms: int = 60_000
    """How long that may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """Least scores of the levels, and who counts tokens (EVAL-37)."""

    full: int = 70
    condensed: int = 40
    minimal: int = 20
    tokens: TokenCounting = "auto"
    inline_skill_tokens: int = 500
    """Longer skills are referenced, not inlined. The specification's upper bound is 2,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """How long invocations may take, how long tools are kept for them, and how much a client is told afterwards."""

    max_execution_ms: int = 600_000
    """Of a whole run; what evaluation may take is another matter (OPEN-71)."""
    max_events: int = 20
    """OBS-07."""
    max_delta_facts: int = 50
    """More are rolled up (OPEN-45)."""
    retention_ms: int = 300_000
    """A tool without a validity window is kept so long after the answer that announced it (INVK-12)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    required: bool = False
    schemes: tuple[str, ...] = ()
    token_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A setting that whoever runs the pack gives as ``--set NAME=VALUE``; rules see it as ``setting(Name, Value)``."""

    name: str
    description: str = ""
    default: str | None = None

    @property
    def required(self) -> bool:
        return self.default is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What ``pack.toml`` says, with a default for all of it."""

    name: str
    version: str = "0.1.0"
    description: str = ""
    domain: DomainSettings
    intents: tuple[IntentSettings, ...] = ()
    limits: Limits = Limits()
    disclosure: Disclosure = Disclosure()
    invocation: Invocation = Invocation()
    auth: AuthSettings = AuthSettings()
    params: tuple[Param, ...] = ()
    sandbox: Profile = "strict"
    structured_facts: bool = False
    """May clients write facts as clauses without a body? The extension ``x-structured_facts``."""
    governance_digest: str | None = None
    """The policy package that the pack is held to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillText:
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
class Pack:
    """Everything that a folder holds."""

    settings: Settings
    sources: tuple[Source, ...]
    """Rule files; names are paths relative to the pack, trust comes from the folder."""
    fact_files: tuple[str, ...] = ()
    """Absolute paths of base facts, in the order of their names."""
    fact_digests: Mapping[str, str] = field(default_factory=dict)
    """By path, the SHA-256 of what the digest covers: whoever reads the facts later refuses anything else."""
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
    warnings: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        return self.settings.name
