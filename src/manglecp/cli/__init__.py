"""The ``manglecp`` command. Each verb is a module of this package and is imported when it is used.

Answers go to standard output, everything for people to standard error. Exit status: 0 it worked, 1 the program was
refused, 2 the command line was wrong, 130 interrupted.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import click

from manglecp import __version__

__all__ = ["cli", "main"]

VERBS: Final = {
    "eval": "Evaluate a program and print every fact.",
    "query": "Evaluate a program and print the facts that match an atom.",
    "check": "Find what is wrong with a program, without evaluating it.",
    "fmt": "Lay out files in the usual way.",
    "new": "Write a small pack to begin with.",
    "intent": "Declare an intent, and see which tools are proven for it.",
    "call": "Invoke a tool that is proven for an intent.",
    "shell": "Talk to a server or a pack: intents, tools, reasons, invocations.",
    "serve": "Serve a pack over HTTP and WebSocket, or on the standard streams.",
    "dev": "Serve a pack on this machine, and serve every edit of it.",
    "runs": "Show runs, take them up, and decide where a person has to.",
    "worker": "Carry out runs that nobody carries out any more.",
    "ledger": "Show, verify and export the record of what happened.",
    "harness": "Make evidence of logs, and check the turns of an agent.",
    "issue": "Keep issues, claim them, and change them on evidence.",
    "policy": "Show, pin, compare and promote policy packages.",
    "conformance": "Test a server, and report by requirement.",
    "schema": "Print the JSON Schemas of the messages.",
    "run-log": "Check the log of a run, without running anything.",
    "toolhost": "Serve the actions of a plugin from a process of their own.",
}
INTERRUPTED: Final = 130


class Trouble(click.ClickException):
    """What keeps a verb from giving any answer. Its exit status is none that an answer has."""

    exit_code = 2


class _Verbs(click.Group):
    """Knows its commands by name and by the line that describes them; that is enough for ``--help``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"manglecp.cli.{cmd_name.replace('-', '_')}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except MemoryError:
            raise Trouble("out of memory; a smaller input, or for eval a smaller --limit, needs less") from None


@click.group("manglecp", cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="manglecp", message="%(prog)s %(version)s")
def cli() -> None:
    """Rules prove which tools an agent may use right now.

    Programs are written in Mangle, in one or more FILEs; - is standard input.
    """


def main() -> None:
    cli(prog_name="manglecp")
