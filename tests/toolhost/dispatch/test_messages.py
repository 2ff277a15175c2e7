"""What a request says, and what answers mean: ours, those of the C++ toolhost, and broken ones."""

import json
from typing import Any

import pytest

from manglecp.toolhost.dispatch.messages import (
    MAX_REQUEST,
    ActionResult,
    CallRefused,
    HostCall,
    decode,
    encode,
    interpret_answer,
)
from manglecp.toolhost.state import Artifact

HELD = {1: Artifact("t", "p", '"held"', 6)}
CALL = HostCall(aid="AID.X.v1", slots=HELD)
NOT_FOUND, NOT_IN_PLUGIN = "tool not found: AID.X.v1", "tool not found in plugin: AID.X.v1"
SILENT = "the host answered TOOL_ERROR without a reason"
GOOD: dict[str, Any] = {"ok": True, "status": "OK", "output_json": '{"a":1}', "error": "", "ds_state": {}}


@pytest.mark.req("IPC-11", "IPC-12", "IPC-13", "IPC-14", "IPC-15")
def test_a_request_is_one_line_with_the_full_state() -> None:
    call = HostCall(aid="AID.X.v1", input_json='{"text":"a\\nb\u2028"}', tier=1, slots=HELD, call_id="c1")
    line = encode(call, lease_token="lease_x")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "aid": "AID.X.v1",
        "call_id": "c1",
        "input_json": '{"text":"a\\nb\u2028"}',
        "ds_state": {"slots": {"1": {"type": "t", "provenance": "p", "content_json": '"held"', "size_bytes": 6}}},
        "_lease_token": "lease_x",
    }


def test_no_state_is_said_to_be_none() -> None:
    request = json.loads(encode(HostCall(aid="AID.X.v1", tier=0, call_id="c1")))
    assert request == {"aid": "AID.X.v1", "call_id": "c1", "input_json": "{}", "ds_state": {"slots": {}}}


@pytest.mark.req("IPC-14")
def test_a_key_belongs_to_an_identity_and_an_action() -> None:
    def sent(identity: str, aid: str, key: str) -> object:
        return json.loads(encode(HostCall(aid=aid, identity=identity, idempotency_key=key)))["idempotency_key"]

    keys = [sent("a", "A", "k"), sent("b", "A", "k"), sent("", "A", "k"), sent("a", "B", "k"), sent("a", "A", "l")]
    assert len(set(keys)) == len(keys)
    assert sent("a", "A", "k") == keys[0]
    assert sent("", "A", str(keys[0])) != keys[0]
    assert sent('a","A', "", "k") != sent("a", 'A","', "k")


@pytest.mark.req("IPC-37")
def test_a_request_that_no_host_would_take_is_not_sent() -> None:
    room = MAX_REQUEST + 1 - len(encode(HostCall(aid="A", tier=0, call_id="c", input_json="")))
    assert len(encode(HostCall(aid="A", tier=0, call_id="c", input_json="x" * room))) == MAX_REQUEST + 1
    with pytest.raises(CallRefused, match="10485761 bytes") as caught:
        encode(HostCall(aid="A", tier=0, call_id="c", input_json="x" * (room + 1)))
    assert caught.value.code == "oversize"


@pytest.mark.parametrize("call", [HostCall(aid="A", input_json="\ud800"), HostCall(aid="A", slots={256: Artifact()})])
def test_a_request_that_cannot_be_encoded_is_refused(call: HostCall) -> None:
    with pytest.raises(CallRefused, match="cannot be encoded") as caught:
        encode(call)
    assert caught.value.code is None


@pytest.mark.req("IPC-19", "IPC-34")
def test_a_good_answer() -> None:
    assert interpret_answer(CALL, GOOD) == ActionResult("AID.X.v1", '{"a":1}', dict(HELD))


@pytest.mark.req("IPC-22")
def test_the_delta_of_an_answer_is_applied_to_what_was_sent() -> None:
    delta = {"delta": True, "slots": {"0": {"content_json": "7"}}, "removed_slots": [1]}
    result = interpret_answer(CALL, GOOD | {"ds_state": delta})
    assert isinstance(result, ActionResult)
    assert result.slots == {0: Artifact("", "", "7", 0)}
    assert CALL.slots == {1: Artifact("t", "p", '"held"', 6)}


@pytest.mark.req("IPC-23")
@pytest.mark.parametrize("ds_state", [{}, {"slots": {}}, None, {"delta": True, "removed_slots": [1]}])
def test_a_repeated_key_changes_no_state(ds_state: object) -> None:
    result = interpret_answer(CALL, GOOD | {"ds_state": ds_state, "idempotent_hit": True})
    assert result == ActionResult("AID.X.v1", '{"a":1}', dict(HELD), idempotent_hit=True)


