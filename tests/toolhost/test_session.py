"""The order of checks for one request, without a process around it."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from manglecp.toolhost.context import Context, Reports
from manglecp.toolhost.host.execution import ActionExecutor, ActionOutcome
from manglecp.toolhost.host.messages import encode
from manglecp.toolhost.host.session import LeaseCheck, RequestHandler, parse_request
from manglecp.toolhost.plugin import Plugin, load
from manglecp.toolhost.state import Artifact
from tests.toolhost.conversation import WORKSPACE, request

WRITE = "AID.WORKSPACE.WRITE.v1"
OFFERED: dict[str, Any] = {"aid": "_lease.issue", "tool_aid": WRITE, "tier": 1}


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Plugin:
    monkeypatch.setattr(sys, "path", list(sys.path))
    return load(WORKSPACE)


def session(plugin: Plugin, key: bytes | None = None, *, reports: Reports | None = None) -> RequestHandler:
    told = reports or Reports(None)
    return RequestHandler(plugin, LeaseCheck(key, told, pipe_leases=True), ActionExecutor(told))


def said(answering: RequestHandler, line: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(encode(answering.serve(line)))
    return answer


def test_lookup_comes_before_the_lease_and_the_lease_before_state_and_input(plugin: Plugin) -> None:
    answering = session(plugin, b"k" * 32)
    both: dict[str, Any] = {"inputs": {}, "ds_state": {"slots": 3}}
    assert said(answering, request("nothing", **both))["error"].startswith("tool not found")
    assert said(answering, request("write", **both))["error"] == "lease_required"
    assert said(answering, request("write", {"wrong": 1}))["error"] == "lease_required"
    assert said(answering, request("echo", **both))["error"] == "invalid ds_state: slots is not an object"
    refused = said(answering, request("echo", inputs={}))
    assert (refused["error"], refused["ds_state"] != {}) == (
        "invalid input: both input_json and inputs are given",
        True,
    )


def test_a_lease_is_used_up_by_input_that_is_refused(plugin: Plugin) -> None:
    answering = session(plugin, b"k" * 32)
    token = said(answering, json.dumps(OFFERED).encode())["token_id"]
    refused = [said(answering, request("write", inputs={}, _lease_token=token)) for _ in range(2)]
    assert [answer.get("reason", answer["status"]) for answer in refused] == ["INVALID_PICK", "consumed"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"aid":"AID.X","aid":"AID.WORKSPACE.ECHO.v1"}', "invalid JSON"),
        (b'{"aid":"AID.WORKSPACE.ECHO.v1","ds_state":{"slots":{"0":{"type":"a","type":"b"}}}}', "invalid JSON"),
        (request("echo", input_json='{"text":"a","text":"b"}'), "invalid input: not JSON: a name is given twice"),
    ],
)
def test_a_name_that_is_given_twice_says_nothing(plugin: Plugin, line: bytes, error: str) -> None:
    assert said(session(plugin), line)["error"] == error


def test_a_number_that_is_too_large_is_said_of_the_input(plugin: Plugin) -> None:
    answer = said(session(plugin), b'{"aid":"AID.WORKSPACE.LATER.v1","inputs":{"seconds":1e999}}')
    assert answer["error"] == "invalid input: inputs has a number that is too large"


class Wrong(ActionExecutor):
    """Once leaves a state that cannot be sent."""

    calls = 0

    async def call(self, *arguments: Any) -> ActionOutcome:
        outcome = await super().call(*arguments)
        self.calls += 1
        return outcome._replace(slots={256: Artifact("x")}) if self.calls == 1 else outcome


def test_a_state_that_cannot_be_sent_is_not_kept(plugin: Plugin) -> None:
    answering = RequestHandler(plugin, LeaseCheck(None, Reports(None)), Wrong(Reports(None)))
    assert said(answering, request("keep", {"slot": 1, "text": "a"}))["status"] == "TOOL_ERROR"
    assert said(answering, request("keep", {"slot": 2, "text": "b"}))["output_json"] == "[2]"


def test_a_concurrent_host_keeps_no_state(plugin: Plugin) -> None:
    executor = ActionExecutor(Reports(None), concurrent=True)
    answering = RequestHandler(plugin, LeaseCheck(None, Reports(None)), executor)
    for slot in (1, 2):
        keep = parse_request(request("keep", {"slot": slot, "text": "a"}))
        assert asyncio.run(answering.answer(keep))["output_json"] == f"[{slot}]"


class Careless(ActionExecutor):
    """Fails beside the action."""

    async def call(self, *_: Any) -> Any:
        raise RuntimeError("beside")


def test_whatever_fails_is_answered(plugin: Plugin) -> None:
    answering = RequestHandler(plugin, LeaseCheck(None, Reports(None)), Careless(Reports(None)))
    answer = said(answering, request("echo", call_id="c", ds_state={"slots": {"1": {}}}))
    members = {"ok": False, "status": "TOOL_ERROR", "output_json": "{}", "ds_state": {}}
    expected = {**members, "error": "RuntimeError: beside", "call_id": "c"}
    assert answer == expected
    assert answering.run(plugin.tools[WRITE], {"call_id": "c"}) == expected


def test_the_lease_comes_before_the_cache_and_the_cache_before_the_state(plugin: Plugin) -> None:
    answering = session(plugin)
    first = said(answering, request("write", {"path": "a"}, idempotency_key="k"))
    assert first["status"] == "OK"
    bad_state: dict[str, Any] = {"slots": {"x": {}}}
    again = said(answering, request("write", {"path": "a"}, idempotency_key="k", ds_state=bad_state))
    assert again["idempotent_hit"] is True
    twice = said(answering, request("write", {"path": "a"}, inputs={"path": "b"}, idempotency_key="k"))
    assert twice["status"] == "INVALID_PICK"
    assert said(answering, request("write", {"wrong": 1}, ds_state=bad_state))["error"].startswith("invalid ds_state")
    assert said(answering, request("write", {"wrong": 1}))["status"] == "INVALID_PICK"


def test_a_lease_from_the_pipe_is_good_once_for_its_tool_and_tier(plugin: Plugin) -> None:
    answering = session(plugin, b"k" * 32)

    def issued(**changes: Any) -> str:
        token: str = said(answering, json.dumps({**OFFERED, **changes}).encode())["token_id"]
        return token

    token = issued()
    assert said(answering, request("write", {"path": "a"}, _lease_token=token))["status"] == "OK"
    assert said(answering, request("write", {"path": "a"}, _lease_token=token))["reason"] == "consumed"
    weak, other = issued(tier=0), issued(tool_aid="AID.X")
    assert said(answering, request("write", {"path": "a"}, _lease_token=weak))["reason"] == "tier_insufficient"
    assert said(answering, request("write", {"path": "a"}, _lease_token=other))["reason"] == "tool_mismatch"
    counts = {"ok": True, "active": 2, "issued": 3, "consumed": 1, "rejected": 3}
    assert said(answering, b'{"aid":"_lease.gc"}') == counts


@pytest.mark.parametrize("how", ["exit", "interrupt", "object", "nan", "other"])
def test_every_exception_is_a_tool_error(plugin: Plugin, how: str) -> None:
    assert said(session(plugin), request("fail", {"how": how}))["status"] == "TOOL_ERROR"


def test_results_are_typed_and_awaited(plugin: Plugin) -> None:
    answering = session(plugin)
    assert said(answering, request("find", {"path": "p"}))["output_json"] == '{"path":"p:fast","lines":[1,2]}'
    assert said(answering, request("keep", {"slot": 1, "text": "a"}))["output_json"] == "[1]"


def read_all(descriptor: int) -> list[dict[str, Any]]:
    os.set_blocking(descriptor, False)
    with os.fdopen(descriptor, "rb", closefd=False) as stream:
        return [json.loads(line) for line in (stream.read() or b"").splitlines()]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ours, theirs = os.pipe()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def test_who_reads_too_slowly_learns_how_much_was_lost(pipe: tuple[int, int]) -> None:
    reports = Reports(pipe[1])
    for _ in range(1000):
        reports.send("log", {"message": "x" * 500})
    read = len(read_all(pipe[0]))
    reports.send("log", {"message": "short"})
    reports.send("log", {"message": "short"})
    assert [line.get("lost_before") for line in read_all(pipe[0])] == [1000 - read, None]


def test_what_a_slow_reader_has_no_room_for_about_leases_goes_to_standard_error(
    pipe: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    reports = Reports(pipe[1])
    for _ in range(1000):
        reports.send("log", {"message": "x" * 500})
    reports.send("lease_used", {"lease": 7, "aid": "A" * 1000})
    assert json.loads(capsys.readouterr().err)["lease"] == 7
    read_all(pipe[0])
    reports.send("lease_used", {"lease": 8})
    (told,) = read_all(pipe[0])
    assert told["lease"] == 8
    assert told["lost_before"] > 0


def test_what_is_told_about_leases_goes_to_standard_error_where_nobody_reads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Reports(None).send("lease_refused", {"reason": "expired"})
    ours, theirs = os.pipe()
    os.close(ours)
    Reports(theirs).send("lease_refused", {"reason": "consumed"})
    os.close(theirs)
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["reason"] for line in said] == ["expired", "consumed"]


def test_the_issuer_of_leases_needs_no_reports_about_them(
    pipe: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    reports = Reports(pipe[1], lease_events=False)
    for event in ("lease_used", "log"):
        reports.send(event, {})
    assert read_all(pipe[0]) == [{"event": "log"}]
    assert capsys.readouterr() == ("", "")


def test_what_is_too_long_for_one_line_is_not_sent(pipe: tuple[int, int], capsys: pytest.CaptureFixture[str]) -> None:
    reports = Reports(pipe[1])
    reports.send("lease_used", {"aid": "A", "call_id": "c" * 5000})
    assert json.loads(capsys.readouterr().err)["call_id"] == "c" * 5000
    reports.send("log", {"message": "c" * 5000})
    reports.send("log", {"message": "\U0001f600" * 512})
    (told,) = read_all(pipe[0])
    assert (told["message"], told["lost_before"]) == ("\U0001f600" * 512, 1)


def test_what_is_no_number_is_told_as_none(pipe: tuple[int, int]) -> None:
    context = Context({}, Reports(pipe[1]), {"call_id": "c"})
    context.progress(float("nan"), float("inf"))
    context.progress(10**400, 2)
    assert [(line["done"], line["total"]) for line in read_all(pipe[0])] == [(None, None), (None, 2)]


def test_without_a_descriptor_logs_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    reports = Reports(None)
    reports.send("log", {"message": "hello"})
    reports.send("progress", {"done": 1})
    assert capsys.readouterr() == ("", "hello\n")
