"""``manglecp call``: prove a tool for an intent and invoke it, from the shell."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from manglecp.cli.files import option
from manglecp.cli.options import RUNTIME_OPTIONS, IntentOptions, intent_option, intent_options, tool_args
from manglecp.cli.target import TargetOptions, target_argument, target_options


@click.command("call")
@target_argument
@click.argument("tool", metavar="TOOL")
@intent_option("The intent that the tool is proven for.", required=True)
@intent_options
@tool_args
@option("--confirm", is_flag=True, help="Approve the call without a prompt.")
@option("--approval ID", help="The id of an approval request of this call that was approved.")
@option(
    "--wait SECONDS",
    "wait_seconds",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Wait for the approver at a server.",
)
@option(
    "--request-key KEY", help="An idempotency key: a second call with the same key returns the result of the first."
)
@target_options(*RUNTIME_OPTIONS)
def command(
    target: Path | str, intent: str, inputs: IntentOptions, options: TargetOptions, **request_fields: Any
) -> None:
    """Prove TOOL for an intent with the rules of PACK, invoke it, and print the result.

    A tool that needs approval stores an approval request, prints its text, and prompts at a terminal; --confirm
    approves it without a prompt. A request that `manglecp approvals approve` approved is used with --approval. Ctrl-C
    cancels the run after the current step and undoes the completed ones where possible; a second Ctrl-C exits
    immediately.

    For a URL (http, https, ws, wss) that server proves and invokes the tool. There the prompt and --confirm need a
    credential with the permission approve, which no agent should have.

    --now, or the time of a recorded request, is also the clock of the invocation. A server uses its own clock for that:
    only tools that are proven now can be invoked there.

    The exit status is 0 if the tool succeeded, 1 if it was refused or failed, 130 if it was cancelled.
    """
    from manglecp.cli.invocation import CallRequest, call_locally, call_server

    # The other options have the names of the fields: tool, args, confirm, approval, wait_seconds, request_key.
    request = CallRequest(payload=inputs.payload(intent), **request_fields)
    if isinstance(target, str):
        raise click.exceptions.Exit(call_server(target, request, options))
    if request.wait_seconds:
        raise click.UsageError("--wait is for a server: leave it out, or give the URL instead of the pack")
    raise click.exceptions.Exit(asyncio.run(call_locally(target, request, options)))
