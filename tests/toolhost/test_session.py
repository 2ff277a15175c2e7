"""The order of checks for one request, without a process around it."""

import json
import os
import sys
from typing import Any

import pytest

from manglecp.toolhost.context import Reports
from manglecp.toolhost.host.cache import Cache
from manglecp.toolhost.host.execution import Worker
from manglecp.toolhost.host.gate import Gate
from manglecp.toolhost.host.messages import encode
from manglecp.toolhost.host.session import Session
from manglecp.toolhost.plugin import Plugin, load
from tests.toolhost.conversation import WORKSPACE, request

WRITE = "AID.WORKSPACE.WRITE.v1"
OFFERED: dict[str, Any] = {"aid": "_lease.issue", "tool_aid": WRITE, "tier": 1}


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Plugin:
    monkeypatch.setattr(sys, "path", list(sys.path))
    return load(WORKSPACE)


def session(plugin: Plugin, key: bytes | None = None, *, reports: Reports | None = None) -> Session:
    told = reports or Reports(None)
    return Session(plugin, Gate(key, told, pipe_leases=True), Worker(told), Cache())


def said(answering: Session, line: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(encode(answering.serve(line)))
    return answer


def test_lookup_comes_before_input_and_input_before_the_lease(plugin: Plugin) -> None:
    answering = session(plugin, b"k" * 32)
    both: dict[str, Any] = {"inputs": {}, "ds_state": 3}
    assert said(answering, request("nothing", **both))["error"].startswith("tool not found")
    assert said(answering, request("write", **both))["error"] == "invalid input: both input_json and inputs are given"
    assert said(answering, request("write", {"wrong": 1}))["error"] == "lease_required"


def test_the_lease_comes_before_the_cache_and_the_cache_before_the_state(plugin: Plugin) -> None:
    answering = session(plugin)
    first = said(answering, request("write", {"path": "a"}, idempotency_key="k"))
    assert first["status"] == "OK"
    bad_state: dict[str, Any] = {"slots": {"x": {}}}
    again = said(answering, request("write", {"path": "a"}, idempotency_key="k", ds_state=bad_state))
    assert again["idempotent_hit"] is True
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


def test_who_reads_too_slowly_learns_how_much_was_lost() -> None:
    ours, theirs = os.pipe()
    reports = Reports(theirs)
    reports.send("log", {"message": "x" * 5000})
    reports.send("log", {"message": "short"})
    reports.send("log", {"message": "short"})
    os.close(theirs)
    with os.fdopen(ours, "rb") as stream:
        lines = [json.loads(line) for line in stream]
    assert [line.get("lost_before") for line in lines] == [1, None]


def test_without_a_descriptor_logs_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    reports = Reports(None)
    reports.send("log", {"message": "hello"})
    reports.send("progress", {"done": 1})
    assert capsys.readouterr() == ("", "hello\n")
