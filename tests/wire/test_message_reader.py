"""What becomes of bytes that a peer sent: a message, or one error that says where the trouble is."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.wire import message_reader
from manglecp.wire.errors import WireError
from manglecp.wire.message_reader import MAX_DEPTH, MAX_PARTS, receive, receive_from_server
from manglecp.wire.messages import (
    CLIENT_TYPES,
    SERVER_TYPES,
    SUPPORTED_VERSIONS,
    VERSION,
    ApprovalMessage,
    Authenticate,
    Cancel,
    Constraints,
    DecideRequest,
    ErrorMessage,
    FactsMessage,
    IntentRequest,
    InvokeRequest,
    Manifest,
    Options,
    SkillMessage,
    encode,
)
from tests.wire.message_strategies import messages

LIMIT = 1 << 24
MINIMAL: dict[str, dict[str, Any]] = {
    "intent_request": {"intent": {"name": "observe"}},
    "invoke_request": {"macro_id": "m-1", "args": {}},
    "authenticate": {"scheme": "bearer", "token": "t"},
    "x-approval_request": {"operation": "list"},
    "x-decide_request": {"tool": "t"},
    "x-skill_request": {},
    "x-facts_request": {"source": "alerts"},
    "cancel": {"request_id": "c-1"},
}
REQUESTS = (
    "intent_request",
    "invoke_request",
    "authenticate",
    "x-approval_request",
    "x-decide_request",
    "x-skill_request",
    "x-facts_request",
)


def envelope(type_: str = "intent_request", **changes: Any) -> dict[str, Any]:
    """A good message with members changed; those that become ... are left out."""
    whole = {"type": type_, "id": "c-1", "manglecp": VERSION, "payload": MINIMAL.get(type_, {})} | changes
    return {name: value for name, value in whole.items() if value is not ...}


def sent(message: Any) -> bytes:
    return json.dumps(message).encode()


def refused(data: bytes | Any, limit: int = LIMIT) -> WireError:
    with pytest.raises(WireError) as error:
        receive(data if isinstance(data, bytes) else sent(data), limit)
    return error.value


def answer(data: bytes | Any) -> dict[str, Any]:
    """What goes back to the client, as it reads it."""
    error = refused(data)
    answered: dict[str, Any] = json.loads(encode(error.to_message(error.id)))
    return answered


def intent(**payload: Any) -> IntentRequest:
    message = receive(sent(envelope(payload={"intent": {"name": "observe"}, **payload})), LIMIT)
    assert isinstance(message, IntentRequest)
    return message


# --- envelope --------------------------------------------------------------------------------------------------------


@pytest.mark.req("WIRE-01")
@pytest.mark.parametrize("data", [b"[]", b'"a"', b"1", b"true", b"null", b"[{}]"])
def test_a_message_is_one_object(data: bytes) -> None:
    error = refused(data)
    assert (error.code, error.id, error.details) == ("malformed_message", None, {"path": "$"})


@pytest.mark.req("WIRE-01", "WIRE-02", "WIRE-09", "WIRE-12")
@pytest.mark.parametrize("type_", CLIENT_TYPES)
@pytest.mark.parametrize("member", ["type", "manglecp", "payload"])
@pytest.mark.parametrize("value", [..., None, 1, [], True])
def test_each_member_has_its_kind(type_: str, member: str, value: Any) -> None:
    error = refused(envelope(type_, **{member: value}))
    assert error.code == "malformed_message"
    assert error.details == {"path": f"$.{member}"}
    assert error.message == (f"{member} is missing" if value is ... else error.message)
    assert member in error.message


@pytest.mark.req("WIRE-12")
def test_a_payload_may_be_empty_for_the_envelope() -> None:
    error = refused(envelope("invoke_request", payload={}))
    assert error.details is not None
    assert error.details["path"] == "$.payload.macro_id"  # the type wants more, the envelope does not
    assert refused(envelope(payload="{}")).details == {"path": "$.payload"}


@pytest.mark.req("WIRE-02")
@pytest.mark.parametrize("type_", ["", "intent", "Intent_Request", "intent_request ", "ping", "x-own"])
def test_an_unknown_type(type_: str) -> None:
    error = refused(envelope(type_))
    assert (error.code, error.id) == ("invalid_type", "c-1")


def test_an_unknown_type_that_was_meant_to_be_another() -> None:
    answered = answer(envelope("intent_requst"))
    assert answered["payload"]["details"] == {"path": "$.type", "suggestion": "Did you mean 'intent_request'?"}
    known = answer(envelope("ping"))["payload"]["details"]["suggestion"]
    assert known == (
        "Types sent in this direction: authenticate, cancel, intent_request, invoke_request, x-approval_request, "
        "x-decide_request, x-facts_request, x-skill_request."
    )


@pytest.mark.req("WIRE-03")
@pytest.mark.parametrize("type_", REQUESTS)
@pytest.mark.parametrize("value", [..., None, "", 7, ["c-1"], {}])
def test_a_request_has_an_id(type_: str, value: Any) -> None:
    answered = answer(envelope(type_, id=value))
    assert answered["id"] is None
    assert answered["payload"]["code"] == "malformed_message"
    assert answered["payload"]["details"]["path"] == "$.id"


@pytest.mark.req("WIRE-04", "ERR-04")
@pytest.mark.parametrize("id_", ["c-1", " ", "0", "\N{GRINNING FACE}", "e\u0301", '"\\\n\x7f', "x" * 5000])
@pytest.mark.parametrize(
    "changes",
    [{"payload": {}}, {"payload": None}, {"manglecp": "2025-01-draft"}, {"manglecp": 1}, {"type": "ping"}, {"type": 1}],
)
def test_an_error_repeats_the_id(id_: str, changes: dict[str, Any]) -> None:
    assert answer(envelope(id=id_, **changes))["id"] == id_


@pytest.mark.req("WIRE-04")
@given(messages)
def test_an_id_passes_unchanged(message: Any) -> None:
    assert json.loads(encode(message))["id"] == message.id


@pytest.mark.req("WIRE-06", "ERR-04")
@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"null", b'{"id": "c-1", "id": "c-1"}', b'{"id": 1}'])
def test_an_error_without_a_known_request_has_id_null(data: bytes) -> None:
    assert answer(data)["id"] is None


HEAD = b'{"type": "intent_request", "id": "c-1", "manglecp": "2026-02-draft", "payload": '


@pytest.mark.req("WIRE-04", "ERR-04")
@pytest.mark.parametrize("rest", [b"[" * 400 + b"]" * 400 + b"}", b'"' + b"x" * LIMIT + b'"}'], ids=["deep", "long"])
def test_a_message_that_is_too_large_may_have_a_readable_id(rest: bytes) -> None:
    assert answer(HEAD + rest)["id"] == "c-1"
    assert answer(HEAD.replace(b"intent_request", b"cancel") + rest)["id"] is None
    assert answer(HEAD.replace(b"c-1", b"\\ud800") + rest)["id"] is None
    assert answer(HEAD.replace(b'"id"', b'"id": "c-0", "id"') + rest)["id"] is None
    assert answer(b'{"pad": "' + b"x" * 5_000 + b'", ' + HEAD[1:] + rest)["id"] is None


@pytest.mark.req("WIRE-09", "WIRE-10", "WIRE-11", "ERR-41")
@pytest.mark.parametrize("type_", CLIENT_TYPES)
@pytest.mark.parametrize("version", ["2025-11-draft", "", "1.0"])
def test_another_version(type_: str, version: str) -> None:
    payload = answer(envelope(type_, manglecp=version))["payload"]
    assert payload["code"] == "unsupported_version"
    assert payload["recoverable"] is True
    assert payload["details"] == {"requested_version": version, "supported_versions": ["2026-02-draft"]}


@pytest.mark.req("WIRE-26")
@pytest.mark.parametrize("version", ["2026-02-rc1", "2026-02-final", "2026-03-draft", "2026-01-draft", "2026-02-DRAFT"])
def test_a_draft_is_compatible_with_nothing_else(version: str) -> None:
    assert refused(envelope(manglecp=version)).code == "unsupported_version"


@pytest.mark.req("WIRE-25")
def test_version_strings_have_the_form_of_the_specification() -> None:
    assert VERSION in SUPPORTED_VERSIONS
    for version in SUPPORTED_VERSIONS:
        assert re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])-(draft|rc1|rc2|final)", version)


def test_a_version_comes_before_what_that_version_may_have() -> None:
    assert refused(envelope("ping", manglecp="2027-01-final", payload=[])).code == "unsupported_version"


def test_an_absurd_version_is_not_repeated_whole() -> None:
    answered = encode(refused(envelope(manglecp="9" * 100_000)).to_message(None))
    assert len(answered) < 500


@pytest.mark.req("WIRE-13", "WIRE-14")
def test_the_registry_has_each_type_with_its_direction() -> None:
    base = {"intent_request", "invoke_request"}, {"manifest", "intent_response", "invoke_response", "progress", "error"}
    further = {"cancel", "authenticate"}, {"authenticate_response"}
    own = (
        {f"x-{name}_{kind}" for name in ("approval", "decide", "skill", "facts")} for kind in ("request", "response")
    )
    of_clients, of_servers = own
    assert set(CLIENT_TYPES) == base[0] | further[0] | of_clients
    assert set(SERVER_TYPES) == base[1] | further[1] | of_servers


@pytest.mark.req("WIRE-13", "WIRE-14")
@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("intent_request", IntentRequest),
        ("invoke_request", InvokeRequest),
        ("cancel", Cancel),
        ("authenticate", Authenticate),
        ("x-approval_request", ApprovalMessage),
        ("x-decide_request", DecideRequest),
        ("x-skill_request", SkillMessage),
        ("x-facts_request", FactsMessage),
    ],
)
def test_each_type_of_a_client_is_received(type_: str, kind: type) -> None:
    assert type(receive(sent(envelope(type_)), LIMIT)) is kind


@pytest.mark.req("WIRE-15", "ERR-08")
@pytest.mark.parametrize("type_", SERVER_TYPES)
def test_a_type_that_only_servers_send(type_: str) -> None:
    answered = answer(envelope(type_))
    assert (answered["id"], answered["payload"]["code"]) == ("c-1", "invalid_type")
    assert "sent by servers only" in answered["payload"]["message"]


@pytest.mark.parametrize("type_", CLIENT_TYPES)
def test_a_client_receives_nothing_that_clients_send(type_: str) -> None:
    with pytest.raises(WireError, match="invalid_type"):
        receive_from_server(sent(envelope(type_)), LIMIT)


# --- cancel, authenticate --------------------------------------------------------------------------------------------


@pytest.mark.req("WIRE-01")
def test_every_message_has_an_id_if_only_null() -> None:
    error = refused(envelope("cancel", id=...))
    assert (error.code, error.message, error.details) == ("malformed_message", "id is missing", {"path": "$.id"})


@pytest.mark.parametrize("id_", [None, "c-9", ""])
def test_a_cancel_needs_no_id(id_: Any) -> None:
    message = receive(sent(envelope("cancel", id=id_)), LIMIT)
    assert isinstance(message, Cancel)
    assert message.payload.request_id == "c-1"


@pytest.mark.parametrize(
    "changes", [{"payload": {}}, {"payload": {"request_id": None}}, {"payload": {"request_id": ""}}, {"manglecp": "x"}]
)
def test_what_is_wrong_with_a_cancel_is_answered_to_nobody(changes: dict[str, Any]) -> None:
    assert answer(envelope("cancel", id="c-9", **changes))["id"] is None


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"scheme": "bearer"}, "$.payload.token"),
        ({"token": "t"}, "$.payload.scheme"),
        ({"scheme": "basic", "token": "t"}, "$.payload.scheme"),
        ({"scheme": "bearer", "token": 1}, "$.payload.token"),
    ],
)
def test_what_is_wrong_with_authenticate(payload: dict[str, Any], path: str) -> None:
    answered = answer(envelope("authenticate", payload=payload))
    assert answered["id"] == "c-1"
    assert answered["payload"]["details"]["path"] == path


# --- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("WIRE-16", "ERR-06")
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"{'type': 1}", b"{} {}", b'{"a": 1,}', b"// no\n{}", b'{"a": "\n"}', b"{\xa0}", b'{"a": undefined}'],
)
def test_what_is_not_json(data: bytes) -> None:
    error = refused(data)
    assert (error.code, error.id) == ("malformed_message", None)


@pytest.mark.req("WIRE-18")
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "0x10", "+1", "01", "1.", ".5", "1e", "--1", "1_0"])
def test_what_is_not_a_number(number: str) -> None:
    data = sent(envelope(payload={"intent": {"name": "a", "params": {"n": 0}}})).replace(
        b'"n": 0', f'"n": {number}'.encode()
    )
    assert refused(data).code == "malformed_message"


@pytest.mark.req("WIRE-18")
@pytest.mark.parametrize("number", ["0", "-0", "10", "-1.5", "1e3", "1E-3", "0.0"])
def test_what_is_a_number(number: str) -> None:
    data = sent(envelope(payload={"intent": {"name": "a", "params": {"n": 0}}})).replace(
        b'"n": 0', f'"n": {number}'.encode()
    )
    message = receive(data, LIMIT)
    assert isinstance(message, IntentRequest)
    assert message.payload.intent.params == {"n": float(number)}


@pytest.mark.req("WIRE-19")
@pytest.mark.parametrize("number", [2**53 - 1, 2**53, -(2**53), 2**53 + 1, 2**63, -(2**63), 2**64 + 1])
def test_integers_stay_exact(number: int) -> None:
    message = intent(facts=[{"pred": "p", "args": [number]}])
    assert message.payload.facts == [{"pred": "p", "args": [number]}]
    assert json.loads(encode(message))["payload"]["facts"] == [{"pred": "p", "args": [number]}]


@pytest.mark.req("WIRE-20")
def test_a_wrapped_integer_passes_as_text() -> None:
    wrapped = {"_type": "int64", "value": "9007199254740993"}
    message = intent(facts=[{"pred": "p", "args": [wrapped]}])
    assert json.loads(encode(message))["payload"]["facts"][0]["args"] == [wrapped]


@pytest.mark.req("WIRE-17")
@pytest.mark.parametrize(
    "text", ["\0", "\x7f", "\u2028", "\ufffe", "\ufeff", "\N{GRINNING FACE}", "\U0010ffff", '"\\/']
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_any_character_survives(text: str, ascii_only: bool) -> None:
    name = f"a{text}b"
    data = json.dumps(envelope(payload={"intent": {"name": name}}), ensure_ascii=ascii_only).encode()
    message = receive(data, LIMIT)
    assert isinstance(message, IntentRequest)
    assert message.payload.intent.name == name
    assert json.loads(encode(message))["payload"]["intent"]["name"] == name


@pytest.mark.req("WIRE-17")
@pytest.mark.parametrize("half", [rb"\ud800", rb"\udc00", rb"\ud800\ud800", rb"\udc00\ud800", rb"\ud800a"])
def test_half_a_character_is_not_text(half: bytes) -> None:
    assert refused(sent(envelope(id="HERE")).replace(b"HERE", half)).code == "malformed_message"


@pytest.mark.req("WIRE-24")
def test_no_byte_order_mark() -> None:
    error = refused(b"\xef\xbb\xbf" + sent(envelope()))
    assert error.code == "malformed_message"
    assert "byte order mark" in error.message


@pytest.mark.req("WIRE-24")
@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"])
def test_no_invalid_utf8(bad: bytes) -> None:
    assert refused(sent(envelope(id="HERE")).replace(b"HERE", bad)).code == "malformed_message"
    utf16 = json.dumps(envelope()).encode("utf-16")
    assert refused(utf16).code == "malformed_message"


@pytest.mark.parametrize(
    ("data", "path", "id_"),
    [
        (b'{"id": "c-1", "type": "cancel", "type": "intent_request"}', "$", None),
        (b'{"id": "c-1", "type": "cancel", "manglecp": "", "manglecp": ""}', "$", None),
        (b'{"id": "c-1", "id": "c-2", "type": "intent_request"}', "$", None),
        (b'{"id": "c-1", "type": "intent_request", "payload": {}, "payload": {}}', "$", "c-1"),
        (
            sent(envelope()).replace(b'"name": "observe"', b'"name": "observe", "n\\u0061me": "fix"'),
            "$.payload.intent",
            "c-1",
        ),
        (
            sent(envelope(payload={"intent": {"name": "a"}, "facts": [0]})).replace(
                b"0]", b'{"pred":"p","pred":"q","args":[]}]'
            ),
            "$.payload.facts[0]",
            "c-1",
        ),
    ],
)
def test_no_key_twice(data: bytes, path: str, id_: str | None) -> None:
    error = refused(data)
    assert error.code == "malformed_message"
    assert "twice" in error.message
    assert error.details is not None
    assert (error.details["path"], error.id) == (path, id_)


def test_everything_that_is_wrong_with_a_payload_is_told() -> None:
    options = {"include_proof_hints": "yes", "disclosure_preference": "ful", "x-why_not": ["a", 1, "b", None]}
    payload = {"intent": {"params": []}, "facts": {}, "constraints": {"max_compute_ms": -1}, "options": options}
    error = refused(envelope(id=7, payload=payload))
    assert error.details is not None
    told = error.details["x-violations"]
    assert [one["path"] for one in told] == [
        "$.id",
        "$.payload.intent.name",
        "$.payload.intent.params",
        "$.payload.facts",
        "$.payload.constraints.max_compute_ms",
        "$.payload.options.include_proof_hints",
        "$.payload.options.disclosure_preference",
        "$.payload.options.x-why_not[1]",
        "$.payload.options.x-why_not[3]",
    ]
    assert (told[0]["path"], told[0]["message"]) == (error.details["path"], error.message)
    assert told[1]["message"] == "payload.intent.name is missing"
    assert told[5]["message"] == "payload.options.include_proof_hints: expected true or false, got a string"
    assert told[6]["suggestion"] == "Did you mean 'full'?"


def test_an_error_does_not_grow_with_what_is_wrong() -> None:
    error = refused(envelope(payload={"intent": {"name": "a"}, "options": {"x-why_not": [1] * 100_000}}))
    assert error.details is not None
    assert len(error.details["x-violations"]) == 50


# --- size and depth --------------------------------------------------------------------------------------------------


@pytest.mark.req("WIRE-21", "WIRE-22", "ERR-07")
def test_sixteen_mebibytes_exactly() -> None:
    frame = sent(envelope(payload={"intent": {"name": "a"}, "padding": ""}))
    data = frame.replace(b'"padding": ""', b'"padding": "' + b"x" * (16777216 - len(frame)) + b'"')
    assert len(data) == 16777216
    assert isinstance(receive(data, 16777216), IntentRequest)
    payload = refused(data + b" ", 16777216).payload()
    assert payload.code == "message_too_large"
    assert payload.details == {"limit": 16777216, "actual": 16777217}


@pytest.mark.req("WIRE-22")
def test_size_is_counted_in_bytes_before_anything_is_read() -> None:
    data = json.dumps(envelope(id="\N{GRINNING FACE}"), ensure_ascii=False).encode()
    assert receive(data, len(data)).id == "\N{GRINNING FACE}"
    assert refused(data, len(data) - 1).code == "message_too_large"
    assert refused(b"{" * 11, 10).code == "message_too_large"


def nested(depth: int) -> bytes:
    """A message whose innermost array is ``depth`` deep; the envelope, its payload and the facts are three."""
    marked = sent(envelope(payload={"intent": {"name": "a"}, "facts": ["HERE"]}))
    return marked.replace(b'"HERE"', b"[" * (depth - 3) + b"]" * (depth - 3))


def test_depth_is_bounded_exactly() -> None:
    assert isinstance(receive(nested(MAX_DEPTH), LIMIT), IntentRequest)
    error = refused(nested(MAX_DEPTH + 1))
    assert (error.code, error.id) == ("malformed_message", "c-1")
    assert str(MAX_DEPTH) in error.message


def test_parts_are_bounded_exactly_and_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_PARTS == 1_000_000
    monkeypatch.setattr(message_reader, "MAX_PARTS", 10)
    most = envelope(payload={"intent": {"name": "[{"}, "facts": [[], {}, [{}, []], '"[{}]{']})
    assert isinstance(receive(sent(most), LIMIT), IntentRequest)  # the envelope, its payload, intent, facts and five
    most["payload"]["facts"] += [[], []]
    error = refused(most)
    assert (error.code, error.message) == ("malformed_message", "The message has more than 10 arrays and objects")
    assert "arrays and objects" in refused(b"[" * 21).message


# --- payload ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "path", "message"),
    [
        ({}, "$.payload.intent", "payload.intent is missing"),
        ({"intent": None}, "$.payload.intent", "payload.intent is missing"),
        ({"intent": {}}, "$.payload.intent.name", "payload.intent.name is missing"),
        ({"intent": {"name": 1}}, "$.payload.intent.name", "expected a string, got a whole number"),
        ({"intent": "a"}, "$.payload.intent", "expected an object, got a string"),
        (
            {"intent": {"name": "a", "params": []}},
            "$.payload.intent.params",
            "expected an object or null, got an array",
        ),
        ({"facts": {}}, "$.payload.facts", "expected an array, got an object"),
        ({"eval_time": 1.5}, "$.payload.eval_time", "got a number"),
        ({"constraints": 1}, "$.payload.constraints", "expected an object, got a whole number"),
        ({"constraints": {"max_compute_ms": "1"}}, "$.payload.constraints.max_compute_ms", "or null, got a string"),
        ({"constraints": {"max_tools_returned": -1}}, "$.payload.constraints.max_tools_returned", "whole number >= 0"),
        ({"constraints": {"max_tools_returned": True}}, "$.payload.constraints.max_tools_returned", "true or false"),
        ({"options": []}, "$.payload.options", "expected an object, got an array"),
        ({"options": {"x-why_not": ["a", 1]}}, "$.payload.options.x-why_not[1]", "expected a string"),
        ({"options": {"x-rule_coverage": "yes"}}, "$.payload.options.x-rule_coverage", "expected true or false"),
        (
            {"options": {"disclosure_preference": "all"}},
            "$.payload.options.disclosure_preference",
            "unknown value 'all'",
        ),
    ],
)
def test_what_is_wrong_with_a_payload_is_said_with_its_path(payload: dict[str, Any], path: str, message: str) -> None:
    good = {} if "intent" in payload or not payload else {"intent": {"name": "a"}}
    answered = answer(envelope(payload=good | payload))
    assert answered["id"] == "c-1"
    assert answered["payload"]["code"] == "malformed_message"
    assert answered["payload"]["details"]["path"] == path
    assert message in answered["payload"]["message"]
    assert "`" not in answered["payload"]["message"]


@pytest.mark.parametrize(
    ("value", "suggestion"),
    [("ful", "Did you mean 'full'?"), ("x", "One of: adaptive, condensed, full, minimal.")],
)
def test_a_choice_that_was_meant_to_be_another(value: str, suggestion: str) -> None:
    answered = answer(envelope(payload={"intent": {"name": "a"}, "options": {"disclosure_preference": value}}))
    assert answered["payload"]["details"]["suggestion"] == suggestion


def test_optional_parts_may_be_absent_or_null() -> None:
    nothing = intent().payload
    assert (nothing.facts, nothing.eval_time) == ([], None)
    assert (nothing.constraints, nothing.options) == (Constraints(), Options())
    assert intent(facts=None, eval_time=None, constraints=None, options=None).payload == nothing
    assert intent(options={"include_proof_hints": None, "disclosure_preference": None}).payload == nothing
    assert intent(constraints={"max_compute_ms": None}).payload == nothing


def test_null_inside_facts_and_parameters_is_kept() -> None:
    facts = [{"pred": "p", "args": [None], "t": None}, None]
    assert intent(facts=facts).payload.facts == facts
    message = receive(sent(envelope(payload={"intent": {"name": "a", "params": {"k": None}}})), LIMIT)
    assert isinstance(message, IntentRequest)
    assert message.payload.intent.params == {"k": None}


def test_unknown_members_are_skipped_and_never_repeated() -> None:
    secret = "nobody-knows-me"
    payload = {"intent": {"name": "a", secret: 1}, secret: secret, "options": {secret: secret}}
    message = receive(sent(envelope(payload=payload, **{secret: secret})), LIMIT)
    assert secret.encode() not in encode(message)
    payload["intent"] = {secret: secret}
    assert secret not in json.dumps(answer(envelope(payload=payload, **{secret: secret})))


@pytest.mark.parametrize(
    "payload", [{"args": {}}, {"macro_id": "m", "args": []}, {"macro_id": "m"}, {"macro_id": None, "args": {}}]
)
def test_what_is_wrong_with_an_invocation(payload: dict[str, Any]) -> None:
    assert refused(envelope("invoke_request", payload=payload)).code == "malformed_message"


def test_an_invocation() -> None:
    payload = {"macro_id": "m-1", "args": {"n": 1}, "confirmation_token": None, "x-request_key": "k"}
    message = receive(sent(envelope("invoke_request", payload=payload)), LIMIT)
    assert isinstance(message, InvokeRequest)
    assert (message.payload.args, message.payload.confirmation_token) == ({"n": 1}, None)
    assert message.payload.request_key == "k"


# --- from servers ----------------------------------------------------------------------------------------------------


@pytest.mark.req("WIRE-05")
def test_messages_that_servers_send_unasked_have_id_null() -> None:
    message = WireError("server_not_ready", "draining").to_message(None)
    data = encode(message)
    assert json.loads(data)["id"] is None
    assert receive_from_server(data, LIMIT) == message


def test_a_manifest_that_says_little_is_taken_for_little() -> None:
    payload = {
        "server_name": "s",
        "server_version": "1",
        "protocol": {"manglecp": VERSION},
        "status": "ready",
        "domain": {"id": "d", "description": "d"},
        "intents": [],
        "facts_profile": {"time_formats": ["rfc3339"]},
        "capabilities": {"temporal": False},
        "limits": {"max_message_bytes": LIMIT, "max_facts_per_request": 1, "max_derived_facts": 1},
        "auth": {"required": False},
    }
    message = receive_from_server(sent(envelope("manifest", id=None, payload=payload)), LIMIT)
    assert isinstance(message, Manifest)
    assert message.payload.protocol.conformance_level == 1
    assert message.payload.capabilities.named_args is False


def test_an_error_of_a_server_with_a_code_of_its_own() -> None:
    payload = {"code": "x-database_unavailable", "message": "The database is away", "recoverable": True}
    message = receive_from_server(sent(envelope("error", payload=payload)), LIMIT)
    assert isinstance(message, ErrorMessage)
    assert message.payload.code == "x-database_unavailable"


# --- properties ------------------------------------------------------------------------------------------------------


@pytest.mark.req("WIRE-10")
@given(messages)
def test_what_is_sent_is_received(message: Any) -> None:
    data = encode(message)
    assert json.loads(data)["manglecp"] == VERSION
    read = receive if type(message) in CLIENT_TYPES.values() else receive_from_server
    assert read(data, len(data)) == message
    assert encode(read(data, len(data))) == data


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_one_kind_of_error(data: bytes) -> None:
    with suppress(WireError):
        receive(data, LIMIT)
    with suppress(WireError):
        receive_from_server(data, LIMIT)


@given(messages, st.data())
def test_any_damage_is_a_message_or_one_kind_of_error(message: Any, data: st.DataObject) -> None:
    whole = encode(message)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 8)))
    filling = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from([b"null", b"[]", b"{}", b'""', b"1e9", b'"'])))
    damaged = whole[:start] + filling + whole[end:]
    for read in (receive, receive_from_server):
        try:
            read(damaged, LIMIT)
        except WireError as error:
            encode(error.to_message(error.id))
