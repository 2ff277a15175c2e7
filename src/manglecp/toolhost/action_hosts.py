"""The actions of a pack, run by warm sandboxed hosts.

Tools are proven with the rules and actions of the pack as it was read, so no host starts if a file has changed since.

The operator determines the sandbox: ``strict``; ``spawn`` with the programs that the operator allows; or a weaker
profile, if the pack requests it and the operator permits it. Only actions with the same rights (:class:`HostRights`)
and the same secrets share a host. All hosts may read the folders that the settings of the pack name. A host that may
start programs serves one call, whose answer is returned after all processes of the host are dead; no other sandboxed
host can create a process. The programs of an action with ``mutates=False`` are not trusted to only read: the host of
such an action has a read-only workspace and no network, can write only its temporary folder, and its profile is never
weaker than ``spawn``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from manglecp.pack import (
    FILE_WRITING,
    ActionDescription,
    Folder,
    ListingError,
    Pack,
    PackError,
    Problems,
    Profile,
    PythonFile,
    SandboxPolicy,
    SecretProvider,
)
from manglecp.toolhost.actions import starts_programs
from manglecp.toolhost.dispatch.catalogue import ActionProfile, Catalogue, Listing, check_prefix, tier_of_effects
from manglecp.toolhost.dispatch.dispatcher import Dispatcher, ServedPlugin
from manglecp.toolhost.dispatch.launch import EVERY, TIMEOUT_VARIABLE, HostCommand, ProgramFinder, default_timeout
from manglecp.toolhost.dispatch.messages import DispatchError
from manglecp.toolhost.dispatch.pool import PoolOptions
from manglecp.toolhost.leases import Audit
from manglecp.toolhost.sandbox import CONTAINED, PROFILES, REMEDIES, Policy, measure


class HostRights(NamedTuple):
    """The rights of a host, by which the actions of a pack are grouped."""

    may_start_programs: bool
    may_write_folders: bool  # those that the settings of the pack name as writable
    may_change: bool  # whether it may write the workspace, and do what a weaker profile permits
    egress: tuple[str, ...]
    concurrency: int = 1  # not a right: the number of calls that the host works on at the same time


def program_finder(pack: Pack, environ: Mapping[str, str]) -> ProgramFinder:
    """Return the finder for programs of the pack, with the paths that the operator has set for them."""
    # Ignore a path that is still the default: the pack author chose it, not the operator.
    default_paths = {param.name: param.default for param in pack.settings.params if "/" in (param.default or "")}
    settings = {name: value for name, value in pack.params.items() if default_paths.get(name) != value}
    return ProgramFinder(environ, settings)


def group_actions(
    pack: Pack, may_start: Callable[[ActionDescription], bool], *, anything_changeable: bool
) -> dict[HostRights, list[str]]:
    """Return the action ids for each set of rights, the fewest rights first.

    ``may_start`` returns whether an action may start programs. Unless ``anything_changeable``, the right
    ``may_change`` is False for all actions: it would only split them into more groups.
    """
    has_writable_folders = bool(pack.writable)
    groups: dict[HostRights, list[str]] = {}
    for action in pack.actions.values():
        writes = has_writable_folders and action.mutates and not FILE_WRITING.isdisjoint(action.effects)
        starts = may_start(action)
        may_change = anything_changeable and not must_only_read(action)
        concurrency = 1 if starts else action.concurrency  # a host that starts programs serves one call
        rights = HostRights(starts, writes, may_change, action.egress, concurrency)
        groups.setdefault(rights, []).append(action.aid)
    return dict(sorted(groups.items()))


def must_only_read(action: ActionDescription) -> bool:
    """Return whether the action starts programs that must not change anything."""
    return not action.mutates and starts_programs(action.effects)


_FILE: Final = "actions.py"
_RELOAD: Final = "read it again"  # a fix that a PackError suggests
_MAX_SETTINGS: Final = 100_000  # bytes: the kernel limits one environment variable to 128 KiB


@contextlib.asynccontextmanager
async def serve_actions(
    pack: Pack,
    *,
    workspace: Path | Sequence[Path | str] | None = None,
    size: int | None = None,
    programs: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    sandbox: SandboxPolicy | None = None,
    secrets: SecretProvider | None = None,
    audit: Audit | None = None,
    on_outage: Callable[[str | None], None] = lambda _: None,
) -> AsyncIterator[Dispatcher]:
    """Start hosts for the actions of a pack and yield an entered dispatcher.

    ``workspace`` are the folders that actions may write (an action that starts programs and is declared read-only can
    only read them); the first is the working directory. ``size`` is the number of hosts for each group of actions with
    the same rights and secrets. ``programs`` are those that actions may start, by name or absolute path. ``secrets``
    has the values of secrets; by default they are environment variables. ``on_outage`` is called with the reason when
    no host of a group can be started, and with None when a host is up again. Raises :class:`PackError` if the pack
    cannot be served as described.
    """
    plugins: list[ServedPlugin] = []
    if pack.actions_file is not None and pack.actions:
        folders = [workspace] if isinstance(workspace, Path) else workspace or ()
        real_folders = [str(Path(folder).resolve()) for folder in folders]
        _check_environment(pack, [*real_folders, *pack.writable])
        policy = sandbox or SandboxPolicy()
        plugins = _served_plugins(pack, pack.actions_file, environ or os.environ, real_folders, programs, policy)
        profile = profile_of(pack, programs=programs, environ=environ, sandbox=sandbox)
        if not policy.degrade and (reason := await asyncio.to_thread(containment_problem, profile)) is not None:
            message = f"sandbox profile {profile!r} cannot be enforced here: pid_namespace: {reason}"
            raise PackError.at(_FILE, message, fix="change that, or start with --degrade")
    timeout = _longest_timeout(pack)
    options = PoolOptions(size=size, timeout=timeout, audit=audit, on_outage=on_outage, secrets=secrets)
    async with Dispatcher(plugins, **options) as dispatcher:
        yield dispatcher


def _check_environment(pack: Pack, writable: Sequence[str]) -> None:
    """Raise :class:`PackError` if actions could write the environment of their hosts."""
    if pack.python is not None:
        paths = [Path(path).resolve() for path in pack.python]
        if folder := next((folder for folder in writable if any(path.is_relative_to(folder) for path in paths)), None):
            message = f"python.interpreter: it lies in {folder}, which actions can write"
            raise PackError.at("pack.toml", message, fix="move the environment, or choose another workspace")


def _longest_timeout(pack: Pack) -> float:
    """Return the longest timeout of an action, in seconds; or the timeout that the environment sets for all."""
    default = default_timeout(os.environ)
    if os.environ.get(TIMEOUT_VARIABLE, "").strip():
        return default
    return max([default, *(action.timeout or 0 for action in pack.actions.values())])


def _served_plugins(
    pack: Pack,
    file: PythonFile,
    environ: Mapping[str, str],
    workspace: Sequence[str],
    programs: Sequence[str],
    policy: SandboxPolicy,
) -> list[ServedPlugin]:
    listing = pack_listing(pack, file, _action_profiles(pack))
    if len(json.dumps(dict(pack.params))) > _MAX_SETTINGS:
        raise PackError.at("", f"its settings have more than {_MAX_SETTINGS:,} bytes", fix="give shorter ones")
    weaker_profile = policy.weaker(pack.settings.sandbox)  # None: strict or spawn
    # A weaker profile permits all programs. Actions that must only read keep ``spawn``, with all programs they name.
    allowed_programs = (EVERY,) if weaker_profile else programs
    finder = program_finder(pack, environ)
    plugins = []

    def may_start(action: ActionDescription) -> bool:
        if weaker_profile is not None and not must_only_read(action):
            # In the profile none there is no PID namespace to end after a call: a single-use host has no advantage.
            return weaker_profile == "standard" and starts_programs(action.effects)
        return any(finder.startable(name, allowed_programs) is not None for name in action.spawn)

    anything_changeable = bool(workspace) or weaker_profile is not None
    for rights, aids in group_actions(pack, may_start, anything_changeable=anything_changeable).items():
        group_listing = replace(listing, catalogue={aid: listing.catalogue[aid] for aid in aids})
        writable = pack.writable if rights.may_write_folders else ()
        command = group_listing.command(
            environ,
            sandbox=weaker_profile if rights.may_change else None,
            programs=allowed_programs,
            workspace=workspace,
            read_only=bool(workspace) and not rights.may_change,
            writable=writable,
            readable=[*pack.readable, *(folder for folder in pack.writable if folder not in writable)],
            policy=policy,
            settings=pack.params,
            finder=finder,
            single_use=rights.may_start_programs,
            may_fork=rights.may_start_programs,
            concurrency=rights.concurrency,
            python=pack.python,
        )
        plugins.append(ServedPlugin(group_listing.catalogue, require_command(_FILE, command)))
    return plugins


def _action_profiles(pack: Pack) -> dict[str, ActionProfile]:
    timeout = default_timeout(os.environ)
    profiles = {}
    for action in pack.actions.values():
        if action.tier < (least := tier_of_effects(action.effects, mutates=action.mutates)):
            raise PackError.at(_FILE, f"{action.aid} lists tier {action.tier}, and its effects have tier {least}")
        profiles[action.aid] = ActionProfile(
            aid=action.aid,
            tier=action.tier,
            idempotent=action.idempotent,
            timeout=action.timeout or timeout,
            inputs_schema=action.input_schema,
            spawn=action.spawn,
            secrets=action.secrets,
            egress=action.egress,
        )
    return profiles


def pack_listing(pack: Pack, file: PythonFile, catalogue: Catalogue) -> Listing:
    """Return the listing of a Python file of a pack; raises :class:`PackError` if a file of the pack has changed."""
    folder = Folder(Path(pack.folder), Problems())
    digest = folder.digest(pack.name, pack.governance.digest, pack.params)
    if not folder.has_digest(file.name) or folder.sha256(file.name) != file.sha256:
        raise PackError.at(file.name, "the file has changed since the pack was read", fix=_RELOAD)
    if digest != pack.digest:
        raise PackError.at("", "the pack has changed since it was read", fix=_RELOAD)
    try:
        check_prefix(catalogue, file.path)
    except ListingError as error:
        raise PackError.at(file.name, str(error)) from None
    return Listing(plugin=file.path, catalogue=catalogue, sha256=file.sha256)


def require_command(file_name: str, command: HostCommand | DispatchError) -> HostCommand:
    """Return the command, or raise the error as a :class:`PackError`."""
    if isinstance(command, HostCommand):
        return command
    raise PackError.at(file_name, f"cannot be served: {command['detail'][:300]}")


def profile_of(
    pack: Pack,
    *,
    programs: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    sandbox: SandboxPolicy | None = None,
) -> Profile:
    """Return the least strict sandbox profile of the hosts that :func:`serve_actions` starts."""
    if sandbox is not None and (weaker_profile := sandbox.weaker(pack.settings.sandbox)) is not None:
        return weaker_profile
    finder = program_finder(pack, environ or os.environ)
    named_programs = {name for action in pack.actions.values() for name in action.spawn}
    return "spawn" if any(finder.startable(name, programs) for name in named_programs) else "strict"


@cache
def containment_problem(profile: Profile) -> str | None:
    """Return why hosts of this profile get no PID namespace here; None if they get one, or do not need one."""
    return measure(profile).missing_mechanisms.get("pid_namespace") if profile in CONTAINED else None


def diagnose_sandbox() -> Iterator[tuple[Profile, dict[str, tuple[str, str]]]]:
    """Yield the mechanisms of each sandbox profile: why one is missing here, and what enables it, or empty texts."""
    for profile in PROFILES[1:]:  # without the profile none
        measured = measure(profile, Policy(egress=("api.github.com:443",) if profile != "standard" else ()))
        missing = measured.missing_mechanisms
        mechanisms = dict.fromkeys(map(str, measured.active_mechanisms), ("", ""))
        for name, reason in missing.items():
            mechanisms[name] = (reason.partition("; ")[0], REMEDIES.get(name, ""))
        yield profile, mechanisms
