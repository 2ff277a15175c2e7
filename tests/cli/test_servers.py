"""`manglecp intent` and `manglecp call` with the address of a server in the place of a pack."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from manglecp.cli.invocation import print_response
from manglecp.wire import WireError
from tests.cli.conftest import Run
from tests.cli.letters import manglecp
from tests.deadlines import patience

INCIDENT = Path(__file__).parents[2] / "examples" / "incident"
DIAGNOSE = str(INCIDENT / "recorded" / "diagnose_error.json")
FIX = str(INCIDENT / "recorded" / "fix_error.json")
TOKEN = "kim-0123456789abcdef0123456789abcdef"
APPROVER = "ann-0123456789abcdef0123456789abcdef"
BOTH = "lee-0123456789abcdef0123456789abcdef"
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
    """Return the folder for the state of the servers and of their clients."""
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
    people = {
        "kim": (TOKEN, ["fix", "explain_policy"]),
        "ann": (APPROVER, ["approve"]),
        "lee": (BOTH, ["fix", "approve"]),
    }
    tokens.write_text(
        "".join(
            f'[[token]]\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
            f'identity = "{name}"\npermissions = {json.dumps(permissions)}\n'
            for name, (token, permissions) in people.items()
        )
    )
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
    assert "rule_coverage" not in message["payload"]["diagnostics"], "the server has not switched it on"


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
    assert "error[x-unknown_intent]: No rule of this server can match the intent 'wander'" in shown.stderr
    assert "Did you mean 'observe'?" in run("intent", url, "obsreve").stderr


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
    assert "proven again at the server's clock: leave --now out" in shown.stderr
    assert run("call", url, "list_failures", *then, "--arg", "url_contains=users").exit_code == 0


def test_a_tool_that_is_not_proven_there(run: Run, url: str) -> None:
    shown = run("call", url, "apply_fix", "--intent", "diagnose_error", "--facts", DIAGNOSE)
    assert shown.exit_code == 1
    assert "No tool apply_fix is proven for the intent diagnose_error; proven are full_stack_diagnosis" in shown.stderr
    assert "why not apply_fix" in shown.stderr


@pytest.fixture
def fix(guarded: tuple[str, Path], request: pytest.FixtureRequest) -> tuple[str, ...]:
    """A call that needs an approval, in an unchanged workspace; over HTTP, or as the test says."""
    url, work = guarded
    shutil.copytree(INCIDENT / "recorded" / "app", work / "app", dirs_exist_ok=True)
    address = websocket(url) if getattr(request, "param", "http") == "websocket" else url
    return ("call", address, "apply_fix", "--intent", "fix_error", "--facts", FIX)


def routes(guarded: tuple[str, Path]) -> str:
    return (guarded[1] / "app" / "routes.toml").read_text("utf-8")


def approval_of(text: str) -> str:
    found = re.search(r"manglecp approvals approve (ap-\w+)", text)
    assert found is not None, text
    return found[1]


@pytest.mark.parametrize("fix", ["http", "websocket"], indirect=True)
def test_an_approver_approves_what_an_agent_requests(
    run: Run, guarded: tuple[str, Path], fix: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = run(*fix).stderr
    assert unknown.startswith("error[auth_required]: ")
    assert unknown.endswith(": set MANGLECP_TOKEN, or give --token\n")
    assert "pass token" not in unknown
    assert "pass it in MANGLECP_TOKEN" in run(*fix, "--token", "guessed").stderr
    monkeypatch.setenv("MANGLECP_TOKEN", TOKEN)
    for more in ((), ("--confirm",)):
        refused = run(*fix, *more)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "you cannot approve this call: Deciding about approval requests needs the permission approve" in (
            refused.stderr
        )
        assert "error[confirmation_required]" in refused.stderr
        assert "replace_file" not in refused.stderr, "the text is for approvers"
    approval = approval_of(refused.stderr)
    at = ("--server", guarded[0])
    assert refused.stderr.endswith(
        f"manglecp approvals approve {approval} --server {fix[1]}\n  then repeat the call with --approval {approval}\n"
    )
    for operation in (["list"], ["show", approval], ["approve", approval, "--yes"], ["deny", approval]):
        own = run("approvals", *operation, *at)
        assert (own.exit_code, own.stdout) == (1, "")
        assert own.stderr.startswith("error[auth_insufficient]")
        assert "manglecp token new NAME --approver" in own.stderr
    waiting = run(*fix, "--approval", approval)
    assert (waiting.exit_code, "error[confirmation_required]" in waiting.stderr) == (1, True)
    assert "/api/users" not in routes(guarded)

    monkeypatch.setenv("MANGLECP_TOKEN", APPROVER)
    assert approval in run("approvals", "list", *at).stdout
    shown = run("approvals", "show", approval, *at)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"{approval}: pending\n  requested by kim at ")
    assert '\n2. replace_file(file = "app/routes.toml", text = from step 1 at /after' in shown.stdout
    blind = run("approvals", "approve", approval, *at)
    assert (blind.exit_code, "approve it with --yes" in blind.stderr) == (2, True)
    approved = run("approvals", "approve", approval, "--yes", *at)
    assert approved.stderr.splitlines()[3:] == shown.stdout.splitlines()[3:], "one text on every path"
    assert approved.stdout == f"{approval} is approved; kim can repeat the call with --approval {approval}\n"
    again = run("approvals", "approve", approval, "--yes", *at)
    assert (again.exit_code, "error[x-approval_decided]" in again.stderr) == (1, True)
    run(*fix, "--approval", approval)
    assert "/api/users" not in routes(guarded), "only the requester uses it"

    monkeypatch.setenv("MANGLECP_TOKEN", TOKEN)
    done = run(*fix, "--approval", approval)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "/api/users" in routes(guarded)
    second = run(*fix, "--approval", approval)
    assert (second.exit_code, second.stderr.startswith("error[confirmation_invalid]")) == (1, True)


def test_a_credential_that_may_approve_confirms_with_the_text(
    run: Run, guarded: tuple[str, Path], fix: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANGLECP_TOKEN", BOTH)
    asked = run(*fix)
    assert (asked.exit_code, "error[confirmation_required]" in asked.stderr) == (1, True)
    assert "/api/users" not in routes(guarded)
    done = run(*fix, "--confirm")
    assert done.exit_code == 0
    assert done.stderr == asked.stderr.partition("error[")[0], "the same text, and nothing else"
    assert "2. replace_file(" in done.stderr
    assert "/api/users" in routes(guarded)


def test_text_of_a_server_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    challenge = {"approval": "ap-1\x1b[2J", "roles": ["a\u202eb"], "four_eyes": False}
    error = WireError("confirmation_required", "m", {"challenge": challenge})
    print_response(error, as_json=False, approval_options=" --server u")
    lines = capsys.readouterr().err.splitlines()[1:]
    assert lines[0] == "  the approver needs the permission a\\u202eb"
    assert "ap-1\\u001b[2J --server u" in lines[1]


@pytest.mark.parametrize(("operation", "status"), [("approve", 0), ("deny", 1)])
def test_a_call_waits_for_the_approver(
    run: Run, guarded: tuple[str, Path], fix: tuple[str, ...], operation: str, status: int
) -> None:
    calling = manglecp(*fix, "--wait", str(PATIENCE), "--token", TOKEN)
    assert calling.stderr is not None
    line = calling.stderr.readline()
    while not line.startswith("waiting "):
        line = calling.stderr.readline()
        assert line, "it did not wait"
    approval, at = approval_of(line), ("--server", guarded[0], "--token", APPROVER)
    options = ("--yes",) if operation == "approve" else ()
    assert run("approvals", operation, approval, *options, *at).exit_code == 0
    _, errors = calling.communicate(timeout=PATIENCE)
    assert calling.returncode == status
    assert ("/api/users" in routes(guarded)) == (status == 0)
    assert ("the approver denied this call" in errors) == (status == 1)


@pytest.mark.usefixtures("guarded")  # the file of tokens
def test_a_request_outlives_the_server(run: Run, place: Path) -> None:
    work = place / "again"
    shutil.copytree(INCIDENT / "recorded" / "app", work / "app")
    store = place / "again.db"
    options = ("--tokens", str(place / "tokens.toml"), "--workspace", str(work), "--store", str(store))
    fix = ("apply_fix", "--intent", "fix_error", "--facts", FIX, "--token", TOKEN)
    with served(*options) as url:
        approval = approval_of(run("call", url, *fix).stderr)
    with served(*options) as url:
        assert run("approvals", "approve", approval, "--yes", "--server", url, "--token", APPROVER).exit_code == 0
    shown = run("approvals", "show", approval, "--store", str(store), "--json")
    assert {name: json.loads(shown.stdout)[name] for name in ("state", "requester", "approver")} == {
        "state": "approved",
        "requester": "kim",
        "approver": "ann",
    }
    with served(*options) as url:
        assert run("call", url, *fix, "--approval", approval).exit_code == 0
    assert "/api/users" in (work / "app" / "routes.toml").read_text("utf-8")


def test_a_server_accepts_new_tokens_and_drops_revoked_ones(run: Run, tmp_path: Path, place: Path) -> None:  # noqa: ARG001
    file = tmp_path / "tokens.toml"
    first = run("token", "new", "ann", "--approver", "--file", str(file)).stdout.strip()
    with served("--tokens", str(file), "--store", str(tmp_path / "store.db")) as url:
        at = ("approvals", "list", "--server", url, "--token")
        assert run(*at, first).stdout == "No request is pending.\n"
        second = run("token", "new", "bob", "--approver", "--file", str(file)).stdout.strip()
        run("token", "revoke", "ann", "--file", str(file))
        time.sleep(1.1)
        assert run(*at, second).exit_code == 0
        assert run(*at, first).stderr.startswith("error[auth_invalid]")


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
