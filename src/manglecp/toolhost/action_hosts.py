"""The actions of a pack, run by warm sandboxed hosts.

Rules were proven about the pack as it was read. So the hosts serve exactly the file that was described, and no file of
the pack may have changed when they start.

The operator decides the sandbox: ``strict``, plus the programs that are allowed by name, unless the pack may have the
profile that it requests. Actions share a host only with those of the same rights: those that start programs are kept
apart, and so are those that write the folders of the pack. A folder setting is readable by all of them. A host that
starts programs serves one call, and nothing of it is left when that call is answered.

Programs are not trusted to only read. So an action that starts them and declares ``mutates=False`` has a host that can
write its temporary folder only, and reach no network: its workspace is read-only, and its profile is never weaker than
``spawn``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from manglecp.pack import (
    ActionDescription,
    Folder,
    ListingError,
    Pack,
    PackError,
    Problems,
    Profile,
    PythonFile,
    SandboxPolicy,
)
from manglecp.toolhost.actions import starts_programs
from manglecp.toolhost.dispatch import Dispatcher, DispatchError, HostCommand, Listing, ServedPlugin
from manglecp.toolhost.dispatch.catalogue import ActionProfile, Catalogue, check_family, least_tier
from manglecp.toolhost.dispatch.launch import EVERY, TIMEOUT_VARIABLE, ProgramFinder, default_timeout
from manglecp.toolhost.leases import Audit
from manglecp.toolhost.sandbox import CONTAINED, probe

_WRITING: Final = frozenset({"filesystem", "filesystem_write", "filesystem_delete", "destructive"})


class HostRights(NamedTuple):
    starts: bool  # programs
    writes: bool  # the folders of the pack
    changes: bool  # the workspace, and what the profile of the operator permits


def program_finder(pack: Pack, environ: Mapping[str, str]) -> ProgramFinder:
    """Return the finder for programs of the pack. A path that is only a default of the pack itself is ignored."""
    own = {param.name for param in pack.settings.params if "/" in (param.default or "")}
    defaults = {param.name: param.default for param in pack.settings.params}
    settings = {name: value for name, value in pack.params.items() if name not in own or value != defaults[name]}
    return ProgramFinder(environ, settings)


def group_actions(
    pack: Pack, starts: Callable[[ActionDescription], bool], *, changeable: bool
) -> dict[HostRights, list[str]]:
    """Return action ids by rights, the least first; ``changeable`` is whether the right ``changes`` means anything."""
    separate = bool(pack.writable)
    groups: dict[HostRights, list[str]] = {}
    for action in pack.actions.values():
        rights = HostRights(starts(action), separate and _writes(action), changeable and not only_reads(action))
        groups.setdefault(rights, []).append(action.aid)
    return dict(sorted(groups.items()))


def _writes(action: ActionDescription) -> bool:
    return action.mutates and not _WRITING.isdisjoint(action.effects)


def only_reads(action: ActionDescription) -> bool:
    """Return whether the action starts programs that must not change anything."""
    return not action.mutates and starts_programs(action.effects)


_FILE: Final = "actions.py"
_RELOAD: Final = "read it again"
_MAX_SETTINGS: Final = 100_000  # bytes: the kernel's limit on one environment variable


@contextlib.asynccontextmanager
async def serve_actions(
    pack: Pack,
    *,
    workspace: Path | Sequence[Path | str] | None = None,
    size: int | None = None,
    programs: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    sandbox: SandboxPolicy | None = None,
    audit: Audit | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> AsyncIterator[Dispatcher]:
    """Start hosts for the actions of a pack and yield an entered dispatcher; ``size`` is the number of hosts.

    ``workspace`` are the folders that actions may write, except those that start programs and only read; they work in
    the first. ``programs`` are those that they may start, by name or absolute path. Raises :class:`PackError` if the
    pack cannot be served as described.
    """
    plugins: list[ServedPlugin] = []
    if pack.actions_file is not None and pack.actions:
        given = [workspace] if isinstance(workspace, Path) else workspace or ()
        working = [str(Path(place).resolve()) for place in given]
        policy = sandbox or SandboxPolicy()
        plugins = _served(pack, pack.actions_file, environ or os.environ, working, programs, policy)
        profile = profile_of(pack, programs=programs, environ=environ, sandbox=sandbox)
        if not policy.degrade and (reason := await asyncio.to_thread(containment_problem, profile)) is not None:
            message = f"sandbox profile {profile!r} cannot be enforced here: pid_namespace: {reason}"
            raise PackError.at(_FILE, message, fix="change that, or start with --degrade")
    async with Dispatcher(plugins, size=size, timeout=_longest(pack), audit=audit, on_event=on_event) as dispatcher:
        yield dispatcher


def _longest(pack: Pack) -> float:
    usual = default_timeout(os.environ)
    if os.environ.get(TIMEOUT_VARIABLE, "").strip():
        return usual
    return max([usual, *(action.timeout or 0 for action in pack.actions.values())])


def _served(
    pack: Pack,
    file: PythonFile,
    environ: Mapping[str, str],
    workspace: Sequence[str],
    programs: Sequence[str],
    policy: SandboxPolicy,
) -> list[ServedPlugin]:
    listing = pack_listing(pack, file, _profiles(pack))
    if len(json.dumps(dict(pack.params))) > _MAX_SETTINGS:
        raise PackError.at("", f"its settings have more than {_MAX_SETTINGS:,} bytes", fix="give shorter ones")
    weaker = policy.weaker(pack.settings.sandbox)
    # A weaker profile permits all programs, so a host that is kept from it may start those that its actions name.
    allowed = (EVERY,) if weaker else programs
    finder = program_finder(pack, environ)
    served = []

    def starts(action: ActionDescription) -> bool:
        if weaker is not None and not only_reads(action):
            return weaker == "standard" and starts_programs(action.effects)
        return any(finder.startable(name, allowed) is not None for name in action.spawn)

    changeable = bool(workspace) or weaker is not None
    for rights, aids in group_actions(pack, starts, changeable=changeable).items():
        part = replace(listing, catalogue={aid: listing.catalogue[aid] for aid in aids})
        written = pack.writable if rights.writes else ()
        command = part.command(
            environ,
            sandbox=weaker if rights.changes else None,
            programs=allowed,
            workspace=workspace,
            read_only=bool(workspace) and not rights.changes,
            writable=written,
            readable=[*pack.readable, *(folder for folder in pack.writable if folder not in written)],
            policy=policy,
            settings=pack.params,
            finder=finder,
            single_use=rights.starts,
        )
        served.append(ServedPlugin(part.catalogue, servable(_FILE, command)))
    return served


def _profiles(pack: Pack) -> dict[str, ActionProfile]:
    usual = default_timeout(os.environ)
    profiles = {}
    for action in pack.actions.values():
        if action.tier < (least := least_tier(action.effects, mutates=action.mutates)):
            raise PackError.at(_FILE, f"{action.aid} lists tier {action.tier}, and its effects have tier {least}")
        profiles[action.aid] = ActionProfile(
            aid=action.aid,
            tier=action.tier,
            idempotent=action.idempotent,
            timeout=action.timeout or usual,
            inputs_schema=action.input_schema,
            spawn=action.spawn,
        )
    return profiles


def pack_listing(pack: Pack, file: PythonFile, catalogue: Catalogue) -> Listing:
    """Return the listing of a Python file of a pack; raises :class:`PackError` if a file of the pack has changed."""
    folder = Folder(Path(pack.folder), Problems())
    digest = folder.digest(pack.name, pack.governance.digest, pack.params)
    if file.name not in folder or folder.sha256(file.name) != file.sha256:
        raise PackError.at(file.name, "the file has changed since the pack was read", fix=_RELOAD)
    if digest != pack.digest:
        raise PackError.at("", "the pack has changed since it was read", fix=_RELOAD)
    try:
        check_family(catalogue, file.path)
    except ListingError as error:
        raise PackError.at(file.name, str(error)) from None
    return Listing(plugin=file.path, catalogue=catalogue, sha256=file.sha256)


def servable(name: str, found: HostCommand | DispatchError) -> HostCommand:
    """Return the command; raises :class:`PackError` for an error."""
    if isinstance(found, HostCommand):
        return found
    raise PackError.at(name, f"cannot be served: {found['detail'][:300]}")


def profile_of(
    pack: Pack,
    *,
    programs: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    sandbox: SandboxPolicy | None = None,
) -> Profile:
    """Return the sandbox profile that :func:`serve_actions` uses; the least strict of several."""
    if sandbox is not None and (weaker := sandbox.weaker(pack.settings.sandbox)) is not None:
        return weaker
    finder = program_finder(pack, environ or os.environ)
    programs_named = {name for action in pack.actions.values() for name in action.spawn}
    return "spawn" if any(finder.startable(name, programs) for name in programs_named) else "strict"


@cache
def containment_problem(profile: Profile) -> str | None:
    """Return why calls get no PID namespace here; None if they do, or if the profile permits no processes."""
    return probe(profile).missing.get("pid_namespace") if profile in CONTAINED else None
