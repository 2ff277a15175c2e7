"""Rules that every message of a server must satisfy.

A watcher checks each message of a run. A schema violation is reported at the requirement of the member: paths leave out
list positions, and the longest known prefix counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import jsonschema_rs

from manglecp.conformance.connections import Answer, member, parse_instant
from manglecp.conformance.report import Report
from manglecp.wire import CODES, schema
from manglecp.wire.messages import SERVER_TYPES, VERSION

Path = tuple[str, ...]

_ENVELOPE: Final = {
    "": ("WIRE-01",),
    "type": ("WIRE-02",),
    "manglecp": ("WIRE-09", "WIRE-10"),
    "payload": ("WIRE-12",),
}
_TOOL: Final = "payload.macro_tools"


def _paths(id_row: str, rows: Mapping[str, tuple[str, ...]]) -> dict[Path, tuple[str, ...]]:
    return {tuple(path.split(".")) if path else (): ids for path, ids in {**_ENVELOPE, "id": (id_row,), **rows}.items()}


ROWS: Final[Mapping[str, Mapping[Path, tuple[str, ...]]]] = {
    "manifest": _paths(
        "MANI-01",
        {
            "payload.server_name": ("MANI-03",),
            "payload.server_version": ("MANI-03",),
            "payload.protocol": ("MANI-04",),
            "payload.protocol.conformance_level": ("MANI-05", "CONF-01"),
            "payload.status": ("MANI-06",),
            "payload.domain": ("MANI-07",),
            "payload.domain.categories": ("MANI-08", "MANI-09"),
            "payload.domain.affinities": ("MANI-10",),
            "payload.endpoints": ("MANI-11",),
            "payload.intents": ("MANI-12",),
            "payload.facts_profile": ("MANI-15",),
            "payload.facts_profile.time_formats": ("MANI-15", "DATA-30"),
            "payload.facts_profile.predicates": ("DATA-50",),
            "payload.facts_profile.predicates.arg_types": ("DATA-51",),
            "payload.facts_profile.predicates.arg_names": ("DATA-52",),
            "payload.facts_profile.predicates.direction": ("DATA-52",),
            "payload.facts_profile.schema_uri": ("MANI-17",),
            "payload.capabilities": ("MANI-18",),
            "payload.capabilities.external_predicates": ("MANI-20",),
            "payload.limits": ("MANI-23",),
            "payload.limits.max_message_bytes": ("WIRE-23", "MANI-23"),
            "payload.auth": ("MANI-25",),
            "payload.auth.schemes": ("MANI-26",),
            "payload.auth.token_url": ("MANI-26",),
            "payload.extensions": ("MANI-27",),
        },
    ),
    "intent_response": _paths(
        "WIRE-04",
        {
            "payload.eval_time_used": ("EVAL-25",),
            "payload.eval_duration_ms": ("EVAL-26",),
            "payload.macro_tools": ("EVAL-27",),
            f"{_TOOL}.macro_id": ("TOOL-01",),
            f"{_TOOL}.name": ("TOOL-03",),
            f"{_TOOL}.disclosure_level": ("TOOL-04",),
            f"{_TOOL}.input_schema": ("TOOL-08",),
            f"{_TOOL}.output_schema": ("TOOL-10",),
            f"{_TOOL}.context_injection": ("SKILL-09",),
            f"{_TOOL}.context_injection.skills": ("SKILL-05",),
            f"{_TOOL}.context_injection.context_resources": ("SKILL-10",),
            f"{_TOOL}.safety": ("TOOL-11",),
            f"{_TOOL}.safety.side_effects": ("TOOL-11", "TOOL-13", "TOOL-16"),
            f"{_TOOL}.safety.reversible": ("TOOL-12",),
            f"{_TOOL}.safety.idempotent": ("TOOL-12",),
            f"{_TOOL}.validity": ("TOOL-17", "TOOL-18"),
            f"{_TOOL}.metadata": ("TOOL-20",),
            "payload.proof_hints": ("PROOF-02",),
            "payload.proof_hints.derivations": ("PROOF-03",),
            "payload.proof_hints.derivations.tree": ("PROOF-05",),
            "payload.proof_hints.excluded": ("PROOF-07",),
            "payload.proof_hints.unmatched_facts": ("PROOF-08",),
            "payload.required_skills": ("SKILL-01",),
            "payload.diagnostics": ("EVAL-29",),
            "payload.diagnostics.rule_coverage": ("COV-03",),
            "payload.diagnostics.rule_coverage.dormant_details": ("COV-04",),
        },
    ),
    "invoke_response": _paths(
        "WIRE-04",
        {
            "payload.result": ("INVK-14",),
            "payload.state_delta": ("DELTA-01",),
            "payload.observability": ("OBS-01",),
            "payload.observability.events": ("OBS-02",),
            "payload.observability.events.duration_ms": ("OBS-03",),
            "payload.observability.events.detail": ("OBS-03",),
            "payload.next": ("INVK-16",),
            "payload.next.suggested_intents": ("NEXT-01",),
            "payload.next.suggested_intents.description": ("NEXT-02",),
            "payload.next.continuation_facts": ("NEXT-04",),
        },
    ),
    "progress": _paths(
        "PROG-05",
        {
            "payload.status": ("PROG-02",),
            "payload.detail": ("PROG-03",),
            "payload.percent": ("PROG-03",),
        },
    ),
    "error": _paths(
        "ERR-04",
        {
            "payload.code": ("ERR-02",),
            "payload.message": ("ERR-02",),
            "payload.recoverable": ("ERR-02",),
            "payload.details": ("ERR-03",),
            "payload.details.violations": ("ERR-35", "ERR-36"),
            "payload.details.schema_errors": ("ERR-39",),
            "payload.details.budget": ("ERR-40", "CONF-17"),
            "payload.details.requested_version": ("ERR-41", "WIRE-11"),
            "payload.details.supported_versions": ("ERR-41", "WIRE-11"),
            "payload.retry_after_ms": ("ERR-03",),
        },
    ),
    "authenticate_response": _paths("WIRE-04", {"payload": ("SEC-15",)}),
    "x-approval_response": _paths("WIRE-04", {}),
}
_HIDDEN: Final = ("input_schema", "output_schema", "context_injection", "safety", "validity")
# By disclosure level: the requirement, the members that a tool must have, and those that it must not have.
_PRESENCE: Final[Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    "full": ("TOOL-05", ("description", "input_schema", "safety"), ()),
    "condensed": ("TOOL-06", ("description",), _HIDDEN),
    "minimal": ("TOOL-07", (), ("description", "metadata", *_HIDDEN)),
}


class SchemaViolation(NamedTuple):
    """Where a message does not fit its schema, and the violated requirements."""

    rows: tuple[str, ...]
    where: str
    what: str


def schema_violations(type_: str, message: dict[str, Any]) -> Iterator[SchemaViolation]:
    for error in _validator(type_).iter_errors(message):
        yield from _locate(type_, message, error)


def present_rows(type_: str, message: dict[str, Any]) -> Iterator[str]:
    """Yield the rows of the members that the message has."""
    for path, ids in ROWS[type_].items():
        if _has_path(message, path):
            yield from ids


@cache
def _validator(type_: str) -> Any:
    return jsonschema_rs.validator_for(schema(type_))


def _locate(type_: str, message: dict[str, Any], error: Any) -> Iterator[SchemaViolation]:
    context = getattr(error.kind, "context", None)
    if context:
        branches = [branch for branch in context if not _only_null(branch)]
        if len(branches) == 1:
            for inner in branches[0]:
                yield from _locate(type_, message, inner)
            return
    steps = list(error.instance_path)
    missing = getattr(error.kind, "property", None)
    if isinstance(missing, str):
        steps.append(missing.strip('"'))
    where = ".".join(str(step) for step in steps) or "the message"
    if type_ == "intent_response" and "allOf" in list(error.schema_path) and steps[:2] == ["payload", "macro_tools"]:
        tool = message["payload"]["macro_tools"][steps[2]]
        row = _PRESENCE.get(str(tool.get("disclosure_level")), ("TOOL-04",))[0]
        yield SchemaViolation((row,), where, error.message)
        return
    path = tuple(step for step in steps if isinstance(step, str))
    while path not in ROWS[type_]:
        path = path[:-1]
    yield SchemaViolation(ROWS[type_][path], where, error.message)


def _only_null(branch: list[Any]) -> bool:
    return len(branch) == 1 and "null" in str(branch[0].message) and type(branch[0].kind).__name__.endswith("Type")


def _has_path(node: Any, path: Path) -> bool:
    if isinstance(node, list):
        return any(_has_path(item, path) for item in node)
    if not path:
        return True
    return isinstance(node, dict) and path[0] in node and _has_path(node[path[0]], path[1:])


STANDARD: Final = tuple(code for code in CODES if not code.startswith("x-"))
CODE_ROWS: Final = {code: f"ERR-{number:02}" for number, code in enumerate(STANDARD, start=5)}
_STATUS_ROWS: Final = {
    400: "TRANS-16",
    401: "TRANS-17",
    403: "TRANS-17",
    408: "TRANS-18",
    413: "TRANS-19",
    429: "TRANS-20",
    500: "TRANS-20",
    503: "TRANS-20",
}
_LISTS: Final = frozenset({"macro_tools", "tools", "macro_id", "macros", "actions", "input_schema"})
_PREDICATE: Final = re.compile(r"[a-z][a-z0-9_]*")
_LONGEST_NAME: Final = 128
_LARGEST: Final = 2**53 - 1
_SUMMARY: Final = 1_000
_EVENTS: Final = 200

WATCHED: Final = frozenset(
    {
        *("CONF-19", "COV-05", "DATA-01", "DATA-02", "DATA-06", "DATA-21", "DATA-45", "DELTA-02"),
        *("DELTA-03", "ERR-33", "EVAL-25"),
        *("EVAL-26", "MANI-02", "MANI-11", "MANI-15", "OBS-04", "OBS-09", "OBS-10", "PROG-04"),
        *("PROOF-09", "SEC-11", "SEC-20", "SEC-26", "TOOL-01", "TOOL-05", "TOOL-06", "TOOL-07", "TRANS-14"),
        *("TRANS-15", "TRANS-16", "TRANS-17", "TRANS-18", "TRANS-19", "TRANS-20", "WIRE-01", "WIRE-09"),
        *("WIRE-13", "WIRE-16", "WIRE-24"),
        *CODE_ROWS.values(),
        *(row for paths in ROWS.values() for ids in paths.values() for row in ids),
    }
)

Note = tuple[str, bool, str, object]


class Watcher:
    """Checks every message that a connection receives."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.secrets: list[str] = []  # text that no message may contain
        self.check = "the manifest"
        self._lists: list[frozenset[str]] = []  # of the manifest, besides intents
        self._tools: set[str] = set()

    def __call__(self, answer: Answer) -> None:
        for row, held, expected, seen in self._notes(answer):
            assert row in WATCHED, row
            self._report.note(row, held, expected, seen, self.check)

    def _notes(self, answer: Answer) -> Iterator[Note]:
        message = answer.message
        yield "WIRE-16", True, "", ""
        yield "WIRE-24", True, "", ""
        for name in ("type", "id", "manglecp", "payload"):
            yield "WIRE-01", name in message, f"the member {name} in every message", answer
        yield "WIRE-09", message.get("manglecp") == VERSION, f"manglecp {VERSION}", message.get("manglecp")
        type_ = answer.type
        if type_ not in SERVER_TYPES:
            yield "WIRE-13", False, f"one of the types {', '.join(SERVER_TYPES)}", type_
            return
        yield "WIRE-13", True, "", ""
        wrong: set[str] = set()
        for violation in schema_violations(type_, message):
            for row in violation.rows:
                wrong.add(row)
                yield row, False, f"{violation.where} as the schema of {type_} has it", violation.what
        for row in present_rows(type_, message):
            if row not in wrong:
                yield row, True, "", ""
        if answer.status is not None:
            yield from self._http(answer)
        if not isinstance(message.get("payload"), dict):
            return
        more = {"manifest": _manifest, "intent_response": _tools, "invoke_response": _outcome, "error": _error}
        if type_ in more:
            yield from more[type_](answer)
        yield from self._unlisted(type_, answer.payload)
        text = answer.data.decode(errors="replace")
        for secret in self.secrets:
            private = {"invoke_response": "OBS-10", "intent_response": "PROOF-09"}.get(type_)
            if private is not None:
                yield private, secret not in text, "no credential in an answer", "the client's own token"

    def _unlisted(self, type_: str, payload: dict[str, Any]) -> Iterator[Note]:
        """Report a manifest that enumerates tools under any name; a single match may be a coincidence."""
        if type_ == "manifest":
            self._lists = list(_listed({name: part for name, part in payload.items() if name != "intents"}))
        elif type_ == "intent_response":
            tools = payload.get("macro_tools")
            self._tools |= set(_names(tools if isinstance(tools, list) else ()))
            for listed in self._lists:
                both = sorted(self._tools & listed)
                yield "MANI-02", len(both) < 2, "a manifest that lists no tools", f"the tools {', '.join(both)} in it"

    def _http(self, answer: Answer) -> Iterator[Note]:
        kind = answer.headers.get("content-type", "")
        yield "TRANS-14", kind.split(";")[0].strip() == "application/json", "Content-Type: application/json", kind
        yield "PROG-04", answer.type != "progress", "no progress on HTTP", answer
        good = answer.type != "error"
        yield "TRANS-15", (answer.status == 200) == good, "status 200 for answers, and never for errors", answer
        row = CODES.get(answer.code) if isinstance(answer.code, str) else None
        if row is not None and not answer.code.startswith("x-"):
            fits = answer.status == row.status
            yield CODE_ROWS[answer.code], fits, f"status {row.status} for {answer.code}", answer.status
            if row.status in _STATUS_ROWS and not answer.code.startswith("confirmation"):
                yield _STATUS_ROWS[row.status], fits, f"status {row.status} for {answer.code}", answer.status


