"""The modes of a host: ``--list PLUGIN | --run PLUGIN AID | --serve PLUGIN | tool_exec AID [options]``.

The exit status, in the order of the checks: 2 too few arguments; 3 the plugin cannot be loaded; 2 an unknown mode, or
no action id (AID); 4 an unknown AID; 5 an invalid request; 0 otherwise, also if the action failed. The IPC contract
defines these. It does not have: 1 an error of the host itself; 3 the lifespan of the plugin cannot start; 6 the host
cannot be sandboxed as requested; 7 the plugin closed the pipe of the protocol.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from manglecp.toolhost.context import SETTINGS, Reports, describe, trace
from manglecp.toolhost.host.arguments import KEY_BYTES, USAGE, Arguments, UsageError, parse_arguments
from manglecp.toolhost.host.confinement import ConfinementError, compile_all_below, confine, die_with
from manglecp.toolhost.host.execution import ActionExecutor, Signals, let_sigint_end_host
from manglecp.toolhost.host.messages import MAX_ANSWER_BYTES, REQUEST_TOO_LONG, answer_too_long, encode, parse, refusal
from manglecp.toolhost.host.session import LeaseCheck, RequestHandler, requires_leases
from manglecp.toolhost.host.streams import Oversize, PipeLost, Streams, high_descriptor, open_standard_descriptors
from manglecp.toolhost.plugin import Plugin, PluginError, find, load

_CALLING_MODES: Final = ("--run", "tool_exec", "--serve")


def main(argv: list[str]) -> int:
    """Run the host and return its exit status."""
    open_standard_descriptors()
    let_sigint_end_host()
    try:
        arguments = parse_arguments(argv)
    except UsageError as error:
        sys.stderr.write(f"{error}\n{USAGE}")
        return 2
    if arguments.parent is not None:
        die_with(arguments.parent)
    # With --parent, a dispatcher started this host. The dispatcher records the leases, so the host does not.
    reports = Reports(_move_high(arguments.progress_fd), lease_events=arguments.parent is None)
    try:
        return _execute(arguments, Streams(), reports)
    except PipeLost as lost:
        return 7 if lost.is_closed_by_plugin else 0


def _take_settings() -> dict[str, str]:
    """Remove the settings of the pack from the environment, so that children do not inherit them, and return them."""
    settings = parse(os.environb.pop(SETTINGS.encode(), b"{}"))
    if not isinstance(settings, dict) or not all(isinstance(value, str) for value in settings.values()):
        raise ValueError(f"{SETTINGS} is not a JSON object of texts")
    return settings


def _move_high(descriptor: int | None) -> int | None:
    """Move a descriptor to a high number, out of the way of the plugin; return the number."""
    if descriptor is None:
        return None
    copy = high_descriptor(descriptor)
    os.close(descriptor)
    return copy


def _execute(arguments: Arguments, streams: Streams, reports: Reports) -> int:
    sys.dont_write_bytecode = True  # loading a plugin must not write into its folder
    settings = _take_settings()
    mode, plugin_argument, *rest = arguments.positionals
    try:
        source = find(plugin_argument, arguments.sha256)
        confinement = arguments.confinement
        if arguments.packages is not None:
            sys.path.append(packages := _packages_folder(arguments.packages))
            confinement = confinement._replace(readable=(*confinement.readable, packages))
        if os.path.isfile(plugin_argument):  # noqa: PTH113  # not for an installed module: its bytecode is trusted
            compile_all_below(source.root)
        sandbox, temporary = confine(confinement, source)
        streams.close_in_children()
        if arguments.packages is not None:
            from site import addsitedir

            addsitedir(packages)  # its .pth files can contain code, so the host must be sandboxed already
        plugin = load(source)
        undeclared = None
        if confinement.profile in ("strict", "spawn"):
            from manglecp.toolhost.host.destinations import UndeclaredDestinations

            undeclared = UndeclaredDestinations(confinement.egress)
        executor = ActionExecutor(
            reports,
            Signals(),
            settings,
            temporary,
            ignore_extra_inputs=arguments.ignore_extra_inputs,
            concurrent=arguments.concurrent and mode == "--serve",
            undeclared=undeclared,
        )
        if plugin.lifespan is not None and mode in _CALLING_MODES:
            executor.start(plugin.lifespan, parse(streams.read_line()) if arguments.start_secrets else {})
    except PluginError as error:
        streams.write(encode(refusal(str(error))))
        return 3
    except ConfinementError as error:
        streams.write(encode(refusal(str(error), sandbox=error.manifest)))
        return 6
    key = arguments.lease_key
    if key is None and mode == "--serve" and requires_leases(os.environ):
        key = os.urandom(KEY_BYTES)  # no dispatcher has this key: only leases issued on the pipe are valid
    lease_check = LeaseCheck(
        key, reports, pipe_leases=arguments.pipe_leases, every_call=arguments.lease_key is not None
    )
    handler = RequestHandler(plugin, lease_check, executor)
    if mode == "--list":
        return _list(streams, plugin, sandbox)
    if mode not in _CALLING_MODES:
        streams.write(encode(refusal(f"unknown mode: {mode}")))
        return 2
    if mode != "--serve":
        status = _run(streams, plugin, handler, rest[0] if rest else None, is_tool_exec=mode == "tool_exec")
    elif arguments.concurrent:
        status = _serve_concurrently(streams, handler, executor)
    else:
        status = _serve(streams, handler)
    executor.stop()
    return status


def _packages_folder(environment: str) -> str:
    """Return the folder with the packages of a virtual environment for this Python; raises PluginError."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    root = os.path.realpath(environment)
    folder = f"{root}/lib/python{version}/site-packages"
    if not os.path.isdir(folder):  # noqa: PTH112  # pathlib would be the slowest import
        raise PluginError(f"the environment {environment} has no packages for Python {version}; create it again")
    if os.path.realpath(folder) != folder:  # a link could open any folder to the plugin
        raise PluginError(f"the packages of the environment {environment} are reached by a link; create it again")
    return folder


