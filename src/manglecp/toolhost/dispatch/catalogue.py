"""What a plugin offers: its listing, the profiles of its actions, and the command of a host that serves exactly that.

Listing runs the plugin, so it happens in a host with the ``strict`` sandbox and a deadline. The file is hashed before
it runs, and every host of it is started with that hash. The listing is untrusted: it decides neither the hash, nor the
family of action ids, nor the sandbox, and programs are started only if the caller allows them by name.

The tier of an action is computed from its effects; a host's claim can only raise it. Missing or unreadable members
default to the careful value. Dispatch does not validate input against the schema of the action: the caller and the host
do.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from manglecp.pack import SandboxPolicy
from manglecp.toolhost.actions import DANGEROUS, lease_tier
from manglecp.toolhost.canonical import unique
from manglecp.toolhost.dispatch.launch import (
    DEFAULT_TIMEOUT,
    MAX_TIMEOUT,
    HostCommand,
    ProgramFinder,
    launch,
    library_paths,
)
from manglecp.toolhost.dispatch.messages import Call, DispatchError, failure, is_failure
from manglecp.toolhost.dispatch.responses import MAX_OUTPUT
from manglecp.toolhost.plugin import PluginError, Source, action_id, find, plugin_name
from manglecp.toolhost.sandbox import Profile
from manglecp.toolhost.state import Artifact

_decode: Final = json.JSONDecoder(object_pairs_hook=unique).decode


class ListingError(ValueError):
    """No valid listing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionProfile:
    """How dispatch treats one action."""

    aid: str
    tier: int = DANGEROUS
    idempotent: bool = False
    timeout: float | None = None
    inputs_schema: Mapping[str, Any] | None = None
    spawn: tuple[str, ...] = ()
    """The programs that it may start, if the operator allows them."""


class Catalogue(Mapping[str, ActionProfile]):
    """The actions of one plugin, by AID."""

    def __init__(self, profiles: Mapping[str, ActionProfile]) -> None:
        self._profiles = dict(profiles)

    @classmethod
    def read(cls, listing: bytes) -> Catalogue:
        """Parse the answer to ``--list``; raises :class:`ListingError`."""
        try:
            document = msgspec.json.decode(listing)
        except (ValueError, RecursionError) as error:
            raise ListingError(f"the listing is no JSON: {error}") from error
        tools = document.get("tools") if isinstance(document, dict) and document.get("ok") is True else None
        if not isinstance(tools, list):
            reason = document.get("error") if isinstance(document, dict) else None
            raise ListingError(f"the host lists no tools: {reason or 'no reason given'}")
        profiles: dict[str, ActionProfile] = {}
        for tool in tools:
            aid = tool.get("aid") if isinstance(tool, dict) else None
            if not isinstance(aid, str) or not aid:
                raise ListingError("a tool without aid is listed")
            if aid in profiles:
                raise ListingError(f"{aid} is listed twice")
            profiles[aid] = _profile(aid, tool)
        return cls(profiles)

    def timed(self, seconds: float) -> Catalogue:
        """Return a copy in which actions without a timeout have this one."""
        profiles = self._profiles.items()
        return Catalogue({aid: replace(each, timeout=each.timeout or seconds) for aid, each in profiles})

    def __getitem__(self, aid: str) -> ActionProfile:
        return self._profiles[aid]

    def __iter__(self) -> Iterator[str]:
        return iter(self._profiles)

    def __len__(self) -> int:
        return len(self._profiles)

    def prepare(
        self,
        aid: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        input_json: str | None = None,
        slots: Mapping[int, Artifact] | None = None,
        timeout: float | None = None,
        **members: Any,
    ) -> Call | DispatchError:
        """Return the call of an action, or an error.

        Input is an object (``inputs``) or its JSON text (``input_json``), not both (OPEN-60). ``timeout`` are the
        seconds that the caller waits; what the action may take is in its profile.
        """
        profile = self._profiles.get(aid)
        if profile is None:
            return failure(aid, "not_found", f"tool not found: {aid}", status="INVALID_PICK")
        if inputs is not None and input_json is not None:
            return failure(aid, "exception", "inputs and input_json are both given")
        try:
            text = input_json
            if text is None:
                text = "{}" if inputs is None else msgspec.json.encode(inputs).decode()
            value = msgspec.json.decode(text)  # what is checked is what is sent, not what it was made from
            if input_json is not None and msgspec.json.encode(value) != text.encode():
                _decode(text)  # msgspec takes the last of two members with one name, and a host refuses both
        except (TypeError, ValueError, RecursionError) as error:
            return failure(aid, "tool_error", f"the input is no JSON: {error}", status="INVALID_PICK")
        if not isinstance(value, dict):
            return failure(aid, "tool_error", "the input is no JSON object", status="INVALID_PICK")
        return Call(
            aid=aid,
            input_json=text,
            tier=profile.tier,
            idempotent=profile.idempotent,
            slots={} if slots is None else slots,
            timeout=profile.timeout,
            patience=timeout,
            **members,
        )


