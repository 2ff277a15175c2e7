"""What verbs that ask a pack have in common: options, who asks, the message, and how a refusal is shown.

What is given on the command line becomes a message, and goes the way of every message: the shell cannot ask anything
that a client could not. Only who asks is different, for there is nobody to authenticate to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from manglecp.cli.files import FILE
from manglecp.cli.outputs import json_text, write_text
from manglecp.cli.packs import PACK

if TYPE_CHECKING:  # a wrong command line is refused before anything is loaded
    from manglecp.intent import Identity
    from manglecp.pack import Pack, PackError
    from manglecp.wire import WireError

__all__ = [
    "LOCAL",
    "assignments",
    "bold",
    "cache_option",
    "degrade_option",
    "identity_of",
    "message_of",
    "pack_argument",
    "pack_options",
    "program_option",
    "refuse_pack",
    "refuse_request",
    "statement_options",
    "who_options",
]

LOCAL: Final = "local"
_EXPLAIN_POLICY: Final = "explain_policy"
_EVERY: Final = "*"
"""Each program that the pack names; see manglecp.toolhost.dispatch.launch, which is not loaded for that."""
F = TypeVar("F", bound=Callable[..., Any])


def assignments(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """``NAME=VALUE``, each name once."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.", context, parameter)
        if name in found:
            raise click.BadParameter(f"{name} is given twice.", context, parameter)
        found[name] = value
    return found


def _together(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Several options as one decorator, in the order in which ``--help`` lists them."""

    def decorate(function: F) -> F:
        for one in reversed(decorators):
            function = one(function)
        return function

    return decorate


pack_argument: Final = click.argument("folder", metavar="PACK", type=PACK)

statement_options: Final = _together(
    click.option(
        "--param",
        "params",
        metavar="KEY=VALUE",
        multiple=True,
        callback=assignments,
        help="A parameter of the intent; JSON, or else text.",
    ),
    click.option(
        "--fact", "facts", metavar="FACT", multiple=True, help="A fact of the client, such as 'p(\"a\", 1)@[now]'."
    ),
    click.option(
        "--facts",
        "fact_files",
        metavar="FILE",
        multiple=True,
        type=FILE,
        help="More of them: .mg, a JSON array of facts, or a recorded intent_request.",
    ),
    click.option(
        "--now",
        metavar="TIME",
        help="The evaluation time in RFC 3339; by default that of a recorded request, or the clock.",
    ),
)
who_options: Final = _together(
    click.option("--as", "who", metavar="NAME", help="Who asks; by default 'local', who may have policy explained."),
    click.option("--permission", "permissions", metavar="P", multiple=True, help="A permission of whoever asks."),
)
degrade_option: Final = click.option(
    "--degrade", is_flag=True, help="Also on a machine that cannot lock the pack's Python files in completely."
)
program_option: Final = click.option(
    "--program",
    "programs",
    metavar="NAME",
    multiple=True,
    callback=lambda _context, _parameter, given: _programs(given),
    help="A program that the pack may start, if it names it too: locked in as its hosts are. By default each that it "
    "names and that is there; 'none' for none.",
)
cache_option: Final = click.option(
    "--facts-cache",
    "cache",
    metavar="DIR|none",
    callback=lambda _context, _parameter, given: _cache(given),
    help="Where the pack keeps what it found out; by default in your cache.",
)
pack_options: Final = _together(
    click.option(
        "--set", "settings", metavar="NAME=VALUE", multiple=True, callback=assignments, help="A parameter of the pack."
    ),
    degrade_option,
    click.option(
        "--allow-weaker",
        is_flag=True,
        help="Lock the pack's Python files in only as far as it wishes: none or standard of its [sandbox].",
    ),
    program_option,
    cache_option,
)


def _programs(given: tuple[str, ...]) -> tuple[str, ...]:
    if "none" not in given:
        return given or (_EVERY,)
    if len(given) > 1:
        raise click.UsageError("--program none goes with no other program")
    return ()


def _cache(given: str | None) -> Path | bool:
    """A folder; or whether there is one at all."""
    return given != "none" if given in (None, "none") else Path(given or "")


def identity_of(who: str | None, permissions: tuple[str, ...]) -> Identity:
    """The owner of the machine may see everything; somebody else is tried out with exactly what is given."""
    from manglecp.intent import ANONYMOUS, Identity

    if who is None:
        return Identity(LOCAL, frozenset({_EXPLAIN_POLICY, *permissions}), LOCAL)
    if who == ANONYMOUS.name:
        if permissions:
            raise click.UsageError("Nobody in particular has no permissions: leave --permission out.")
        return ANONYMOUS
    return Identity(who, frozenset(permissions), "user")


def message_of(kind: str, payload: dict[str, Any], pack: Pack) -> Any:
    """Through the same door as everybody else."""
    from manglecp.wire import receive
    from manglecp.wire.messages import VERSION

    envelope = {"type": kind, "id": "shell", "manglecp": VERSION, "payload": payload}
    settings = pack.settings
    return receive(
        json_text(envelope).encode(errors="surrogatepass"),
        settings.limits.max_message_bytes,
        structured_facts=settings.structured_facts,
    )


def bold() -> Callable[[str], str]:
    """Only people at a terminal that can do it get more than plain text, and not those who want none (NO_COLOR)."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if sys.stdout is not None and sys.stdout.isatty() and wanted:
        return lambda text: click.style(text, bold=True)
    return str


def refuse_pack(error: PackError) -> NoReturn:
    """Tell every problem of the pack on standard error, and end the verb with status 1."""
    for problem in error.diagnostics:
        click.echo(problem.render(), err=True)
    raise click.exceptions.Exit(1)


def refuse_request(error: WireError, identity: Identity, *, as_json: bool) -> NoReturn:
    """Tell why the request is refused, as an error message or for people, and end the verb with status 1."""
    from manglecp.cli.intent_text import refusal, what_to_state
    from manglecp.mangle import MangleError
    from manglecp.wire import encode

    if identity.trust == LOCAL and isinstance(error.__cause__, MangleError):
        click.echo(error.__cause__.render(), err=True)  # whoever owns the machine may know which rule it was
    if as_json:
        write_text(encode(error.answering(error.id or "shell")).decode() + "\n")
    else:
        for line in (*refusal(error), *what_to_state(error)):
            click.echo(line, err=True)
    raise click.exceptions.Exit(1)
