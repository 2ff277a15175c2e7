"""The listing of a plugin, the profiles of its actions, and the command of a host that serves exactly these actions.

Listing runs the plugin, so it happens in a host with a sandbox (``strict`` by default) and a deadline. The file is
hashed before it runs, and each host of the plugin gets this hash. The listing is untrusted: it decides neither the
hash, nor the prefix of the action ids, nor the sandbox, and programs are started only if the caller allows them.

The tier of an action is computed from its effects; the tier that a host lists can only raise it. Missing or unreadable
members get the safest value: not idempotent, dangerous.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, Unpack

import msgspec

from manglecp.base.destination import canonical_destinations
from manglecp.pack import ListingError, SandboxPolicy, SecretUse, run_listing
from manglecp.toolhost.actions import DANGEROUS, lease_tier, starts_programs
from manglecp.toolhost.dispatch.launch import DEFAULT_TIMEOUT, HostCommand, HostOptions, ProgramFinder, library_paths
from manglecp.toolhost.dispatch.messages import MAX_TIMEOUT, DispatchError, failure
from manglecp.toolhost.dispatch.responses import MAX_OUTPUT
from manglecp.toolhost.plugin import PluginError, action_id, find, plugin_name
from manglecp.toolhost.sandbox import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionProfile:
    """The properties of an action that dispatch needs."""

    aid: str
    tier: int = DANGEROUS
    idempotent: bool = False
    timeout: float | None = None
    """Seconds that the action may take; None: as long as the pool allows."""
    inputs_schema: Mapping[str, Any] | None = None
    spawn: tuple[str, ...] = ()
    """The programs that the action may start, if the operator allows them."""
    secrets: tuple[SecretUse, ...] = ()
    egress: tuple[str, ...] = ()
    """The destinations that the action may connect to."""


Catalogue: TypeAlias = Mapping[str, ActionProfile]
"""The actions of one plugin, by action id (AID)."""


def read_catalogue(listing: bytes) -> Catalogue:
    """Parse the answer to ``--list``; raises :class:`ListingError`."""
    try:
        document = msgspec.json.decode(listing)
    except (ValueError, RecursionError) as error:
        raise ListingError("parse_error", f"the listing is not JSON: {error}") from error
    tools = document.get("tools") if isinstance(document, dict) and document.get("ok") is True else None
    if not isinstance(tools, list):
        reason = document.get("error") if isinstance(document, dict) else None
        raise ListingError("parse_error", f"the host lists no tools: {reason or 'no reason given'}")
    profiles: dict[str, ActionProfile] = {}
    for tool in tools:
        aid = tool.get("aid") if isinstance(tool, dict) else None
        if not isinstance(aid, str) or not aid:
            raise ListingError("parse_error", "a tool without aid is listed")
        if aid in profiles:
            raise ListingError("parse_error", f"{aid} is listed twice")
        profiles[aid] = _profile(aid, tool)
    return profiles


def _profile(aid: str, tool: Mapping[str, Any]) -> ActionProfile:
    timeout: Any = tool.get("timeout")
    schema = tool.get("inputs_schema")
    return ActionProfile(
        aid=aid,
        tier=_tier(tool),
        idempotent=tool.get("idempotent") is True,
        timeout=float(timeout) if type(timeout) in (int, float) and 0 < timeout <= MAX_TIMEOUT else None,
        inputs_schema=schema if isinstance(schema, dict) else None,
        spawn=_capabilities(tool, "spawn"),
        egress=_destinations(tool),
        secrets=_secrets(tool.get("secrets", [])),
    )


def _secrets(listed: object) -> tuple[SecretUse, ...]:
    try:
        return msgspec.convert(listed, tuple[SecretUse, ...])
    except msgspec.ValidationError:
        raise ListingError("parse_error", "the secrets of a tool are invalid") from None


def _destinations(tool: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        return canonical_destinations(_capabilities(tool, "egress"))
    except ValueError:  # forged, or params of a pack
        return ()


def _capabilities(tool: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    capabilities = tool.get("capabilities")
    names = capabilities.get(kind) if isinstance(capabilities, dict) else None
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _tier(tool: Mapping[str, Any]) -> int:
    effects, listed_tier = tool.get("side_effects"), tool.get("tier")
    if not isinstance(effects, list) or not effects or not all(isinstance(effect, str) for effect in effects):
        return DANGEROUS
    # ``mutates=False`` is ignored for actions with programs: only hosts of packs keep programs from changing files.
    tier = tier_of_effects(effects, mutates=tool.get("mutates") is not False or starts_programs(effects))
    return max(tier, min(listed_tier, DANGEROUS)) if type(listed_tier) is int else tier


def tier_of_effects(effects: Iterable[str], *, mutates: bool) -> int:
    """Return the tier of the effects; dangerous if ``mutates=False`` contradicts one of them."""
    try:
        return lease_tier(effects, mutates=mutates)
    except ValueError:
        return DANGEROUS


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The actions of a plugin, as its host listed them."""

    plugin: str
    catalogue: Catalogue
    sha256: str
    document: bytes = b""
    """The answer to ``--list``; empty if the catalogue comes from the description of a pack."""
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    """The sandbox of the listing host: ``profile``, ``active`` mechanisms, and ``missing`` ones with reasons."""

    def by_egress(self) -> Iterator[Listing]:
        """Yield the actions in groups of the same egress: only these share a host."""
        for egress in sorted({each.egress for each in self.catalogue.values()}):
            yield replace(self, catalogue={aid: each for aid, each in self.catalogue.items() if each.egress == egress})

    def command(
        self,
        environ: Mapping[str, str],
        *,
        sandbox: Profile | None = None,
        programs: Sequence[str] = (),
        finder: ProgramFinder | None = None,
        **options: Unpack[HostOptions],
    ) -> HostCommand | DispatchError:
        """Return the command of a host that serves exactly the listed actions, or the error of a missing program.

        ``programs`` are those that the caller allows, by name or absolute path; ``finder`` resolves them, by default on
        ``PATH``. Without ``sandbox`` the profile is ``spawn`` if an action may start a program, else ``strict``.
        """
        # The other profiles need no list of programs: standard and none allow every program, strict allows none.
        allowed_programs = programs if sandbox in (None, "spawn") else ()
        executables = self._executables(allowed_programs, finder or ProgramFinder(environ))
        if not isinstance(executables, tuple):
            return executables
        libraries = [folder for program in executables for folder in library_paths(program)]
        options.setdefault("egress", sorted({name for action in self.catalogue.values() for name in action.egress}))
        uses = {use for action in self.catalogue.values() for use in action.secrets if use.at_start}
        options["start_secrets"] = sorted(uses)
        options["readable"] = (*options.get("readable", ()), *libraries)
        profile = sandbox or ("spawn" if executables else "strict")
        return HostCommand.for_plugin(
            self.plugin, environ, sha256=self.sha256, sandbox=profile, executables=executables, **options
        )

    def _executables(self, allowed_programs: Sequence[str], finder: ProgramFinder) -> tuple[str, ...] | DispatchError:
        """Return the paths of the allowed programs that actions name, or the error of a missing program."""
        paths: dict[str, None] = {}  # an ordered set
        for action in self.catalogue.values():
            for name in action.spawn:
                path = finder.startable(name, allowed_programs)
                if path is not None:
                    paths[path] = None
                elif name in allowed_programs:
                    detail = f"{action.aid} names the program {name!r}, which is not installed"
                    return failure(action.aid, "not_found", detail)
        return tuple(paths)


