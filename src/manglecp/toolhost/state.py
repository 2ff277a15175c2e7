"""DSState: the slots that tools read and leave results in, and their wire form.

A state maps slots (0 to 7) to artifacts. On the wire it is *full*, ``{"slots": {"0": {...}}}``, or a *delta*,
``{"delta": true, "slots": {changed}, "removed_slots": [0]}``, which first writes, then removes. What we emit is strict.
What we receive may omit members and have unknown ones, but values are never coerced: where upstream reads ``"abc"`` as
slot 0, we refuse. Texts have no NUL and no lone surrogate; sizes fit 63 bits.

A delta of ours names its base by digest (``base_digest``); a receiver that holds another base refuses it. A state is a
plain dict of immutable artifacts, so a copy costs eight pointers. A tool works on such a copy (:func:`own_slots`).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

SLOTS: Final = 8
_KEYS: Final = {str(slot): slot for slot in range(SLOTS)}
# The offset basis of FNV-1a without its last digit: an error of upstream that every peer has to copy.
_FNV_BASIS: Final = 1469598103934665603
_FNV_PRIME: Final = 1099511628211
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_LARGEST: Final = 2**63 - 1


class StateError(ValueError):
    """An invalid state on the wire."""


class Drift(StateError):
    """A delta to another base than the one held here."""

    def __init__(self, expected: str, held: str) -> None:
        super().__init__(f"the delta is to the state {expected}, but the state here is {held}")
        self.expected = expected
        self.held = held


class Artifact(NamedTuple):
    """The content of a slot. ``size_bytes`` is set by its writer; upstream also stores match counts in it."""

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
    """Return the wire form of the change from ``before`` to ``after``. ``name_base`` lets the receiver detect drift."""
    changed = {slot: artifact for slot, artifact in after.items() if slot not in before or before[slot] != artifact}
    document: dict[str, Any] = {
        "delta": True,
        "slots": _emit(changed),
        "removed_slots": sorted(before.keys() - after.keys()) if before else [],
    }
    if name_base:
        document["base_digest"] = digest_state(before)
    return document


def own_slots(lent: Mapping[int, Artifact]) -> Slots:
    """Return a validated copy of slots that other code may still write to; raises :class:`StateError`."""
    copied = dict(lent)  # first: a thread of the tool may still write to it
    for slot, artifact in copied.items():
        _check(slot, artifact)
    return copied


def apply_state(document: object, base: Mapping[int, Artifact]) -> Slots:
    """Return the state after receiving ``document`` where ``base`` is held; a non-object changes nothing."""
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
        raise Drift(str(expected), actual)
    after = {**base, **received}
    for slot in removed:
        after.pop(slot, None)
    return after


def digest_state(slots: Mapping[int, Artifact]) -> str:
    """Return the SHA-256 of the canonical text, in hexadecimal."""
    return sha256(_canonical(slots)).hexdigest()


def digest_state_fast(slots: Mapping[int, Artifact]) -> str:
    """Return the FNV-1a of the canonical text, with upstream's basis."""
    return fnv1a64(_canonical(slots))


def fnv1a64(data: bytes) -> str:
    value = _FNV_BASIS
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _MASK_64
    return f"{value:016x}"


def _canonical(slots: Mapping[int, Artifact]) -> bytes:
    # Upstream escapes no delimiters, so two states may share this text; it has to be the same text on both sides.
    parts = []
    for slot in sorted(slots):
        artifact = slots[slot]
        content = sha256(artifact.content_json.encode("utf-8", "surrogatepass")).hexdigest()
        parts.append(f"{slot}:{artifact.type}:{artifact.provenance}:{artifact.size_bytes}:{content}|")
    return "".join(parts).encode("utf-8", "surrogatepass")


def _emit(slots: Mapping[int, Artifact]) -> dict[str, Any]:
    emitted: dict[str, Any] = {}
    copied = own_slots(slots)
    for slot in sorted(copied) if copied else ():
        artifact = copied[slot]
        emitted[str(slot)] = {
            "type": artifact.type,
            "provenance": artifact.provenance,
            "content_json": artifact.content_json,
            "size_bytes": artifact.size_bytes,
        }
    return emitted


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
        if "\0" in text or not (text.isascii() or _whole(text)):
            raise StateError(f"{name} of slot {slot} has a character that cannot be sent")
    size = artifact.size_bytes
    if type(size) is not int or not 0 <= size <= _LARGEST:
        raise StateError(f"size_bytes of slot {slot} is not a size")


def _whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _read_slots(document: object) -> Slots:
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise StateError("slots is not an object")
    slots: Slots = {}
    for key, value in document.items():
        slot = _KEYS.get(key)
        if slot is None:
            raise StateError(f"{key[:40]!r} is not a slot; slots are 0 to {SLOTS - 1}")
        if not isinstance(value, dict):
            raise StateError(f"slot {slot} is not an object")
        artifact = Artifact(
            value.get("type", ""),
            value.get("provenance", ""),
            value.get("content_json", ""),
            value.get("size_bytes", 0),
        )
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
