"""What the actions of a plugin are said to be, and calls made from it.

A listing (``--list``) describes every action. From that a call gets what its maker must not choose: its tier, whether
it may be repeated, its deadline. The tier is worked out here from the effects, whatever a host claims, and only ever
raised by the claim; an action whose effects nobody named is dangerous. Everything else that is missing or unreadable
means the careful thing, for a foreign host lists little.

Input comes as an object (``inputs``) or as its JSON text (``input_json``), but not as both (OPEN-60); text is what
travels. It is held against the action's schema before anything is sent: what does not fit is an ``INVALID_PICK``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from manglecp.harness import fitting
from manglecp.toolhost.canonical import unique
from manglecp.toolhost.dispatch.errors import DispatchError, failure
from manglecp.toolhost.dispatch.messages import Call
from manglecp.toolhost.dispatch.settings import MAX_TIMEOUT
from manglecp.toolhost.effects import DANGEROUS, lease_tier
from manglecp.toolhost.state import Artifact

__all__ = ["ActionProfile", "Catalogue", "ListingError"]

_decode: Final = json.JSONDecoder(object_pairs_hook=unique).decode


class ListingError(ValueError):
    """A listing that lists nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionProfile:
    """One action, as dispatch has to treat it."""

    aid: str
    tier: int = DANGEROUS
    idempotent: bool = False
    timeout: float | None = None
    inputs_schema: Mapping[str, Any] | None = None
    spawn: tuple[str, ...] = ()
    """The programs that it wants to start."""


class Catalogue(Mapping[str, ActionProfile]):
    """The actions of one plugin, by AID."""

    def __init__(self, profiles: Mapping[str, ActionProfile]) -> None:
        self._profiles = dict(profiles)
        self._fits: dict[str, Callable[[Any], bool]] = {}

    @classmethod
    def read(cls, listing: bytes) -> Catalogue:
        """The answer to ``--list``; :class:`ListingError` if it is none, or names an action twice."""
        try:
            document = msgspec.json.decode(listing)
        except (ValueError, RecursionError) as error:
            raise ListingError(f"the listing is no JSON: {error}") from error
        tools = document.get("tools") if isinstance(document, dict) and document.get("ok") is True else None
        if not isinstance(tools, list):
            reason = document.get("error") if isinstance(document, dict) else None
            raise ListingError(f"the host lists no tools: {reason or 'no reason given'}")
        profiles: dict[str, ActionProfile] = {}
        for tool in tools:
            aid = tool.get("aid") if isinstance(tool, dict) else None
            if not isinstance(aid, str) or not aid:
                raise ListingError("a tool without aid is listed")
            if aid in profiles:
                raise ListingError(f"{aid} is listed twice")
            profiles[aid] = _profile(aid, tool)
        return cls(profiles)

    def timed(self, seconds: float) -> Catalogue:
        """The same, in which every action that names no time has this one."""
        profiles = self._profiles.items()
        return Catalogue({aid: replace(each, timeout=each.timeout or seconds) for aid, each in profiles})

    def __getitem__(self, aid: str) -> ActionProfile:
        return self._profiles[aid]

    def __iter__(self) -> Iterator[str]:
        return iter(self._profiles)

    def __len__(self) -> int:
        return len(self._profiles)

    def prepare(
        self,
        aid: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        input_json: str | None = None,
        slots: Mapping[int, Artifact] | None = None,
        timeout: float | None = None,
        **said: Any,
    ) -> Call | DispatchError:
        """The call of an action with this input, or why there is none. What else is said of it becomes part of it.

        ``timeout`` are the seconds that its caller waits: what the action may take is the catalogue's to say.
        """
        profile = self._profiles.get(aid)
        if profile is None:
            return failure(aid, "not_found", f"tool not found: {aid}", status="INVALID_PICK")
        if inputs is not None and input_json is not None:
            return failure(aid, "exception", "inputs and input_json are both given")
        try:
            text = msgspec.json.encode(inputs).decode() if inputs is not None else _text(input_json)
            value = msgspec.json.decode(text)  # what is checked is what is sent, not what it was made from
            if input_json is not None and msgspec.json.encode(value) != text.encode():
                _decode(text)  # msgspec takes the last of two members with one name, and a host refuses both
        except (TypeError, ValueError, RecursionError) as error:
            return failure(aid, "tool_error", f"the input is no JSON: {error}", status="INVALID_PICK")
        if not isinstance(value, dict):
            return failure(aid, "tool_error", "the input is no JSON object", status="INVALID_PICK")
        if profile.inputs_schema is not None and not self._fitting(aid, profile.inputs_schema)(value):
            return failure(aid, "tool_error", _misfit(value, profile.inputs_schema), status="INVALID_PICK")
        return Call(
            aid=aid,
            input_json=text,
            tier=profile.tier,
            idempotent=profile.idempotent,
            slots={} if slots is None else slots,
            timeout=profile.timeout,
            patience=timeout,
            **said,
        )

    def _fitting(self, aid: str, schema: Mapping[str, Any]) -> Callable[[Any], bool]:
        found = self._fits.get(aid)
        if found is None:
            found = self._fits[aid] = fitting(dict(schema))
        return found


def _text(input_json: str | None) -> str:
    return "{}" if input_json is None else input_json


def _profile(aid: str, tool: Mapping[str, Any]) -> ActionProfile:
    timeout: Any = tool.get("timeout")
    schema = tool.get("inputs_schema")
    return ActionProfile(
        aid=aid,
        tier=_tier(tool),
        idempotent=tool.get("idempotent") is True,
        timeout=float(timeout) if type(timeout) in (int, float) and 0 < timeout <= MAX_TIMEOUT else None,
        inputs_schema=schema if isinstance(schema, dict) else None,
        spawn=_spawn(tool.get("capabilities")),
    )


def _spawn(capabilities: object) -> tuple[str, ...]:
    programs = capabilities.get("spawn") if isinstance(capabilities, dict) else None
    return tuple(each for each in programs if isinstance(each, str)) if isinstance(programs, list) else ()


def _tier(tool: Mapping[str, Any]) -> int:
    effects, claimed = tool.get("side_effects"), tool.get("tier")
    if not isinstance(effects, list) or not effects or not all(isinstance(effect, str) for effect in effects):
        return DANGEROUS
    try:
        tier = lease_tier(effects, mutates=tool.get("mutates") is not False)
    except ValueError:  # it says that it only reads, and names an effect that is no read
        return DANGEROUS
    return max(tier, min(claimed, DANGEROUS)) if type(claimed) is int else tier


def _misfit(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Why the input does not fit, as far as one can see without a second validator."""
    required, properties = schema.get("required"), schema.get("properties")
    if isinstance(required, list) and (missing := [name for name in required if name not in value]):
        return f"the input does not fit the schema of the action: {', '.join(map(str, missing))} missing"
    if isinstance(properties, dict) and (unknown := [name for name in value if name not in properties]):
        return f"the input does not fit the schema of the action: {', '.join(unknown)} unknown"
    return "the input does not fit the schema of the action"
