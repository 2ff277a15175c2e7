"""The text of an approval request: every step with its arguments, their known values, and previews."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from manglecp.base.text import escape_invisible
from manglecp.intent import Argument, Definition

_MAX_REPEATED: Final = 200
"""Characters of an argument that is repeated at the steps that use it; a longer one is shown once, before the steps."""
_HIDDEN_VALUE: Final = "(not shown)"


def render_request(
    definition: Definition,
    args: Mapping[str, Any],
    previews: Mapping[int, Any],
    values: Mapping[int, Mapping[str, Any]],
    *,
    identity: str,
    secret_args: frozenset[str] = frozenset(),
    hide: Callable[[Any], Any] = lambda value: value,
) -> str:
    """Return the complete text that an approver reads: every step with every argument, and the results of previews.

    ``args`` include defaults. ``previews`` are keyed by step number; ``values``, which arguments take from earlier
    steps and runs, by step number and parameter. ``hide`` redacts secret settings in a JSON value.
    """
    visible = {name: _HIDDEN_VALUE if name in secret_args else hide(value) for name, value in args.items()}
    reversible = "It can be undone." if definition.safety.reversible else "It cannot be undone."
    return "\n".join(
        (
            f"{_line(definition.tool)}: {_line(definition.description)}",
            f"Requested by: {_line(identity)}",
            f"Arguments: {_json(visible)}",
            "Steps:",
            *_steps(definition, visible, hide),
            f"Effects: {', '.join(definition.safety.side_effects)}. {reversible}",
            *_blocks("Values", values, hide),
            *_blocks("Preview", previews, hide),
        )
    )


def render_permit_request(
    tool: str, description: str, args: Mapping[str, Any], identity: str, secret_args: frozenset[str]
) -> str:
    """Return the text for a call that the application of the requester executes."""
    visible = {name: _HIDDEN_VALUE if name in secret_args else value for name, value in args.items()}
    requester = (
        f"Requested by: {_line(identity)}, whose application executes the call itself. It cannot be undone here."
    )
    return "\n".join((f"{_line(tool)}: {_line(description)}", requester, f"Arguments: {_json(visible)}"))


def _steps(definition: Definition, args: Mapping[str, Any], hide: Callable[[Any], Any]) -> Iterator[str]:
    for step in definition.steps:
        yield f"{step.number}. {_call_text(step.action, step.arguments, args, hide)}"
        if (undo := step.undo) is not None:
            yield f"   undone by {_call_text(undo.action, undo.arguments, args, hide, undone_step=step.number)}"


def _call_text(
    action: str,
    arguments: tuple[Argument, ...],
    args: Mapping[str, Any],
    hide: Callable[[Any], Any],
    *,
    undone_step: int | None = None,
) -> str:
    inputs = (f"{_line(arg.param)} = {_value_text(arg, args, hide, undone_step)}" for arg in arguments)
    return f"{_line(action)}({', '.join(inputs)})"


def _value_text(
    argument: Argument, args: Mapping[str, Any], hide: Callable[[Any], Any], undone_step: int | None
) -> str:
    """Return the value of an argument, or where it comes from; ``undone_step`` is set for an argument of an undo."""
    value = argument.value
    if argument.source == "value":
        return _json(hide(value))
    if argument.source == "call" and undone_step is not None:  # an undo takes the value from the undone step
        return f"{_line(value)} of step {undone_step}"
    if argument.source == "call":
        text = _json(args[value]) if value in args else "(left out)"
        return text if len(text) <= _MAX_REPEATED else f"argument {_line(value)}"
    if argument.source == "kept":
        return f"{_line(value['name'])} kept by run {_line(value['run'])}"
    if argument.source == "preview":
        return f"{_line(value)} of its preview"
    number = argument.step if undone_step is None else undone_step
    return f"from step {number}" + (f" at {_line(value)}" if value else "")


def _blocks(label: str, by_step: Mapping[int, Any], hide: Callable[[Any], Any]) -> Iterator[str]:
    for number, content in sorted(by_step.items()):
        yield from _block(f"{label} of step {number}:", hide(content))


def _block(title: str, content: Any) -> Iterator[str]:
    """Yield the title and the lines of the content: a multi-line text line by line, other values as JSON."""
    yield title
    members = content.items() if isinstance(content, dict) else [("", content)]
    for name, value in members:
        label = f"{_line(name)}: " if name else ""
        if isinstance(value, str) and "\n" in value:
            yield f"  {label}".rstrip()
            yield from (f"  | {escape_invisible(line)}" for line in value.split("\n"))
        else:
            yield f"  {label}{_json(value)}"


def _json(value: Any) -> str:
    return escape_invisible(msgspec.json.encode(value, order="sorted").decode())


def _line(text: str) -> str:
    """Return the text in one line, so that it cannot imitate another line of the request."""
    return escape_invisible(" ".join(text.split()))
