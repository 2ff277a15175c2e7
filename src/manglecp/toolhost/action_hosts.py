"""The actions of a pack, run by warm sandboxed hosts.

Rules were proven about the pack as it was read. So the hosts must serve the very file that was described, no file of
the pack may have changed when they are set up, and the file must list the same actions with the same tiers,
idempotency, timeouts, schemas and programs.

The operator decides the sandbox: ``strict``, plus the programs that are allowed by name, unless the pack may have the
profile that it requests. Actions share a host only with those of the same rights: those that start programs are kept
apart, and so are those that write the folders of the pack. A folder setting is readable by all of them. Without a
workspace, hosts work in a temporary folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

from manglecp.pack import ActionDescription, Folder, Pack, PackError, Problems, Profile, SandboxPolicy
from manglecp.toolhost.dispatch import (
    Dispatcher,
    DispatchError,
    HostCommand,
    Listing,
    Served,
    is_failure,
    list_plugin,
)
from manglecp.toolhost.dispatch.catalogue import ActionProfile, Catalogue
from manglecp.toolhost.dispatch.launch import TIMEOUT_VARIABLE, ProgramFinder, default_timeout
from manglecp.toolhost.leases import Audit

_WRITING: Final = frozenset({"filesystem", "filesystem_write", "filesystem_delete", "destructive"})


class HostRights(NamedTuple):
    starts: bool  # programs
    writes: bool  # the folders of the pack


def program_finder(pack: Pack, environ: Mapping[str, str]) -> ProgramFinder:
    """Return the finder for programs that the pack names. A path that is only the pack's own default does not count."""
    own = {param.name for param in pack.settings.params if "/" in (param.default or "")}
    said = {param.name: param.default for param in pack.settings.params}
    given = {name: value for name, value in pack.params.items() if name not in own or value != said[name]}
    return ProgramFinder(environ, given)


def group_actions(pack: Pack, startable: Callable[[str], bool]) -> dict[HostRights, list[str]]:
    """Return action ids by rights, the least first."""
    parted = bool(pack.writable)
    groups: dict[HostRights, list[str]] = {}
    for action in pack.actions.values():
        rights = HostRights(any(map(startable, action.spawn)), parted and _writes(action))
        groups.setdefault(rights, []).append(action.aid)
    return dict(sorted(groups.items()))


def _writes(action: ActionDescription) -> bool:
    return action.mutates and not _WRITING.isdisjoint(action.effects)


