"""`manglecp intent` and `manglecp call` with the address of a server in the place of a pack."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.deadlines import patience

INCIDENT = Path(__file__).parents[2] / "examples" / "incident"
DIAGNOSE = str(INCIDENT / "recorded" / "diagnose_error.json")
FIX = str(INCIDENT / "recorded" / "fix_error.json")
TOKEN = "kim-0123456789abcdef0123456789abcdef"
KEY = "ab" * 32
PATIENCE = patience(120)


@contextmanager
def served(*options: str) -> Iterator[str]:
    """The incident pack behind a port of this machine; its address."""
    command = [sys.executable, "-m", "manglecp", "serve", str(INCIDENT), "--http", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r'serving at ([^\s"]+)', line):
                    break
            else:
                raise AssertionError("the server ended")
            yield found[1]
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state of whoever runs the servers, which is also who asks them."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANGLECP_STATE_DIR", str(folder))
        patch.delenv("MANGLECP_STORE", raising=False)
        patch.delenv("MANGLECP_TOKEN", raising=False)
        yield folder


@pytest.fixture(scope="module")
def url(place: Path) -> Iterator[str]:  # noqa: ARG001
    with served() as address:
        yield address


@pytest.fixture(scope="module")
def guarded(place: Path) -> Iterator[tuple[str, Path]]:
    """A server that knows kim, and a workspace that kim may change."""
    tokens = place / "tokens.toml"
    tokens.write_text(
        f"""[[token]]
