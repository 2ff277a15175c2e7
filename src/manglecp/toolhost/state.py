"""The state of a run (``ds_state`` on the wire): the slots that actions read and write.

A state maps slots (0 to 255; runs use 0 to 7) to artifacts. On the wire it is *full*, ``{"slots": {"0": {...}}}``, or
a *delta*, ``{"delta": true, "slots": {changed}, "removed_slots": [0]}``: slots are written first, then removed. States
that are sent have all members. Received ones may lack members or have unknown ones, but values are never coerced: the
C++ toolhost (upstream) reads ``"6abc"`` as slot 6, we refuse it. Texts have no NUL and no lone surrogate; sizes fit 63
bits.

A delta may name its base by digest (``base_digest``); a receiver that holds another base refuses it. A state is a plain
dict of immutable artifacts, so a copy is cheap. An action works on a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

SLOTS: Final = 256  # as many as the C++ toolhost accepts
_SLOT_BY_KEY: Final = {str(slot): slot for slot in range(SLOTS)}
# The offset basis of FNV-1a without its last decimal digit: an error of upstream that every peer has to copy.
_FNV_BASIS: Final = 1469598103934665603
_FNV_PRIME: Final = 1099511628211
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_MAX_SIZE: Final = 2**63 - 1


class StateError(ValueError):
    """An invalid state on the wire."""


class BaseMismatch(StateError):
    """A delta to another base than the one held here."""

    def __init__(self, expected: str, held: str) -> None:
        super().__init__(f"the delta is to the state {expected}, but the state here is {held}")
        self.expected = expected
        self.held = held


class Artifact(NamedTuple):
    """The content of a slot. Its writer sets ``size_bytes``, in which upstream also stores numbers of matches."""

    type: str = ""
    provenance: str = ""
    content_json: str = ""
    size_bytes: int = 0


Slots: TypeAlias = dict[int, Artifact]


def full_state(slots: Mapping[int, Artifact]) -> dict[str, Any]:
    """Return the wire form of the whole state."""
    return {"slots": _emit(slots)}


def state_delta(
    before: Mapping[int, Artifact], after: Mapping[int, Artifact], *, name_base: bool = False
) -> dict[str, Any]:
    """Return the wire form of the change from ``before`` to ``after``; ``name_base`` adds the digest of ``before``."""
    changed = {slot: artifact for slot, artifact in after.items() if slot not in before or before[slot] != artifact}
    document: dict[str, Any] = {
        "delta": True,
        "slots": _emit(changed),
        "removed_slots": sorted(before.keys() - after.keys()) if before else [],
    }
    if name_base:
        document["base_digest"] = digest_state(before)
    return document


def own_slots(slots: Mapping[int, Artifact]) -> Slots:
    """Return a validated copy of slots that other code may still write to; raises :class:`StateError`."""
    copied = dict(slots)  # before the checks: a thread of the action may still write to the original
    for slot, artifact in copied.items():
        _check(slot, artifact)
    return copied


def apply_state(document: object, base: Mapping[int, Artifact]) -> Slots:
    """Return the state after a receiver with the state ``base`` got ``document``; a non-object changes nothing.

    Raises :class:`StateError`, or :class:`BaseMismatch` if the document is a delta to another base.
    """
    if not isinstance(document, dict):
        return dict(base)
    is_delta = document.get("delta")
    if is_delta is not None and not isinstance(is_delta, bool):
        raise StateError("delta is neither true nor false")
    received = _read_slots(document.get("slots"))
    if not is_delta:
        return received
    removed = _read_removed(document.get("removed_slots"))
    expected = document.get("base_digest")
    if expected is not None and expected != (actual := digest_state(base)):
        raise BaseMismatch(str(expected), actual)
    after = {**base, **received}
    for slot in removed:
        after.pop(slot, None)
    return after


def digest_state(slots: Mapping[int, Artifact]) -> str:
    """Return the SHA-256 of the canonical text of the slots, in hexadecimal."""
    return sha256(_canonical(slots)).hexdigest()


def digest_state_fast(slots: Mapping[int, Artifact]) -> str:
    """Return the FNV-1a of the canonical text, with upstream's basis."""
    return fnv1a64(_canonical(slots))


def fnv1a64(data: bytes) -> str:
    digest = _FNV_BASIS
    for byte in data:
        digest = ((digest ^ byte) * _FNV_PRIME) & _MASK_64
    return f"{digest:016x}"


def _canonical(slots: Mapping[int, Artifact]) -> bytes:
    # Different states may have the same text: the text must be that of upstream, which escapes no delimiters.
    parts = []
    for slot in sorted(slots):
        artifact = slots[slot]
        content = sha256(artifact.content_json.encode("utf-8", "surrogatepass")).hexdigest()
        parts.append(f"{slot}:{artifact.type}:{artifact.provenance}:{artifact.size_bytes}:{content}|")
    return "".join(parts).encode("utf-8", "surrogatepass")


def _emit(slots: Mapping[int, Artifact]) -> dict[str, Any]:
    copied = own_slots(slots)
    return {str(slot): copied[slot]._asdict() for slot in sorted(copied)}


def _check(slot: object, artifact: object) -> None:
    """Require exact types: a subclass could behave differently when compared or written."""
    if type(slot) is not int or not 0 <= slot < SLOTS:
        raise StateError(f"{slot!r:.40} is not a slot; slots are 0 to {SLOTS - 1}")
    if type(artifact) is not Artifact:
        raise StateError(f"slot {slot} holds no artifact")
    for name in ("type", "provenance", "content_json"):
        text = getattr(artifact, name)
        if type(text) is not str:
            raise StateError(f"{name} of slot {slot} is not a string")
        if "\0" in text or not (text.isascii() or _is_encodable(text)):
            raise StateError(f"{name} of slot {slot} has a character that cannot be sent")
    size = artifact.size_bytes
    if type(size) is not int or not 0 <= size <= _MAX_SIZE:
        raise StateError(f"size_bytes of slot {slot} is not a size")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _read_slots(document: object) -> Slots:
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise StateError("slots is not an object")
    slots: Slots = {}
    for key, value in document.items():
        slot = _SLOT_BY_KEY.get(key)
        if slot is None:
            raise StateError(f"{key[:40]!r} is not a slot; slots are 0 to {SLOTS - 1}")
        if not isinstance(value, dict):
            raise StateError(f"slot {slot} is not an object")
        artifact = Artifact._make(value.get(name, default) for name, default in Artifact._field_defaults.items())
        _check(slot, artifact)
        slots[slot] = artifact
    return slots


def _read_removed(document: object) -> list[int]:
    if document is None:
        return []
    if not isinstance(document, list):
        raise StateError("removed_slots is not an array")
    for slot in document:
        if type(slot) is not int or not 0 <= slot < SLOTS:
            raise StateError("removed_slots holds a value that is not a slot")
    return document
