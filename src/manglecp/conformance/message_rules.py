"""Rules that every message of a server must satisfy. A *row* is the id of a requirement, for example ``WIRE-01``.

A member that violates the JSON Schema of its message is reported for the rows of that member. ``ROWS`` has the rows by
the path of the member, without list positions, from ``requirements.toml``. A path that is not in ``ROWS`` has the rows
of its longest prefix in ``ROWS``. ``message_rules.toml`` has the conditions that JSON Schema does not express.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import jsonschema_rs
import msgspec

from manglecp.conformance.connections import ServerMessage, get_objects, get_path
from manglecp.conformance.patterns import differences, matches
from manglecp.conformance.report import REQUIREMENTS, Report
from manglecp.wire import CODES, schema
from manglecp.wire.messages import SERVER_TYPES, VERSION

MemberPath = tuple[str, ...]

_ENVELOPE_ROWS: Final[dict[MemberPath, tuple[str, ...]]] = {
    (): ("WIRE-01",),
    ("type",): ("WIRE-02",),
    ("manglecp",): ("WIRE-09", "WIRE-10"),
    ("payload",): ("WIRE-12",),
}
_ID_ROWS: Final = {"manifest": "MANI-01", "progress": "PROG-05", "error": "ERR-04"}


def _rows_by_path(type_: str) -> dict[MemberPath, tuple[str, ...]]:
    rows = {**_ENVELOPE_ROWS, ("id",): (_ID_ROWS.get(type_, "WIRE-04"),)}
    for path, path_rows in REQUIREMENTS["members"][type_].items():
        rows["payload", *filter(None, path.split("."))] = tuple(path_rows)
    return rows


ROWS: Final = {type_: _rows_by_path(type_) for type_ in REQUIREMENTS["members"]}
_LEVEL_ROWS: Final = {"full": "TOOL-05", "condensed": "TOOL-06", "minimal": "TOOL-07"}  # rows by detail level


class Observation(NamedTuple):
    """Whether a message satisfies a row; if not, also the expected and the seen value."""

    row: str
    holds: bool
    expected: str = ""
    seen: object = ""


@cache
def _validator(type_: str) -> Any:
    return jsonschema_rs.validator_for(schema(type_))


def _schema_violations(type_: str, envelope: dict[str, Any], error: Any) -> Iterator[Observation]:
    """Yield the violated rows for an error of the schema validator."""
    alternatives = getattr(error.kind, "context", None)  # the errors of each branch of an anyOf or oneOf
    if alternatives:
        branches = [branch for branch in alternatives if not _requires_null(branch)]
        if len(branches) == 1:  # anyOf [X, null]: report why X does not fit
            for inner in branches[0]:
                yield from _schema_violations(type_, envelope, inner)
            return
    steps = list(error.instance_path)
    missing_member = getattr(error.kind, "property", None)
    if isinstance(missing_member, str):
        steps.append(missing_member.strip('"'))
    # The schema of a tool has an allOf with one condition for each detail level.
    if type_ == "intent_response" and "allOf" in list(error.schema_path) and steps[:2] == ["payload", "macro_tools"]:
        level = str(envelope["payload"]["macro_tools"][steps[2]].get("disclosure_level"))
        rows: tuple[str, ...] = (_LEVEL_ROWS.get(level, "TOOL-04"),)
    else:
        path = tuple(step for step in steps if isinstance(step, str))
        while path not in ROWS[type_]:  # ends at the empty path, which ``ROWS`` always has
            path = path[:-1]
        rows = ROWS[type_][path]
    expected = f"{'.'.join(map(str, steps)) or 'the message'} as the schema of {type_} has it"
    yield from (Observation(row, False, expected, error.message) for row in rows)


def _requires_null(errors: list[Any]) -> bool:
    """Return whether the only error of a branch is that the value is not null."""
    return len(errors) == 1 and "null" in str(errors[0].message) and type(errors[0].kind).__name__.endswith("Type")


def _has_path(node: Any, path: MemberPath) -> bool:
    """Return whether a JSON value has a member at the path, in any item of the lists on the path."""
    if isinstance(node, list):
        return any(_has_path(item, path) for item in node)
    if not path:
        return True
    return isinstance(node, dict) and path[0] in node and _has_path(node[path[0]], path[1:])


_STANDARD_CODES: Final = tuple(code for code in CODES if not code.startswith("x-"))
# Requirements ERR-05, ERR-06, … have one code each, in the order of CODES.
CODE_ROWS: Final = {code: f"ERR-{number:02}" for number, code in enumerate(_STANDARD_CODES, start=5)}
_STATUS_ROWS: Final = {  # the row of an HTTP status
    400: "TRANS-16",
    **dict.fromkeys((401, 403), "TRANS-17"),
    408: "TRANS-18",
    413: "TRANS-19",
    **dict.fromkeys((429, 500, 503), "TRANS-20"),
}


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pattern that the payload of every message of one type must match, or every object at some paths in it."""

    type: str
    at: tuple[str, ...] = ("",)  # dotted paths of members in the payload; "" is the payload itself
    transport: str | None = None  # by default any
    when: Any = {}  # the pattern of the objects to which the rule applies
    rows: tuple[str, ...]
    expected: str  # the pattern in words
    pattern: Any

    def observe(self, payload: dict[str, Any]) -> Iterator[Observation]:
        for path in self.at:
            node = get_path(payload, *filter(None, path.split(".")))
            for part in node if isinstance(node, list) else [node]:
                if isinstance(part, dict) and matches(self.when, part):
                    seen = "; ".join(differences(self.pattern, part, path or self.type))
                    yield from (Observation(row, not seen, self.expected, seen) for row in self.rows)


