"""The ``manglecp`` command. Each verb is a module of this package and is imported when it is used.

Results go to standard output, diagnostics and progress to standard error. Exit status: 0 success, 1 refused, 2 wrong
command line, 130 interrupted.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from manglecp import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["cli", "main"]

VERBS: Final = {
    "eval": "Evaluate a program and print every fact.",
    "query": "Evaluate a program and print the facts that match an atom.",
    "check": "Find what is wrong with a pack or a program.",
    "fmt": "Lay out files in the usual way.",
    "new": "Write a small pack to begin with.",
    "intent": "Declare an intent, and see which tools are proven for it.",
    "call": "Invoke a tool that is proven for an intent.",
    "shell": "Talk to a server or a pack: intents, tools, reasons.",
    "serve": "Serve a pack over HTTP and WebSocket, or standard streams.",
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
    "completion": "Print a script that lets a shell complete these words.",
}
# The verbs that --help describes; the others are only named there, so that it fits a screen.
GROUPS: Final = {
    "Write rules and packs": ("new", "check", "fmt", "eval", "query"),
    "Ask and invoke": ("intent", "call", "shell"),
    "Serve and carry out": ("serve", "dev", "runs", "worker"),
    "Look back": ("ledger", "harness"),
}
INTERRUPTED: Final = 130


class Trouble(click.ClickException):
    """An error that keeps a verb from giving a verdict; its exit status is that of no verdict."""

    exit_code = 2


class _Verbs(click.Group):
    """A group that imports a verb when it is used; ``--help`` and completion need only its name and its line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"manglecp.cli.{cmd_name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from manglecp.cli.output import suggestion

            ctx.fail(f"No such command {args[0]!r}.{suggestion(args[0], VERBS)}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete verbs without importing each of them for its help, as click would."""
        from manglecp.cli.completion import verbs

        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*verbs(incomplete), *options] if not incomplete.startswith("-") else options

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[-h] [--version] COMMAND ...")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(len(verb) for verbs in GROUPS.values() for verb in verbs)
        formatter.write("\n")
        for heading, verbs in GROUPS.items():
            formatter.write(f"{heading}:\n")
            for verb in verbs:
                formatter.write(f"  {verb:<{width}}  {VERBS[verb]}\n")
        shown = {verb for verbs in GROUPS.values() for verb in verbs}
        formatter.write(f"Also {', '.join(verb for verb in VERBS if verb not in shown)}.\n")
        formatter.write("manglecp COMMAND -h says more.\n")

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
    """Rules prove which tools an agent may use right now, and say why."""


def main() -> None:
    """Run the command line."""
    cli(prog_name="manglecp")