def _profile(aid: str, tool: Mapping[str, Any]) -> ActionProfile:
    timeout: Any = tool.get("timeout")
    schema = tool.get("inputs_schema")
    return ActionProfile(
        aid=aid,
        tier=_tier(tool),
        idempotent=tool.get("idempotent") is True,
        timeout=float(timeout) if type(timeout) in (int, float) and 0 < timeout <= MAX_TIMEOUT else None,
        inputs_schema=schema if isinstance(schema, dict) else None,
        spawn=_spawn(tool.get("capabilities")),
    )


def _spawn(capabilities: object) -> tuple[str, ...]:
    programs = capabilities.get("spawn") if isinstance(capabilities, dict) else None
    return tuple(each for each in programs if isinstance(each, str)) if isinstance(programs, list) else ()


def _tier(tool: Mapping[str, Any]) -> int:
    effects, claimed = tool.get("side_effects"), tool.get("tier")
    if not isinstance(effects, list) or not effects or not all(isinstance(effect, str) for effect in effects):
        return DANGEROUS
    try:
        tier = lease_tier(effects, mutates=tool.get("mutates") is not False)
    except ValueError:  # mutates=False with an effect that is no read
        return DANGEROUS
    return max(tier, min(claimed, DANGEROUS)) if type(claimed) is int else tier


_CHUNK: Final = 65_536
_STDERR: Final = 8_192


@dataclass(frozen=True, slots=True)
class Listing:
    """What one plugin lists."""

    plugin: str
    document: bytes
    catalogue: Catalogue
    sha256: str
    sandbox: Mapping[str, Any]
    """The sandbox of the host that answered: ``profile``, ``active``, and ``missing`` with reasons."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that its actions name, for the operator to allow."""
        return tuple(dict.fromkeys(name for profile in self.catalogue.values() for name in profile.spawn))

    def part(self, aids: Iterable[str]) -> Listing:
        """Return the listing of these actions only.

        Actions that share a host share its programs; a part gets hosts of its own.
        """
        return replace(self, catalogue=Catalogue({aid: self.catalogue[aid] for aid in aids}))

    def command(
        self,
        environ: Mapping[str, str],
        *,
        sandbox: Profile | None = None,
        programs: Sequence[str] = (),
        workspace: Sequence[str] = (),
        readable: Sequence[str] = (),
        user: tuple[int, int] | None = None,
        policy: SandboxPolicy | None = None,
        limits: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        finder: ProgramFinder | None = None,
    ) -> HostCommand | DispatchError:
        """Return the command of a host that serves what was listed, and nothing else.

        ``programs`` are those that the caller allows, by name or absolute path; ``finder`` resolves them, by default on
        ``PATH``. Without ``sandbox`` the profile is ``spawn`` if an action names one of them, else ``strict``.
        ``settings`` are passed to the actions.
        """
        allowed = () if sandbox not in (None, "spawn") else programs
        executables = self._executables(allowed, finder or ProgramFinder(environ))
        if is_failure(executables):
            return executables
        return HostCommand.for_plugin(
            self.plugin,
            environ,
            sha256=self.sha256,
            sandbox=sandbox or ("spawn" if executables else "strict"),
            workspace=workspace,
            readable=(*readable, *(folder for program in executables for folder in library_paths(program))),
            executables=tuple(executables),
            user=user,
            policy=policy,
            limits=limits,
            settings=settings,
        )

    def _executables(self, allowed: Sequence[str], finder: ProgramFinder) -> dict[str, None] | DispatchError:
        """Return the paths of the programs that are both named and allowed."""
        found: dict[str, None] = {}
        for action in self.catalogue.values():
            for name in action.spawn:
                path = finder.startable(name, allowed)
                if path is not None:
                    found[path] = None
                elif name in allowed:
                    detail = f"{action.aid} names the program {name!r}, and there is none here"
                    return failure(action.aid, "not_found", detail)
        return found