_RULES: Final = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("message_rules.toml").read_text("utf-8"))["rule"], list[Rule]
)

WATCHED: Final = frozenset(
    {  # all rows that a Watcher may report
        *("COV-05", "ERR-33", "OBS-10", "PROG-04", "PROOF-09", "TRANS-14", "TRANS-15", "WIRE-13", "WIRE-16", "WIRE-24"),
        *(row for rule in _RULES for row in rule.rows),
        *(row for rows_by_path in ROWS.values() for rows in rows_by_path.values() for row in rows),
        *_LEVEL_ROWS.values(),
        *_STATUS_ROWS.values(),
        *CODE_ROWS.values(),
    }
)


class Watcher:
    """Checks every message that a connection receives, and records the result in the report."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.secrets: list[str] = []  # texts that no answer may contain
        self._manifest_names: list[set[str]] = []  # names in each list and object of the manifest, without its intents
        self._tool_names: set[str] = set()  # the names of tools in all answers so far

    def __call__(self, message: ServerMessage) -> None:
        """Check a message of the server."""
        for row, holds, expected, seen in self._observe(message):
            assert row in WATCHED, row
            self._report.note(row, holds, expected, seen)

    def _observe(self, message: ServerMessage) -> Iterator[Observation]:
        envelope, type_ = message.envelope, message.type
        # Both hold, because only JSON in UTF-8 is decoded.
        yield Observation("WIRE-16", True)
        yield Observation("WIRE-24", True)
        for name in ("type", "id", "manglecp", "payload"):
            yield Observation("WIRE-01", name in envelope, f"the member {name} in every message", message)
        version = envelope.get("manglecp")
        yield Observation("WIRE-09", version == VERSION, f"manglecp {VERSION}", version)
        is_server_type = type_ in SERVER_TYPES
        yield Observation("WIRE-13", is_server_type, f"one of the types {', '.join(SERVER_TYPES)}", type_)
        if not is_server_type:
            return
        errors = _validator(type_).iter_errors(envelope)
        violations = [violation for error in errors for violation in _schema_violations(type_, envelope, error)]
        yield from violations
        violated_rows = {violation.row for violation in violations}
        for path, rows in ROWS[type_].items():
            if _has_path(envelope, path):
                yield from (Observation(row, True) for row in rows if row not in violated_rows)
        if message.status is not None:
            yield from _check_http(message)
        if not isinstance(envelope.get("payload"), dict):
            return
        for rule in _RULES:
            if rule.type == type_ and (rule.transport or self._report.transport) == self._report.transport:
                yield from rule.observe(message.payload)
        if type_ == "intent_response":
            yield from _check_intent_response(message)
        elif type_ == "error":
            yield from _check_error(message)
        yield from self._check_manifest_lists_no_tools(type_, message.payload)
        secrets_row = {"invoke_response": "OBS-10", "intent_response": "PROOF-09"}.get(type_)
        if secrets_row is not None:
            for secret in self.secrets:
                is_absent = secret not in message.data.decode(errors="replace")
                yield Observation(secrets_row, is_absent, "no credential in an answer", "the client's own token")

    def _check_manifest_lists_no_tools(self, type_: str, payload: dict[str, Any]) -> Iterator[Observation]:
        """Compare the names in the manifest with the names of tools; one common name may be a coincidence."""
        if type_ == "manifest":
            parts = {name: part for name, part in payload.items() if name != "intents"}
            self._manifest_names = [_names(node) for node in _walk(parts) if isinstance(node, dict | list)]
        elif type_ == "intent_response":
            self._tool_names |= _names(get_objects(payload, "macro_tools"))
            for names in self._manifest_names:
                common = sorted(self._tool_names & names)
                seen = f"the tools {', '.join(common)} in it"
                yield Observation("MANI-02", len(common) < 2, "a manifest that lists no tools", seen)


def _check_http(message: ServerMessage) -> Iterator[Observation]:
    content_type, code = message.headers.get("content-type", ""), message.code
    is_json = content_type.split(";")[0].strip() == "application/json"
    yield Observation("TRANS-14", is_json, "Content-Type: application/json", content_type)
    yield Observation("PROG-04", message.type != "progress", "no progress on HTTP", message)
    holds = (message.status == 200) == (message.type != "error")
    yield Observation("TRANS-15", holds, "status 200 for messages other than errors, and only for them", message)
    if isinstance(code, str) and code in CODE_ROWS:
        status = CODES[code].status
        rows = [CODE_ROWS[code]]
        # Confirmations have status 403, too, but TRANS-17 is only about authentication.
        if status in _STATUS_ROWS and not code.startswith("confirmation"):
            rows.append(_STATUS_ROWS[status])
        for row in rows:
            yield Observation(row, message.status == status, f"status {status} for {code}", message.status)


def _check_intent_response(answer: ServerMessage) -> Iterator[Observation]:
    for tool in answer.tools:
        level = str(tool.get("disclosure_level"))  # a server may send any JSON here
        if level in _LEVEL_ROWS:
            yield Observation(_LEVEL_ROWS[level], True)  # if violated, the check of the schema reports the row
    coverage = get_path(answer.payload, "diagnostics", "rule_coverage")
    if isinstance(coverage, dict):
        parts = [coverage.get(name, 0) for name in ("rules_fired", "rules_dormant", "rules_inapplicable")]
        expected = "fired, dormant and inapplicable rules that add up to the total"
        yield Observation("COV-05", sum(parts) == coverage.get("total_rules"), expected, coverage)


def _walk(node: Any) -> Iterator[Any]:
    """Yield a JSON value and all values in it."""
    yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _walk(value)


def _names(container: Any) -> set[str]:
    """Return the keys of an object, or the texts in a list and the names of the objects in the list."""
    items = [item.get("name") if isinstance(item, dict) else item for item in container]
    return {item for item in items if isinstance(item, str)}


def _check_error(message: ServerMessage) -> Iterator[Observation]:
    code = message.code
    if not isinstance(code, str):
        return
    if code.startswith("x-"):
        text = message.payload.get("message")
        yield Observation("ERR-33", isinstance(text, str) and bool(text), "a message with a custom code", text)
        return
    expected = f"one of the {len(CODE_ROWS)} codes, or one that begins with x-"
    yield Observation("ERR-33", code in CODE_ROWS, expected, code)
    if code in CODE_ROWS:
        recoverable, seen_flag = CODES[code].recoverable, message.payload.get("recoverable")
        expected = f"recoverable {str(recoverable).lower()} for {code}"
        yield Observation(CODE_ROWS[code], seen_flag is recoverable, expected, seen_flag)
