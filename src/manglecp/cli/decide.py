"""``manglecp decide``: whether a call would be allowed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from manglecp.cli.options import PACK_OPTIONS, IntentOptions, intent_option, intent_options, tool_args
from manglecp.cli.output import write_lines
from manglecp.cli.target import TargetOptions, target_argument, target_options

if TYPE_CHECKING:  # loaded only after the check of the command line
    from manglecp.client import Client
    from manglecp.wire.messages import DecideResult

_EXIT_STATUS: Final = {"allow": 0, "ask": 3, "deny": 1}


@click.command("decide")
@target_argument
@click.argument("tool", metavar="TOOL")
@intent_option("The intent that the tool must be proven for.")
@intent_options
@tool_args
@target_options(*PACK_OPTIONS)
def command(
    target: Path | str,
    tool: str,
    intent: str | None,
    inputs: IntentOptions,
    args: dict[str, str],
    options: TargetOptions,
) -> None:
    """Print whether the caller may call TOOL with these arguments: allow, ask (an approver has to approve) or deny.

    Nothing is executed. Without --intent, policy alone decides; with it, the tool must also be proven for the intent.
    For a URL (http, https, ws, wss) that server decides, at its own clock.

    The exit status is 0 for allow, 3 for ask, and 1 for deny and for a request that is refused.
    """
    from manglecp.cli.intent_request import decode_value

    payload = inputs.payload(intent or "")
    call = {"tool": tool, "args": {name: decode_value(text) for name, text in args.items()}}
    rules: tuple[str, ...] = ()  # the places of the rules that decided
    if isinstance(target, str):
        result = _decide_at_server(target, options, call, payload)
    else:
        result, rules = _decide_locally(target, options, call, payload)
    if options.as_json:
        import msgspec

        write_lines([msgspec.json.encode(result).decode()])
    else:
        remedies = (remedy.text for remedy in result.would_unlock)
        details = (*result.reasons, *remedies, *(f"by {rule}" for rule in rules))
        write_lines([result.verdict, *(f"  {detail}" for detail in details)])
    raise click.exceptions.Exit(_EXIT_STATUS[result.verdict])


def _decide_at_server(
    url: str, options: TargetOptions, call: Mapping[str, Any], payload: Mapping[str, Any]
) -> DecideResult:
    intent = payload["intent"]

    async def decide(client: Client) -> DecideResult:
        return await client.decide(
            **call, intent=intent["name"] or None, params=intent["params"], facts=payload["facts"]
        )

    return options.request_server(url, decide)


def _decide_locally(
    folder: Path, options: TargetOptions, call: Mapping[str, Any], payload: Mapping[str, Any]
) -> tuple[DecideResult, tuple[str, ...]]:
    """Return the result, with all reasons, and the places of the rules that decided."""
    from manglecp.intent import request_message
    from manglecp.invoke import decide_call
    from manglecp.wire import read_instant
    from manglecp.wire.messages import DecideRequest, DecideResult

    intent = payload["intent"] if payload["intent"]["name"] else None
    with options.open_domain(folder) as domain:
        content = {**call, "intent": intent, "facts": payload["facts"]}
        request: DecideRequest = request_message("x-decide_request", content, domain.pack, "shell")
        evaluated_at = read_instant(payload["eval_time"])
        decision = decide_call(domain, request.payload, options.caller.identity, evaluated_at)
        result = DecideResult(
            verdict=decision.verdict,
            reasons=tuple(dict.fromkeys((*decision.reasons, *decision.public_reasons))),
            would_unlock=decision.would_unlock,
            decided_at=payload["eval_time"],
        )
    return result, decision.rules
