"""The inputs of a run with a selector's patch laid over them.

A patch is written by a model, and the inputs reach every action: so a patch must not get at what steers the runner
(``_capabilities``, ``_queue``, ``_lease_token``) or the language of whoever reads it (``__proto__``). Every key with a
leading underscore is left out, at every depth, and named in the report. Upstream looks only at the top and only for
three beginnings. The merge itself is upstream's: a key of the patch replaces the same key of the inputs as a whole.

A patch too large or too deep, or one whose keys stand twice, is refused and changes nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from manglecp.toolhost.runner.canonical import canonical, copied
from manglecp.toolhost.runner.errors import PatchRefused
from manglecp.wire.decoding import decode
from manglecp.wire.faults import Fault

__all__ = ["DEEPEST", "LARGEST_INPUTS", "LARGEST_PATCH", "Merged", "merge"]

DEEPEST: Final = 32
"""Containers inside each other. A host written in C++ reads no more."""
LARGEST_PATCH: Final = 65_536
LARGEST_INPUTS: Final = 1_048_576
"""Bytes of all inputs after the merge: many small patches are a large one."""


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


def _clean(patch: dict[str, Any]) -> tuple[str, ...]:
    """Take blocked keys out of the patch, and refuse one that is too deep. Without recursion."""
    blocked: list[str] = []
    work: list[tuple[str, Any, int]] = [("", patch, 1)]
    while work:
        path, one, depth = work.pop()
        if depth > DEEPEST:
            raise PatchRefused(f"the patch is nested more than {DEEPEST} deep")
        parts: list[tuple[str, Any]]
        if isinstance(one, dict):
            for key in [key for key in one if _is_blocked(key)]:
                blocked.append(f"{path}/{_step(key)}")
                del one[key]
            parts = [(_step(key), part) for key, part in one.items()]
        else:
            parts = [(str(place), part) for place, part in enumerate(one)]
        work += [(f"{path}/{step}", part, depth + 1) for step, part in parts if isinstance(part, dict | list)]
    return tuple(sorted(blocked))


def _is_blocked(key: str) -> bool:
    """Also what only looks like an underscore, and a NUL: behind it a host written in C++ reads another key."""
    return "\0" in key or unicodedata.normalize("NFKC", key).lstrip().startswith("_")


def _step(key: str) -> str:
    """A key as a step of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
