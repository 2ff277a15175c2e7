"""The ``manglecp`` command. Each verb is a module of this package and is imported when it is used.

Results go to standard output, diagnostics and progress to standard error. Exit status: 0 success, 1 refused, 2 wrong
command line, 130 interrupted.
"""

from __future__ import annotations

from importlib import import_module
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

import click

from manglecp import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["cli", "main"]

VERBS: Final = {
    "eval": "Evaluate a program and print every fact.",
    "query": "Evaluate a program and print the facts that match an atom.",
    "check": "Report the errors and warnings of a pack or a program.",
    "fmt": "Format rule files.",
    "new": "Create a small example pack.",
    "guard": "Put rules in front of the MCP servers of a host's configuration.",
    "intent": "Evaluate an intent, and print the tools that are proven for it.",
    "decide": "Print whether a call is allowed, needs an approval or is denied.",
    "call": "Invoke a tool that is proven for an intent.",
    "serve": "Serve a pack over HTTP and WebSocket, or standard streams.",
    "mcp": "Serve a pack to MCP hosts, such as Claude Code and Cursor.",
    "dev": "Serve a pack on this machine, and reload it after each edit.",
    "approvals": "List, show, approve and deny approval requests.",
    "facts": "Push facts to a source, and list sources.",
    "token": "Make, list and revoke the tokens of a server.",
    "runs": "List, show and resume runs, and decide those in doubt.",
    "decisions": "List, show and explain recorded decisions.",
    "worker": "Resume runs whose process ended.",
    "ledger": "Show, verify and export the audit ledger.",
    "harness": "Extract evidence from logs, and judge the turns of an agent.",
    "issue": "Add, claim and change issues; changes need evidence.",
    "policy": "Show, pin, compare and promote policy packages.",
    "conformance": "Test a server against the specification.",
    "schema": "Print the JSON Schemas of the messages.",
    "run": "Pursue a goal with actions that a policy, rules or you select.",
    "run-log": "Verify and replay the log of a run.",
    "doctor": "Print what this machine's sandbox enforces, and how to enable the rest.",
    "toolhost": "Execute the actions of a plugin in this process.",
    "completion": "Print the completion script of a shell.",
}
# The verbs that --help describes; the others are only named, so that the help fits a screen.
GROUPS: Final = {
    "Write rules and packs": ("new", "check", "eval", "query"),
    "Evaluate and invoke": ("guard", "intent", "decide", "call", "approvals"),
    "Serve, execute and audit": ("serve", "mcp", "dev", "runs", "decisions", "harness"),
}
INTERRUPTED: Final = 130  # exit status
AS_JSON: Final = "manglecp.as_json"  # the key under which a click context stores the option --json


class VerbError(click.ClickException):
    """An error that ends a verb without a result, with exit status 2."""

    exit_code = 2


class _Verbs(click.Group):
    """A group that imports a verb when it is used; ``--help`` and completion need only ``VERBS``."""

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
        """Complete verbs without importing them; ``click.Group`` would import each one for its help."""
        from manglecp.cli.completion import complete_verbs

        options = click.Command.shell_complete(self, ctx, incomplete)
        return options if incomplete.startswith("-") else [*complete_verbs(incomplete), *options]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[-h] [--version] COMMAND ...")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        grouped_verbs = [verb for verbs in GROUPS.values() for verb in verbs]
        width = max(map(len, grouped_verbs))
        for heading, verbs in GROUPS.items():
            formatter.write(f"{heading}:\n")
            for verb in verbs:
                formatter.write(f"  {verb:<{width}}  {VERBS[verb]}\n")
        other_verbs = f"Also {' '.join(verb for verb in VERBS if verb not in grouped_verbs)}."
        formatter.write(f"{fill(other_verbs, 79, break_on_hyphens=False)}\n")
        formatter.write("manglecp COMMAND -h describes a command.\n")

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except MemoryError:
            raise VerbError("out of memory; use a smaller input, or for eval a smaller --limit") from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            from manglecp.cli.errors import report_error

            ctx.exit(report_error(error, as_json=ctx.meta.get(AS_JSON, False)))


@click.group("manglecp", cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="manglecp", message="%(prog)s %(version)s")
def cli() -> None:
    """Prove by rules which tools an agent may use now, and explain why."""


def main() -> None:
    """Run the command line interface."""
    cli(prog_name="manglecp")
