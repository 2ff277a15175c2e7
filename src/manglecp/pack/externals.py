"""The external predicates of a pack, as the host of ``externals.py`` lists them."""

from __future__ import annotations

import re
from typing import Any, Final

from manglecp.pack.diagnostics import Problems
from manglecp.pack.listed import Listed, tools_of
from manglecp.pack.model import ExternalDescription

__all__ = ["read_externals"]

_PREDICATE: Final = re.compile(r"[a-z][A-Za-z0-9_]*")
_VARIABLE: Final = re.compile(r"[A-Z][A-Za-z0-9_]*")
_MODE: Final = re.compile(r"[+-]+")
_LONGEST: Final = 3_600.0


def read_externals(document: dict[str, Any], file: str, problems: Problems) -> dict[str, ExternalDescription]:
    """By predicate, in the order of their ids."""
    externals: dict[str, ExternalDescription] = {}
    for tool in tools_of(document, file, problems):
        said = tool.member("external")
        if not isinstance(said, dict):
            tool.complain("not an external predicate", "actions belong in actions.py")
            continue
        external = _external(tool, said)
        if external is not None and external.predicate in externals:
            tool.complain(f"{external.predicate} is answered already", "rename one of them")
        if external is not None and tool.sound:
            externals[external.predicate] = external
    return externals


def _external(tool: Listed, said: dict[str, Any]) -> ExternalDescription | None:
    predicate, mode, arguments, seconds = (said.get(key) for key in ("predicate", "mode", "arguments", "seconds"))
    if not (
        _is_text(predicate, _PREDICATE)
        and _is_text(mode, _MODE)
        and isinstance(arguments, list)
        and all(_is_text(argument, _VARIABLE) for argument in arguments)
        and len(arguments) == len(str(mode))
        and type(seconds) in (int, float)
        and 0 < float(str(seconds)) <= _LONGEST
    ):
        tool.complain("its declaration as an external predicate has not the right shape")
        return None
    return ExternalDescription(
        predicate=str(predicate),
        arity=len(arguments),
        mode=str(mode),
        description=tool.description(),
        deterministic=said.get("deterministic") is True,
        seconds=float(str(seconds)),
        arguments=tuple(arguments),
        aid=tool.aid,
    )


def _is_text(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
