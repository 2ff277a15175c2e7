"""The command line of a host, and its three modes.

    --list PLUGIN | --run PLUGIN AID | --serve PLUGIN
        [--lease-key-fd N] [--progress-fd N] [--sha256 HEX] [--pipe-leases]

Order of checks and exit status are those of the contract: 2 too few arguments, 3 the plugin, then 2 the mode or a
missing AID, 4 an unknown AID, 5 a request that is none, 0 everything else, also a tool that failed.
"""

from __future__ import annotations

import os
import sys
from typing import Final, NoReturn

from manglecp.toolhost.context import Reports
from manglecp.toolhost.host.cache import Cache
from manglecp.toolhost.host.execution import Worker
from manglecp.toolhost.host.gate import Gate, enforced
from manglecp.toolhost.host.messages import OVERSIZE, encode, parse, refusal
from manglecp.toolhost.host.session import Session
from manglecp.toolhost.host.streams import Oversize, Streams
from manglecp.toolhost.plugin import Plugin, PluginError, load

__all__ = ["main"]

USAGE: Final = (
    "usage: manglecp toolhost --list PLUGIN | --run PLUGIN AID | --serve PLUGIN\n"
    "       [--lease-key-fd N] [--progress-fd N] [--sha256 HEX] [--pipe-leases]\n"
)
_VALUED: Final = ("--lease-key-fd", "--progress-fd", "--sha256")
_KEY_SIZE: Final = 32


class _Usage(Exception):
    """A command line that says nothing."""


class _Arguments:
    """Positions are the contract's; options are ours and may stand anywhere, for whoever starts a host appends them."""

    def __init__(self, argv: list[str]) -> None:
        self.positions: list[str] = []
        self.options: dict[str, str] = {}
        self.pipe_leases = False
        rest = iter(argv)
        for word in rest:
            if word in _VALUED:
                try:
                    self.options[word] = next(rest)
                except StopIteration:
                    raise _Usage(f"{word} needs a value") from None
            elif word == "--pipe-leases":
                self.pipe_leases = True
            else:
                self.positions.append(word)
        if len(self.positions) < 2:
            raise _Usage("a mode and a plugin are needed")

    def descriptor(self, option: str) -> int | None:
        text = self.options.get(option)
        if text is None:
            return None
        try:
            number = int(text)
            os.fstat(number)
        except (ValueError, OSError):
            raise _Usage(f"{option}: {text} is not an open descriptor") from None
        return number


def main(argv: list[str]) -> int:
    """Do what the command line says; the exit status."""
    try:
        arguments = _Arguments(argv)
        reports = Reports(arguments.descriptor("--progress-fd"))
        key = _read_key(arguments.descriptor("--lease-key-fd"))
    except _Usage as error:
        sys.stderr.write(f"{error}\n{USAGE}")
        return 2
    streams = Streams()
    sys.dont_write_bytecode = True  # to look at a plugin must not change its folder
    mode, where, *rest = arguments.positions
    try:
        plugin = load(where, arguments.options.get("--sha256"))
    except PluginError as error:
        streams.write(encode(refusal(str(error))))
        return 3
    if key is None and mode == "--serve" and enforced(os.environ):
        key = os.urandom(_KEY_SIZE)  # nobody else has it: only leases issued on the pipe can open this gate
    session = Session(plugin, Gate(key, reports, pipe_leases=arguments.pipe_leases), Worker(reports), Cache())
    match mode:
        case "--list":
            return _list(streams, plugin)
        case "--run":
            return _run(streams, plugin, session, rest)
        case "--serve":
            return _serve(streams, session)
    streams.write(encode(refusal(f"unknown mode: {mode}")))
    return 2


def _read_key(descriptor: int | None) -> bytes | None:
    """The key of the leases. It is read before any code of the plugin runs, and can be read only once."""
    if descriptor is None:
        return None
    key = b""
    while chunk := os.read(descriptor, _KEY_SIZE * 2):
        key += chunk
    os.close(descriptor)
    if len(key) != _KEY_SIZE:
        raise _Usage(f"--lease-key-fd: a key has {_KEY_SIZE} bytes")
    return key


def _list(streams: Streams, plugin: Plugin) -> int:
    tools = [tool.descriptor() for tool in plugin.tools.values()]
    streams.write(encode({"ok": True, "tools": tools, "plugin_sha256": plugin.sha256}))
    return 0


def _run(streams: Streams, plugin: Plugin, session: Session, rest: list[str]) -> int:
    if not rest:
        streams.write(encode(refusal("missing aid")))
        return 2
    tool = plugin.tools.get(rest[0])
    if tool is None:
        streams.write(encode(refusal(f"tool not found in plugin: {rest[0]}", status="INVALID_PICK")))
        return 4
    try:
        request = parse(streams.everything())
    except Oversize:
        streams.write(encode(refusal(OVERSIZE)))
        return 5
    except ValueError:
        request = None
    if not isinstance(request, dict):
        streams.write(encode(refusal("invalid JSON request on stdin")))
        return 5
    streams.write(encode(session.run(tool, request)))
    return 0


def _serve(streams: Streams, session: Session) -> int:
    while True:
        try:
            line = streams.line()
        except Oversize:
            answer = refusal(OVERSIZE)
        else:
            if not line:
                return 0
            answer = session.serve(line)
        streams.write(encode(answer) + b"\n")


def _end(status: int) -> NoReturn:
    """Leave at once: a client waits 50 ms, and threads or exit handlers of a plugin may wait for ever."""
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    try:
        _end(main(sys.argv[1:]))
    except (BrokenPipeError, KeyboardInterrupt):
        _end(0)
