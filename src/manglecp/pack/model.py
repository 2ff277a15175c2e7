"""A pack as it was read: settings, texts, and the descriptions of its Python files. Immutable.

Rules are not analysed yet. Python files were described by a host, and not imported into this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta

from manglecp.base.diagnostic import Diagnostic
from manglecp.harness.policy import PolicyPackage
from manglecp.mangle import Source
from manglecp.pack.governance import default_governance
from manglecp.pack.interpreter import PythonEnvironment
from manglecp.pack.secrets import SecretUse
from manglecp.pack.settings import Settings

FILE_WRITING: Final = frozenset({"filesystem", "filesystem_write", "filesystem_delete", "destructive"})
"""The effects of actions that may write folders which are params of the pack."""
NETWORK: Final = frozenset({"network", "network_io"})
"""The effects of actions that connect to other machines."""
_PREDICATE: Final = r"[a-z][A-Za-z0-9_]*"
Seconds = Annotated[float, Meta(gt=0, le=3_600)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillText:
    """A skill with its text."""

    skill_id: str
    name: str
    description: str
    content: str
    content_type: str = "text/markdown"
    resources: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionDescription:
    """An action as its host lists it. Rules refer to it by ``name``."""

    name: str
    aid: str  # the action id
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    effects: tuple[str, ...] = ("none",)
    tier: int = 0  # from 0 (no effects) to 3 (dangerous effects)
    mutates: bool = True
    reversible: bool = False
    idempotent: bool = False
    timeout: float | None = None  # seconds
    spawn: tuple[str, ...] = ()  # programs that the action may start
    egress: tuple[str, ...] = ()  # destinations, HOST:PORT, that the action may connect to
    preview: str | None = None
    """The name of the read-only action whose result approvers see."""
    previewed: frozenset[str] = frozenset()
    """The parameters that the result of the preview provides."""
    tool: bool = True
    """Whether the action is a tool if no rule makes it a step."""
    secrets: tuple[SecretUse, ...] = ()
    concurrency: int = 1  # calls that one host serves at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalDescription:
    """An external predicate as ``externals.py`` declares it: ``@external("similar(Text, Count, Id)", mode="++-")``.

    ``mode`` has a sign for each argument: ``+`` for an input, which a rule must bind first, ``-`` for an output.
    """

    predicate: Annotated[str, Meta(pattern=rf"\A{_PREDICATE}\Z")]
    mode: Annotated[str, Meta(pattern=r"\A[+-]+\Z")]
    description: str = ""
    deterministic: bool = True
    seconds: Seconds = 5.0  # timeout of a call
    arguments: tuple[Annotated[str, Meta(pattern=r"\A[A-Z][A-Za-z0-9_]*\Z")], ...] = ()
    aid: str = ""
    secrets: tuple[SecretUse, ...] = ()
    egress: tuple[str, ...] = ()

    @property
    def arity(self) -> int:
        return len(self.mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorDescription:
    """A fact generator of ``facts.py``, ``@facts("file", "symbol", every=1)``. A *pass* is one call of a generator."""

    name: str
    aid: str
    predicates: Annotated[
        tuple[Annotated[str, Meta(pattern=rf"\A{_PREDICATE}(?:\.{_PREDICATE})*\Z")], ...], Meta(min_length=1)
    ]
    description: str = ""
    every: Seconds = 5.0  # between the end of a pass and the start of the next
    seconds: Seconds = 60.0  # timeout of a pass
    changes: bool = False
    """Whether passes after the first one of a host process return only changes."""
    settings: tuple[Annotated[str, Meta(pattern=r"\A[^\W\d]\w*\Z")], ...] = ()
    """The names of the pack's params that the generator takes."""
    cache: bool = False  # whether the generator gets a folder that outlives its process
    spawn: tuple[str, ...] = ()  # programs that the generator may start
    secrets: tuple[SecretUse, ...] = ()
    egress: tuple[str, ...] = ()


class PythonFile(NamedTuple):
    """A Python file of a pack, or the ``__init__.py`` of its package; ``name`` is relative to the pack."""

    path: str
    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """A pack as it was read from its folder; immutable."""

    settings: Settings
    sources: tuple[Source, ...]
    """Rule files; names are paths relative to the pack, trust comes from the folder."""
    fact_files: tuple[str, ...] = ()
    """Absolute paths, in the order of their names."""
    fact_digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of fact files by path; a file that has another hash when it is read is refused."""
    skills: Mapping[str, SkillText] = field(default_factory=dict)
    actions: Mapping[str, ActionDescription] = field(default_factory=dict)
    externals: Mapping[str, ExternalDescription] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    governance: PolicyPackage = field(default_factory=default_governance)
    """The policies in ``governance/``, or those that ship with manglecp."""
    digest: str = ""
    """SHA-256 over name, content, params and policies."""
    folder: str = ""
    python: PythonEnvironment | None = None
    """The virtual environment of the hosts."""
    actions_file: PythonFile | None = None
    externals_file: PythonFile | None = None
    generators: Mapping[str, GeneratorDescription] = field(default_factory=dict)
    generators_file: PythonFile | None = None
    warnings: tuple[Diagnostic, ...] = ()

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def sourced_predicates(self) -> frozenset[str]:
        """The predicates whose facts come from generators and fact sources only."""
        generated_names = (name for generator in self.generators.values() for name in generator.predicates)
        return frozenset(generated_names).union(*(source.predicates for source in self.settings.fact_sources))

    @property
    def readable(self) -> tuple[str, ...]:
        """The absolute paths of folder params that the pack's hosts may read but not write."""
        return self._folders(writable=False)

    @property
    def writable(self) -> tuple[str, ...]:
        """The absolute paths of folder params that the pack's actions may write, and hosts without effects may read."""
        return self._folders(writable=True)

    @property
    def egress(self) -> dict[str, tuple[str, ...]]:
        """The functions of the pack that connect to other machines, by name, and their destinations."""
        functions: dict[str, ActionDescription | ExternalDescription | GeneratorDescription] = {
            **self.externals,
            **self.generators,
            **self.actions,
        }
        return {name: functions[name].egress for name in sorted(functions) if functions[name].egress}

    def _folders(self, *, writable: bool) -> tuple[str, ...]:
        folders = [param for param in self.settings.params if param.kind == "folder" and param.writable is writable]
        paths = (self.params.get(param.name) for param in folders)
        return tuple(dict.fromkeys(path for path in paths if path))  # without duplicates
