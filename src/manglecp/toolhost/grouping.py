"""Which actions of a pack share a host: those that may do as much.

What a host may start and write is open to every action in it. So actions that start programs are kept apart from those
that do not, and, where the pack has a folder to be written, those that write files from those that only read.

An action is judged by what it says of itself, as rules and leases are. One that says too little gets too little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from manglecp.pack import ActionDescription, Pack
from manglecp.toolhost.dispatch.launch import ProgramFinder

__all__ = ["Rights", "grouped", "places_of"]

_WRITING: Final = frozenset({"filesystem", "filesystem_write", "filesystem_delete", "destructive"})


class Rights(NamedTuple):
    """What a host has to be able to do for its actions."""

    starts: bool
    """Start programs."""
    writes: bool
    """Write the folders of the pack."""


def places_of(pack: Pack, environ: Mapping[str, str]) -> ProgramFinder:
    """Where the programs lie that its actions name. A path that only the pack itself says does not count."""
    own = {param.name for param in pack.settings.params if "/" in (param.default or "")}
    said = {param.name: param.default for param in pack.settings.params}
    given = {name: value for name, value in pack.params.items() if name not in own or value != said[name]}
    return ProgramFinder(environ, given)


def grouped(pack: Pack, startable: Callable[[str], bool]) -> dict[Rights, list[str]]:
    """The ids of the actions by what they need, those that need least first."""
    parted = bool(pack.writable)
    groups: dict[Rights, list[str]] = {}
    for action in pack.actions.values():
        rights = Rights(any(map(startable, action.spawn)), parted and _writes(action))
        groups.setdefault(rights, []).append(action.aid)
    return dict(sorted(groups.items()))


def _writes(action: ActionDescription) -> bool:
    return action.mutates and not _WRITING.isdisjoint(action.effects)