async def list_plugin(
    plugin: str,
    environ: Mapping[str, str],
    *,
    sandbox: Profile = "strict",
    readable: Sequence[str] = (),
    user: tuple[int, int] | None = None,
    policy: SandboxPolicy | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Listing | DispatchError:
    """List what a plugin offers. An error has no action id, and names the plugin."""
    try:
        source = find(plugin)
    except PluginError as error:
        return failure("", "tool_error", f"plugin {plugin}: {error}")
    sha256 = hashlib.sha256(source.content).hexdigest()
    command = HostCommand.for_plugin(
        plugin, environ, sha256=sha256, sandbox=sandbox, readable=readable, user=user, policy=policy
    ).listing()
    output = await _output(command, plugin, timeout)
    return _read(plugin, output, sha256, _family(source)) if isinstance(output, bytes) else output


def _family(source: Source) -> str:
    return action_id(plugin_name(source.path), "", 1).removesuffix("P.v1")


def _read(plugin: str, document: bytes, sha256: str, family: str) -> Listing | DispatchError:
    try:
        catalogue = Catalogue.read(document)
    except ListingError as error:
        return failure("", "parse_error", f"plugin {plugin}: {error}")
    said = msgspec.json.decode(document)
    sandbox = said.get("sandbox")
    if said.get("plugin_sha256") != sha256 or not isinstance(sandbox, dict):
        return failure("", "parse_error", f"plugin {plugin}: the listing does not say what was run, and how")
    for aid in catalogue:
        if not aid.startswith(family):
            return failure("", "parse_error", f"plugin {plugin}: {aid} is listed, and its actions begin with {family}")
    return Listing(plugin, document, catalogue, sha256, sandbox)


# ---------------------------------------------------------------------------------------------------- the process


async def _output(command: HostCommand, plugin: str, timeout: float) -> bytes | DispatchError:
    """Return what the process prints. It and its children are gone afterwards, whatever happens."""
    try:
        process = launch(command).process
    except OSError as error:
        return failure("", "not_found", f"plugin {plugin}: the host cannot be started: {error}")
    assert process.stdin is not None
    process.stdin.close()
    reading = _Reading(process)
    try:
        async with asyncio.timeout(timeout):
            await reading.done
    except TimeoutError:
        return failure("", "timeout", f"plugin {plugin}: no listing within {timeout:g} s")
    finally:
        code = reading.end()
    if reading.oversize:
        return failure(
            "", "parse_error", f"plugin {plugin}: the listing has more than {MAX_OUTPUT} bytes", code="oversize"
        )
    return _judged(plugin, code, bytes(reading.output), bytes(reading.stderr))


def _judged(plugin: str, code: int, output: bytes, stderr: bytes) -> bytes | DispatchError:
    if code == 0 and output:
        return output
    with contextlib.suppress(ValueError, RecursionError):
        said = msgspec.json.decode(output)
        if isinstance(said, dict) and isinstance(said.get("error"), str):
            return failure("", "tool_error", f"plugin {plugin}: {said['error']}")
    if code == 0:
        return failure("", "parse_error", f"plugin {plugin}: the host said nothing", code="empty_output")
    how = f"ended by signal {-code}" if code < 0 else f"exited with code {code}"
    told = (output[:_STDERR] + b"\n" + stderr).strip().decode("utf-8", "replace")
    return failure("", "crash", f"plugin {plugin}: the host {how}" + (f": {told}" if told else ""))


class _Reading:
    """Collects what a process writes until it ends, or writes too much."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._streams = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        self.output, self.stderr = self._streams.values()
        self.oversize = False
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._finish)
        for descriptor in self._streams:
            os.set_blocking(descriptor, False)
            self._loop.add_reader(descriptor, self._take, descriptor)

    def _take(self, descriptor: int) -> bool:
        """Read a chunk; return whether there may be more."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(descriptor)
            return False
        kept = self._streams[descriptor]
        kept += data
        if kept is self.stderr:
            del kept[:-_STDERR]
        elif len(kept) > MAX_OUTPUT:
            self.oversize = True
            self._finish()
            return False
        return True

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def end(self) -> int:
        """Kill the whole group before its leader is reaped; return the exit status of the leader."""
        ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if ended:
            for descriptor in self._streams:
                while self._take(descriptor):
                    pass
        code = self._process.wait()
        for descriptor in (self._pidfd, *self._streams):
            self._loop.remove_reader(descriptor)
        os.close(self._pidfd)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        return code
