"""State, idempotency, leases and reports of a serving host."""

import json
import os
from typing import Any

import pytest

from manglecp.toolhost import state
from manglecp.toolhost.idempotency import MAX_ENTRIES, AnswerCache
from manglecp.toolhost.leases import input_digest, mint
from tests.toolhost.conversation import WORKSPACE, host, request, serve

REFUSED = {"ok": False, "status": "TOOL_ERROR", "output_json": "{}", "ds_state": {}}
KEY = b"k" * 32
WRITE = "AID.WORKSPACE.WRITE.v1"


def keep(slot: int, text: str, fail: bool = False, **members: Any) -> bytes:
    return request("keep", {"slot": slot, "text": text, "fail": fail}, **members)


# ------------------------------------------------------------------------------------------------ state


@pytest.mark.req("IPC-13", "IPC-22")
def test_slots_stay_between_calls_and_answers_say_what_changed() -> None:
    one, same, two, replaced = serve(keep(1, "a"), keep(1, "a"), keep(2, "b"), keep(3, "c", ds_state={"slots": {}}))
    assert list(one["ds_state"]["slots"]) == ["1"]
    assert same["ds_state"]["slots"] == {}
    assert (two["output_json"], list(two["ds_state"]["slots"])) == ("[1,2]", ["2"])
    assert replaced["output_json"] == "[3]"


def test_a_failed_action_leaves_nothing() -> None:
    failed, after = serve(keep(1, "a", fail=True), keep(2, "b"))
    assert (failed["status"], failed["ds_state"]["slots"]) == ("TOOL_ERROR", {})
    assert after["output_json"] == "[2]"


def test_a_slot_that_is_none_is_the_failure_of_the_action() -> None:
    failed, after = serve(keep(256, "a"), keep(2, "b"))
    assert failed["status"] == "TOOL_ERROR"
    assert after["output_json"] == "[2]"


def test_a_refused_request_changes_nothing() -> None:
    full = {"slots": {"5": {"type": "t"}}}
    answers = serve(
        keep(1, "a"),
        request("nothing", {}, ds_state=full),
        keep(1, "a", ds_state={"slots": {"x": {}}}),
        keep(1, "a", ds_state={"delta": True, "base_digest": "0" * 64}),
        keep(2, "b"),
    )
    assert [answer["ds_state"] != {} for answer in answers] == [True, False, False, False, True]
    assert answers[2]["error"].startswith("invalid ds_state: ")
    assert (answers[3]["error"], answers[3]["expected"]) == ("state_drift", "0" * 64)
    assert answers[4]["output_json"] == "[1,2]"


def test_input_that_is_refused_leaves_both_sides_with_the_state_that_came() -> None:
    kept = {"type": "t", "provenance": "", "content_json": "", "size_bytes": 0}
    refused, after = serve(request("keep", {}, ds_state={"slots": {"5": kept}}), keep(1, "a"))
    assert (refused["ok"], refused["status"]) == (False, "INVALID_PICK")
    assert refused["ds_state"] == {"delta": True, "slots": {}, "removed_slots": []}
    assert after["output_json"] == "[1,5]"


def test_both_sides_name_the_base_where_they_know_it() -> None:
    (answer,) = serve(keep(1, "a", ds_state={"delta": True, "base_digest": state.digest_state({})}))
    assert answer["ds_state"]["base_digest"] == state.digest_state({})


# ------------------------------------------------------------------------------------------ idempotency


@pytest.mark.req("IPC-14", "IPC-23")
def test_a_repeated_key_is_answered_from_memory() -> None:
    first, again, conflict, other_tool, other_key = serve(
        request("write", {"path": "a"}, idempotency_key="k"),
        request("write", {"path": "a"}, idempotency_key="k"),
        request("write", {"path": "b"}, idempotency_key="k"),
        request("echo", {"text": "x"}, idempotency_key="k"),
        request("write", {"path": "a"}, idempotency_key="l"),
    )
    assert "idempotent_hit" not in first
    assert again == {**first, "ds_state": {}, "idempotent_hit": True}
    assert conflict == {**REFUSED, "error": "idempotency_conflict"}
    assert other_tool["output_json"] == '"x"'
    assert other_key["output_json"] == "2"


def test_a_failure_is_not_kept() -> None:
    failures = serve(*[keep(1, "a", fail=True, idempotency_key="k")] * 2)
    assert [answer.get("idempotent_hit") for answer in failures] == [None, None]


