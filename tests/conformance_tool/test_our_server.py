"""Our own server conforms at level 3, whichever way it is asked."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from manglecp.conformance import run
from manglecp.conformance.plan import Invocation, Plan, PlannedIntent
from manglecp.conformance.report import CATEGORIES
from manglecp.conformance.runner import DEVIATIONS
from manglecp.server import Tls
from tests.conformance_tool.spoiling import Flaw, Message
from tests.conformance_tool.test_broken_servers import on
from tests.conformance_tool.workshop import PACK, SECONDS, Way, Workshop
from tests.invoke.chains import chain, steps
from tests.server.certificates import certificate
from tests.server.house import house

BOTH: tuple[Way, ...] = ("http", "websocket")


def shown(report: object) -> str:
    return "\n".join(report.lines())  # type: ignore[attr-defined]


@pytest.mark.req("CONF-03", "CONF-04", "CONF-07", "CONF-10", "CONF-11", "CONF-14", "CONF-15", "CONF-16", "CONF-17")
@pytest.mark.req("CONF-18")
@pytest.mark.parametrize("way", BOTH)
def test_over_sockets(servers: Workshop, way: Way) -> None:
    report = servers.test(way)
    assert report.conforms, shown(report)
    assert report.of("advice") == []
    assert len(report.of("passed")) > 200
    assert all(report.counts(category)["passed"] >= 5 for category in CATEGORIES)
    for row in ("CONF-14", "CONF-17", "INVK-07", "PROOF-09", "EVAL-39", "WIRE-22", "DELTA-02", "NEXT-03", "DATA-34"):
        assert report[row].outcome == "passed", row
    own = ("TRANS-10", "MANI-35", "TRANS-19") if way == "http" else ("TRANS-02", "TRANS-33", "TRANS-38", "PROG-05")
    assert [row for row in own if report[row].outcome != "passed"] == []


@pytest.mark.req("CONF-05", "CONF-09", "SEC-13", "SEC-17", "INVK-09", "INVK-10")
@pytest.mark.parametrize("way", BOTH)
def test_with_credentials_and_approval(servers: Workshop, way: Way) -> None:
    report = servers.test(way, known=True)
    assert report.conforms, shown(report)
    wanted = ["INVK-09", "INVK-10", "SEC-22", "SEC-24", "CONF-09", "INVK-17", "ERR-28", "SEC-17", "ERR-09", "ERR-10"]
    wanted += ["TRANS-17", "TRANS-22"] if way == "http" else ["SEC-13", "SEC-15"]
    assert [row for row in wanted if report[row].outcome != "passed"] == []
    assert {report[row].outcome for row in ("INVK-03", "SEC-21", "SEC-33")} == {"not tested"}
    assert report["SEC-21"].reasons == [DEVIATIONS["SEC-21"]]


def test_tokens_of_another_format_are_left_to_their_servers(servers: Workshop) -> None:
    """A server without x-approvals is tested for missing and forged tokens all the same."""
    other = Flaw(said=on("manifest", lambda payload: payload["extensions"].pop("x-approvals")))
    report = servers.test("http", other, known=True, rows={"SEC-22", "INVK-09"})
    assert report.conforms, shown(report)
    assert report["INVK-09"].outcome == report["INVK-10"].outcome == "passed"
    assert report["SEC-22"].reasons == ["the server's confirmation tokens have a format of their own"]


def test_without_an_approver_nothing_is_approved(servers: Workshop) -> None:
    plan = servers.plan("known")
    plan = replace(plan, credentials=replace(plan.credentials, approver_token=None))
    report = servers.test(known=True, plan=plan, rows={"SEC-22"})
    assert report["SEC-22"].reasons == ["the plan has no approver_token"]


@pytest.mark.req("CONF-13", "TRANS-24", "TRANS-25", "TRANS-27")
async def test_over_standard_streams(servers: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    command = [sys.executable, "-m", "manglecp", "serve", str(PACK), "--stdio", "--store", ":memory:"]
    report = await run(command, plan=servers.plan("local"), seconds=SECONDS)
    assert report.conforms, shown(report)
    wanted = ("TRANS-23", "TRANS-24", "TRANS-25", "TRANS-26", "TRANS-27", "TRANS-33", "PROG-05", "INVK-14")
    assert [row for row in wanted if report[row].outcome != "passed"] == []


def test_without_a_plan_nothing_is_invoked(servers: Workshop) -> None:
    report = servers.test(plan=Plan())
    assert report.conforms, shown(report)
    assert report["CONF-14"].outcome == "passed"
    assert report["INVK-06"].outcome == "passed"
    for row in ("INVK-14", "INVK-08", "DELTA-02", "OBS-01", "CONF-05"):
        assert report[row].outcome == "not tested", row
        assert report[row].reasons[0] == "the plan names no tool for this check"


@pytest.mark.parametrize("planned", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_only_tools_that_the_plan_names_are_invoked(servers: Workshop, planned: bool) -> None:
    given: dict[str, str] = {}
    asked: set[str] = set()

    def hear(data: bytes) -> bytes:
        if b"invoke_request" in data and len(data) < 10_000:
            asked.add(str(json.loads(data).get("payload", {}).get("macro_id")))
        return data

    def say(_: Message | None, answer: Message) -> Message:
        for tool in answer["payload"].get("macro_tools", ()):
            given[tool["macro_id"]] = tool["name"]
        return answer

    plan = servers.plan("anonymous") if planned else Plan()
    report = servers.test("http", Flaw(heard=hear, said=say), plan=plan)
    assert report.conforms, shown(report)
    assert given
    named = {"full_stack_diagnosis", "list_failures", "frontend_diagnosis"} if planned else set()
    assert {given[macro_id] for macro_id in asked if macro_id in given} == named


@pytest.mark.req("TRANS-37", "TRANS-38")
@pytest.mark.parametrize("way", ["websocket", "http"])
async def test_a_slow_run_is_cancelled(way: Way) -> None:
    async def look(given: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(600)
        return given

    planned = PlannedIntent(label="go", name="go", eval_time="2026-02-19T14:30:00Z")
    slow = Invocation(intent=planned, tool="t", args={"n": 1}, slow=True)
    plan = Plan(intents=(planned,), invocations=(slow,), from_file=True)
    async with house(chain(steps("look", "write")), {"look": look}) as h:
        url = h.url if way == "http" else f"ws://127.0.0.1:{h.port}/ws"
        report = await run(url, plan=plan, seconds=SECONDS, rows={"TRANS-37"})
        assert report.conforms, shown(report)
        assert report["TRANS-37"].outcome == ("not tested" if way == "http" else "passed")
        assert [name for name, _ in h.desk.shop.bench.ran] in ([], ["look"])


@pytest.mark.req("SEC-34")
@pytest.mark.parametrize("scheme", ["https", "wss"])
async def test_over_tls_whom_the_system_trusts_is_trusted(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made[0]))
    async with house(chain(steps("look")), tls=Tls(*made)) as h:
        report = await run(f"{scheme}://localhost:{h.port}/ws", seconds=SECONDS, rows={"MANI-03"})
    assert report.conforms, shown(report)
    assert report["MANI-03"].outcome == "passed"


def test_without_a_credential_most_is_not_tested(servers: Workshop) -> None:
    report = servers.test(known=True, plan=Plan())
    assert report.conforms, shown(report)
    assert report["ERR-09"].outcome == report["TRANS-22"].outcome == "passed"
    assert report["CONF-14"].reasons == ["the server requires a credential, and the plan has none"]


def test_levels_leave_out_what_is_beyond_them(servers: Workshop) -> None:
    report = servers.test(level=1)
    assert report.conforms, shown(report)
    assert "PROOF-06" not in report
    assert "EVAL-36" not in report
    assert report["CONF-14"].outcome == "passed"


def test_the_report_is_a_document(servers: Workshop) -> None:
    report = servers.test(rows={"WIRE-04"})
    document = json.loads(json.dumps(report.document()))
    assert document["conforms"] is True
    assert {"id": "WIRE-04", "outcome": "passed"} in document["requirements"]
    assert document["counts"]["passed"] == len(report.of("passed"))