_FILE: Final = "actions.py"
T = TypeVar("T")
_AGAIN: Final = "read it again"
_MOST_SETTINGS: Final = 100_000  # bytes: the kernel's limit on one environment variable


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

    ``workspace`` are the folders that actions may write; they work in the first. ``programs`` are those that they may
    start, by name or absolute path. Raises :class:`PackError` if the pack cannot be served as described.
    """
    with contextlib.ExitStack() as places:
        plugins: list[Served] = []
        if pack.actions_file is not None and pack.actions:
            given = [workspace] if isinstance(workspace, Path) else workspace or ()
            working = [str(Path(place).resolve()) for place in given]
            if not working and (pack.readable or pack.writable):
                working = [places.enter_context(tempfile.TemporaryDirectory(prefix="manglecp-"))]
            hosting = _Hosting(environ or os.environ, working, programs, sandbox or SandboxPolicy())
            plugins = await _served(pack, hosting)
        async with Dispatcher(plugins, size=size, timeout=_longest(pack), audit=audit, on_event=on_event) as dispatcher:
            yield dispatcher


def _longest(pack: Pack) -> float:
    usual = default_timeout(os.environ)
    if os.environ.get(TIMEOUT_VARIABLE, "").strip():
        return usual
    return max([usual, *(action.timeout or 0 for action in pack.actions.values())])


class _Hosting(NamedTuple):
    environ: Mapping[str, str]
    workspace: Sequence[str]
    programs: Sequence[str]
    sandbox: SandboxPolicy


async def _served(pack: Pack, hosting: _Hosting) -> list[Served]:
    listing = await list_pack_file(pack, _FILE, pack.actions_file, pack.plugin_sha256, hosting.environ, hosting.sandbox)
    _compare(pack.actions, listing.catalogue)
    if len(json.dumps(dict(pack.params))) > _MOST_SETTINGS:
        raise PackError.at("", f"its settings have more than {_MOST_SETTINGS:,} bytes", fix="give shorter ones")
    weaker = hosting.sandbox.weaker(pack.settings.sandbox)
    programs = () if weaker else hosting.programs
    places = program_finder(pack, hosting.environ)
    groups = group_actions(pack, lambda name: places.startable(name, programs) is not None)
    served = []
    for rights, aids in groups.items():
        part = listing.part(aids)
        served.append(
            Served(part.catalogue.timed(default_timeout(os.environ)), _command(pack, part, rights, hosting, weaker))
        )
    return served


def _command(
    pack: Pack, listing: Listing, rights: HostRights, hosting: _Hosting, weaker: Profile | None
) -> HostCommand:
    if weaker == "none":
        command = listing.command(hosting.environ, sandbox=weaker, settings=pack.params)
    else:
        written = pack.writable if rights.writes else ()
        command = listing.command(
            hosting.environ,
            sandbox=weaker,
            programs=hosting.programs,
            workspace=[*hosting.workspace, *written],
            readable=[*pack.readable, *(folder for folder in pack.writable if folder not in written)],
            policy=hosting.sandbox,
            settings=pack.params,
            finder=program_finder(pack, hosting.environ),
        )
    return servable(_FILE, command)


async def list_pack_file(
    pack: Pack, name: str, file: object, sha256: str | None, environ: Mapping[str, str], sandbox: SandboxPolicy
) -> Listing:
    """List a plugin file of a pack; raises :class:`PackError` if it, or the pack, is not what was read."""
    listing = servable(name, await list_plugin(str(file), environ, policy=sandbox))
    if sha256 is not None and listing.sha256 != sha256:
        raise PackError.at(name, "the file has changed since the pack was read", fix=_AGAIN)
    folder = Folder(Path(pack.folder), Problems())
    if folder.digest(pack.name, pack.governance.digest, pack.params) != pack.digest:
        raise PackError.at("", "the pack has changed since it was read", fix=_AGAIN)
    return listing


def servable(name: str, found: T | DispatchError) -> T:
    """Return the listing or command; raises :class:`PackError` for an error."""
    if is_failure(found):
        raise PackError.at(name, f"cannot be served: {found['detail'][:300]}")
    return cast("T", found)


def profile_of(
    pack: Pack,
    *,
    programs: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    sandbox: SandboxPolicy | None = None,
) -> Profile:
    """Return the sandbox profile that :func:`serve_actions` would use; the least strict of several."""
    if sandbox is not None and (weaker := sandbox.weaker(pack.settings.sandbox)) is not None:
        return weaker
    places = program_finder(pack, environ or os.environ)
    wanted = {name for action in pack.actions.values() for name in action.spawn}
    return "spawn" if any(places.startable(name, programs) for name in wanted) else "strict"


def _compare(described: Mapping[str, ActionDescription], listed: Catalogue) -> None:
    actions = {action.aid: action for action in described.values()}
    for aid in sorted(actions.keys() | listed.keys()):
        if aid not in listed or aid not in actions or not _same(actions[aid], listed[aid]):
            raise PackError.at(_FILE, f"{aid} is not what it was when the pack was read", fix=_AGAIN)


def _same(described: ActionDescription, listed: ActionProfile) -> bool:
    return (described.tier, described.idempotent, described.timeout, described.input_schema, described.spawn) == (
        listed.tier,
        listed.idempotent,
        listed.timeout,
        listed.inputs_schema,
        listed.spawn,
    )
