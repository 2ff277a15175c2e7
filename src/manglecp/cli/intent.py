"""``manglecp intent``: evaluate an intent, and print the tools that are proven for it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from manglecp.cli.completion import intents
from manglecp.cli.options import (
    CallerOptions,
    IntentOptions,
    RuntimeOptions,
    bold,
    caller_options,
    intent_options,
    pack_options,
    refuse_request,
)
from manglecp.cli.output import ProgressLine, refuse, write_lines, write_text
from manglecp.cli.servers import ServerOptions, run_with_client, server_options, target_argument

if TYPE_CHECKING:  # the command line is checked before these packages are loaded
    from manglecp.intent import Domain, Identity


@click.command("intent")
@target_argument
@click.argument("name", metavar="NAME", shell_complete=intents)
@intent_options
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
    "--why-not",
    "absent",
    metavar="TOOL",
    multiple=True,
    help="Print what blocks this tool, and which facts would unlock it.",
)
@click.option("--coverage", is_flag=True, help="Also print for each rule whether it fired.")
@caller_options
@pack_options
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print the message of the protocol instead.")
@click.pass_context
def command(
    context: click.Context,
    target: Path | str,
    name: str,
    intent_values: IntentOptions,
    budget: int | None,
    max_tools: int | None,
    level: str,
    why: bool,
    absent: tuple[str, ...],
    coverage: bool,
    caller: CallerOptions,
    runtime: RuntimeOptions,
    server: ServerOptions,
    as_json: bool,
) -> None:
    """Evaluate the intent NAME with the rules of PACK, and print the tools that are proven for it.

    For a URL (http, https, ws, wss) that server evaluates the intent, and decides what it discloses.

    The exit status is 0, also without a tool, and 1 if the pack or the request is refused.
    """
    server.check_options(context, target, "caller_name")
    constraints = {"max_tokens_budget": budget, "max_tools_returned": max_tools}
    options: dict[str, Any] = {"include_proof_hints": why, "disclosure_preference": level, "x-rule_coverage": coverage}
    if absent:
        options["x-why_not"] = list(absent)
    payload = {
        **intent_values.of(name),
        "constraints": {key: limit for key, limit in constraints.items() if limit is not None},
        "options": options,
    }
    if isinstance(target, str):
        _evaluate_at_server(target, server, payload, as_json=as_json)
    else:
        _evaluate_locally(target, runtime, payload, caller.identity, as_json=as_json)


def _evaluate_at_server(url: str, server: ServerOptions, payload: dict[str, Any], *, as_json: bool) -> None:
    import msgspec

    from manglecp.client import Client, EvaluationResult
    from manglecp.intent import ANONYMOUS
    from manglecp.wire import WireError, encode
    from manglecp.wire.messages import Constraints, IntentResponse, Options

    async def evaluate(client: Client) -> EvaluationResult:
        intent = payload["intent"]
        announced = [one.name for one in client.manifest.intents]
        if announced and intent["name"] not in announced and not as_json:
            _warn_of_intent("the server", intent["name"], announced)
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
        refuse_request(error, ANONYMOUS, as_json=as_json)
    if as_json:
        write_text(encode(IntentResponse(id="shell", payload=evaluation.result)).decode() + "\n")
        return
    from manglecp.base.text import escape_invisible
    from manglecp.cli.tool_text import result_lines

    for warning in evaluation.warnings:
        click.echo(escape_invisible(f"warning: {warning.predicate}: {warning.message}"), err=True)
    write_lines(result_lines(evaluation.result, why=payload["options"]["include_proof_hints"], bold=bold()))


def _warn_of_intent(source: str, name: str, known: list[str]) -> None:
    from manglecp.base.text import escape_invisible

    click.echo(escape_invisible(f"warning: {source} has no intent {name!r}, only {', '.join(known)}"), err=True)


def _evaluate_locally(
    folder: Path, runtime: RuntimeOptions, payload: dict[str, Any], identity: Identity, *, as_json: bool
) -> None:
    from manglecp.intent import describe_fully, request_message, respond
    from manglecp.invoke import load_domain
    from manglecp.pack import PackError
    from manglecp.wire import WireError, encode

    try:
        with ProgressLine("loading") as progress, ExitStack() as hosts:
            domain, _ = load_domain(runtime.of_pack(folder), hosts)
            pack = domain.pack
            progress.doing = "evaluating"
            request = request_message("intent_request", payload, pack, "shell")
            answer = respond(domain, request, identity, clock=time.time_ns)
    except PackError as error:
        refuse(error)
    except WireError as error:
        refuse_request(error, identity, as_json=as_json)
    if as_json:
        write_text(encode(answer.response).decode() + "\n")
        return
    from manglecp.base.text import escape_invisible
    from manglecp.cli.tool_text import result_lines

    name = payload["intent"]["name"]
    known = [intent.name for intent in pack.settings.intents]
    if known and name not in known:
        _warn_of_intent("the pack", name, known)
    elif not known and name not in (mentioned := _mentioned(domain)) and mentioned:
        click.echo(
            escape_invisible(f"warning: no rule names the intent {name!r}; rules name {', '.join(mentioned)}"), err=True
        )
    proven = {one.macro_id: describe_fully(one) for one in answer.definitions}
    why = payload["options"]["include_proof_hints"]
    write_lines(result_lines(answer.response.payload, proven, why=why, bold=bold(), flaws=len(answer.flaws)))


def _mentioned(domain: Domain) -> list[str]:
    """Return the intents that rules of the pack name; none if a rule matches any intent."""
    from manglecp.mangle.syntax import Literal

    own = {source.name for source in domain.pack.sources}
    names = set()
    for rule in domain.program.rules:
        if rule.clause.span is not None and rule.clause.span.source.name in own:
            atoms = (one.atom for one in rule.clause.premises if isinstance(one, Literal))
            names |= {atom.args[0] for atom in atoms if atom.predicate == "intent"}
    known = [name for name in names if isinstance(name, str)]
    return sorted(known) if len(known) == len(names) else []
