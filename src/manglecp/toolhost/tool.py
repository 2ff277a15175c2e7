"""A tool: an action under its id, ready to be described and called.

The parameters of the function are the members of its input, their hints the schema, the docstring the description
(:mod:`.docstring`). The tool is described when it is made, so that whatever is wrong with it shows when a plugin loads.
What it returns is not held against its hint: that describes the output to callers, and they can check it.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from typing import Any, Final

from manglecp.toolhost.action_decorator import Declaration
from manglecp.toolhost.context import Context
from manglecp.toolhost.conversion import Converter, converter
from manglecp.toolhost.docstring import Docstring
from manglecp.toolhost.plain import encode_value
from manglecp.toolhost.schema import DIALECT, schema
from manglecp.toolhost.shapes import Constrained, Field, HintError, Record, Shape, shape

__all__ = ["Tool"]

_VARIADIC: Final = 0x04 | 0x08
_GENERATOR: Final = 0x20 | 0x200


class Tool:
    """One action of a plugin."""

    def __init__(self, aid: str, function: Callable[..., Any], said: Declaration) -> None:
        self.aid: Final = aid
        self.name: Final[str] = function.__name__
        self.function: Final = function
        self.said: Final = said
        self._described: Final = Docstring(function.__doc__ or "")
        signature = _signed(function)
        code = signature.__code__
        if code.co_flags & _VARIADIC or code.co_posonlyargcount:
            raise HintError(f"{self.name}: a parameter without a name cannot be given in JSON")
        if getattr(function, "__code__", code).co_flags & _GENERATOR:
            raise HintError(f"{self.name}: an action returns one result; a generator has none")
        hints = typing.get_type_hints(signature, include_extras=True)
        returns = hints.pop("return", Any)
        self.defaults: Final = _defaults(signature)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        contexts = [name for name in names if hints.get(name) is Context]
        if len(contexts) > 1:
            raise HintError(f"{self.name}: there is one Context for a call, not {len(contexts)}")
        self.context: Final = contexts[0] if contexts else None
        fields = tuple(self._field(name, hints) for name in names if name not in contexts)
        inputs = Record(fields, dict)
        self.convert: Final[Converter] = converter(inputs)
        self._descriptor: Final = self._describe(schema(inputs), schema(shape(returns)))
        encode_value(self._descriptor)

    def _field(self, name: str, hints: dict[str, Any]) -> Field:
        if name not in hints:
            raise HintError(f"{self.name}: the parameter {name!r} has no type hint")
        read: Shape = shape(hints[name])
        text = self._described.parameters.get(name)
        if text is not None and not (isinstance(read, Constrained) and "description" in read.keywords):
            read = Constrained(read, {"description": text})
        return Field(name, read, name not in self.defaults, name)

    def descriptor(self) -> dict[str, Any]:
        """The tool in a listing."""
        return self._descriptor

    def _describe(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """What the contract has, and what it lacks."""
        said = self.said
        for name in inputs["properties"].keys() & self.defaults.keys():
            try:
                inputs["properties"][name]["default"] = json.loads(encode_value(self.defaults[name]))
            except (TypeError, ValueError):  # nothing that a caller could give
                continue
        return {
            "aid": self.aid,
            "name": self.name,
            "deterministic": said.deterministic,
            "tags": list(said.tags),
            "side_effects": list(said.effects) or ["none"],
            "replay_inputs": list(said.replay_inputs),
            "description": self._described.summary,
            "inputs_schema": {"$schema": DIALECT, **inputs},
            "outputs_schema": {"$schema": DIALECT, **outputs},
            "tier": said.tier,
            "capabilities": {"spawn": list(said.spawn)},
            "reversible": said.reversible,
            "idempotent": said.idempotent,
            "mutates": said.mutates,
            "timeout": said.timeout,
            **({} if said.external is None else {"external": said.external}),
            **({} if said.generator is None else {"generator": said.generator}),
        }


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
