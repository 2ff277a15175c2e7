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
    RuntimeOptions,
    StatementOptions,
    bold,
    caller_options,
    pack_options,
    refuse_pack,
    refuse_request,
    statement_options,
)
from manglecp.cli.output import Progress, write_lines, write_text
from manglecp.cli.servers import Server, talk, target_argument, token_options

if TYPE_CHECKING:  # a wrong command line is refused before anything is loaded
    from manglecp.intent import Domain, Identity


@click.command("intent")
@target_argument
@click.argument("name", metavar="NAME", shell_complete=intents)
@statement_options
@click.option("--budget", metavar="N", type=click.IntRange(min=0), help="How many tokens the tools may cost.")
@click.option("--max-tools", metavar="N", type=click.IntRange(min=0), help="How many tools at most.")
@click.option(
    "--level",
    type=click.Choice(["full", "condensed", "minimal", "adaptive"]),
    default="adaptive",
    help="How much to tell of each tool; by default as its score says.",
)
@click.option("--why", is_flag=True, help="Also say why each tool is there, and why others are not.")
@click.option(
    "--why-not",
    "absent",
    metavar="TOOL",
    multiple=True,
    help="Say what blocks this tool, and which facts would bring it.",
)
@click.option("--coverage", is_flag=True, help="Also say what became of the rules.")
@caller_options
@pack_options
@token_options
@click.option("--json", "as_json", is_flag=True, help="Print the message of the protocol instead.")
@click.pass_context
def command(
    context: click.Context,
    target: Path | str,
    name: str,
    statement: StatementOptions,
    budget: int | None,
    max_tools: int | None,
    level: str,
    why: bool,
    absent: tuple[str, ...],
    coverage: bool,
    caller: CallerOptions,
    runtime: RuntimeOptions,
    server: Server,
    as_json: bool,
) -> None:
    """Evaluate the intent NAME with the rules of PACK, and print the tools that are proven for it.

    For a URL (http, https, ws, wss) the server there is asked, and says what it discloses.

    The exit status is 0 also if there are none, and 1 if the pack or the request is refused.
    """
    server.check_options(context, target, "who")
    constraints = {"max_tokens_budget": budget, "max_tools_returned": max_tools}
    options: dict[str, Any] = {"include_proof_hints": why, "disclosure_preference": level, "x-rule_coverage": coverage}
    if absent:
        options["x-why_not"] = list(absent)
    payload = {
        **statement.of(name),
        "constraints": {key: most for key, most in constraints.items() if most is not None},
        "options": options,
    }
    if isinstance(target, str):
        _ask_server(target, server, payload, as_json=as_json)
    else:
        _answer(target, runtime, payload, caller.identity, as_json=as_json)


def _ask_server(url: str, server: Server, payload: dict[str, Any], *, as_json: bool) -> None:
    import msgspec

    from manglecp.client import Client, EvaluationResult
    from manglecp.intent import ANONYMOUS
    from manglecp.wire import WireError, encode
    from manglecp.wire.messages import Constraints, IntentResponse, Options

    async def ask(client: Client) -> EvaluationResult:
        intent = payload["intent"]
        announced = [one.name for one in client.manifest.intents]
        if announced and intent["name"] not in announced and not as_json:
            warn_of_intent("the server", intent["name"], announced)
        return await client.evaluate(
            intent["name"],
            intent["params"],
            payload["facts"],
            eval_time=payload["eval_time"],
            constraints=msgspec.convert(payload["constraints"], Constraints),
            options=msgspec.convert(payload["options"], Options),
        )

    try:
        with Progress("asking"):
            found = talk(url, server, ask)
    except WireError as error:
        refuse_request(error, ANONYMOUS, as_json=as_json)
    if as_json:
        write_text(encode(IntentResponse(id="shell", payload=found.result)).decode() + "\n")
        return
    from manglecp.base.text import escape_invisible
    from manglecp.cli.tool_text import result_lines

    for warning in found.warnings:
        click.echo(escape_invisible(f"warning: {warning.predicate}: {warning.message}"), err=True)
    write_lines(result_lines(found.result, why=payload["options"]["include_proof_hints"], bold=bold()))


def warn_of_intent(who: str, name: str, known: list[str]) -> None:
    from manglecp.base.text import escape_invisible

    click.echo(escape_invisible(f"warning: {who} announces no intent {name!r}, only {', '.join(known)}"), err=True)


def _answer(
    folder: Path, runtime: RuntimeOptions, payload: dict[str, Any], identity: Identity, *, as_json: bool
) -> None:
    from manglecp.intent import request_message, respond
    from manglecp.invoke import load_domain
    from manglecp.pack import PackError
    from manglecp.wire import WireError, encode

    try:
        with Progress("loading") as progress, ExitStack() as hosts:
            domain, _ = load_domain(runtime.of_pack(folder), hosts)
            pack = domain.pack
            progress.doing = "evaluating"
            request = request_message("intent_request", payload, pack, "shell")
            answer = respond(domain, request, identity, clock=time.time_ns)
    except PackError as error:
        refuse_pack(error)
    except WireError as error:
        refuse_request(error, identity, as_json=as_json)
    if as_json:
        write_text(encode(answer.response).decode() + "\n")
        return
    from manglecp.base.text import escape_invisible
    from manglecp.cli.tool_text import lines

    name = payload["intent"]["name"]
    known = [intent.name for intent in pack.settings.intents]
    if known and name not in known:
        warn_of_intent("the pack", name, known)
    elif not known and name not in (mentioned := _mentioned(domain)) and mentioned:
        click.echo(
            escape_invisible(f"warning: no rule is about the intent {name!r}, only about {', '.join(mentioned)}"),
            err=True,
        )
    write_lines(lines(answer, why=payload["options"]["include_proof_hints"], bold=bold()))


def _mentioned(domain: Domain) -> list[str]:
    """Return the intents that rules of the pack name; none if a rule matches any intent."""
    from manglecp.mangle.syntax import Literal

    own = {source.name for source in domain.pack.sources}
    names = set()
    for rule in domain.program.rules:
        if rule.clause.span is not None and rule.clause.span.source.name in own:
            asked = (one.atom for one in rule.clause.premises if isinstance(one, Literal))
            names |= {atom.args[0] for atom in asked if atom.predicate == "intent"}
    known = [name for name in names if isinstance(name, str)]
    return sorted(known) if len(known) == len(names) else []
