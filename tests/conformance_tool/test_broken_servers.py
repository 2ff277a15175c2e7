"""Servers that break one rule each are found out, at the requirement that they break and at no other."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance_tool.spoiling import Flaw, Message
from tests.conformance_tool.workshop import Way, Workshop

Said = Callable[[Message | None, Message], Message | list[Message] | None]
_numbers = itertools.count()


def on(type_: str, change: Callable[[dict[str, Any]], Any]) -> Said:
    """Change the payload of messages of this type."""

    def said(_: Message | None, answer: Message) -> Message:
        if answer["type"] == type_:
            change(answer["payload"])
        return answer

    return said


def each_tool(change: Callable[[dict[str, Any]], Any]) -> Said:
    return on("intent_response", lambda payload: [change(tool) for tool in payload["macro_tools"]])


def each_fact(change: Callable[[dict[str, Any]], Any]) -> Said:
    """That an outcome hands on."""
    return on("invoke_response", lambda payload: [change(fact) for fact in payload["next"]["continuation_facts"]])


def hidden_tools(manifest: dict[str, Any]) -> None:
    manifest["extensions"]["x-menu"] = {"today": [{"name": "full_stack_diagnosis"}, {"name": "list_failures"}]}


def instead_of(code: str) -> Said:
    """Do it all the same."""

    def said(_: Message | None, answer: Message) -> Message:
        if answer["payload"].get("code") == code:
            return {**answer, "type": "invoke_response", "payload": {"result": {}}}
        return answer

    return said


def heard(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """Change the request, if it is JSON in any sense."""

    def hear(data: bytes) -> bytes:
        if data.startswith(b"\xef\xbb\xbf") or len(data) > 1_000_000:
            return data
        try:
            message = json.loads(data)
        except ValueError:
            return data
        return json.dumps(change(message)).encode()

    return hear


def known_facts(message: Any) -> Any:
    """Ignore undeclared facts instead of refusing them."""
    payload = message.get("payload") if isinstance(message, dict) else None
    if isinstance(payload, dict) and isinstance(payload.get("facts"), list):
        payload["facts"] = [one for one in payload["facts"] if not str(one.get("pred")).startswith("conformance_")]
    return message


def any_version(message: Any) -> Any:
    return {**message, "manglecp": "2026-02-draft"} if isinstance(message, dict) and "manglecp" in message else message


def any_id(message: Any) -> Any:
    if isinstance(message, dict) and message.get("type") == "intent_request" and not message.get("id"):
        return {**message, "id": "made-up"}
    return message


def no_limits(message: Any) -> Any:
    if isinstance(message, dict) and isinstance(message.get("payload"), dict):
        message["payload"].pop("constraints", None)
    return message


def kept_facts() -> Callable[[Any], Any]:
    """What one request said is taken as said in the next."""
    kept: list[Any] = []

    def keep(message: Any) -> Any:
        payload = message.get("payload") if isinstance(message, dict) else None
        if isinstance(payload, dict) and isinstance(payload.get("facts"), list):
            kept[:] = payload["facts"] = payload["facts"] or kept
        return message

    return keep


def no_intervals(message: Any) -> Any:
    if isinstance(message, dict) and isinstance(message.get("payload"), dict):
        (message["payload"].get("constraints") or {}).pop("max_intervals_per_atom", None)
    return message


def own_time(message: Any) -> Any:
    """The time of the client is not used."""
    if isinstance(message, dict) and isinstance(message.get("payload"), dict) and "eval_time" in message["payload"]:
        message["payload"]["eval_time"] = "now"
    return message


def trusted_sources(message: Any) -> Any:
    """Ignore facts with a source."""
    payload = message.get("payload") if isinstance(message, dict) else None
    if isinstance(payload, dict) and isinstance(payload.get("facts"), list):
        payload["facts"] = [one for one in payload["facts"] if one["pred"] != "backend_log" or not one.get("source")]
    return message


def only_small(data: bytes) -> bytes:
    return data if len(data) < 1_000_000 else data[:1_000_000]


def cancelled_too(_: Message | None, answer: Message) -> list[Message]:
    more = {"code": "cancelled", "message": "Cancelled", "recoverable": False}
    return [answer, {**answer, "type": "error", "payload": more}] if answer["type"] == "intent_response" else [answer]


def other_addresses(payload: dict[str, Any]) -> None:
    payload["endpoints"] = {"intent_eval": "/ask", "macro_invoke": "/do"}


def with_rival(payload: dict[str, Any]) -> None:
    for tool in tuple(payload["macro_tools"]):
        if tool["name"] == "full_stack_diagnosis":
            payload["macro_tools"].append({**tool, "macro_id": "m-rival", "name": "frontend_diagnosis"})


def every_skill(tool: dict[str, Any]) -> None:
    for name in ("backend-logs", "failed-requests", "small-changes"):
        tool.get("context_injection", {}).get("skills", []).append({"skill_id": name, "inline": False})


def other_id(_: Message | None, answer: Message) -> Message:
    return {**answer, "id": answer["id"].upper()} if isinstance(answer["id"], str) else answer


def new_ids(tool: dict[str, Any]) -> None:
    tool["macro_id"] += f"-{next(_numbers)}"


def other_scores(tool: dict[str, Any]) -> None:
    if "metadata" in tool:
        tool["metadata"]["score"] = next(_numbers)


def leaky_hints(payload: dict[str, Any]) -> None:
    for one in payload.get("proof_hints", {}).get("derivations", ()):
        one["tree"] = {"fact": "relevant(X) :- intent(X), secret(X).", "type": "derived", "children": []}


def unasked_hints(payload: dict[str, Any]) -> None:
    payload.setdefault("proof_hints", {"derivations": [], "excluded": [], "unmatched_facts": []})


def hidden_upgrade(request: Message | None, answer: Message) -> Message:
    facts = (request or {}).get("payload", {}).get("facts") or []
    if answer["type"] == "intent_response" and any(one.get("pred") == "disclosure_upgrade" for one in facts):
        for tool in answer["payload"]["macro_tools"]:
            keep = ("macro_id", "name")
            small = {name: tool[name] for name in keep} | {"disclosure_level": "minimal"}
            tool.clear()
            tool.update(small)
    return answer


def no_category(payload: dict[str, Any]) -> None:
    for fact in payload["state_delta"]["assert"]:
        fact.pop("category", None)


def listed_tools(payload: dict[str, Any]) -> None:
    payload["extensions"]["x-tools"] = [{"macro_id": "m-1"}]


def recoverable(payload: dict[str, Any]) -> None:
    if payload["code"] == "macro_not_found":
        payload["recoverable"] = False


def own_code(payload: dict[str, Any]) -> None:
    if payload["code"] == "macro_not_found":
        payload["code"] = "no_such_tool"


def twice(_: Message | None, answer: Message) -> list[Message]:
    return [answer, answer] if answer["type"] == "intent_response" else [answer]


def late_progress(_: Message | None, answer: Message) -> list[Message]:
    late = {**answer, "type": "progress", "payload": {"status": "running"}}
    return [answer, late] if answer["type"] == "invoke_response" else [answer]


def odd_progress(_: Message | None, answer: Message) -> Message:
    if answer["type"] == "progress":
        answer["payload"]["status"] = "thinking"
    return answer


def no_manifest(_: Message | None, answer: Message) -> Message:
    welcome = {"code": "internal_error", "message": "Welcome", "recoverable": False}
    return {**answer, "type": "error", "payload": welcome} if answer["type"] == "manifest" else answer


def no_level(payload: dict[str, Any]) -> None:
    payload["protocol"]["conformance_level"] = 0


def small_messages(payload: dict[str, Any]) -> None:
    payload["limits"]["max_message_bytes"] = 65_536


def no_budget(payload: dict[str, Any]) -> None:
    (payload.get("details") or {}).pop("budget", None)


def too_much(tool: dict[str, Any]) -> None:
    if tool["disclosure_level"] == "condensed":
        tool["input_schema"] = {}


def no_time(payload: dict[str, Any]) -> None:
    del payload["eval_time_used"]


def always_ok(_: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
    return 200, headers, body


def bad_request(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
    return (400 if status == 404 else status), headers, body


def as_text(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
    return status, {**headers, "content-type": "text/html"}, body


def everybody(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
    return 200 if status == 403 else status, {**headers, "access-control-allow-origin": "*"}, body


LIMITS = "CONF-16 CONF-17 ERR-19 EVAL-05 EVAL-17 EVAL-20 EVAL-30 MANI-24"
BROKEN: list[tuple[str, Way, Flaw, str]] = [
    ("another id", "http", Flaw(said=other_id), "WIRE-04 ERR-04"),
    ("another id", "websocket", Flaw(said=other_id), "WIRE-04 ERR-04 TRANS-33 TRANS-34"),
    ("makes up ids", "http", Flaw(heard=heard(any_id)), "WIRE-03 ERR-06"),
    ("any version", "http", Flaw(heard=heard(any_version)), "WIRE-11 ERR-05"),
    ("the same key twice", "http", Flaw(heard=heard(lambda message: message)), "OPEN-58"),
    ("NaN", "http", Flaw(heard=lambda data: data.replace(b"NaN", b"0")), "WIRE-18 ERR-06"),
    ("a byte order mark", "http", Flaw(heard=lambda data: data.removeprefix(b"\xef\xbb\xbf")), "WIRE-24 ERR-06"),
    ("errors with status 200", "http", Flaw(http=always_ok), "TRANS-15 TRANS-14 TRANS-16 ERR-06 ERR-08"),
    ("400 for 404", "http", Flaw(http=bad_request), "ERR-23"),
    ("no JSON", "http", Flaw(http=as_text), "TRANS-14"),
    ("a code of its own", "http", Flaw(said=on("error", own_code)), "ERR-33 ERR-23 INVK-06 INVK-05"),
    ("not recoverable", "http", Flaw(said=on("error", recoverable)), "ERR-23"),
    ("lists tools", "http", Flaw(said=on("manifest", listed_tools)), "MANI-02 SEC-26"),
    ("no level", "http", Flaw(said=on("manifest", no_level)), "MANI-05 CONF-01"),
    ("small messages", "http", Flaw(said=on("manifest", small_messages)), "WIRE-23 MANI-23"),
    ("unknown status", "http", Flaw(said=on("manifest", lambda p: p.update(status="fine"))), "MANI-06"),
    ("bare extensions", "http", Flaw(said=on("manifest", lambda p: p["extensions"].update(a=1))), "MANI-27"),
    ("takes unknown facts", "http", Flaw(heard=heard(known_facts)), "ERR-13 CONF-10 ERR-35"),
    ("no limits", "http", Flaw(heard=heard(no_limits)), LIMITS),
    ("keeps facts", "http", Flaw(heard=heard(kept_facts())), "DATA-47 EVAL-10 NEXT-06"),
    ("no intervals", "http", Flaw(heard=heard(no_intervals)), "EVAL-21 ERR-20"),
    ("its own time", "http", Flaw(heard=heard(own_time)), "EVAL-25 DATA-32 DATA-31 DATA-34 CONF-07"),
    ("rivals", "http", Flaw(said=on("intent_response", with_rival)), "EVAL-15 CONF-07"),
    ("every skill", "http", Flaw(said=each_tool(every_skill)), "SKILL-03"),
    ("trusts some sources", "http", Flaw(heard=heard(trusted_sources)), "DATA-40 DATA-42 OPEN-20"),
    ("only small messages", "http", Flaw(heard=only_small), "WIRE-21"),
    ("cancels as well", "websocket", Flaw(said=cancelled_too), "TRANS-33 TRANS-38"),
    ("other addresses", "http", Flaw(said=on("manifest", other_addresses)), "TRANS-11 MANI-11"),
    ("no budget", "http", Flaw(said=on("error", no_budget)), "CONF-17"),
    ("ids by chance", "http", Flaw(said=each_tool(new_ids)), "CONF-14 CONF-15 EVAL-18"),
    ("scores by chance", "websocket", Flaw(said=each_tool(other_scores)), "CONF-15 EVAL-18"),
    ("no safety", "http", Flaw(said=each_tool(lambda tool: tool.pop("safety", 0))), "TOOL-05"),
    ("too much detail", "http", Flaw(said=each_tool(too_much)), "TOOL-06"),
    ("no evaluation time", "http", Flaw(said=on("intent_response", no_time)), "EVAL-25 DATA-32 DATA-33"),
    ("unasked hints", "http", Flaw(said=on("intent_response", unasked_hints)), "EVAL-28"),
    ("rules in hints", "http", Flaw(said=on("intent_response", leaky_hints)), "PROOF-09"),
    ("no upgrade", "http", Flaw(said=hidden_upgrade), "CONF-11 EVAL-38"),
    ("expired tools", "http", Flaw(said=instead_of("macro_expired")), "INVK-07 ERR-24 INVK-05 OPEN-27 OPEN-29"),
    ("any arguments", "http", Flaw(said=instead_of("schema_validation_failed")), "INVK-08 ERR-25 INVK-02 INVK-05"),
    ("no category", "http", Flaw(said=on("invoke_response", no_category)), "DELTA-02 DATA-45 CONF-08"),
    ("no result", "http", Flaw(said=on("invoke_response", lambda p: p.pop("result"))), "INVK-14"),
    ("binary frames", "websocket", Flaw(binary=True), "TRANS-04 TRANS-02"),
    ("answers twice", "websocket", Flaw(said=twice), "TRANS-33"),
    ("late progress", "websocket", Flaw(said=late_progress), "PROG-08"),
    ("odd progress", "websocket", Flaw(said=odd_progress), "PROG-02"),
    ("no manifest first", "websocket", Flaw(said=no_manifest), "TRANS-02"),
]
WITH_CREDENTIALS: list[tuple[str, Way, Flaw, str]] = [
    ("any credential", "http", Flaw(token="s3cret"), "SEC-17 ERR-10"),
    ("any origin", "http", Flaw(http=everybody), "TRANS-22"),
    ("no approval", "http", Flaw(said=instead_of("confirmation_required")), "INVK-09 ERR-26 SEC-24"),
    ("any approval", "websocket", Flaw(said=instead_of("confirmation_invalid")), "INVK-10 ERR-27 SEC-22"),
    ("failures as results", "http", Flaw(said=instead_of("execution_failed")), "INVK-17 ERR-28"),
]


IN_PASSING: list[tuple[str, Way, Flaw, str, str]] = [
    ("lists tools elsewhere", "http", Flaw(said=on("manifest", hidden_tools)), "EVAL-13", "MANI-02"),
    (
        "facts without names",
        "http",
        Flaw(said=each_fact(lambda fact: fact.update(pred="No-name"))),
        "INVK-16",
        "DATA-01",
    ),
    ("long names", "http", Flaw(said=each_fact(lambda fact: fact.update(pred="p" * 129))), "INVK-16", "DATA-02"),
    ("long integers", "websocket", Flaw(said=each_fact(lambda f: f.update(args=[[2**53]]))), "INVK-16", "DATA-21"),
]


def names(broken: list[tuple[str, Way, Flaw, str]]) -> list[str]:
    return [f"{name}, {way}" for name, way, _, _ in broken]


@pytest.mark.parametrize(("name", "way", "flaw", "found"), BROKEN, ids=names(BROKEN))
def test_a_broken_server_is_found_out(servers: Workshop, name: str, way: Way, flaw: Flaw, found: str) -> None:
    report = servers.test(way, flaw, rows=set(found.split()))
    assert set(report.of("failed")) == set(found.split()), name
    assert all(one.expected and one.seen and one.check for id_ in report.of("failed") for one in report[id_].failures)


@pytest.mark.parametrize(("name", "way", "flaw", "found"), WITH_CREDENTIALS, ids=names(WITH_CREDENTIALS))
def test_one_that_lets_in_too_many(servers: Workshop, name: str, way: Way, flaw: Flaw, found: str) -> None:
    report = servers.test(way, flaw, known=True, rows=set(found.split()))
    assert set(report.of("failed")) == set(found.split()), name


@pytest.mark.parametrize(("name", "way", "flaw", "asked", "found"), IN_PASSING, ids=[one[0] for one in IN_PASSING])
def test_what_was_not_asked_for_counts_as_well(
    servers: Workshop, name: str, way: Way, flaw: Flaw, asked: str, found: str
) -> None:
    assert servers.test(way, flaw, rows={asked}).of("failed") == [found], name


def test_what_is_only_recommended_is_advice(servers: Workshop) -> None:
    def untagged(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        return status, {name: value for name, value in headers.items() if name != "etag"}, body

    report = servers.test("http", Flaw(http=untagged), rows={"MANI-35"})
    assert report.conforms
    assert report.of("advice") == ["MANI-35"]
    assert report["MANI-35"].failures[0].expected.startswith("an ETag for ")
