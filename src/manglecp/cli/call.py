"""``manglecp call``: prove a tool for an intent and invoke it, from the shell."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from manglecp.cli.completion import intents
from manglecp.cli.options import (
    CallerOptions,
    RuntimeOptions,
    StatementOptions,
    assignments,
    caller_options,
    refusing_packs,
    runtime_options,
    statement_options,
)
from manglecp.cli.servers import Server, server_options, target_argument


@click.command("call")
@target_argument
@click.argument("tool", metavar="TOOL")
@click.option(
    "--intent",
    "name",
    metavar="NAME",
    required=True,
    shell_complete=intents,
    help="The intent that the tool is proven for.",
)
@statement_options
@click.option(
    "--arg",
    "args",
    metavar="KEY=VALUE",
    multiple=True,
    callback=assignments,
    help="An argument of the tool; JSON, or else text.",
)
@click.option("--confirm", is_flag=True, help="Agree to what the tool does, without being asked.")
@click.option(
    "--request-key",
    metavar="KEY",
    help="Names this call: repeated with the same key it gets the same answer, and nothing happens twice.",
)
@caller_options
@runtime_options
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print the message of the protocol instead.")
@click.pass_context
def command(
    context: click.Context,
    target: Path | str,
    tool: str,
    name: str,
    statement: StatementOptions,
    args: dict[str, str],
    confirm: bool,
    request_key: str | None,
    caller: CallerOptions,
    runtime: RuntimeOptions,
    server: Server,
    as_json: bool,
) -> None:
    """Prove TOOL for an intent with the rules of PACK, invoke it, and print what came of it.

    A tool that needs consent says what it would do and asks, if somebody sits at a terminal; otherwise it takes
    --confirm. Ctrl-C cancels between two steps and undoes what can be undone; a second one ends at once.

    For a URL (http, https, ws, wss) the server there proves and invokes it. --as is then the name that your consent is
    signed with, where the server does not tell it.

    --now, or the time of a recorded request, also is what the clock shows when the tool's validity is checked. A server
    checks that by its own clock: a tool that holds only for a while can be invoked there now, or not at all.

    The exit status is 0 if the tool did it, 1 if it was refused or failed, 130 if it was cancelled.
    """
    from manglecp.cli.invocation import CallRequest, call, call_server

    server.check_options(context, target)
    request = CallRequest(
        intent=statement.of(name),
        tool=tool,
        args=args,
        confirm=confirm,
        request_key=request_key,
        as_json=as_json,
    )
    if isinstance(target, str):
        raise click.exceptions.Exit(call_server(target, server, request, caller.who))
    identity = caller.identity
    with refusing_packs():
        status = asyncio.run(call(target, request, identity, runtime))
    raise click.exceptions.Exit(status)
