"""The menu of a step, a selector's text, and the merge of its patch into the inputs (contract, section 2).

Menu entries are sorted by AID and numbered from ``SID0001``, so that the same actions always make the same menu; a
filter leaves the SIDs unchanged. Upstream offers ``AID.NOOP.v1`` twice; here an action has one SID. A selection is

    "<ASK_SUP><END>" | "<NOOP><END>" | "<PICK><" SID ">" [patch] "<END>"
    patch = "<INP>" JSON object "</INP>" | "<INP64>" base64 of a JSON object "</INP64>"

surrounded by white space. All other texts are ``INVALID``, never an exception: a model wrote them. Upstream ignores the
text between the SID and the last ``<END>``; ``compatible=True`` parses that way.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from manglecp.runner.log import PatchRefused, RunnerError, canonical, copy_json
from manglecp.wire import Fault, decode

MOST_ENTRIES: Final = 9_999  # a SID has four digits
SID: Final = re.compile(r"SID[0-9]{4}")
_LONGEST_NAME: Final = 256
_MOST_TAGS: Final = 64
# The digest joins AIDs and tags with these separators without escaping, so they may not contain them.
_AID: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_TAG: Final = re.compile(r"[^\x00-\x20\x7f,:|=\ud800-\udfff]{1,128}")


@dataclass(frozen=True, slots=True)
class MenuAction:
    """An action for a menu. A ``deterministic`` one has the same result on the same inputs and state."""

    aid: str
    name: str = ""
    tags: frozenset[str] = frozenset()
    deterministic: bool = False
    inputs_schema: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if not _AID.fullmatch(self.aid):
            raise RunnerError(f"not an action id: {self.aid[:80]!a}")
        if len(self.name) > _LONGEST_NAME or len(self.tags) > _MOST_TAGS:
            raise RunnerError(
                f"{self.aid}: a name of more than {_LONGEST_NAME} characters, or more than {_MOST_TAGS} tags"
            )
        for tag in self.tags:
            if not _TAG.fullmatch(tag):
                raise RunnerError(f"{self.aid}: not a tag: {tag[:80]!a}")


@dataclass(frozen=True, slots=True)
class MenuEntry:
    sid: str
    offer: MenuAction

    def members(self) -> dict[str, Any]:
        """Return the logged form, without the schema."""
        offer = self.offer
        return {
            "sid": self.sid,
            "aid": offer.aid,
            "name": offer.name,
            "tags": sorted(offer.tags),
            "deterministic": offer.deterministic,
        }

    def described(self) -> dict[str, Any]:
        """Return the form for a policy, with the schema of the arguments, which upstream omits."""
        schema = self.offer.inputs_schema
        return self.members() if schema is None else {**self.members(), "inputs_schema": dict(schema)}


@dataclass(frozen=True, slots=True)
class Menu:
    """Entries in the order of their SIDs."""

    entries: tuple[MenuEntry, ...]

    def __post_init__(self) -> None:
        sids = [entry.sid for entry in self.entries]
        if len(sids) > MOST_ENTRIES:
            raise RunnerError(f"more than {MOST_ENTRIES} entries")
        if any(not SID.fullmatch(sid) for sid in sids) or sids != sorted(set(sids)):
            raise RunnerError("the SIDs are not SID0001 and so on, sorted and unique")
        if len({entry.offer.aid for entry in self.entries}) != len(sids):
            raise RunnerError("the menu contains an action twice")

    @classmethod
    def of(cls, offers: Iterable[MenuAction]) -> Menu:
        """Return the menu of these actions; a repeated offer is one entry."""
        by_aid: dict[str, MenuAction] = {}
        for offer in offers:
            if by_aid.setdefault(offer.aid, offer) != offer:
                raise RunnerError(f"two different actions have the id {offer.aid}")
        return cls(tuple(MenuEntry(f"SID{n:04}", by_aid[aid]) for n, aid in enumerate(sorted(by_aid), 1)))

    @classmethod
    def read(cls, entries: Iterable[Mapping[str, Any]]) -> Menu:
        """Parse what :meth:`members` returned."""
        try:
            actions = [
                (one["sid"], MenuAction(one["aid"], one["name"], frozenset(one["tags"]), one["deterministic"]))
                for one in entries
            ]
            return cls(tuple(MenuEntry(sid, action) for sid, action in actions))
        except (KeyError, TypeError, AttributeError) as error:
            raise RunnerError(f"not a menu: {type(error).__name__} {error}") from None

    def tagged(self, tags: Iterable[str]) -> Menu:
        wanted = frozenset(tags)
        return Menu(tuple(entry for entry in self.entries if entry.offer.tags & wanted))

    def permitted(self, allowed: Iterable[str] = (), blocked: Iterable[str] = ()) -> Menu:
        """Apply ``_capabilities``: an AID, or its beginning and ``*``. Blocked wins; no list allows all."""
        allowing, blocking = tuple(allowed), tuple(blocked)
        entries = [entry for entry in self.entries if not _matches(entry.offer.aid, blocking)]
        return Menu(tuple(entry for entry in entries if not allowing or _matches(entry.offer.aid, allowing)))

    def get(self, sid: str) -> MenuAction | None:
        return next((entry.offer for entry in self.entries if entry.sid == sid), None)

    def members(self) -> list[dict[str, Any]]:
        return [entry.members() for entry in self.entries]

    @property
    def digest(self) -> str:
        """Return the SHA-256 of ``SID0001=<AID>:<sorted,tags>|SID0002=…``, as upstream computes it."""
        parts = (f"{one.sid}={one.offer.aid}:{','.join(sorted(one.offer.tags))}" for one in self.entries)
        return hashlib.sha256("|".join(parts).encode()).hexdigest()


def _matches(aid: str, patterns: tuple[str, ...]) -> bool:
    return any(aid.startswith(one[:-1]) if one.endswith("*") else aid == one for one in patterns)


LONGEST: Final = 65_536  # characters of a selection; also the limit of the output of a policy

_SPACES: Final = " \t\n\v\f\r"
_PICK: Final = re.compile(r"<PICK><(SID[0-9]{4})>(.*)<END>", re.DOTALL)
_PATCH: Final = re.compile(r"<(INP|INP64)>(.*)</\1>", re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class SelectionKind(StrEnum):
    """The kind of a selection. What cannot be parsed, or is not on the menu, is ``INVALID``."""

    PICK = "PICK"
    ASK_SUP = "ASK_SUP"
    NOOP = "NOOP"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class Selection:
    """A parsed selection. ``raw`` is the original text; ``why`` explains an invalid one, outside of the contract."""

    kind: SelectionKind
    raw: str
    sid: str | None = None
    input_patch_json: str | None = None
    why: str = ""

    def __post_init__(self) -> None:
        texts: tuple[object, ...] = (self.raw, self.sid, self.input_patch_json, self.why)  # hints are not enforced
        for text in texts:
            if text is not None and (not isinstance(text, str) or _SURROGATE.search(text)):
                raise ValueError("a selection consists of Unicode texts")
        if (self.kind is SelectionKind.PICK) != (self.sid is not None):
            raise ValueError("a SID is present in a PICK and only there")
        if self.input_patch_json is not None and self.kind is not SelectionKind.PICK:
            raise ValueError("only a PICK has a patch")

    @classmethod
    def invalid(cls, raw: str, why: str) -> Selection:
        """Return an invalid selection. A text that is not Unicode is escaped, so that it can be logged."""
        return cls(SelectionKind.INVALID, ascii(raw) if _SURROGATE.search(raw) else raw, why=why)

    @classmethod
    def read(cls, members: Mapping[str, Any]) -> Selection:
        """Parse what :meth:`members` returned."""
        try:
            return cls(**{**members, "kind": SelectionKind(members["kind"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a selection: {type(error).__name__} {error}") from None

    def within(self, menu: Menu) -> Selection:
        """Return itself, or an invalid selection if its SID is not on the menu."""
        if self.sid is None or menu.get(self.sid) is not None:
            return self
        return Selection.invalid(self.raw, f"{self.sid} is not on the menu")

    def members(self) -> dict[str, Any]:
        """Return the logged form, without absent members."""
        members = {**asdict(self), "kind": self.kind.value, "why": self.why or None}
        return {name: text for name, text in members.items() if text is not None}


def parse_selection(raw: str, *, compatible: bool = False) -> Selection:
    """Return the selection of a text."""
    if len(raw) > LONGEST:
        return Selection.invalid(raw[:LONGEST], f"longer than {LONGEST} characters")
    if _SURROGATE.search(raw):
        return Selection.invalid(raw, "not Unicode")
    text = raw.strip(_SPACES)
    if text == "<ASK_SUP><END>":
        return Selection(SelectionKind.ASK_SUP, raw)
    if text == "<NOOP><END>":
        return Selection(SelectionKind.NOOP, raw)
    pick = _PICK.fullmatch(text)
    if pick is None:
        return Selection.invalid(raw, "not a selection" if text else "an empty text")
    sid, rest = pick.groups()
    try:
        patch = _find_patch(rest) if compatible else _parse_patch(rest)
    except _InvalidPatch as unread:
        return Selection.invalid(raw, str(unread))
    return Selection(SelectionKind.PICK, raw, sid, patch)


class _InvalidPatch(Exception):
    pass


def _parse_patch(rest: str) -> str | None:
    """Return the patch; raise for other text. JSON may contain ``</INP>``: only the last one ends the patch."""
    if not rest:
        return None
    match = _PATCH.fullmatch(rest)
    if match is None:
        raise _InvalidPatch("other text than a patch between SID and END")
    tag, body = match.groups()
    text = _decode_base64(body) if tag == "INP64" else body
    try:
        value = decode(text.encode())
    except (Fault, UnicodeError) as fault:
        raise _InvalidPatch(f"the patch is {fault}") from None
    if not isinstance(value, dict):
        raise _InvalidPatch("the patch is not a JSON object")
    return text


def _find_patch(rest: str) -> str | None:
    """Return the first patch found anywhere, INP64 before INP, without what follows its object."""
    for tag in ("INP64", "INP"):
        # Not a regular expression: its time would be quadratic in the number of opening tags.
        _, opened, after = rest.partition(f"<{tag}>")
        text, closed, _ = after.partition(f"</{tag}>")
        if not opened or not closed:
            continue
        if tag == "INP64":
            unspaced = "".join(text.split())
            text = _decode_base64(unspaced + "=" * (-len(unspaced) % 4))
        text = text.strip(_SPACES)
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            raise _InvalidPatch("the patch is not JSON") from None
        if not isinstance(value, dict):
            raise _InvalidPatch("the patch is not a JSON object")
        return text[:end]
    return None


def _decode_base64(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        raise _InvalidPatch("the patch is not base64 of UTF-8") from None


DEEPEST: Final = 32  # nesting depth, the limit of hosts written in C++
LARGEST_PATCH: Final = 65_536
LARGEST_INPUTS: Final = 1_048_576  # bytes of all inputs after the merge: many small patches are a large one
MOST_BLOCKED: Final = 64
"""Blocked keys; bounded, because the report has the whole path of each."""


@dataclass(frozen=True, slots=True)
class MergedInputs:
    """``blocked`` has JSON pointers to the removed keys, never their values."""

    inputs: dict[str, Any]
    blocked: tuple[str, ...] = ()


def merge_patch(inputs: Mapping[str, Any], input_patch_json: str) -> MergedInputs:
    """Return new inputs with the patch merged in; raises :class:`PatchRefused`.

    A key of the patch replaces the same key of the inputs as a whole. Keys with a leading underscore are removed at
    every depth: they steer the runner (``_capabilities``, ``_lease_token``). Upstream checks only the top level for
    three prefixes.
    """
    try:
        data = input_patch_json.encode()
        if len(data) > LARGEST_PATCH:
            raise PatchRefused(f"the patch has more than {LARGEST_PATCH} bytes")
        patch = decode(data)
    except (Fault, UnicodeError) as fault:
        raise PatchRefused(f"the patch is {fault}") from None
    if not isinstance(patch, dict):
        raise PatchRefused("the patch is not a JSON object")
    blocked = _remove_blocked_keys(patch)
    try:
        merged = {**copy_json(dict(inputs)), **patch}
        size = len(canonical(merged))
    except ValueError as error:
        raise PatchRefused(f"the inputs would be {error}") from None
    if size > LARGEST_INPUTS:
        raise PatchRefused(f"the inputs would have more than {LARGEST_INPUTS} bytes")
    return MergedInputs(merged, blocked)


def _remove_blocked_keys(patch: dict[str, Any]) -> tuple[str, ...]:
    """Remove blocked keys and return their pointers. Raises for a patch that is too deep; not recursive."""
    blocked: list[tuple[str, ...]] = []
    pending: list[tuple[tuple[str, ...], Any]] = [((), patch)]
    while pending:
        place, one = pending.pop()
        if len(place) >= DEEPEST:
            raise PatchRefused(f"the patch is nested more than {DEEPEST} deep")
        if isinstance(one, dict):
            for key in [key for key in one if _is_blocked(key)]:
                blocked.append((*place, key))
                del one[key]
        if len(blocked) > MOST_BLOCKED:
            raise PatchRefused(f"the patch has more than {MOST_BLOCKED} blocked keys")
        parts = one.items() if isinstance(one, dict) else enumerate(one)
        # Tuples of steps share their texts; pointers would copy a long key once per descendant.
        pending += [((*place, str(step)), part) for step, part in parts if isinstance(part, dict | list)]
    return tuple(sorted(map(_pointer, blocked)))


def _pointer(place: tuple[str, ...]) -> str:
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in place)


def _is_blocked(key: str) -> bool:
    """Return whether a key is blocked: an underscore or a lookalike first, or a NUL, where a C++ host ends the key."""
    return "\0" in key or unicodedata.normalize("NFKC", key).lstrip().startswith("_")
