"""What a plugin offers, asked of the plugin itself, and the host that serves exactly that.

Asking runs the plugin, so it happens in a host that is locked in as strictly as can be (``strict``, nothing to write)
and has a deadline. The answer names the hash of what was run. A host that serves it is started with that hash: if the
file has changed in between, it does not start.

Programs are looked up here, on the ``PATH`` of whoever dispatches: a plugin says which it wants, never where they lie.
All programs that its actions name are open to the whole plugin, for its actions share a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from manglecp.toolhost.dispatch.catalogue import Catalogue, ListingError
from manglecp.toolhost.dispatch.errors import DispatchError, failure
from manglecp.toolhost.dispatch.framing import MAX_OUTPUT
from manglecp.toolhost.dispatch.launching import HostCommand, launch
from manglecp.toolhost.dispatch.settings import DEFAULT_TIMEOUT
from manglecp.toolhost.sandbox import Profile

__all__ = ["Listing", "list_plugin"]

_CHUNK: Final = 65_536
_STDERR: Final = 8_192
_HASH: Final = 64


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer of one plugin."""

    plugin: str
    document: bytes
    catalogue: Catalogue
    sha256: str
    sandbox: Mapping[str, Any]
    """How the host that answered was locked in: ``profile``, ``active``, and ``missing`` with reasons."""

    def command(
        self,
        environ: Mapping[str, str],
        *,
        sandbox: Profile | None = None,
        workspace: Sequence[str] = (),
        readable: Sequence[str] = (),
        user: tuple[int, int] | None = None,
        degrade: bool = False,
    ) -> HostCommand | DispatchError:
        """How to start a host that serves what was listed, and nothing else.

        Without ``sandbox`` it is ``spawn`` for a plugin that names programs, and ``strict`` for every other.
        """
        wanted = [(profile.aid, program) for profile in self.catalogue.values() for program in profile.spawn]
        profile = sandbox or ("spawn" if wanted else "strict")
        executables: dict[str, None] = {}
        if profile == "spawn":
            for aid, program in wanted:
                path = _program(program, environ.get("PATH", os.defpath))
                if path is None:
                    return failure(aid, "not_found", f"{aid} names the program {program!r}, and there is none here")
                executables[path] = None
        return HostCommand.for_plugin(
            self.plugin,
            environ,
            sha256=self.sha256,
            sandbox=profile,
            workspace=workspace,
            readable=readable,
            executables=tuple(executables),
            user=user,
            degrade=degrade,
        )


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
    command = HostCommand.for_plugin(
        plugin, environ, sandbox=sandbox, readable=readable, user=user, degrade=degrade
    ).listing()
    output = await _output(command, plugin, timeout)
    return _read(plugin, output) if isinstance(output, bytes) else output


def _read(plugin: str, document: bytes) -> Listing | DispatchError:
    try:
        catalogue = Catalogue.read(document)
    except ListingError as error:
        return failure("", "parse_error", f"plugin {plugin}: {error}")
    said = msgspec.json.decode(document)
    sha256, sandbox = said.get("plugin_sha256"), said.get("sandbox")
    if not isinstance(sha256, str) or len(sha256) != _HASH or not isinstance(sandbox, dict):
        return failure("", "parse_error", f"plugin {plugin}: the listing does not say what was run, and how")
    return Listing(plugin, document, catalogue, sha256, sandbox)


def _program(name: str, path: str) -> str | None:
    """The absolute path of a program; a folder of ``PATH`` that depends on where somebody stands does not count."""
    if "/" in name and not name.startswith("/"):
        return None
    folders = [folder for folder in path.split(os.pathsep) if folder.startswith("/")]
    return shutil.which(name, path=os.pathsep.join(folders)) if folders or name.startswith("/") else None


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
