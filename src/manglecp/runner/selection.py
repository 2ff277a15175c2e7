"""The menu of a step, the text of a selection, and the merge of its patch into the inputs.

Menu entries are sorted by action id (AID) and numbered with selection ids (SIDs) from ``SID0001``: the same actions
always make the same menu. A filter leaves the SIDs unchanged. Upstream, the Machina runner, offers ``AID.NOOP.v1``
twice; here an action has one SID. A selection (section 2 of the Machina process contract) is one of these texts,
possibly surrounded by white space:

    "<ASK_SUP><END>" | "<NOOP><END>" | "<PICK><" SID ">" [patch] "<END>"
    patch = "<INP>" JSON object "</INP>" | "<INP64>" base64 of a JSON object "</INP64>"

``ASK_SUP`` asks the supervisor. Any other text is an ``INVALID`` selection and not an exception, because a model wrote
it. Upstream ignores other text between the SID and the last ``<END>``; ``compatible=True`` parses that way.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from manglecp.base.json import escape_token
from manglecp.runner.log import PatchRefused, RunnerError, canonical, copy_json
from manglecp.wire import Fault, decode

MAX_ENTRIES: Final = 9_999  # a SID has four digits
SID: Final = re.compile(r"SID[0-9]{4}")
_MAX_NAME_LENGTH: Final = 256
_MAX_TAGS: Final = 64
# AIDs and tags may not contain "=", ":", "," and "|": Menu.digest joins AIDs and tags with these characters, unescaped.
_AID: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_TAG: Final = re.compile(r"[^\x00-\x20\x7f,:|=\ud800-\udfff]{1,128}")


@dataclass(frozen=True, slots=True)
class MenuAction:
    """An action that a menu offers. A ``deterministic`` action has the same result for the same inputs and state."""

    aid: str
    name: str = ""
    tags: frozenset[str] = frozenset()
    deterministic: bool = False
    inputs_schema: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if not _AID.fullmatch(self.aid):
            raise RunnerError(f"not an action id: {self.aid[:80]!a}")
        if len(self.name) > _MAX_NAME_LENGTH or len(self.tags) > _MAX_TAGS:
            raise RunnerError(f"{self.aid}: a name of over {_MAX_NAME_LENGTH} characters, or over {_MAX_TAGS} tags")
        for tag in self.tags:
            if not _TAG.fullmatch(tag):
                raise RunnerError(f"{self.aid}: not a tag: {tag[:80]!a}")


@dataclass(frozen=True, slots=True)
class MenuEntry:
    sid: str
    action: MenuAction

    def members(self) -> dict[str, Any]:
        """Return the JSON object for the log, without the schema."""
        aid, name, tags, deterministic = self.action.aid, self.action.name, self.action.tags, self.action.deterministic
        return {"sid": self.sid, "aid": aid, "name": name, "tags": sorted(tags), "deterministic": deterministic}

    def describe(self) -> dict[str, Any]:
        """Return the JSON object for a policy: :meth:`members` and, if known, the schema, which upstream omits."""
        schema = self.action.inputs_schema
        return self.members() if schema is None else {**self.members(), "inputs_schema": dict(schema)}


@dataclass(frozen=True, slots=True)
class Menu:
    """Entries in the order of their SIDs."""

    entries: tuple[MenuEntry, ...]

    def __post_init__(self) -> None:
        sids = [entry.sid for entry in self.entries]
        if len(sids) > MAX_ENTRIES:
            raise RunnerError(f"more than {MAX_ENTRIES} entries")
        if any(not SID.fullmatch(sid) for sid in sids) or sids != sorted(set(sids)):
            raise RunnerError("the SIDs are not of the form SID0001, sorted and unique")
        if len({entry.action.aid for entry in self.entries}) != len(sids):
            raise RunnerError("the menu contains an action twice")

    @classmethod
    def of(cls, actions: Iterable[MenuAction]) -> Menu:
        """Return the menu of these actions; equal actions make one entry. Raises :class:`RunnerError`."""
        by_aid: dict[str, MenuAction] = {}
        for action in actions:
            if by_aid.setdefault(action.aid, action) != action:
                raise RunnerError(f"two different actions have the id {action.aid}")
        return cls(tuple(MenuEntry(f"SID{number:04}", by_aid[aid]) for number, aid in enumerate(sorted(by_aid), 1)))

    @classmethod
    def read(cls, entries: Sequence[Mapping[str, Any]]) -> Menu:
        """Return the menu from the result of :meth:`members`. Raises :class:`RunnerError`."""
        try:
            actions = [MenuAction(e["aid"], e["name"], frozenset(e["tags"]), e["deterministic"]) for e in entries]
            return cls(tuple(MenuEntry(each["sid"], action) for each, action in zip(entries, actions, strict=True)))
        except (KeyError, TypeError, AttributeError) as error:
            raise RunnerError(f"not a menu: {type(error).__name__} {error}") from None

    def with_tags(self, tags: Iterable[str]) -> Menu:
        """Return the menu of the entries with at least one of these tags."""
        tag_set = frozenset(tags)
        return Menu(tuple(entry for entry in self.entries if entry.action.tags & tag_set))

    def get(self, sid: str) -> MenuAction | None:
        return next((entry.action for entry in self.entries if entry.sid == sid), None)

    def members(self) -> list[dict[str, Any]]:
        return [entry.members() for entry in self.entries]

    @property
    def digest(self) -> str:
        """Return the SHA-256 of ``SID0001=<AID>:<sorted,tags>|SID0002=…``, as upstream computes it."""
        parts = (f"{entry.sid}={entry.action.aid}:{','.join(sorted(entry.action.tags))}" for entry in self.entries)
        return hashlib.sha256("|".join(parts).encode()).hexdigest()


def matches_pattern(aid: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a pattern is this AID, or the beginning of it followed by ``*``."""
    return any(aid.startswith(pattern[:-1]) if pattern.endswith("*") else aid == pattern for pattern in patterns)


