"""A proven tool as it is kept between the answer that announced it and the invocation: one JSON document.

It holds the definition, and the digest of the question that it answers. What a client sent is not in it, except what
the rules froze into the chain. Secret settings are not in it either: where one was frozen into a chain the document
has a *blank*, the place and the name of the setting, and whoever reads it fills in the value of the same pack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import msgspec

from manglecp.base.digest import digest
from manglecp.intent import Definition, Identity, is_secret_setting, secret_values
from manglecp.invoke.plan import Plan
from manglecp.pack import ActionDescription, Pack
from manglecp.wire.messages import IntentRequest

__all__ = ["Documents", "Proven", "question_digest"]

_MOST: Final = 4096
"""Documents that are kept as they were read."""
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Proven:
    """A tool, and the question that it is an answer to."""

    definition: Definition
    proof_digest: str

    @cached_property
    def chain_digest(self) -> str:
        """What the admission of a run records of the chain."""
        return chain_digest(self.definition)

    def plan(self, actions: Mapping[str, ActionDescription]) -> Plan:
        """How the chain is run with these actions. Those of a pack are always the same, and so is the plan."""
        known: tuple[Mapping[str, ActionDescription], Plan] | None = self.__dict__.get("_plan")
        if known is None or known[0] is not actions:
            known = self.__dict__["_plan"] = actions, Plan.of(self.definition, actions)
        return known[1]


class _Blank(msgspec.Struct, frozen=True):
    """A text that is not written down: where it stands, and what it is put together from."""

    place: Place
    parts: tuple[str, ...]
    """Every second one, from the second on, is the name of a setting."""


class _Document(msgspec.Struct, frozen=True, omit_defaults=True):
    definition: Any
    proof_digest: str
    blanks: tuple[_Blank, ...] = ()


_decoder: Final = msgspec.json.Decoder(_Document)


class Documents:
    """Writes and reads the tools of one pack."""

    def __init__(self, pack: Pack) -> None:
        hidden = secret_values(pack)  # the longest first
        self._names = {value: name for name, value in pack.params.items() if is_secret_setting(name)}
        self._settings = pack.params
        self._secret = re.compile("|".join(map(re.escape, hidden))) if hidden else None
        self.read: Callable[[bytes], Proven] = lru_cache(_MOST)(self._read)

    def write(self, proven: Proven) -> bytes:
        """The document. Values of secret settings are blanks in it."""
        blanks: list[_Blank] = []
        definition = msgspec.to_builtins(proven.definition)
        if self._secret is not None:
            definition = self._blanked(definition, (), blanks)
        return msgspec.json.encode(_Document(definition, proven.proof_digest, tuple(blanks)), order="sorted")

    def _read(self, document: bytes) -> Proven:
        found = _decoder.decode(document)
        for blank in found.blanks:
            *way, last = blank.place
            inside = found.definition
            for part in way:
                inside = inside[part]
            inside[last] = "".join(self._part(number, text) for number, text in enumerate(blank.parts))
        return Proven(msgspec.convert(found.definition, Definition), found.proof_digest)

    def _part(self, number: int, text: str) -> str:
        return self._settings[text] if number % 2 else text

    def _blanked(self, value: Any, place: Place, blanks: list[_Blank]) -> Any:
        if isinstance(value, str):
            parts = self._parts(value)
            if len(parts) == 1:
                return value
            blanks.append(_Blank(place, tuple(parts)))
            return ""
        if isinstance(value, dict):
            return {name: self._blanked(member, (*place, name), blanks) for name, member in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._blanked(item, (*place, number), blanks) for number, item in enumerate(value)]
        return value

    def _parts(self, text: str) -> Sequence[str]:
        assert self._secret is not None
        parts, end = [], 0
        for found in self._secret.finditer(text):
            parts += [text[end : found.start()], self._names[found[0]]]
            end = found.end()
        return [*parts, text[end:]]


def question_digest(
    request: IntentRequest, identity: Identity, pack_digest: str, now_ns: int, facts_version: str = ""
) -> str:
    """With the pack it determines the answer: who asked what, with which facts, and when; and, where the pack finds
    facts out, which it knew."""
    asked: dict[str, Any] = msgspec.to_builtins(request.payload)
    who = {"name": identity.name, "permissions": sorted(identity.permissions), "trust": identity.trust}
    known = {"facts": facts_version} if facts_version else {}
    return digest({"pack": pack_digest, "identity": who, "asked": asked, "now": str(now_ns), **known})


def chain_digest(definition: Definition) -> str:
    """Of the steps as they will be run: order, actions, where arguments come from, frozen values, compensation."""
    steps = [asdict(step) for step in definition.steps]
    return digest({"macro_id": definition.macro_id, "ordered": definition.ordered, "steps": steps})