def _manifest(answer: Answer) -> Iterator[Note]:
    payload = answer.payload
    listed = sorted(_LISTS & {key for one in _walk(payload) if isinstance(one, dict) for key in one})
    for row in ("MANI-02", "SEC-26"):
        yield row, not listed, "a manifest that lists no tools", f"the members {', '.join(listed)}"
    formats = member(payload, "facts_profile", "time_formats")
    rfc3339 = isinstance(formats, list) and "rfc3339" in formats
    yield "MANI-15", rfc3339, "rfc3339 among facts_profile.time_formats", formats
    for name in ("rule_submission", "subscriptions"):
        value = member(payload, "capabilities", name)
        yield "CONF-19", value is False or value is None, f"capabilities.{name} false, as it is of version 2", value
    if answer.status is not None:
        ends = payload.get("endpoints")
        there = isinstance(ends, dict) and {"intent_eval", "macro_invoke"} <= set(ends)
        yield "MANI-11", there, "endpoints.intent_eval and endpoints.macro_invoke on HTTP", ends
    if "oauth2" in (member(payload, "auth", "schemes") or ()):
        url = member(payload, "auth", "token_url")
        yield "SEC-11", isinstance(url, str), "auth.token_url where oauth2 is offered", url


def _tools(answer: Answer) -> Iterator[Note]:
    payload = answer.payload
    used = payload.get("eval_time_used")
    yield "EVAL-25", parse_instant(used) is not None, "eval_time_used as an instant of RFC 3339", used
    yield "EVAL-26", "eval_duration_ms" in payload, "eval_duration_ms", "none"
    tools = [tool for tool in payload.get("macro_tools") or () if isinstance(tool, dict)]
    ids = [tool.get("macro_id") for tool in tools]
    yield "TOOL-01", len(set(map(str, ids))) == len(ids), "each macro_id once", ids
    for tool in tools:
        yield from _tool(tool)
    coverage = member(payload, "diagnostics", "rule_coverage")
    if isinstance(coverage, dict):
        parts = [coverage.get(name, 0) for name in ("rules_fired", "rules_dormant", "rules_inapplicable")]
        total = coverage.get("total_rules")
        yield "COV-05", sum(parts) == total, "fired, dormant and inapplicable rules that add up to the total", coverage


