"""``manglecp intent``: declare an intent from the shell, and see which tools are proven for it.

What is given on the command line becomes a message, and goes the way of every message: the shell cannot ask anything
that a client could not. Only who asks is different, for there is nobody to authenticate to.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from manglecp.cli.files import FILE
from manglecp.cli.outputs import Progress, write_lines, write_text

if TYPE_CHECKING:  # a wrong command line is refused before anything is loaded
    from manglecp.intent.identity import Identity
    from manglecp.mangle.externals import External
    from manglecp.pack.model import Pack
    from manglecp.pack.problems import PackError
    from manglecp.wire.errors import WireError
    from manglecp.wire.messages import IntentRequest

__all__ = ["command"]

LOCAL: Final = "local"
_EXPLAIN_POLICY: Final = "explain_policy"


def _assignments(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.", context, parameter)
        if name in found:
            raise click.BadParameter(f"{name} is given twice.", context, parameter)
        found[name] = value
    return found


@click.command("intent")
@click.argument("folder", metavar="PACK", type=click.Path(exists=True, path_type=Path))
@click.argument("name", metavar="NAME")
@click.option(
    "--param",
    "params",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_assignments,
    help="A parameter of the intent; JSON, or else text.",
)
@click.option(
    "--fact", "facts", metavar="FACT", multiple=True, help="A fact of the client, such as 'p(\"a\", 1)@[now]'."
)
@click.option(
    "--facts",
    "fact_files",
    metavar="FILE",
    multiple=True,
    type=FILE,
    help="More of them: .mg, a JSON array of facts, or a recorded intent_request.",
)
@click.option(
    "--now",
    metavar="TIME",
    help="The evaluation time in RFC 3339; by default that of a recorded request, or the clock.",
)
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
@click.option("--as", "who", metavar="NAME", help="Who asks; by default 'local', who may have policy explained.")
@click.option("--permission", "permissions", metavar="P", multiple=True, help="A permission of whoever asks.")
@click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True, callback=_assignments, help="A parameter of the pack."
)
@click.option(
    "--degrade", is_flag=True, help="Also on a machine that cannot lock the pack's Python files in completely."
)
@click.option("--json", "as_json", is_flag=True, help="Print the message of the protocol instead.")
def command(
    folder: Path,
    name: str,
    params: dict[str, str],
    facts: tuple[str, ...],
    fact_files: tuple[str, ...],
    now: str | None,
    budget: int | None,
    max_tools: int | None,
    level: str,
    why: bool,
    absent: tuple[str, ...],
    coverage: bool,
    who: str | None,
    permissions: tuple[str, ...],
    settings: dict[str, str],
    degrade: bool,
    as_json: bool,
) -> None:
    """Evaluate the intent NAME with the rules of PACK, and print the tools that are proven for it.

    The exit status is 0 also if there are none, and 1 if the pack or the request is refused.
    """
    from manglecp.cli.intent_request import given_facts, value_of

    at, stated = given_facts(facts, fact_files, now)
    constraints = {"max_tokens_budget": budget, "max_tools_returned": max_tools}
    options: dict[str, Any] = {"include_proof_hints": why, "disclosure_preference": level, "x-rule_coverage": coverage}
    if absent:
        options["x-why_not"] = list(absent)
    payload = {
        "intent": {"name": name, "params": {key: value_of(text) for key, text in params.items()}},
        "facts": stated,
        "eval_time": at,
        "constraints": {key: most for key, most in constraints.items() if most is not None},
        "options": options,
    }
    _answer(folder, settings, payload, _identity(who, permissions), degrade=degrade, as_json=as_json)


def _identity(who: str | None, permissions: tuple[str, ...]) -> Identity:
    """The owner of the machine may see everything; somebody else is tried out with exactly what is given."""
    from manglecp.intent.identity import ANONYMOUS, Identity

    if who is None:
        return Identity(LOCAL, frozenset({_EXPLAIN_POLICY, *permissions}), LOCAL)
    if who == ANONYMOUS.name:
        if permissions:
            raise click.UsageError("Nobody in particular has no permissions: leave --permission out.")
        return ANONYMOUS
    return Identity(who, frozenset(permissions), "user")


def _answer(
    folder: Path, settings: dict[str, str], payload: dict[str, Any], identity: Identity, *, degrade: bool, as_json: bool
) -> None:
    from manglecp.intent.domain import Domain
    from manglecp.intent.responding import respond
    from manglecp.pack.problems import PackError
    from manglecp.pack.reading import read_pack
    from manglecp.wire.errors import WireError
    from manglecp.wire.sending import encode

    try:
        with Progress("loading") as progress, ExitStack() as hosts:
            pack = read_pack(folder, settings, degrade=degrade)
            domain = Domain.load(pack, externals=_externals(pack, hosts, degrade=degrade))
            progress.doing = "evaluating"
            request = _message(payload, pack)
            answer = respond(domain, request, identity, clock=time.time_ns)
    except PackError as error:
        _refuse_pack(error)
    except WireError as error:
        _refuse_request(error, identity, as_json=as_json)
    if as_json:
        write_text(encode(answer.response).decode() + "\n")
        return
    from manglecp.cli.intent_text import lines

    name = payload["intent"]["name"]
    known = [intent.name for intent in pack.settings.intents]
    if known and name not in known:
        click.echo(f"warning: the pack announces no intent {name!r}, only {', '.join(known)}", err=True)
    write_lines(lines(answer, why=payload["options"]["include_proof_hints"], bold=_bold()))


def _externals(pack: Pack, hosts: ExitStack, *, degrade: bool) -> Mapping[str, External]:
    """What answers external predicates, if there are any, until the answer is there."""
    if not pack.externals:
        return {}
    from manglecp.toolhost.externals import serve_externals

    return hosts.enter_context(serve_externals(pack, degrade=degrade))


def _message(payload: dict[str, Any], pack: Pack) -> IntentRequest:
    """Through the same door as everybody else."""
    from manglecp.cli.outputs import json_text
    from manglecp.wire.messages import VERSION, IntentRequest
    from manglecp.wire.receiving import receive

    envelope = {"type": "intent_request", "id": "shell", "manglecp": VERSION, "payload": payload}
    settings = pack.settings
    message = receive(
        json_text(envelope).encode(errors="surrogatepass"),
        settings.limits.max_message_bytes,
        structured_facts=settings.structured_facts,
    )
    assert isinstance(message, IntentRequest)
    return message


def _bold() -> Callable[[str], str]:
    """Only people at a terminal get more than plain text."""
    if sys.stdout is not None and sys.stdout.isatty():
        return lambda text: click.style(text, bold=True)
    return str


def _refuse_pack(error: PackError) -> NoReturn:
    for problem in error.problems:
        click.echo(problem.render(), err=True)
    raise click.exceptions.Exit(1)


def _refuse_request(error: WireError, identity: Identity, *, as_json: bool) -> NoReturn:
    from manglecp.cli.intent_text import refusal
    from manglecp.mangle.errors import MangleError
    from manglecp.wire.sending import encode

    if identity.trust == LOCAL and isinstance(error.__cause__, MangleError):
        click.echo(error.__cause__.render(), err=True)  # whoever owns the machine may know which rule it was
    if as_json:
        write_text(encode(error.answering(error.id or "shell")).decode() + "\n")
    else:
        for line in refusal(error):
            click.echo(line, err=True)
    raise click.exceptions.Exit(1)
