"""The actions of a pack, run by warm hosts that are locked in.

What rules were proven about is what the pack described when it was read. So the hosts must be those of the very file
that was described, no file of the pack may have changed when they are set up, and the file must say of its actions what
it said then: which there are, how dangerous each is, whether it may be repeated and what it takes. A host that is
started later is held to the file.

How the hosts are locked in is decided by whoever runs the pack: strictly, but for the programs that they allow by name,
unless they let the pack have the profile that it asks for.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from manglecp.pack.folder import Folder
from manglecp.pack.model import ActionDescription, Pack, Profile
from manglecp.pack.problems import PackError, Problem, Problems
from manglecp.toolhost.dispatch import Dispatcher, HostCommand, Listing, Served, list_plugin
from manglecp.toolhost.dispatch.catalogue import ActionProfile, Catalogue
from manglecp.toolhost.dispatch.listing import startable
from manglecp.toolhost.leases import Audit

__all__ = ["profile_of", "serve_actions"]

_FILE: Final = "actions.py"
_AGAIN: Final = "read it again"


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
    plugins = []
    if pack.actions_file is not None and pack.actions:
        places = [workspace] if isinstance(workspace, Path) else workspace or ()
        writable = [str(Path(place).resolve()) for place in places]
        plugins.append(await _served(pack, environ or os.environ, writable, programs, degrade, allow_weaker))
    async with Dispatcher(plugins, size=size, audit=audit, on_event=on_event) as dispatcher:
        yield dispatcher


async def _served(
    pack: Pack,
    environ: Mapping[str, str],
    workspace: Sequence[str],
    programs: Sequence[str],
    degrade: bool,
    allow_weaker: bool,
) -> Served:
    listing = await list_plugin(str(pack.actions_file), environ, degrade=degrade)
    if not isinstance(listing, Listing):
        raise _problem(f"cannot be served: {listing['detail'][:300]}")
    if listing.sha256 != pack.plugin_sha256:
        raise _problem("the file has changed since the pack was read", _AGAIN)
    folder = Folder(Path(pack.folder), Problems())
    if folder.digest(pack.name, pack.governance.digest, pack.params) != pack.digest:
        raise PackError([Problem("", "the pack has changed since it was read", fix=_AGAIN)])
    _compare(pack.actions, listing.catalogue)
    profile = _profile(pack.settings.sandbox, allow_weaker, programs)
    command = listing.command(
        environ,
        sandbox=profile,
        programs=programs,
        workspace=workspace,
        degrade=degrade and profile != "none",
    )
    if not isinstance(command, HostCommand):
        raise _problem(f"cannot be served: {command['detail'][:300]}")
    return Served(listing.catalogue, command)


def profile_of(
    pack: Pack,
    *,
    programs: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    allow_weaker: bool = False,
) -> Profile:
    """How hosts of the pack are locked in that :func:`serve_actions` starts with the same arguments."""
    profile = _profile(pack.settings.sandbox, allow_weaker, programs)
    if profile is not None:
        return profile
    wanted = [name for action in pack.actions.values() for name in action.spawn]
    return "spawn" if startable(wanted, programs, environ or os.environ) else "strict"


def _profile(wished: Profile, allow_weaker: bool, programs: Sequence[str]) -> Profile | None:
    """None: as strict as the programs let it be."""
    if allow_weaker and wished in ("none", "standard"):
        return wished
    return None if programs else "strict"


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
    return PackError([Problem(_FILE, message, fix=fix)])