def test_an_answer_as_the_c_plus_plus_toolhost_writes_it() -> None:
    line = b'{"ok":true,"status":"OK","output_json":"{\\"path\\":\\"a\\/b\\"}","error":"","ds_state":'
    result = interpret_answer(CALL, decode(line + b'{"delta":true,"slots":{},"removed_slots":[]}}'))
    assert isinstance(result, ActionResult)
    assert json.loads(result.output_json) == {"path": "a/b"}


@pytest.mark.req("IPC-20", "IPC-21", "IPC-24", "IPC-25")
@pytest.mark.parametrize(
    ("answer", "kind", "status", "detail"),
    [
        ({"ok": True, "status": "TOOL_ERROR", "error": "no"}, "tool_error", "TOOL_ERROR", "no"),
        ({"ok": True, "status": "TOOL_ERROR", "error": "", "output_json": "7"}, "tool_error", "TOOL_ERROR", SILENT),
        ({"ok": True, "error": "no", "output_json": "7"}, "tool_error", "TOOL_ERROR", "no; output: 7"),
        ({"ok": True, "status": "BREAKER_TRIP", "error": "b"}, "tool_error", "BREAKER_TRIP", "b"),
        ({"ok": True, "status": "LATER"}, "tool_error", "TOOL_ERROR", SILENT),
        ({"ok": True, "status": ["OK"]}, "tool_error", "TOOL_ERROR", SILENT),
        ({"ok": True}, "tool_error", "TOOL_ERROR", SILENT),
        ({"status": "OK"}, "tool_error", "TOOL_ERROR", SILENT),
        ({"ok": 1, "status": "OK"}, "tool_error", "TOOL_ERROR", SILENT),
        ({"ok": False, "error": "invalid JSON"}, "tool_error", "TOOL_ERROR", "invalid JSON"),
        ({"ok": False, "error": "bad input", "status": "INVALID_PICK"}, "tool_error", "INVALID_PICK", "bad input"),
        ({"ok": False, "error": "lease_required", "tier": 2}, "tool_error", "TOOL_ERROR", "lease_required"),
        ({"ok": False, "error": "lease_rejected", "reason": "x"}, "tool_error", "TOOL_ERROR", "lease_rejected: x"),
        ({"ok": False, "error": NOT_FOUND}, "not_found", "INVALID_PICK", NOT_FOUND),
        ({"ok": False, "error": NOT_FOUND, "status": "INVALID_PICK"}, "not_found", "INVALID_PICK", NOT_FOUND),
        ({"ok": False, "error": NOT_IN_PLUGIN}, "not_found", "INVALID_PICK", NOT_IN_PLUGIN),
        # An action that raises can say all of this, but neither about another one nor without its own status.
        ({"ok": True, "error": NOT_FOUND, "status": "TOOL_ERROR"}, "tool_error", "TOOL_ERROR", NOT_FOUND),
        ({"ok": False, "error": NOT_FOUND, "status": "TOOL_ERROR"}, "tool_error", "TOOL_ERROR", NOT_FOUND),
        ({"ok": False, "error": "tool not found: A"}, "tool_error", "TOOL_ERROR", "tool not found: A"),
    ],
)  # fmt: skip
def test_a_no_is_an_error(answer: dict[str, Any], kind: str, status: str, detail: str) -> None:
    expected = {"error": True, "aid": "AID.X.v1", "type": kind, "detail": detail, "status": status}
    assert interpret_answer(CALL, answer) == expected


@pytest.mark.parametrize("change", [{"output_json": None}, {"output_json": ""}])
def test_no_output_is_an_empty_object(change: dict[str, Any]) -> None:
    result = interpret_answer(CALL, GOOD | change)
    assert isinstance(result, ActionResult)
    assert result.output_json == "{}"


@pytest.mark.parametrize("change", [{"output_json": {"a": 1}}, {"ds_state": {"slots": {"abc": {}}}}])
def test_a_success_that_cannot_be_taken_is_a_parse_error(change: dict[str, Any]) -> None:
    result = interpret_answer(CALL, GOOD | change)
    assert isinstance(result, dict)
    assert result["type"] == "parse_error"
    assert result.get("code") == "outcome_unknown"  # it ran, and nobody can say what came of it
    repeatable = interpret_answer(HostCall(aid="AID.X.v1", idempotent=True), {**GOOD, **change})
    assert isinstance(repeatable, dict)
    assert "code" not in repeatable


@pytest.mark.req("IPC-30")
@pytest.mark.parametrize("line", [b"", b"x", b"[1]", b"null", b'"\xff"', b'{"a":"\\ud800"}', b"[" * 100_000, b"{} {}"])
def test_a_line_that_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any reason will do
        decode(line)