def list_plugin(
    plugin: str,
    environ: Mapping[str, str],
    *,
    sandbox: Profile = "strict",
    readable: Sequence[str] = (),
    policy: SandboxPolicy | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Listing | DispatchError:
    """Run a host to list the actions of a plugin; blocks at most ``timeout`` seconds. Errors have no action id."""
    try:
        source = find(plugin)
    except PluginError as error:
        return failure("", "tool_error", f"plugin {plugin}: {error}")
    sha256 = hashlib.sha256(source.content).hexdigest()
    command = HostCommand.for_plugin(plugin, environ, sha256=sha256, sandbox=sandbox, readable=readable, policy=policy)
    argv = ["--list" if word == "--serve" else word for word in command.argv]
    try:
        document, output = run_listing(argv, command.environ, sha256, seconds=timeout, limit=MAX_OUTPUT)
        catalogue, listing_sandbox = read_catalogue(output), document.get("sandbox")
        if not isinstance(listing_sandbox, dict):
            raise ListingError("parse_error", "the listing does not name the sandbox of its host")
        check_prefix(catalogue, source.path)
    except ListingError as error:
        return failure("", error.kind, f"plugin {plugin}: {error}", code=error.code)
    return Listing(plugin=plugin, catalogue=catalogue, sha256=sha256, document=output, sandbox=listing_sandbox)


def check_prefix(catalogue: Catalogue, path: str) -> None:
    """Raise :class:`ListingError` if an action id does not begin with the name of the plugin at this path."""
    prefix = action_id(plugin_name(path), "", 1).removesuffix("P.v1")  # "AID.NAME.": an empty function name becomes "P"
    for aid in catalogue:
        if not aid.startswith(prefix):
            raise ListingError("parse_error", f"{aid} is listed, and its actions begin with {prefix}")
