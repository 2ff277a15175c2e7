"""The inputs of a run with a selector's patch laid over them.

A patch is written by a model, and the inputs reach every action: so a patch must not get at what steers the runner
(``_capabilities``, ``_queue``, ``_lease_token``) or the language of whoever reads it (``__proto__``). Every key with a
leading underscore is left out, at every depth, and named in the report. Upstream looks only at the top and only for
three beginnings. The merge itself is upstream's: a key of the patch replaces the same key of the inputs as a whole.

A patch too large or too deep, one whose keys stand twice, or one with very many blocked keys is refused and changes
nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from manglecp.toolhost.runner.canonical import canonical, copied
from manglecp.toolhost.runner.errors import PatchRefused
from manglecp.wire import Fault, decode

__all__ = ["DEEPEST", "LARGEST_INPUTS", "LARGEST_PATCH", "MOST_BLOCKED", "Merged", "merge"]

DEEPEST: Final = 32
"""Containers inside each other. A host written in C++ reads no more."""
LARGEST_PATCH: Final = 65_536
LARGEST_INPUTS: Final = 1_048_576
"""Bytes of all inputs after the merge: many small patches are a large one."""
MOST_BLOCKED: Final = 64
"""Blocked keys. Each is named with its whole path, so a small patch could make a large report of them."""


@dataclass(frozen=True, slots=True)
class Merged:
    """``blocked`` has JSON pointers to the keys that were left out, never their values."""

    inputs: dict[str, Any]
    blocked: tuple[str, ...] = ()


def merge(inputs: Mapping[str, Any], input_patch_json: str) -> Merged:
    """New inputs, sharing nothing with the old ones; :class:`PatchRefused` if the patch is none."""
    try:
        data = input_patch_json.encode()
        patch = decode(data) if len(data) <= LARGEST_PATCH else None
    except (Fault, UnicodeError) as fault:
        raise PatchRefused(f"the patch is {fault}") from None
    if len(data) > LARGEST_PATCH:
        raise PatchRefused(f"the patch has more than {LARGEST_PATCH} bytes")
    if not isinstance(patch, dict):
        raise PatchRefused("the patch is no JSON object")
    blocked = _clean(patch)
    try:
        merged = {**copied(dict(inputs)), **patch}
        size = len(canonical(merged))
    except ValueError as error:
        raise PatchRefused(f"the inputs would be {error}") from None
    if size > LARGEST_INPUTS:
        raise PatchRefused(f"the inputs would have more than {LARGEST_INPUTS} bytes")
    return Merged(merged, blocked)


class _Place(NamedTuple):
    """Where a part of the patch is. Only those that are reported are ever written out."""

    within: _Place | None
    step: str

    def pointer(self) -> str:
        place, steps = self, [self.step]
        while place.within is not None:
            place = place.within
            steps.append(place.step)
        return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in reversed(steps))


def _clean(patch: dict[str, Any]) -> tuple[str, ...]:
    """Take blocked keys out of the patch, and refuse one that is too deep. Without recursion."""
    blocked: list[_Place] = []
    work: list[tuple[_Place | None, Any, int]] = [(None, patch, 1)]
    while work:
        place, one, depth = work.pop()
        if depth > DEEPEST:
            raise PatchRefused(f"the patch is nested more than {DEEPEST} deep")
        if isinstance(one, dict):
            for key in [key for key in one if _is_blocked(key)]:
                blocked.append(_Place(place, key))
                del one[key]
        if len(blocked) > MOST_BLOCKED:
            raise PatchRefused(f"the patch has more than {MOST_BLOCKED} keys that it may not have")
        parts = one.items() if isinstance(one, dict) else enumerate(one)
        work += [(_Place(place, str(step)), part, depth + 1) for step, part in parts if isinstance(part, dict | list)]
    return tuple(sorted(place.pointer() for place in blocked))


def _is_blocked(key: str) -> bool:
    """Also what only looks like an underscore, and a NUL: behind it a host written in C++ reads another key."""
    return "\0" in key or unicodedata.normalize("NFKC", key).lstrip().startswith("_")
