"""Servers on standard streams that break a rule, and servers that do not answer at all."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from manglecp.cli import cli
from manglecp.cli.conformance import command as conformance
from manglecp.conformance import run
from tests.client.manifests import manifest

SERVER = Path(__file__).parent / "streams_server.py"
PATIENT = 30.0


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    path = tmp_path / "manifest.json"
    path.write_bytes(msgspec.json.encode(manifest(protocol={"conformance_level": 3})))
    return [sys.executable, str(SERVER), "good", str(path)]


def spoiled(words: list[str], way: str) -> list[str]:
    return [*words[:2], way, words[3]]


@pytest.mark.parametrize(
    ("way", "found"),
    [
        ("good", ""),
        ("chatty", "TRANS-24 TRANS-25 TRANS-31"),
        ("last words", "TRANS-27"),
    ],
)
async def test_wrong_streams(words: list[str], way: str, found: str) -> None:
    report = await run(spoiled(words, way), seconds=PATIENT, rows={"TRANS-24", "TRANS-25", "TRANS-27"})
    assert set(report.of("failed")) == set(found.split())


async def test_text_that_is_no_message(words: list[str]) -> None:
    report = await run(spoiled(words, "broken text"), seconds=PATIENT, rows={"WIRE-04"})
    assert "WIRE-16" in report.of("failed")


async def test_an_unhappy_end_is_advice(words: list[str]) -> None:
    report = await run(spoiled(words, "unhappy end"), seconds=PATIENT, rows={"TRANS-26"})
    assert (report.of("failed"), report.of("advice")) == ([], ["TRANS-26"])


async def test_a_manifest_that_comes_too_late(words: list[str]) -> None:
    report = await run(spoiled(words, "shy"), seconds=0.5)
    assert report.of("failed") == ["TRANS-25", "TRANS-31"]
    assert report["CONF-14"].reasons == ["the server did not answer"]


async def test_a_silent_server_fails_and_is_given_up(words: list[str]) -> None:
    began = time.monotonic()
    report = await run(spoiled(words, "silent"), seconds=1.0)
    assert time.monotonic() - began < 120
    assert report["WIRE-04"].outcome == "failed"
    assert report["WIRE-04"].failures[0].expected == "an answer within 1 s"
    assert report["CONF-14"].reasons == ["the server did not answer 3 times, and was given up"]


async def test_a_server_that_goes_away_fails(words: list[str]) -> None:
    report = await run(spoiled(words, "gone"), seconds=PATIENT)
    assert "closed" in report["WIRE-04"].failures[0].seen


async def test_nobody_there() -> None:
    for target, row in (
        ("http://127.0.0.1:9/", "TRANS-10"),
        ("ws://127.0.0.1:9/", "TRANS-02"),
        (["/none"], "TRANS-25"),
    ):
        report = await run(target, seconds=PATIENT)
        assert row in report.of("failed"), target
        assert report.of("passed") == []


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_exit_status_says_whether_something_failed(words: list[str]) -> None:
    shown = CliRunner().invoke(conformance, ["--stdio", shlex.join(words), "--row", "TRANS-27"])
    assert shown.exit_code == 0, shown.output
    assert "TRANS-27" in shown.stdout.split("Passed:")[1]
    shown = CliRunner().invoke(conformance, ["--stdio", shlex.join(spoiled(words, "last words")), "--row", "TRANS-27"])
    assert shown.exit_code == 1
    failed = shown.stdout.split("Failed:")[1]
    assert "TRANS-27  At the end of its input" in failed
    assert "expected: nothing else after the end of the input" in failed
    assert "seen:" in failed


def test_the_report_as_json(words: list[str]) -> None:
    shown = CliRunner().invoke(conformance, ["--stdio", shlex.join(words), "--row", "TRANS-27", "--json"])
    report = msgspec.json.decode(shown.stdout)
    assert (report["conforms"], report["transport"], report["level"]) == (True, "stdio", 3)
    assert {"id": "TRANS-27", "outcome": "passed"} in report["requirements"]


@pytest.mark.parametrize(
    "args",
    [[], ["http://a/", "--stdio", "x"], ["ftp://a/"], ["http://a/", "--level", "4"], ["--stdio", "'"], ["--stdio", ""]],
)
def test_wrong_command_lines(args: list[str]) -> None:
    assert CliRunner().invoke(conformance, args).exit_code == 2


def test_a_plan_that_is_wrong(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    for text, said in (
        ("x = 1", "unknown field `x`"),
        ("[", "not TOML"),
        ('[[invocations]]\nintent = "a"\ntool = "t"', "no intent labelled a"),
        ('[[intents]]\nname = "a"\nfact = []', "fact"),
        ('[credentials]\ntoken_env = "NOT_SET_ANYWHERE"', "NOT_SET_ANYWHERE"),
        ('[credentials]\nscheme = "basic"', "bearer, api_key or oauth2"),
    ):
        plan.write_text(text)
        shown = CliRunner().invoke(conformance, ["http://127.0.0.1:9/", "--plan", str(plan)])
        assert shown.exit_code == 2, text
        assert said in shown.output


def test_it_is_a_verb() -> None:
    assert "conformance" in CliRunner().invoke(cli, ["--help"]).output
