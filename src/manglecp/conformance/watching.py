"""What holds for every message that a server sends, whatever it answers.

Each message of a run goes through here, so that a rule about the form of messages is not tested once but each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from manglecp.conformance.lines.line import Answer
from manglecp.conformance.report import Report
from manglecp.conformance.shapes import ROWS, misfits, present
from manglecp.wire import CODES
from manglecp.wire.messages import SERVER_TYPES, VERSION

__all__ = ["CODE_ROWS", "WATCHED", "Watcher"]

STANDARD: Final = tuple(code for code in CODES if not code.startswith("x-"))
CODE_ROWS: Final = {code: f"ERR-{number:02}" for number, code in enumerate(STANDARD, start=5)}
"""The row of each standard code."""
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
_LISTS: Final = frozenset({"macro_tools", "tools", "macro_id", "macros", "actions"})
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
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
        *("PROOF-09", "SEC-11", "SEC-20", "TOOL-01", "TOOL-05", "TOOL-06", "TOOL-07", "TRANS-14"),
        *("TRANS-15", "TRANS-16", "TRANS-17", "TRANS-18", "TRANS-19", "TRANS-20", "WIRE-01", "WIRE-09"),
        *("WIRE-13", "WIRE-16", "WIRE-24"),
        *CODE_ROWS.values(),
        *(row for paths in ROWS.values() for ids in paths.values() for row in ids),
    }
)
"""Rows about which a message may say something."""

Note = tuple[str, bool, str, object]


class Watcher:
    """Called with every message that comes, whichever check it is for."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.secrets: list[str] = []
        """What no message may hold."""
        self.doing = "the manifest"
        self._lists: list[frozenset[str]] = []
        """What the manifest lists, besides intents."""
        self._tools: set[str] = set()
        """Names of tools that were offered."""

    def __call__(self, answer: Answer) -> None:
        for row, held, expected, seen in self._notes(answer):
            assert row in WATCHED, row
            self._report.note(row, held, expected, seen, self.doing)

    def _notes(self, answer: Answer) -> Iterator[Note]:
        message = answer.message
        yield "WIRE-16", True, "", ""
        yield "WIRE-24", True, "", ""
        for member in ("type", "id", "manglecp", "payload"):
            yield "WIRE-01", member in message, f"the member {member} in every message", answer
        yield "WIRE-09", message.get("manglecp") == VERSION, f"manglecp {VERSION}", message.get("manglecp")
        type_ = answer.type
        if type_ not in SERVER_TYPES:
            yield "WIRE-13", False, f"one of the types {', '.join(SERVER_TYPES)}", type_
            return
        yield "WIRE-13", True, "", ""
        wrong: set[str] = set()
        for misfit in misfits(type_, message):
            for row in misfit.rows:
                wrong.add(row)
                yield row, False, f"{misfit.where} as the schema of {type_} has it", misfit.what
        for row in present(type_, message):
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
        """A manifest may enumerate tools under any name; one name may be there by chance."""
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
    listed = sorted(_LISTS & set(_keys(payload)))
    yield "MANI-02", not listed, "a manifest that lists no tools", f"the members {', '.join(listed)}"
    formats = _in(payload, "facts_profile", "time_formats")
    rfc3339 = isinstance(formats, list) and "rfc3339" in formats
    yield "MANI-15", rfc3339, "rfc3339 among facts_profile.time_formats", formats
    capabilities = _in(payload, "capabilities")
    for name in ("rule_submission", "subscriptions"):
        value = capabilities.get(name, False) if isinstance(capabilities, dict) else False
        yield "CONF-19", value is False or value is None, f"capabilities.{name} false, as it is of version 2", value
    if answer.status is not None:
        ends = payload.get("endpoints")
        there = isinstance(ends, dict) and {"intent_eval", "macro_invoke"} <= set(ends)
        yield "MANI-11", there, "endpoints.intent_eval and endpoints.macro_invoke on HTTP", ends
    if "oauth2" in (_in(payload, "auth", "schemes") or ()):
        url = _in(payload, "auth", "token_url")
        yield "SEC-11", isinstance(url, str), "auth.token_url where oauth2 is offered", url


