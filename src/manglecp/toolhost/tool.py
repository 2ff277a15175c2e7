"""A tool: an action under its id, ready to be described and called.

The parameters of the function are the members of its input, their hints the schema, the docstring the description. A
first paragraph describes the tool; lines ``name: text`` under ``Args:`` describe its parameters.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Final

from manglecp.toolhost.action import Declaration
from manglecp.toolhost.context import Context
from manglecp.toolhost.conversion import Converter, converter
from manglecp.toolhost.schema import DIALECT, schema
from manglecp.toolhost.shapes import Constrained, Field, HintError, Record, Shape, shape

__all__ = ["Tool"]

_VARIADIC: Final = 0x04 | 0x08
_COROUTINE: Final = 0x80


class Tool:
    """One action of a plugin. Making it reads the hints, so that what is wrong with them shows when a plugin loads."""

    def __init__(self, aid: str, function: Callable[..., Any], said: Declaration) -> None:
        self.aid: Final = aid
        self.name: Final[str] = function.__name__
        self.function: Final = function
        self.said: Final = said
        self._described: Final = _Docstring(function.__doc__ or "")
        signature = _signed(function)
        code = signature.__code__
        self.is_async: Final = bool(code.co_flags & _COROUTINE)
        if code.co_flags & _VARIADIC or code.co_posonlyargcount:
            raise HintError(f"{self.name}: a parameter without a name cannot be given in JSON")
        hints = typing.get_type_hints(signature, include_extras=True)
        self._returns: Final[Any] = hints.pop("return", Any)
        self.defaults: Final = _defaults(signature)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        contexts = [name for name in names if hints.get(name) is Context]
        self.context: Final = contexts[0] if contexts else None
        fields = tuple(self._field(name, hints) for name in names if name not in contexts)
        self._inputs: Final = Record(fields, dict)
        self.convert: Final[Converter] = converter(self._inputs)

    def _field(self, name: str, hints: dict[str, Any]) -> Field:
        if name not in hints:
            raise HintError(f"{self.name}: the parameter {name!r} has no type hint")
        read: Shape = shape(hints[name])
        text = self._described.parameters.get(name)
        if text is not None and not (isinstance(read, Constrained) and "description" in read.keywords):
            read = Constrained(read, {"description": text})
        return Field(name, read, name not in self.defaults, name)

    def descriptor(self) -> dict[str, Any]:
        """The tool in a listing: what the contract has (first line), and what it lacks."""
        said = self.said
        inputs = {"$schema": DIALECT, **schema(self._inputs)}
        for name, value in self.defaults.items():
            if name in inputs["properties"] and isinstance(value, (str, int, float, bool, type(None))):
                inputs["properties"][name]["default"] = value
        return {
            "aid": self.aid,
            "name": self.name,
            "deterministic": said.deterministic,
            "tags": list(said.tags),
            "side_effects": list(said.effects) or ["none"],
            "replay_inputs": list(said.replay_inputs),
            "description": self._described.summary,
            "inputs_schema": inputs,
            "outputs_schema": {"$schema": DIALECT, **schema(shape(self._returns))},
            "tier": said.tier,
            "capabilities": {"spawn": list(said.spawn)},
            "reversible": said.reversible,
            "idempotent": said.idempotent,
            "mutates": said.mutates,
            "timeout": said.timeout,
        }


class _Docstring:
    """Its first paragraph, and what it says about parameters."""

    def __init__(self, text: str) -> None:
        paragraphs = text.strip().split("\n\n", 1)
        self.summary = " ".join(paragraphs[0].split())
        self.parameters: dict[str, str] = {}
        inside = False
        for line in (line.strip() for line in text.splitlines()):
            if inside and not line:
                break
            if inside:
                name, colon, said = line.partition(":")
                if colon and name.isidentifier():
                    self.parameters[name] = said.strip()
            inside = inside or line == "Args:"


def _signed(function: Any) -> Any:
    """The function whose parameters count: what a decorator wraps, not its ``*args``."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if not hasattr(function, "__code__"):
        raise HintError(f"{function!r} is not a plain function")
    return function


def _defaults(function: Any) -> dict[str, Any]:
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    given = function.__defaults__ or ()
    return {
        **dict(zip(positional[len(positional) - len(given) :], given, strict=True)),
        **(function.__kwdefaults__ or {}),
    }
