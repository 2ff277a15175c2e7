"""``manglecp completion``: shell completion scripts, and the words that complete a command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from manglecp.cli import VERBS, cli
from manglecp.cli.output import write_text

if TYPE_CHECKING:
    from manglecp.pack import Settings


def complete_verbs(incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(verb, help=text) for verb, text in VERBS.items() if verb.startswith(incomplete)]


def complete_pack_folders(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def complete_intents(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the intents in the settings of the pack on the command line. No code of the pack is executed."""
    # After an option without its value, click has not parsed the arguments: they are in context.args.
    settings = _read_settings(context.params.get("target") or next(iter(context.args), None))
    if settings is None:
        return []
    # A help text on one line: zsh would complete a second line as another word.
    return [
        CompletionItem(intent.name, help=" ".join(intent.description.split()))
        for intent in settings.intents
        if intent.name.startswith(incomplete)
    ]


def _read_settings(target: object) -> Settings | None:
    """Return the settings of a pack; None if the target is not a valid pack."""
    from manglecp.pack import PackError, read_outline

    if not isinstance(target, str | Path):
        return None
    try:
        # The shell does not expand ~ in a word that it completes.
        return read_outline(Path(os.path.expanduser(target)))  # noqa: PTH111 - an unknown home is no error
    except (PackError, OSError):
        return None


_VARIABLE = "_MANGLECP_COMPLETE"


@click.command("completion")
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script for SHELL (bash, zsh or fish) that completes verbs, options and intents.

    \b
    bash  eval "$(manglecp completion bash)"          in ~/.bashrc
    zsh   eval "$(manglecp completion zsh)"           in ~/.zshrc, after compinit
    fish  manglecp completion fish > ~/.config/fish/completions/manglecp.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    script = completion_class(cli, {}, "manglecp", _VARIABLE).source()
    if shell == "fish":  # click's own script ends a description at its first comma
        script = script.replace('string split "," ', 'string split --max 1 "," ')
    write_text(script)