def _tools(answer: Answer) -> Iterator[Note]:
    payload = answer.payload
    used = payload.get("eval_time_used")
    concrete = isinstance(used, str) and _INSTANT.fullmatch(used) is not None and _is_instant(used)
    yield "EVAL-25", concrete, "eval_time_used as an instant of RFC 3339", used
    yield "EVAL-26", "eval_duration_ms" in payload, "eval_duration_ms", "none"
    tools = [tool for tool in payload.get("macro_tools") or () if isinstance(tool, dict)]
    ids = [tool.get("macro_id") for tool in tools]
    yield "TOOL-01", len(set(map(str, ids))) == len(ids), "each macro_id once", ids
    for tool in tools:
        yield from _tool(tool)
    coverage = _in(payload, "diagnostics", "rule_coverage")
    if isinstance(coverage, dict):
        parts = [coverage.get(name, 0) for name in ("rules_fired", "rules_dormant", "rules_inapplicable")]
        total = coverage.get("total_rules")
        yield "COV-05", sum(parts) == total, "fired, dormant and inapplicable rules that add up to the total", coverage


def _tool(tool: dict[str, Any]) -> Iterator[Note]:
    level = tool.get("disclosure_level")
    needed = {
        "full": ("TOOL-05", ("description", "input_schema", "safety"), ()),
        "condensed": (
            "TOOL-06",
            ("description",),
            ("input_schema", "output_schema", "context_injection", "safety", "validity"),
        ),
        "minimal": (
            "TOOL-07",
            (),
            (
                *("description", "metadata", "input_schema", "output_schema"),
                *("context_injection", "safety", "validity"),
            ),
        ),
    }.get(str(level))
    if needed is None:
        return
    row, there, absent = needed
    missing = [name for name in there if tool.get(name) is None]
    extra = [name for name in absent if tool.get(name) is not None]
    expected = f"at {level}: {', '.join(there) or 'nothing more'}; without {', '.join(absent) or 'exception'}"
    yield row, not missing and not extra, expected, f"missing {missing}, too many {extra}"
    description = tool.get("description")
    if level == "condensed" and isinstance(description, str):
        one_line = "\n" not in description and "\r" not in description
        yield "TOOL-06", one_line, "a description of one line", description
    effects = _in(tool, "safety", "side_effects")
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
        given = fact.get("args", fact.get("named_args"))
        yield "DATA-21", not any(map(_is_long, _scalars(given))), "integers beyond 2^53 - 1 in their wrapper", fact
    for fact in (delta.get("assert") or ()) if isinstance(delta, dict) else ():
        if isinstance(fact, dict):
            category = fact.get("category")
            known = category in ("server", "session", "derived")
            for row in ("DELTA-02", "DATA-45"):
                yield row, known, "a category on every fact that is asserted", fact
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
    """All that an outcome states, takes back or hands on."""
    places = (("state_delta", "assert"), ("state_delta", "retract"), ("next", "continuation_facts"))
    for place in places:
        found = _in(payload, *place)
        yield from (one for one in (found if isinstance(found, list) else ()) if isinstance(one, dict))


def _scalars(node: Any) -> Iterator[Any]:
    if isinstance(node, dict | list):
        for value in node.values() if isinstance(node, dict) else node:
            yield from _scalars(value)
    else:
        yield node


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > _LARGEST


def _listed(node: Any) -> Iterator[frozenset[str]]:
    """What stands side by side, however deep: the items of a list, or their names, or the members of an object."""
    if isinstance(node, dict | list):
        yield frozenset(node) if isinstance(node, dict) else frozenset(_names(node))
        for value in node.values() if isinstance(node, dict) else node:
            yield from _listed(value)


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
        said = answer.payload.get("recoverable")
        yield CODE_ROWS[code], said is recoverable, f"recoverable {str(recoverable).lower()} for {code}", said


def _keys(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from _keys(value)
    elif isinstance(node, list):
        for value in node:
            yield from _keys(value)


def _in(node: Any, *path: str) -> Any:
    for step in path:
        node = node.get(step) if isinstance(node, dict) else None
    return node


def _is_instant(text: str) -> bool:
    try:
        datetime.fromisoformat(text.upper().replace("Z", "+00:00")[:19])
    except ValueError:
        return False
    return True