MAX_SELECTION_LENGTH: Final = 65_536  # characters; the output of a policy has the same limit in bytes

_SPACES: Final = " \t\n\v\f\r"
_PICK: Final = re.compile(r"<PICK><(SID[0-9]{4})>(.*)<END>", re.DOTALL)
_PATCH: Final = re.compile(r"<(INP|INP64)>(.*)</\1>", re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class SelectionKind(StrEnum):
    """The kind of a selection; ``INVALID`` if the text cannot be parsed, or if its SID is not on the menu."""

    PICK = "PICK"
    ASK_SUP = "ASK_SUP"
    NOOP = "NOOP"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class Selection:
    """A parsed selection. ``raw`` is the original text; ``why``, not in the contract, explains an invalid one."""

    kind: SelectionKind
    raw: str
    sid: str | None = None
    input_patch_json: str | None = None
    why: str = ""

    def __post_init__(self) -> None:
        # Typed as object, because read() passes values of any type.
        texts: tuple[object, ...] = (self.raw, self.sid, self.input_patch_json, self.why)
        for text in texts:
            if text is not None and (not isinstance(text, str) or _SURROGATE.search(text)):
                raise ValueError("a selection consists of Unicode texts")
        if (self.kind is SelectionKind.PICK) != (self.sid is not None):
            raise ValueError("a SID is present in a PICK and only there")
        if self.input_patch_json is not None and self.kind is not SelectionKind.PICK:
            raise ValueError("only a PICK has a patch")

    @classmethod
    def invalid(cls, raw: str, why: str) -> Selection:
        """Return an invalid selection. A text with surrogates is escaped, so that it can be logged."""
        return cls(SelectionKind.INVALID, ascii(raw) if _SURROGATE.search(raw) else raw, why=why)

    @classmethod
    def read(cls, members: Mapping[str, Any]) -> Selection:
        """Return the selection from the result of :meth:`members`. Raises ValueError."""
        try:
            return cls(**{**members, "kind": SelectionKind(members["kind"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a selection: {type(error).__name__} {error}") from None

    def restricted_to(self, menu: Menu) -> Selection:
        """Return this selection, or an invalid one if its SID is not on the menu."""
        if self.sid is None or menu.get(self.sid) is not None:
            return self
        return Selection.invalid(self.raw, f"{self.sid} is not on the menu")

    def members(self) -> dict[str, Any]:
        """Return the JSON object for the log; members without a value are absent."""
        members = {**asdict(self), "kind": self.kind.value, "why": self.why or None}
        return {name: text for name, text in members.items() if text is not None}


def parse_selection(raw: str, *, compatible: bool = False) -> Selection:
    """Return the selection of a text; never raises. With ``compatible``, other text around the patch is ignored."""
    if len(raw) > MAX_SELECTION_LENGTH:
        return Selection.invalid(raw[:MAX_SELECTION_LENGTH], f"longer than {MAX_SELECTION_LENGTH} characters")
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
    sid, patch_text = pick.groups()
    try:
        patch = _find_patch(patch_text) if compatible else _parse_patch(patch_text)
    except PatchRefused as error:
        return Selection.invalid(raw, str(error))
    return Selection(SelectionKind.PICK, raw, sid, patch)


def _parse_patch(patch_text: str) -> str | None:
    """Return the JSON of the patch, None without one. Raises :class:`PatchRefused` for any other text.

    The JSON may contain ``</INP>``: only the last one ends the patch.
    """
    if not patch_text:
        return None
    match = _PATCH.fullmatch(patch_text)
    if match is None:
        raise PatchRefused("other text than a patch between SID and END")
    tag, body = match.groups()
    text = _decode_base64(body) if tag == "INP64" else body
    _decode_object(text)  # called only for its errors
    return text


def _find_patch(patch_text: str) -> str | None:
    """Return the JSON object of the first ``INP64`` anywhere in the text, or else of the first ``INP``.

    Text after the object is dropped. Returns None without a patch; raises :class:`PatchRefused`.
    """
    for tag in ("INP64", "INP"):
        # Not a regular expression: its time would be quadratic in the number of opening tags.
        _, opening_tag, after = patch_text.partition(f"<{tag}>")
        text, closing_tag, _ = after.partition(f"</{tag}>")
        if not opening_tag:
            continue
        if not closing_tag:
            raise PatchRefused(f"the patch has no </{tag}>")
        if tag == "INP64":
            base64_text = "".join(text.split())
            text = _decode_base64(base64_text + "=" * (-len(base64_text) % 4))
        text = text.strip(_SPACES)
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            raise PatchRefused("the patch is not JSON") from None
        if not isinstance(value, dict):
            raise PatchRefused("the patch is not a JSON object")
        return text[:end]
    return None


def _decode_object(text: str) -> dict[str, Any]:
    try:
        value = decode(text.encode())
    except (Fault, UnicodeError) as fault:
        raise PatchRefused(f"the patch is {fault}") from None
    if not isinstance(value, dict):
        raise PatchRefused("the patch is not a JSON object")
    return value


def _decode_base64(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        raise PatchRefused("the patch is not base64 of UTF-8") from None


MAX_PATCH_DEPTH: Final = 32  # nested objects and lists; the limit of hosts written in C++
MAX_PATCH_BYTES: Final = 65_536
MAX_INPUTS_BYTES: Final = 1_048_576  # the limit after each merge, because the patches of a run add up
MAX_BLOCKED_KEYS: Final = 64  # in a patch; the log has the whole path of each


@dataclass(frozen=True, slots=True)
class MergedInputs:
    """The inputs after a patch. ``blocked`` has JSON pointers to the keys that were removed from the patch."""

    inputs: dict[str, Any]
    blocked: tuple[str, ...] = ()


def merge_patch(inputs: Mapping[str, Any], input_patch_json: str) -> MergedInputs:
    """Return new inputs with the patch merged in. Raises :class:`PatchRefused`.

    A key of the patch replaces the same key of the inputs as a whole. Keys with a leading underscore are removed from
    the patch at every depth, because such keys control the runner (``_capabilities``, ``_lease_token``). Upstream
    removes only three prefixes, and only at the top level.
    """
    if len(input_patch_json.encode("utf-8", "replace")) > MAX_PATCH_BYTES:
        raise PatchRefused(f"the patch has more than {MAX_PATCH_BYTES} bytes")
    patch = _decode_object(input_patch_json)
    blocked_paths: list[tuple[str, ...]] = []
    allowed_patch = _remove_blocked_keys(patch, (), blocked_paths)
    try:
        merged_inputs = {**copy_json(dict(inputs)), **allowed_patch}
        size = len(canonical(merged_inputs))
    except ValueError as error:
        raise PatchRefused(f"the inputs would be {error}") from None
    if size > MAX_INPUTS_BYTES:
        raise PatchRefused(f"the inputs would have more than {MAX_INPUTS_BYTES} bytes")
    pointers = ("".join(f"/{escape_token(step)}" for step in path) for path in blocked_paths)
    return MergedInputs(merged_inputs, tuple(sorted(pointers)))


def _remove_blocked_keys(value: Any, path: tuple[str, ...], blocked: list[tuple[str, ...]]) -> Any:
    """Return the part of a patch at ``path`` without blocked keys, and add the paths of removed keys to ``blocked``.

    Raises :class:`PatchRefused` for a patch that is nested too deep or has too many blocked keys.
    """
    if not isinstance(value, dict | list):
        return value
    if len(path) >= MAX_PATCH_DEPTH:  # the patch itself has depth 1 and an empty path
        raise PatchRefused(f"the patch is nested more than {MAX_PATCH_DEPTH} deep")
    if isinstance(value, list):
        return [_remove_blocked_keys(item, (*path, str(index)), blocked) for index, item in enumerate(value)]
    members = {}
    for key, member in value.items():
        # An underscore or a lookalike at the beginning, or a NUL, at which a host written in C++ ends the key.
        if "\0" not in key and not unicodedata.normalize("NFKC", key).lstrip().startswith("_"):
            members[key] = _remove_blocked_keys(member, (*path, key), blocked)
        elif len(blocked) < MAX_BLOCKED_KEYS:
            blocked.append((*path, key))
        else:
            raise PatchRefused(f"the patch has more than {MAX_BLOCKED_KEYS} blocked keys")
    return members
