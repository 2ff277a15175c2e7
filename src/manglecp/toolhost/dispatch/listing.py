"""What a plugin offers, asked of the plugin itself, and the host that serves exactly that.

Asking runs the plugin, so it happens in a host that is locked in as strictly as can be (``strict``, nothing to write)
and has a deadline. The file is hashed here before anybody runs it, and every host of it, the first one too, is started
with that hash: if the file has changed in between, it does not start.

The answer is the plugin's word about itself, and a hostile one can forge it. So it decides little: it cannot name
another hash, nor actions that are another plugin's, and not how it is locked in. Programs are started only if the
caller allows them by name. They are looked up here, on the ``PATH`` of whoever dispatches, or where a setting of that
name says that the program lies: a plugin says which it wants, never where. All programs that the actions of a listing
name are open to each of them, for they share a process; :meth:`Listing.part` has some of them, for hosts of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from manglecp.toolhost.dispatch.catalogue import Catalogue, ListingError
from manglecp.toolhost.dispatch.errors import DispatchError, failure, is_failure
from manglecp.toolhost.dispatch.framing import MAX_OUTPUT
from manglecp.toolhost.dispatch.launching import HostCommand, launch
from manglecp.toolhost.dispatch.programs import Places, read_by
from manglecp.toolhost.dispatch.settings import DEFAULT_TIMEOUT
from manglecp.toolhost.hashing import hex_digest
from manglecp.toolhost.plugin import PluginError, Source, action_id, find, plugin_name
from manglecp.toolhost.sandbox import Profile

__all__ = ["Listing", "list_plugin"]

_CHUNK: Final = 65_536
_STDERR: Final = 8_192


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer of one plugin."""

    plugin: str
    document: bytes
    catalogue: Catalogue
    sha256: str
    sandbox: Mapping[str, Any]
    """How the host that answered was locked in: ``profile``, ``active``, and ``missing`` with reasons."""

    @property
    def programs(self) -> tuple[str, ...]:
        """What its actions would like to start, for whoever decides which of them to allow."""
        return tuple(dict.fromkeys(name for profile in self.catalogue.values() for name in profile.spawn))

    def part(self, aids: Iterable[str]) -> Listing:
        """The same, of these actions only."""
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
        degrade: bool = False,
        limits: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        places: Places | None = None,
    ) -> HostCommand | DispatchError:
        """How to start a host that serves what was listed, and nothing else.

        Without ``sandbox`` it is ``strict``; or ``spawn`` if an action names one of the ``programs``, which are those
        that the caller allows, by name or absolute path. ``places`` says where they lie; without it, ``PATH`` does.
        ``settings`` are what the actions are told.
        """
        allowed = () if sandbox not in (None, "spawn") else programs
        executables = self._executables(allowed, places or Places(environ))
        if is_failure(executables):
            return executables
        return HostCommand.for_plugin(
            self.plugin,
            environ,
            sha256=self.sha256,
            sandbox=sandbox or ("spawn" if executables else "strict"),
            workspace=workspace,
            readable=(*readable, *(folder for program in executables for folder in read_by(program))),
            executables=tuple(executables),
            user=user,
            degrade=degrade,
            limits=limits,
            settings=settings,
        )

    def _executables(self, allowed: Sequence[str], places: Places) -> dict[str, None] | DispatchError:
        """Where the programs lie that are both wanted and allowed."""
        found: dict[str, None] = {}
        for action in self.catalogue.values():
            for name in action.spawn:
                path = places.startable(name, allowed)
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
    degrade: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
) -> Listing | DispatchError:
    """Ask a plugin what it offers. The error of one that cannot say has no action id, and names the plugin."""
    try:
        source = find(plugin)
    except PluginError as error:
        return failure("", "tool_error", f"plugin {plugin}: {error}")
    sha256 = hex_digest(source.content)
    command = HostCommand.for_plugin(
        plugin, environ, sha256=sha256, sandbox=sandbox, readable=readable, user=user, degrade=degrade
    ).listing()
    output = await _output(command, plugin, timeout)
    return _read(plugin, output, sha256, _family(source)) if isinstance(output, bytes) else output


def _family(source: Source) -> str:
    """How the ids of a plugin's actions begin."""
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
    """What the process says. Whatever happens, it and all that it started are gone afterwards."""
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
    """Takes what a process writes until it ends, or writes too much."""

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
        """Take a piece; whether there may be more."""
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
        """End the whole group while its leader still holds its number; the exit status of the leader."""
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