sha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"
identity = "kim"
permissions = ["fix", "explain_policy"]
confirmation_secret = "{KEY}"
"""
    )
    tokens.chmod(0o600)
    (place / "key").write_text(KEY)
    work = place / "work"
    shutil.copytree(INCIDENT / "recorded" / "app", work / "app")
    with served("--tokens", str(tokens), "--workspace", str(work)) as address:
        yield address, work


def websocket(url: str) -> str:
    return url.replace("http:", "ws:").rstrip("/") + "/ws"


def asked(url: str, *more: str) -> tuple[str, ...]:
    return ("intent", url, "diagnose_error", "--facts", DIAGNOSE, *more)


@pytest.mark.parametrize("way", ["http", "websocket"])
def test_the_tools_of_a_server(run: Run, url: str, way: str) -> None:
    shown = run(*asked(url if way == "http" else websocket(url), "--why", "--why-not", "frontend_diagnosis"))
    assert (shown.exit_code, shown.stderr) == (0, "")
    heading, first, second, third = shown.stdout.partition("\n\n")[0].splitlines()
    assert heading.split() == ["TOOL", "LEVEL", "SCORE", "PHASE", "EFFECTS", "EXPIRES"]
    assert first.split() == ["full_stack_diagnosis", "full", "95", "flesh", "filesystem", "2026-02-19T14:39:59Z"]
    assert second.split()[:2] == ["list_failures", "condensed"]
    assert third.split() == ["read_errors", "minimal", "-", "-", "-", "-"], "what is not disclosed is not shown"
    assert "full_stack_diagnosis: Traces console errors" in shown.stdout
    assert "lines (integer, optional): the maximum number of lines" in shown.stdout
    assert "why full_stack_diagnosis: flesh, 95" in shown.stdout
    assert "why not frontend_diagnosis\n  conflict: yields to full_stack_diagnosis" in shown.stdout
    assert "3 tools at 2026-02-19T14:30:10Z" in shown.stdout


def test_wishes_reach_the_server(run: Run, url: str) -> None:
    shown = run(*asked(url, "--max-tools", "1", "--level", "minimal", "--coverage", "--json"))
    message = json.loads(shown.stdout)
    assert message["type"] == "intent_response"
    assert [tool["disclosure_level"] for tool in message["payload"]["macro_tools"]] == ["minimal"]
    assert message["payload"]["diagnostics"]["rule_coverage"]["rules_fired"] > 0


def test_what_a_server_or_the_client_refuses(run: Run, url: str) -> None:
    shown = run("intent", url, "diagnose_error")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "missing: console_event" in shown.stderr
    shown = run("intent", url, "fix_error", "--facts", FIX, "--json")
    assert shown.exit_code == 1
    assert json.loads(shown.stdout)["payload"]["code"] == "auth_required"
    shown = run("intent", url, "observe", "--fact", "nonsense(1)")
    assert "nonsense" in shown.stderr
    shown = run("intent", url, "wander")
    assert "the server has no intent 'wander', only observe, diagnose_error, fix_error" in shown.stderr


def test_nobody_is_there(run: Run) -> None:
    shown = run("intent", "http://127.0.0.1:9", "observe")
    assert shown.exit_code == 1
    assert shown.stderr.startswith("error[x-no_answer]: ")
    shown = run("intent", "http://desk.example", "observe")
    assert shown.exit_code == 1
    assert "not encrypted" in shown.stderr


def test_what_belongs_to_packs_is_not_said_to_servers_and_the_other_way_round(run: Run, url: str) -> None:
    for option in (("--as", "kim"), ("--permission", "p"), ("--set", "a=b"), ("--degrade",)):
        shown = run(*asked(url, *option))
        assert shown.exit_code == 2
        assert f"leave {option[0]} out" in shown.stderr
    shown = run("call", url, "t", "--intent", "i", "--store", ":memory:")
    assert "leave --store out" in shown.stderr
    shown = run(*asked(str(INCIDENT), "--token", "x"))
    assert (shown.exit_code, "leave --token out" in shown.stderr) == (2, True)


def test_a_token_in_the_environment_does_not_disturb_packs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGLECP_TOKEN", TOKEN)
    assert run(*asked(str(INCIDENT))).exit_code == 0


@pytest.mark.parametrize("way", ["http", "websocket"])
def test_a_tool_is_invoked_at_a_server(run: Run, url: str, way: str) -> None:
    address = url if way == "http" else websocket(url)
    now = ("--facts", DIAGNOSE, "--arg", "url_contains=users")
    shown = run("call", address, "list_failures", "--intent", "diagnose_error", *now)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert '"url": "' in shown.stdout
    assert "success  failed_requests" in shown.stdout
    wrong = run("call", address, "list_failures", "--intent", "diagnose_error", "--facts", DIAGNOSE, "--arg", "depth=1")
    assert (wrong.exit_code, wrong.stdout) == (1, "")
    assert "schema_validation_failed" in wrong.stderr


def test_a_server_has_a_clock_of_its_own(run: Run, url: str) -> None:
    """An intent may be evaluated for another time, but a tool that held only then holds no longer."""
    then = ("--intent", "diagnose_error", "--facts", DIAGNOSE, "--now", "2026-02-19T14:30:10Z")
    shown = run("call", url, "full_stack_diagnosis", *then)
    assert shown.exit_code == 1
    assert "error[macro_expired]" in shown.stderr
    assert "checked against the server's clock: leave --now out" in shown.stderr
    assert run("call", url, "list_failures", *then, "--arg", "url_contains=users").exit_code == 0


def test_a_tool_that_is_not_proven_there(run: Run, url: str) -> None:
    shown = run("call", url, "apply_fix", "--intent", "diagnose_error", "--facts", DIAGNOSE)
    assert shown.exit_code == 1
    assert "No tool apply_fix is proven for the intent diagnose_error; proven are full_stack_diagnosis" in shown.stderr
    assert "why not apply_fix" in shown.stderr


@pytest.mark.parametrize("way", ["http", "websocket"])
@pytest.mark.usefixtures("url")  # a server without tokens, for which this user gets a secret of their own
def test_consent_is_signed_with_the_key_that_came_with_the_token(
    run: Run, guarded: tuple[str, Path], place: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, work = guarded
    shutil.copytree(INCIDENT / "recorded" / "app", work / "app", dirs_exist_ok=True)
    address = url if way == "http" else websocket(url)
    fix: tuple[Any, ...] = ("call", address, "apply_fix", "--intent", "fix_error", "--facts", FIX)
    unknown = run(*fix).stderr
    assert unknown.startswith("error[auth_required]: ")
    assert unknown.endswith(": set MANGLECP_TOKEN, or give --token\n")
    assert "pass it in MANGLECP_TOKEN" in run(*fix, "--token", "guessed").stderr
    monkeypatch.setenv("MANGLECP_TOKEN", TOKEN)
    nobody = run(*fix)
    assert nobody.exit_code == 1
    assert "effects: filesystem" in nobody.stderr
    assert "it can be undone" in nobody.stderr
    assert "add --confirm to approve this call" in nobody.stderr
    unsigned = run(*fix, "--confirm")
    assert unsigned.exit_code == 1
    assert "error[confirmation_invalid]: The confirmation token does not hold" in unsigned.stderr
    assert "signed with --confirmation-key" in unsigned.stderr
    assert "/api/users" not in (work / "app" / "routes.toml").read_text("utf-8")
    # Over HTTP nobody says who the token makes one.
    name = ("--as", "kim") if way == "http" else ()
    agreed = run(*fix, "--confirm", "--confirmation-key", str(place / "key"), *name)
    assert (agreed.exit_code, agreed.stderr) == (0, "")
    assert "/api/users" in (work / "app" / "routes.toml").read_text("utf-8")


@pytest.mark.no_cover
@pytest.mark.usefixtures("place")
def test_whoever_sits_at_a_terminal_reads_lines_and_programs_read_records() -> None:
    command = [sys.executable, "-m", "manglecp", "serve", str(INCIDENT), "--http", "127.0.0.1:0"]
    ours, theirs = os.openpty()
    with subprocess.Popen(command, stderr=theirs) as process:
        try:
            os.close(theirs)
            shown = b""
            while b"serving at" not in shown:
                shown += os.read(ours, 65_536)
        finally:
            process.terminate()
            process.wait(PATIENCE)
            os.close(ours)
    assert b"INFO listening at http://127.0.0.1" in shown
    assert b"{" not in shown
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert json.loads(process.stderr.readline())["message"].startswith("listening at http://127.0.0.1")
        process.terminate()
        process.communicate(timeout=PATIENCE)
