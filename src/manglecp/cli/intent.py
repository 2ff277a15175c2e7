"""``manglecp intent``: evaluate an intent, and print the tools that are proven for it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from manglecp.cli import options
from manglecp.cli.completion import intents
from manglecp.cli.output import ProgressLine, print_stderr, refuse, write_lines
from manglecp.cli.servers import ServerOptions, run_with_client, server_options, target_argument

if TYPE_CHECKING:  # the command line is checked before these packages are loaded
    from manglecp.intent import Identity
    from manglecp.wire.messages import IntentResponse


@click.command("intent")
@target_argument
@click.argument("name", metavar="NAME", shell_complete=intents)
@options.intent_options
@click.option("--budget", metavar="N", type=click.IntRange(min=0), help="The token budget of the tools.")
@click.option("--max-tools", metavar="N", type=click.IntRange(min=0), help="Maximum of tools.")
@click.option(
    "--level",
    type=click.Choice(["full", "condensed", "minimal", "adaptive"]),
    default="adaptive",
    help="The detail level of the tools; by default it depends on their scores.",
)
@click.option("--why", is_flag=True, help="Also print why each tool is offered, and why others are not.")
@click.option(
    "--why-not", metavar="TOOL", multiple=True, help="Print what blocks this tool, and which facts would unlock it."
)
@click.option("--coverage", is_flag=True, help="Also print for each rule whether it fired.")
@options.caller_options
@options.pack_options
@server_options
@options.as_message
@click.pass_context
def command(
    context: click.Context,
    target: Path | str,
    name: str,
    inputs: options.IntentOptions,
    budget: int | None,
    max_tools: int | None,
    level: str,
    why: bool,
    why_not: tuple[str, ...],
    coverage: bool,
    caller: options.CallerOptions,
    runtime: options.RuntimeOptions,
    server: ServerOptions,
    as_json: bool,
) -> None:
    """Evaluate the intent NAME with the rules of PACK, and print the tools that are proven for it.

    For a URL (http, https, ws, wss) that server evaluates the intent, and decides what it discloses.

    The exit status is 0, also without a tool, and 1 if the pack or the request is refused.
    """
    server.check_options(context, target)
    constraints = {"max_tokens_budget": budget, "max_tools_returned": max_tools}
    request_options: dict[str, Any] = {
        "include_proof_hints": why,
        "disclosure_preference": level,
        "x-rule_coverage": coverage,
    }
    if why_not:
        request_options["x-why_not"] = list(why_not)
    payload = {
        **inputs.payload(name),
        "constraints": {key: limit for key, limit in constraints.items() if limit is not None},
        "options": request_options,
    }
    if isinstance(target, str):
        _evaluate_at_server(target, server, payload, as_json=as_json)
    else:
        _evaluate_locally(target, runtime, payload, caller.identity, as_json=as_json)


def _evaluate_at_server(url: str, server: ServerOptions, payload: dict[str, Any], *, as_json: bool) -> None:
    import msgspec

    from manglecp.client import Client, EvaluationResult
    from manglecp.intent import ANONYMOUS
    from manglecp.wire import WireError
    from manglecp.wire.messages import Constraints, IntentResponse, Options

    async def evaluate(client: Client) -> EvaluationResult:
        intent = payload["intent"]
        return await client.evaluate(
            intent["name"],
            intent["params"],
            payload["facts"],
            eval_time=payload["eval_time"],
            constraints=msgspec.convert(payload["constraints"], Constraints),
            options=msgspec.convert(payload["options"], Options),
        )

    try:
        with ProgressLine("waiting for the server"):
            evaluation = run_with_client(url, server, evaluate)
    except WireError as error:
        options.refuse_request(error, ANONYMOUS, as_json=as_json)
    warnings = (f"warning: {violation.predicate}: {violation.message}" for violation in evaluation.warnings)
    why = payload["options"]["include_proof_hints"]
    _print(IntentResponse(id="shell", payload=evaluation.result), warnings, as_json=as_json, why=why)


def _evaluate_locally(
    folder: Path, runtime: options.RuntimeOptions, payload: dict[str, Any], identity: Identity, *, as_json: bool
) -> None:
    from manglecp.intent import describe_fully, request_message, respond
    from manglecp.invoke import load_domain
    from manglecp.pack import PackError
    from manglecp.wire import WireError

    try:
        with ProgressLine("loading") as progress, ExitStack() as host_stack:
            domain, _ = load_domain(runtime.for_pack(folder), host_stack)
            progress.doing = "evaluating"
            request = request_message("intent_request", payload, domain.pack, "shell")
            answer = respond(domain, request, identity, clock=time.time_ns)
    except PackError as error:
        refuse(error)
    except WireError as error:
        options.refuse_request(error, identity, as_json=as_json)
    full_tools = {definition.macro_id: describe_fully(definition) for definition in answer.definitions}
    why = payload["options"]["include_proof_hints"]
    _print(answer.response, (), as_json=as_json, by_id=full_tools, why=why, invalid_count=len(answer.flaws))


def _print(response: IntentResponse, warnings: Iterable[str], *, as_json: bool, **details: Any) -> None:
    """Print the response as a message, or as text after the warnings; ``details`` are passed to ``result_lines``."""
    from manglecp.cli.tool_text import result_lines, styled
    from manglecp.wire import encode

    if as_json:
        write_lines([encode(response).decode()])
    else:
        print_stderr(*warnings)
        write_lines(styled(result_lines(response.payload, **details), options.bold()))