@pytest.mark.req("IPC-38", "IPC-39")
def test_how_long_and_how_much_is_remembered() -> None:
    now = 100.0
    cache: AnswerCache[dict[str, Any]] = AnswerCache(lambda: now)
    cache.keep(("A", "k"), {"n": 1})
    now += 59
    assert cache.find(("A", "k")) is not None
    now += 1
    assert cache.find(("A", "k")) is None
    for number in range(MAX_ENTRIES + 1):
        cache.keep(("A", f"k{number}"), {})
    assert len(cache) == MAX_ENTRIES
    assert (cache.find(("A", "k0")), cache.find(("A", "k1")) is None) == (None, False)


def test_answers_are_remembered_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manglecp.toolhost.idempotency.MAX_BYTES", 10_000)
    now = 0.0
    cache: AnswerCache[dict[str, Any]] = AnswerCache(lambda: now)
    for number in range(20):
        cache.keep(("A", f"k{number}"), {}, 1_300)
    assert 5 <= len(cache) <= 9
    cache.keep(("A", "large"), {}, 20_000)
    assert (len(cache), cache.find(("A", "large")) is not None) == (1, True)
    cache.keep(("A", "small"), {})
    assert (len(cache), cache.find(("A", "large"))) == (1, None)


def test_what_has_expired_is_forgotten_when_something_is_kept() -> None:
    now = 0.0
    cache: AnswerCache[dict[str, Any]] = AnswerCache(lambda: now)
    for number in range(10):
        cache.keep(("A", f"k{number}"), {})
    now = 61.0
    cache.keep(("A", "new"), {})
    assert len(cache) == 1


def test_the_same_input_in_other_words_is_the_same_input() -> None:
    first, *again, other = serve(
        request("write", idempotency_key="k", input_json='{"path":"a"}'),
        request("write", idempotency_key="k", input_json='{ "path" : "\\u0061" }'),
        json.dumps({"aid": WRITE, "idempotency_key": "k", "inputs": {"path": "a"}}).encode(),
        request("write", idempotency_key="k", input_json='{"path":"A"}'),
    )
    assert [answer.get("idempotent_hit") for answer in again] == [True, True]
    assert other["error"] == "idempotency_conflict"
    assert first["output_json"] == "1"


def test_a_hit_changes_no_state() -> None:
    """Neither by the change of the first call, nor by the state that comes with it."""
    _, other, hit, after = serve(
        keep(0, "a", idempotency_key="k"),
        keep(1, "b", ds_state={"slots": {}}),
        keep(0, "a", ds_state={"slots": {"5": {"type": "t"}}}, idempotency_key="k"),
        keep(2, "c"),
    )
    assert other["output_json"] == "[1]"
    assert (hit["idempotent_hit"], hit["ds_state"]) == (True, {})
    assert after["output_json"] == "[1,2]"


# ------------------------------------------------------------------------------------------------ leases


