"""What a person reads before agreeing: the tool, its arguments, and every step with the values it will be called with.

A consent is worth what whoever gave it could see. So the text names each action of the chain and where every value
comes from: a constant that was frozen when the tool was proven, a call argument, the result of an earlier step, or
what another run kept.
Nothing that is not seen stays unseen, no text can pass for a line of ours, secrets are not shown, and what is too long
says how long it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from manglecp.base.text import escape_invisible
from manglecp.intent import Argument, Definition, Step

__all__ = ["consent_text"]

HIDDEN_VALUE: Final = "(not shown)"
_LONGEST: Final = 4_096
"""Of the arguments, and of the steps."""
_LONGEST_VALUE: Final = 300
"""Of one value of a step."""


def consent_text(
    definition: Definition,
    args: Mapping[str, Any],
    *,
    secret_args: frozenset[str] = frozenset(),
    hide: Callable[[Any], Any] = lambda value: value,
) -> str:
    """``args`` have their defaults. ``hide`` takes the values of secret settings out of JSON."""
    visible = {name: HIDDEN_VALUE if name in secret_args else hide(value) for name, value in args.items()}
    undoing = "It can be undone." if definition.safety.reversible else "It cannot be undone."
    return "\n".join(
        (
            f"{_line(definition.tool)}: {_line(definition.description)}",
            f"Arguments: {_cut(_json(visible), _LONGEST)}",
            "Steps:",
            *_bounded(_steps(definition, hide)),
            f"Effects: {', '.join(definition.safety.side_effects)}. {undoing}",
        )
    )


def _bounded(lines: Iterator[str]) -> Iterator[str]:
    """As many as there is room for, and how many there are besides."""
    room, left = _LONGEST, 0
    for line in lines:
        room -= len(line)
        if room >= 0:
            yield line
        else:
            left += 1
    if left:
        yield f"… and {left} more that are not shown"


def _steps(definition: Definition, hide: Callable[[Any], Any]) -> Iterator[str]:
    for step in definition.steps:
        yield f"{step.number}. {_called(step.action, step.arguments, hide)}"
        if (undo := step.undo) is not None:
            yield f"   undone by {_called(undo.action, undo.arguments, hide, of=step)}"


def _called(action: str, arguments: tuple[Argument, ...], hide: Callable[[Any], Any], *, of: Step | None = None) -> str:
    given = (f"{_line(one.param)} = {_value(one, hide, of)}" for one in arguments)
    return f"{_line(action)}({', '.join(given)})"


def _value(one: Argument, hide: Callable[[Any], Any], of: Step | None) -> str:
    if one.source == "value":
        return _cut(_json(hide(one.value)), _LONGEST_VALUE)
    if one.source == "call":
        return f"argument {_line(one.value)}" if of is None else f"{_line(one.value)} of step {of.number}"
    if one.source == "kept":
        name, run = (_cut(_line(one.value[key]), _LONGEST_VALUE) for key in ("name", "run"))
        return f"{name} kept by run {run}"
    number = one.step if of is None else of.number
    return f"from step {number}" + (f" at {_cut(_line(one.value), _LONGEST_VALUE)}" if one.value else "")


def _json(value: Any) -> str:
    return escape_invisible(msgspec.json.encode(value, order="sorted").decode())


def _line(text: str) -> str:
    return escape_invisible(" ".join(text.split()))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters in all)"