def _tool(tool: dict[str, Any]) -> Iterator[Note]:
    level = str(tool.get("disclosure_level"))  # a server may send any JSON here
    if level not in _PRESENCE:
        return
    row, there, absent = _PRESENCE[level]
    missing = [name for name in there if tool.get(name) is None]
    extra = [name for name in absent if tool.get(name) is not None]
    expected = f"at {level}: {', '.join(there) or 'nothing more'}; without {', '.join(absent) or 'exception'}"
    yield row, not missing and not extra, expected, f"missing {missing}, too many {extra}"
    description = tool.get("description")
    if level == "condensed" and isinstance(description, str):
        one_line = "\n" not in description and "\r" not in description
        yield "TOOL-06", one_line, "a description of one line", description
    effects = member(tool, "safety", "side_effects")
    if level == "full" and isinstance(effects, list):
        alone = "none" not in effects or len(effects) == 1
        yield "SEC-20", alone, "none as the only side effect, or not at all", effects


def _outcome(answer: Answer) -> Iterator[Note]:
    payload = answer.payload
    delta = payload.get("state_delta")
    for fact in _facts(payload):
        name = fact.get("pred")
        if isinstance(name, str):
            yield "DATA-01", _PREDICATE.fullmatch(name) is not None, "the name of a predicate", name
            yield "DATA-02", len(name) <= _LONGEST_NAME, f"a name of at most {_LONGEST_NAME} characters", name
        arguments = fact.get("args", fact.get("named_args"))
        long = any(isinstance(value, int) and abs(value) > _LARGEST for value in _walk(arguments))
        yield "DATA-21", not long, "integers beyond 2^53 - 1 in their wrapper", fact
    for fact in (delta.get("assert") or ()) if isinstance(delta, dict) else ():
        if isinstance(fact, dict):
            category = fact.get("category")
            has_category = category in ("server", "session", "derived")
            for row in ("DELTA-02", "DATA-45"):
                yield row, has_category, "a category on every fact that is asserted", fact
            yield "DELTA-03", isinstance(fact.get("source"), dict), "a source on every fact that is asserted", fact
            one = ("args" in fact) != ("named_args" in fact)
            yield "DATA-06", one, "exactly one of args and named_args", fact
    seen = payload.get("observability")
    if isinstance(seen, dict):
        summary = seen.get("summary")
        short = isinstance(summary, str) and len(summary) <= _SUMMARY
        yield "OBS-09", short, f"a summary of a few sentences (at most {_SUMMARY} characters)", summary
        events = seen.get("events")
        yield "OBS-04", not isinstance(events, list) or len(events) <= _EVENTS, "bounded events", f"{len(events or ())}"