def with_key(*lines: bytes, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    ours, theirs = os.pipe()
    os.write(theirs, KEY)
    os.close(theirs)
    try:
        return serve(*lines, options=("--lease-key-fd", str(ours), *options), descriptors=(ours,))
    finally:
        os.close(ours)


def token(inputs: dict[str, Any], **changes: Any) -> str:
    bound = {"aid": WRITE, "input_digest": input_digest(json.dumps(inputs)), "call_id": "c1", "tier": 1, "ttl": 30.0}
    return mint(**{"key": KEY, **bound, **changes})


@pytest.mark.req("IPC-15", "IPC-16", "IPC-24", "IPC-25")
def test_a_host_with_a_key_runs_nothing_without_a_lease() -> None:
    good = token({"path": "a"})
    calls: list[dict[str, Any]] = [
        {},
        {"_lease_token": "tok_1"},
        {"_lease_token": token({"path": "a"}, key=b"x" * 32)},
        {"_lease_token": token({"path": "b"})},
        {"_lease_token": token({"path": "a"}, call_id="c2")},
        {"_lease_token": token({"path": "a"}, aid="AID.X")},
        {"_lease_token": token({"path": "a"}, tier=0)},
        {"_lease_token": token({"path": "a"}, ttl=0.0)},
        {"_lease_token": good},
        {"_lease_token": good},
    ]
    answers = with_key(*[request("write", {"path": "a"}, call_id="c1", **call) for call in calls])
    assert answers[0] == {**REFUSED, "error": "lease_required", "tier": 1, "aid": WRITE, "call_id": "c1"}
    reasons = ["not_found"] * 2 + ["input_mismatch"] * 2 + ["tool_mismatch", "tier_insufficient", "expired"]
    assert [answer["reason"] for answer in answers[1:8]] == reasons
    assert all(answer["error"] == "lease_rejected" for answer in answers[1:8])
    assert answers[8]["output_json"] == "1"
    assert answers[9]["reason"] == "consumed"


def test_a_hit_needs_a_lease_and_uses_it_up() -> None:
    first, second = token({"path": "a"}), token({"path": "a"})
    answers = with_key(
        *[
            request("write", {"path": "a"}, call_id="c1", idempotency_key="k", _lease_token=lease)
            for lease in (first, None, second, second)
        ]
    )
    assert answers[0]["output_json"] == "1"
    assert answers[1]["error"] == "lease_required"
    assert answers[2]["idempotent_hit"] is True
    assert answers[3]["reason"] == "consumed"


def test_tier_0_needs_a_lease_from_whoever_has_the_key_and_none_otherwise() -> None:
    echo = "AID.WORKSPACE.ECHO.v1"
    lease = token({}, aid=echo, tier=0)
    bare, leased = with_key(request("echo"), request("echo", {}, call_id="c1", _lease_token=lease))
    assert bare == {**REFUSED, "error": "lease_required", "tier": 0, "aid": echo}
    assert leased["status"] == "OK"
    (by_hand,) = serve(request("echo"), environ={"MACHINA_LEASE_ENFORCE": "1"})
    assert by_hand["status"] == "OK"


@pytest.mark.req("IPC-26")
@pytest.mark.parametrize(
    ("value", "error"), [("1", "lease_required"), ("true", "lease_required"), ("yes", ""), ("0", "")]
)
def test_the_environment_asks_for_leases(value: str, error: str) -> None:
    (answer,) = serve(request("write", {"path": "a"}), environ={"MACHINA_LEASE_ENFORCE": value})
    assert answer["error"] == error


def test_a_key_in_run_mode_guards_too() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, KEY)
    os.close(theirs)
    done = host(
        "--run", WORKSPACE, WRITE, "--lease-key-fd", str(ours), stdin=b'{"inputs":{"path":"a"}}', descriptors=(ours,)
    )
    os.close(ours)
    assert json.loads(done.stdout)["error"] == "lease_required"


def test_leases_on_the_pipe_only_where_they_were_allowed() -> None:
    issue = json.dumps({"aid": "_lease.issue", "tool_aid": WRITE, "tier": 1}).encode()
    (refused,) = with_key(issue)
    assert refused["error"] == "tool not found: _lease.issue"
    issued, wrong, counts = with_key(
        issue, b'{"aid":"_lease.issue","tier":"high"}', b'{"aid":"_lease.gc"}', options=("--pipe-leases",)
    )
    assert issued["token_id"].startswith("lease_")
    assert (issued["ok"], issued["tool_aid"], issued["tier"], issued["expires_ms"]) == (True, WRITE, 1, 10_000)
    assert wrong["ok"] is False
    assert counts == {"ok": True, "active": 1, "issued": 1, "consumed": 0, "rejected": 0}


# ------------------------------------------------------------------------------------------------ reports


def test_progress_logs_and_audit_leave_on_their_own_descriptor() -> None:
    ours, theirs = os.pipe()
    key_ours, key_theirs = os.pipe()
    os.write(key_theirs, KEY)
    os.close(key_theirs)
    serve(
        request("noisy", call_id="c0", _lease_token=token({}, aid="AID.WORKSPACE.NOISY.v1", call_id="c0", tier=0)),
        request("write", {"path": "a"}, call_id="c1", _lease_token=token({"path": "a"})),
        request("write", {"path": "a"}, call_id="c1", _lease_token="lease_x"),
        request("write", {"path": "a"}, call_id="c1"),
        options=("--progress-fd", str(theirs), "--lease-key-fd", str(key_ours)),
        descriptors=(theirs, key_ours),
    )
    os.close(theirs)
    os.close(key_ours)
    with os.fdopen(ours, "rb") as stream:
        reports = [json.loads(line) for line in stream]
    names = ["lease_used", "progress", "log", "lease_used", "lease_refused", "lease_refused"]
    assert [report["event"] for report in reports] == names
    aid = "AID.WORKSPACE.NOISY.v1"
    assert reports[1] == {"event": "progress", "aid": aid, "call_id": "c0", "done": 1, "total": 2, "message": "half"}
    assert reports[2] == {"event": "log", "aid": aid, "call_id": "c0", "level": "info", "message": "said"}
    assert [report.get("reason") for report in reports[3:]] == [None, "not_found", "lease_required"]


def test_a_reader_who_sleeps_does_not_stop_the_host() -> None:
    ours, theirs = os.pipe()
    answers = serve(*[request("noisy")] * 20, options=("--progress-fd", str(theirs)), descriptors=(theirs,))
    os.close(ours)
    os.close(theirs)
    assert len(answers) == 20
