"""What the tab key of a shell offers for the arguments of verbs.

Whatever goes wrong while somebody types is no news to them: then nothing is offered.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from manglecp.cli import VERBS

if TYPE_CHECKING:
    from manglecp.pack import Settings

__all__ = ["intents", "packs", "verbs"]


def verbs(incomplete: str) -> list[CompletionItem]:
    """The verbs that start so, each with its short help."""
    return [CompletionItem(verb, help=text) for verb, text in VERBS.items() if verb.startswith(incomplete)]


def packs(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A pack is a folder; the address of a server is nothing that could be guessed."""
    return [CompletionItem(incomplete, type="dir")]


def intents(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Those that the pack that was typed already says it has. Nothing of the pack is run."""
    # Behind an option that still lacks its value, click does not get to the arguments: they are all that it has left.
    settings = _settings(context.params.get("target") or next(iter(context.args), None))
    if settings is None:
        return []
    # One line each: zsh would take a second one for a word of its own.
    return [
        CompletionItem(one.name, help=" ".join(one.description.split()))
        for one in settings.intents
        if one.name.startswith(incomplete)
    ]


def _settings(target: object) -> Settings | None:
    from manglecp.pack import PackError, read_outline

    if not isinstance(target, str | Path):
        return None
    try:
        return read_outline(Path(os.path.expanduser(target)))  # noqa: PTH111 - a home that nobody has is no error
    except (PackError, OSError):
        return None
