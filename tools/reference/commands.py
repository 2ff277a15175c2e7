"""The usage and the options of each command-line verb, from their click definitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import click

from manglecp.cli import VERBS, cli
from tools.reference.tables import cell, code, table, wrapped

__all__ = ["blocks"]

_WITHOUT_CLICK: Final = ("toolhost",)
"""Verbs that parse their own arguments: a host process starts without click."""
_SHARED: Final = 3
"""An option with the same meaning in at least this number of verbs is described once."""


def blocks() -> dict[str, Callable[[], str]]:
    verbs = [verb for verb in VERBS if verb not in _WITHOUT_CLICK]
    return {
        "verbs": _verbs,
        "options of several verbs": _shared_table,
        **{f"usage of {verb}": partial(_usage, verb) for verb in verbs},
        **{f"options of {verb}": partial(_options, verb) for verb in verbs if any(map(_named, _leaves(verb)))},
    }


def _verbs() -> str:
    return table(("verb", "what it does"), ((f"[`{verb}`](#manglecp-{verb})", text) for verb, text in VERBS.items()))


def _leaves(verb: str) -> list[tuple[str, click.Command]]:
    with click.Context(cli) as context:
        command = cli.get_command(context, verb)
    assert command is not None
    return list(_below(verb, command))


def _below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        # In the order of the source; those that are imported when they are used come last.
        for part in dict.fromkeys([*command.commands, *command.list_commands(context)]):
            inner = command.get_command(context, part)
            assert inner is not None
            yield from _below(f"{name} {part}", inner)
    else:
        yield name, command


def _usage(verb: str) -> str:
    lines = (wrapped(["manglecp", *name.split(), *_words(command)]) for name, command in _leaves(verb))
    return "\n".join(("```", *lines, "```"))


def _words(command: click.Command) -> Iterator[str]:
    for param in command.params:
        if isinstance(param, click.Argument):
            yield param.metavar or param.human_readable_name.upper()
    for option in _options_of(command):
        word = _spelled(option) + ("" if option.is_flag else f" {_value(option)}")
        yield (word if option.required else f"[{word}]") + ("..." if option.multiple else "")


def _named(leaf: tuple[str, click.Command]) -> bool:
    return bool(_options_of(leaf[1]))


def _options_of(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option) and not one.hidden]


def _spelled(option: click.Option) -> str:
    return max(option.opts, key=len)


def _value(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    return "N" if isinstance(option.type, click.types.IntRange | click.types.IntParamType) else option.type.name.upper()


def _key(option: click.Option) -> tuple[str, str]:
    word = _spelled(option) + ("" if option.is_flag else f" {_value(option)}")
    return word, _meaning(option)


def _meaning(option: click.Option) -> str:
    text = " ".join((option.help or "").split())
    variables = option.envvar if isinstance(option.envvar, str) else ""
    return text + (f" Default: ${variables}." if variables and variables not in text else "")


def _homes() -> dict[tuple[str, str], list[str]]:
    homes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for verb in VERBS:
        if verb not in _WITHOUT_CLICK:
            for key in dict.fromkeys(_key(one) for _, command in _leaves(verb) for one in _options_of(command)):
                homes[key].append(verb)
    return homes


def _options(verb: str) -> str:
    homes = _homes()
    own, shared = [], []
    leaves = _leaves(verb)
    used: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, command in leaves:
        for option in _options_of(command):
            used[_key(option)].append(name.removeprefix(verb).strip())
    for key, names in used.items():
        word, meaning = key
        if len(homes[key]) >= _SHARED:
            shared.append(f"`{word.split()[0]}`")
            continue
        where = "" if len(leaves) == 1 or len(names) == len(leaves) else f" Of {', '.join(f'`{n}`' for n in names)}."
        own.append((code(word), f"{cell(meaning)}{where}".strip()))
    parts = [table(("option", "meaning"), own)] if own else []
    if shared:
        both = "It takes" if not own else "Also"
        words = ", ".join(dict.fromkeys(shared))
        parts.append(f"{both} {words}: see [options of several verbs](#options-of-several-verbs).")
    return "\n".join(parts)


def _shared_table() -> str:
    rows = (
        (code(word), cell(meaning), ", ".join(f"`{verb}`" for verb in verbs))
        for (word, meaning), verbs in sorted(_homes().items())
        if len(verbs) >= _SHARED
    )
    return table(("option", "meaning", "of"), rows)
