"""The options of a pack on this machine, and the loading of its domain with the hosts that its rules need.

Imports the tool host only for packs whose rules need hosts, to keep ``manglecp intent`` fast for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from manglecp.intent import Domain
from manglecp.pack import Pack, SandboxPolicy, SecretProvider, read_pack

if TYPE_CHECKING:
    from manglecp.mangle import External
    from manglecp.toolhost import FactGenerators, PassProgress


@dataclass(frozen=True, slots=True)
class PackOptions:
    """The folder of a pack, and the operator's settings for it."""

    folder: Path | str
    params: Mapping[str, str] = field(default_factory=dict)
    """The values of the pack's own settings."""
    workspace: Sequence[Path | str] = ()
    """The folders that actions may write; the first is their working directory."""
    programs: Sequence[str] = ()
    """The programs, by name or absolute path, that the pack's hosts may start if the pack declares them too."""
    sandbox: SandboxPolicy = field(default_factory=SandboxPolicy)
    cache: Path | bool = True
    """The cache of fact generators: True for the user's cache folder, a folder, or False."""
    on_progress: Callable[[PassProgress], None] | None = field(default=None, compare=False)
    """Called with the progress of fact generators."""
    secrets: SecretProvider = field(default_factory=SecretProvider, compare=False)
    """The values of the pack's secrets, for all its hosts; by default environment variables."""


def load_domain(
    options: PackOptions, host_stack: ExitStack, *, shares_facts: bool = False
) -> tuple[Domain, FactGenerators | None]:
    """Read the pack, start the hosts of its fact generators and external predicates, and load its rules.

    Blocks. The hosts run until ``host_stack`` is closed. With ``shares_facts`` the caller adds the facts of shared
    sources; otherwise their generators run here. Raises :class:`PackError`.
    """
    pack = read_pack(options.folder, options.params, sandbox=options.sandbox)
    generators = _serve_generators(pack, options, host_stack)
    if generators is not None and shares_facts:
        generators.share([source.name for source in pack.settings.fact_sources])
    externals = _serve_externals(pack, options, host_stack)
    return Domain.load(pack, externals=externals, generated=generators), generators


def _serve_generators(pack: Pack, options: PackOptions, host_stack: ExitStack) -> FactGenerators | None:
    if not pack.generators:
        return None
    from manglecp.toolhost import serve_facts

    generators = serve_facts(
        pack,
        cache=options.cache,
        programs=options.programs,
        sandbox=options.sandbox,
        secrets=options.secrets,
        on_progress=options.on_progress,
    )
    return host_stack.enter_context(generators)


def _serve_externals(pack: Pack, options: PackOptions, host_stack: ExitStack) -> Mapping[str, External]:
    if not pack.externals:
        return {}
    from manglecp.toolhost import serve_externals

    return host_stack.enter_context(serve_externals(pack, sandbox=options.sandbox, secrets=options.secrets))