def _facts(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for place in (("state_delta", "assert"), ("state_delta", "retract"), ("next", "continuation_facts")):
        facts = member(payload, *place)
        yield from (fact for fact in (facts if isinstance(facts, list) else ()) if isinstance(fact, dict))


def _walk(node: Any) -> Iterator[Any]:
    """Yield a JSON value and all values in it."""
    yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _walk(value)


def _listed(node: Any) -> Iterator[frozenset[str]]:
    """Yield the names at each nesting level: items of a list, their names, or members of an object."""
    for one in _walk(node):
        if isinstance(one, dict | list):
            yield frozenset(one) if isinstance(one, dict) else frozenset(_names(one))


def _names(items: Iterable[Any]) -> Iterator[str]:
    for item in items:
        name = item.get("name") if isinstance(item, dict) else item
        if isinstance(name, str):
            yield name


def _error(answer: Answer) -> Iterator[Note]:
    code = answer.code
    if not isinstance(code, str):
        return
    if code.startswith("x-"):
        message = answer.payload.get("message")
        yield "ERR-33", isinstance(message, str) and bool(message), "a message with a custom code", message
        return
    yield "ERR-33", code in CODE_ROWS, "one of the 28 codes, or one that begins with x-", code
    if code in CODE_ROWS:
        recoverable = CODES[code].recoverable
        value = answer.payload.get("recoverable")
        yield CODE_ROWS[code], value is recoverable, f"recoverable {str(recoverable).lower()} for {code}", value
