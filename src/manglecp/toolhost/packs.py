"""The actions of a pack, run by warm hosts that are locked in.

What rules were proven about is what the pack described when it was read. So the hosts must be those of the very file
that was described, no file of the pack may have changed when they are set up, and the file must say of its actions what
it said then: which there are, how dangerous each is, whether it may be repeated and what it takes. A host that is
started later is held to the file.

How the hosts are locked in is decided by whoever runs the pack: strictly, but for the programs that they allow by name,
unless they let the pack have the profile that it asks for. Actions share a host only with those that may do as much
(:mod:`.grouping`): what one of them may start or write is not open to the others.

A setting that is a folder (``--set root=PATH``) can be read by all of them, and written by those that say that they
write files, if the pack says that it is to be written. Then the hosts do not work in it, and leave nothing of their own
there: unless they were given a workspace they get a folder that is gone when they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from manglecp.pack import ActionDescription, Folder, Pack, PackError, Problems, Profile
from manglecp.toolhost.dispatch import Dispatcher, HostCommand, Listing, Served, list_plugin
from manglecp.toolhost.dispatch.catalogue import ActionProfile, Catalogue
from manglecp.toolhost.dispatch.launch import TIMEOUT_VARIABLE, default_timeout
from manglecp.toolhost.grouping import Rights, grouped, places_of
from manglecp.toolhost.leases import Audit

__all__ = ["profile_of", "serve_actions"]

_FILE: Final = "actions.py"
_AGAIN: Final = "read it again"
_MOST_SETTINGS: Final = 100_000
"""They travel in one variable of the environment, and the kernel takes no longer one."""


@contextlib.asynccontextmanager
async def serve_actions(
    pack: Pack,
    *,
    workspace: Path | Sequence[Path | str] | None = None,
    size: int | None = None,
    programs: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    degrade: bool = False,
    allow_weaker: bool = False,
    audit: Audit | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> AsyncIterator[Dispatcher]:
    """A dispatcher for the actions of a pack, entered; empty if there are none. ``size`` is how many hosts are kept.

    ``workspace`` are the folders that actions may write; they work in the first. ``programs`` are those that they may
    start, by name or absolute path. ``degrade`` allows a machine that cannot lock hosts in completely, ``allow_weaker``
    the profile that the pack asks for. :class:`PackError` if there are no hosts to be had for what the pack describes.
    """
    with contextlib.ExitStack() as places:
        plugins: list[Served] = []
        if pack.actions_file is not None and pack.actions:
            given = [workspace] if isinstance(workspace, Path) else workspace or ()
            working = [str(Path(place).resolve()) for place in given]
            if not working and (pack.readable or pack.writable):
                working = [places.enter_context(tempfile.TemporaryDirectory(prefix="manglecp-"))]
            hosting = _Hosting(environ or os.environ, working, programs, degrade, allow_weaker)
            plugins = await _served(pack, hosting)
        async with Dispatcher(plugins, size=size, timeout=_longest(pack), audit=audit, on_event=on_event) as dispatcher:
            yield dispatcher


def _longest(pack: Pack) -> float:
    """What no call may exceed: what the environment says or, if it says nothing, the longest time of an action."""
    usual = default_timeout(os.environ)
    if os.environ.get(TIMEOUT_VARIABLE, "").strip():
        return usual
    return max([usual, *(action.timeout or 0 for action in pack.actions.values())])


class _Hosting(NamedTuple):
    """What whoever runs a pack says about its hosts."""

    environ: Mapping[str, str]
    workspace: Sequence[str]
    programs: Sequence[str]
    degrade: bool
    allow_weaker: bool


async def _served(pack: Pack, hosting: _Hosting) -> list[Served]:
    listing = await list_plugin(str(pack.actions_file), hosting.environ, degrade=hosting.degrade)
    if not isinstance(listing, Listing):
        raise _problem(f"cannot be served: {listing['detail'][:300]}")
    if listing.sha256 != pack.plugin_sha256:
        raise _problem("the file has changed since the pack was read", _AGAIN)
    folder = Folder(Path(pack.folder), Problems())
    if folder.digest(pack.name, pack.governance.digest, pack.params) != pack.digest:
        raise PackError.at("", "the pack has changed since it was read", fix=_AGAIN)
    _compare(pack.actions, listing.catalogue)
    if len(json.dumps(dict(pack.params))) > _MOST_SETTINGS:
        raise PackError.at("", f"its settings have more than {_MOST_SETTINGS:,} bytes", fix="give shorter ones")
    weaker = _weaker(pack, hosting.allow_weaker)
    programs = () if weaker else hosting.programs
    places = places_of(pack, hosting.environ)
    groups = grouped(pack, lambda name: places.startable(name, programs) is not None)
    served = []
    for rights, aids in groups.items():
        part = listing.part(aids)
        served.append(
            Served(part.catalogue.timed(default_timeout(os.environ)), _command(pack, part, rights, hosting, weaker))
        )
    return served


def _command(pack: Pack, listing: Listing, rights: Rights, hosting: _Hosting, weaker: Profile | None) -> HostCommand:
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
            degrade=hosting.degrade,
            settings=pack.params,
            finder=places_of(pack, hosting.environ),
        )
    if not isinstance(command, HostCommand):
        raise _problem(f"cannot be served: {command['detail'][:300]}")
    return command


def profile_of(
    pack: Pack,
    *,
    programs: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    allow_weaker: bool = False,
) -> Profile:
    """How hosts of the pack are locked in that :func:`serve_actions` starts with the same arguments.

    Of several that are locked in differently it is the least strict.
    """
    weaker = _weaker(pack, allow_weaker)
    if weaker is not None:
        return weaker
    places = places_of(pack, environ or os.environ)
    wanted = {name for action in pack.actions.values() for name in action.spawn}
    return "spawn" if any(places.startable(name, programs) for name in wanted) else "strict"


def _weaker(pack: Pack, allowed: bool) -> Profile | None:
    """The profile that the pack asks for, if it is a weak one and may have it."""
    wished = pack.settings.sandbox
    return wished if allowed and wished in ("none", "standard") else None


def _compare(described: Mapping[str, ActionDescription], listed: Catalogue) -> None:
    """Refuse actions that say something else of themselves than they did."""
    actions = {action.aid: action for action in described.values()}
    for aid in sorted(actions.keys() | listed.keys()):
        if aid not in listed or aid not in actions or not _same(actions[aid], listed[aid]):
            raise _problem(f"{aid} is not what it was when the pack was read", _AGAIN)


def _same(described: ActionDescription, listed: ActionProfile) -> bool:
    return (described.tier, described.idempotent, described.timeout, described.input_schema, described.spawn) == (
        listed.tier,
        listed.idempotent,
        listed.timeout,
        listed.inputs_schema,
        listed.spawn,
    )


def _problem(message: str, fix: str | None = None) -> PackError:
    return PackError.at(_FILE, message, fix=fix)
