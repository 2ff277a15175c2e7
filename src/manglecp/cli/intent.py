"""``manglecp intent``: evaluate an intent, and print the tools that are proven for it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from manglecp.cli.completion import complete_intents
from manglecp.cli.files import option
from manglecp.cli.options import PACK_OPTIONS, IntentOptions, bold, intent_options
from manglecp.cli.output import print_stderr, write_lines
from manglecp.cli.target import TargetOptions, target_argument, target_options

if TYPE_CHECKING:  # loaded only after the check of the command line
    from manglecp.wire.messages import IntentResponse, MacroTool


@click.command("intent")
@target_argument
@click.argument("name", metavar="NAME", shell_complete=complete_intents)
@intent_options
@option("--budget N", type=click.IntRange(min=0), help="The token budget of the tools.")
@option("--max-tools N", type=click.IntRange(min=0), help="Maximum of tools.")
@option(
    "--level",
    type=click.Choice(["full", "condensed", "minimal", "adaptive"]),
    default="adaptive",
    help="The detail level of the tools; by default it depends on their scores.",
)
@option("--why", is_flag=True, help="Also print why each tool is offered, and why others are not.")
@option("--why-not TOOL", multiple=True, help="Print what blocks this tool, and which facts would unlock it.")
@option("--coverage", is_flag=True, help="Also print for each rule whether it fired.")
@target_options(*PACK_OPTIONS)
def command(
    target: Path | str,
    name: str,
    inputs: IntentOptions,
    budget: int | None,
    max_tools: int | None,
    level: str,
    why: bool,
    why_not: tuple[str, ...],
    coverage: bool,
    options: TargetOptions,
) -> None:
    """Evaluate the intent NAME with the rules of PACK, and print the tools that are proven for it.

    For a URL (http, https, ws, wss) that server evaluates the intent, and decides what it discloses.

    The exit status is 0, also without a tool, and 1 if the pack or the request is refused.
    """
    from manglecp.cli.tool_text import result_lines, styled
    from manglecp.wire import encode

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
        evaluation = _evaluate_at_server(target, options, payload)
    else:
        evaluation = _evaluate_locally(target, options, payload)
    if options.as_json:
        write_lines([encode(evaluation.response).decode()])
    else:
        print_stderr(*evaluation.warnings)
        lines = result_lines(evaluation.response.payload, evaluation.full_tools, evaluation.invalid_count, why=why)
        write_lines(styled(lines, bold()))


class _Evaluation(NamedTuple):
    """The response to an intent; the other fields are set only on this machine, since servers do not disclose them."""

    response: IntentResponse
    warnings: Sequence[str] = ()
    full_tools: Mapping[str, MacroTool] = {}  # full definitions, by macro_id
    invalid_count: int = 0  # the number of proven tools with an invalid definition


def _evaluate_at_server(url: str, options: TargetOptions, payload: dict[str, Any]) -> _Evaluation:
    import msgspec

    from manglecp.client import Client, EvaluationResult
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

    evaluation = options.request_server(url, evaluate)
    warnings = [f"warning: {violation.predicate}: {violation.message}" for violation in evaluation.warnings]
    return _Evaluation(IntentResponse(id="shell", payload=evaluation.result), warnings)


def _evaluate_locally(folder: Path, options: TargetOptions, payload: dict[str, Any]) -> _Evaluation:
    from manglecp.intent import describe_fully, request_message, respond

    with options.open_domain(folder) as domain:
        request = request_message("intent_request", payload, domain.pack, "shell")
        answer = respond(domain, request, options.caller.identity, clock=time.time_ns)
    full_tools = {definition.macro_id: describe_fully(definition) for definition in answer.definitions}
    return _Evaluation(answer.response, full_tools=full_tools, invalid_count=len(answer.flaws))
