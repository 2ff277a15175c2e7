"""``manglecp decide``: whether a call would be allowed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from manglecp.cli import options
from manglecp.cli.completion import intents
from manglecp.cli.output import ProgressLine, refuse, write_lines
from manglecp.cli.servers import ServerOptions, run_with_client, server_options, target_argument

if TYPE_CHECKING:  # the command line is checked before these packages are loaded
    from manglecp.client import Client
    from manglecp.intent import Identity
    from manglecp.wire.messages import DecideResult

_STATUS: Final = {"allow": 0, "ask": 3, "deny": 1}


@click.command("decide")
@target_argument
@click.argument("tool", metavar="TOOL")
@click.option("--intent", metavar="NAME", shell_complete=intents, help="The intent that the tool must be proven for.")
@options.intent_options
@options.tool_args
@options.caller_options
@options.pack_options
@server_options
@options.as_message
@click.pass_context
def command(
    context: click.Context,
    target: Path | str,
    tool: str,
    intent: str | None,
    inputs: options.IntentOptions,
    args: dict[str, str],
    caller: options.CallerOptions,
    runtime: options.RuntimeOptions,
    server: ServerOptions,
    as_json: bool,
) -> None:
    """Print whether the caller may call TOOL with these arguments: allow, ask (an approver has to approve) or deny.

    Nothing is executed. Without --intent, policy alone decides; with it, the tool must also be proven for the intent.
    For a URL (http, https, ws, wss) that server decides, at its own clock.

    The exit status is 0 for allow, 3 for ask, and 1 for deny and for a request that is refused.
    """
    from manglecp.cli.intent_request import decode_value

    server.check_options(context, target)
    payload = inputs.payload(intent or "")
    values = {name: decode_value(text) for name, text in args.items()}
    if isinstance(target, str):
        result, rules = _decide_at_server(target, server, tool, values, payload, as_json=as_json), None
    else:
        result, rules = _decide_locally(target, runtime, tool, values, payload, caller.identity, as_json=as_json)
    if as_json:
        import msgspec

        write_lines([msgspec.json.encode(result).decode()])
    else:
        write_lines([result.verdict, *(f"  {reason}" for reason in result.reasons)])
        if rules:
            write_lines([f"  by {place}" for place in rules])
    context.exit(_STATUS[result.verdict])


def _decide_at_server(
    url: str, server: ServerOptions, tool: str, args: dict[str, Any], payload: dict[str, Any], *, as_json: bool
) -> DecideResult:
    from manglecp.intent import ANONYMOUS
    from manglecp.wire import WireError

    async def decide(client: Client) -> DecideResult:
        intent = payload["intent"]
        return await client.decide(
            tool, args, intent=intent["name"] or None, params=intent["params"], facts=payload["facts"]
        )

    try:
        with ProgressLine("waiting for the server"):
            return run_with_client(url, server, decide)
    except WireError as error:
        options.refuse_request(error, ANONYMOUS, as_json=as_json)


def _decide_locally(
    folder: Path,
    runtime: options.RuntimeOptions,
    tool: str,
    args: dict[str, Any],
    payload: dict[str, Any],
    identity: Identity,
    *,
    as_json: bool,
) -> tuple[DecideResult, tuple[str, ...]]:
    """Return the result, with all reasons, and the places of the rules that decided."""
    from manglecp.intent import request_message
    from manglecp.invoke import decide_call, load_domain
    from manglecp.pack import PackError
    from manglecp.wire import WireError, read_instant
    from manglecp.wire.messages import DecideRequest, DecideResult

    intent = payload["intent"] if payload["intent"]["name"] else None
    content = {"tool": tool, "args": args, "intent": intent, "facts": payload["facts"]}
    try:
        with ProgressLine("loading") as progress, ExitStack() as host_stack:
            domain, _ = load_domain(runtime.for_pack(folder), host_stack)
            progress.doing = "evaluating"
            request: DecideRequest = request_message("x-decide_request", content, domain.pack, "shell")
            decision = decide_call(domain, request.payload, identity, read_instant(payload["eval_time"]))
    except PackError as error:
        refuse(error)
    except WireError as error:
        options.refuse_request(error, identity, as_json=as_json)
    reasons = tuple(dict.fromkeys((*decision.reasons, *decision.public_reasons)))
    return DecideResult(verdict=decision.verdict, reasons=reasons, decided_at=payload["eval_time"]), decision.rules