def _list(streams: Streams, plugin: Plugin, sandbox: dict[str, Any]) -> int:
    tools = [tool.descriptor for tool in plugin.tools.values()]
    streams.write(encode({"ok": True, "tools": tools, "plugin_sha256": plugin.sha256, "sandbox": sandbox}))
    return 0


def _run(streams: Streams, plugin: Plugin, handler: RequestHandler, aid: str | None, *, is_tool_exec: bool) -> int:
    """Run one action. ``tool_exec`` reports an unknown action as a failed one, with exit status 0."""
    if aid is None:
        streams.write(encode(refusal("missing aid")))
        return 2
    tool = plugin.tools.get(aid)
    if tool is None and is_tool_exec:
        streams.write(encode(refusal(f"MISSING_TOOL: {aid}", ok=True)))
        return 0
    if tool is None:
        streams.write(encode(refusal(f"tool not found in plugin: {aid}", status="INVALID_PICK")))
        return 4
    try:
        request = parse(streams.read_all())
    except Oversize:
        streams.write(encode(refusal(REQUEST_TOO_LONG)))
        return 5
    except ValueError:
        request = None
    if not isinstance(request, dict):
        streams.write(encode(refusal("invalid JSON on stdin" if is_tool_exec else "invalid JSON request on stdin")))
        return 5
    streams.write(_encode_answer(handler.run(tool, request), handler))
    return 0


def _serve(streams: Streams, handler: RequestHandler) -> int:
    while True:
        try:
            line = streams.read_line()
        except Oversize:
            answer = refusal(REQUEST_TOO_LONG)
        except PipeLost:
            raise
        except BaseException as error:  # from the plugin: one of its threads or signal handlers raised it here
            trace(error)
            continue
        else:
            if not line:
                return 0
            answer = handler.serve(line)
        streams.write(_encode_answer(answer, handler) + b"\n")


def _serve_concurrently(streams: Streams, handler: RequestHandler, executor: ActionExecutor) -> int:
    from manglecp.toolhost.host.concurrency import ConcurrentServer

    async def answer(request: object) -> bytes:
        return _encode_answer(await handler.answer(request), handler) + b"\n"

    ConcurrentServer(executor.event_loop(), streams, answer).serve()
    return 0


def _encode_answer(answer: dict[str, Any], handler: RequestHandler) -> bytes:
    """Return the answer, or an error in place of one that cannot be encoded or is too long."""
    try:
        line = encode(answer)
    except Exception as error:
        trace(error)
        return encode(refusal(describe(error)))
    if len(line) <= MAX_ANSWER_BYTES:
        return line
    handler.restore_slots()
    return encode(answer_too_long(answer, len(line)))


if __name__ == "__main__":
    try:
        _status = main(sys.argv[1:])
    except BaseException as _error:
        trace(_error)
        _status = 1
    os._exit(_status)  # a client waits 50 ms for the exit, and threads or exit handlers of a plugin may block
