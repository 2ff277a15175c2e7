"""``manglecp completion``: a script that teaches a shell to complete the words of this command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from manglecp.cli import cli
from manglecp.cli.outputs import write_text

__all__ = ["command"]

_VARIABLE = "_MANGLECP_COMPLETE"


@click.command("completion")
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script with which SHELL (bash, zsh or fish) completes verbs, options and intents.

    \b
    bash  eval "$(manglecp completion bash)"          in ~/.bashrc
    zsh   eval "$(manglecp completion zsh)"           in ~/.zshrc, behind compinit
    fish  manglecp completion fish > ~/.config/fish/completions/manglecp.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "manglecp", _VARIABLE).source()
    if shell == "fish":  # click's own script ends a description at its first comma
        script = script.replace('string split "," ', 'string split --max 1 "," ')
    write_text(script)
