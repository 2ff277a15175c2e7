"""What ``pack.toml`` can say, with a default for all of it. Immutable.

Needs neither the language nor the harness: a server tells its settings before those are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "AuthSettings",
    "Disclosure",
    "DomainSettings",
    "IntentSettings",
    "Invocation",
    "Limits",
    "Param",
    "ParamKind",
    "Profile",
    "Settings",
    "TokenCounting",
]

TokenCounting = Literal["auto", "estimate", "o200k_base", "cl100k_base"]
ParamKind = Literal["text", "folder"]
Profile = Literal["none", "standard", "spawn", "strict"]
"""How the hosts of a pack are locked in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSettings:
    """What the manifest says the pack is for; clients choose servers by it."""

    id: str
    description: str = ""
    categories: tuple[str, ...] = ()
    affinities: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentSettings:
    """An intent that the manifest lists, and the facts it wants to be told."""

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
    """What the manifest says about credentials."""

    required: bool = False
    schemes: tuple[str, ...] = ()
    token_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A setting that whoever runs the pack gives as ``--set NAME=VALUE``; rules see it as ``setting(Name, Value)``."""

    name: str
    description: str = ""
    default: str | None = None
    kind: ParamKind = "text"
    """A folder is open to the hosts of the pack, so that only whoever runs it can name one."""
    writable: bool = False
    """May actions write in the folder?"""

    @property
    def required(self) -> bool:
        """Does the pack not load without it?"""
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
