"""The generators of a pack's facts, as the host of ``facts.py`` lists them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from manglecp.base.suggestions import did_you_mean
from manglecp.pack.diagnostics import Problems
from manglecp.pack.listed import Listed, tools_of
from manglecp.pack.model import GeneratorDescription

__all__ = ["read_generators"]

_PREDICATE: Final = re.compile(r"[a-z][A-Za-z0-9_]*(?:\.[a-z][A-Za-z0-9_]*)*")
_NAME: Final = re.compile(r"[^\W\d]\w*")
_LONGEST: Final = 3_600.0


def read_generators(
    document: dict[str, Any], file: str, params: Collection[str], problems: Problems
) -> dict[str, GeneratorDescription]:
    """By name, in the order of their ids. ``params`` are the settings that there are."""
    generators: dict[str, GeneratorDescription] = {}
    taken: dict[str, str] = {}
    for tool in tools_of(document, file, problems):
        said = tool.member("generator")
        if not isinstance(said, dict):
            tool.complain("it gives no facts", "actions belong in actions.py, external predicates in externals.py")
            continue
        generator = _generator(tool, said)
        if generator is None:
            continue
        for predicate in generator.predicates:
            if predicate in taken:
                tool.complain(f"{predicate} is given by {taken[predicate]} already", "let one of them give it")
            taken[predicate] = generator.name
        for name in generator.settings:
            if name not in params:
                tool.complain(f"it takes {name}, and the pack has no param of that name", _fix(name, params))
        if tool.sound:
            generators[generator.name] = generator
    if not generators and problems.sound(file):
        problems.warn(file, "no function in it gives facts", fix='write @facts("PREDICATE") before one')
    return generators


def _fix(name: str, params: Collection[str]) -> str:
    hint = did_you_mean(name, params)
    return hint if hint.startswith("did") else f"add [params.{name}] to pack.toml"


def _generator(tool: Listed, said: dict[str, Any]) -> GeneratorDescription | None:
    predicates: Any = said.get("predicates")
    settings: Any = said.get("settings")
    if not (
        _are_words(predicates, _PREDICATE)
        and predicates
        and _are_words(settings, _NAME)
        and _is_time(said.get("every"))
        and _is_time(said.get("seconds"))
    ):
        tool.complain("its declaration as a generator of facts has not the right shape")
        return None
    capabilities = tool.member("capabilities")
    return GeneratorDescription(
        name=tool.name,
        aid=tool.aid,
        predicates=tuple(predicates),
        description=tool.description(),
        every=float(said["every"]),
        seconds=float(said["seconds"]),
        changes=said.get("changes") is True,
        settings=tuple(settings),
        cache=said.get("cache") is True,
        spawn=tool.texts(capabilities.get("spawn", []) if isinstance(capabilities, dict) else [], "programs"),
    )


def _are_words(value: Any, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and pattern.fullmatch(item) for item in value)


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and 0 < float(str(value)) <= _LONGEST
