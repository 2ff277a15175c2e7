"""`manglecp call`: what runs, what is shown, who is asked, and how it is stopped."""

from __future__ import annotations

import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from manglecp.cli.intent_request import decode_value
from manglecp.cli.tool_text import assignment
from manglecp.store import open_store
from tests.cli.conftest import Run
from tests.cli.letters import PATIENCE, manglecp, wait_for, write_pack
from tests.toolhost.sandbox.confined import require

INCIDENT = Path(__file__).parents[2] / "examples" / "incident"
DIAGNOSE = str(INCIDENT / "recorded" / "diagnose_error.json")
FIX = str(INCIDENT / "recorded" / "fix_error.json")
APPLY = (str(INCIDENT), "apply_fix", "--intent", "fix_error", "--facts", FIX, "--permission", "fix")
ROUTES = "app/routes.toml"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(folder))
    monkeypatch.delenv("MANGLECP_STORE", raising=False)
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace with what the incident pack would change."""
    shutil.copytree(INCIDENT / "recorded" / "app", tmp_path / "work" / "app")
    return tmp_path / "work"


@pytest.fixture
def letters(tmp_path: Path) -> str:
    return str(write_pack(tmp_path / "letters"))


def kinds(state: Path) -> list[str]:
    store = open_store(state / "store.sqlite3")
    try:
        with store.read_transaction() as tx:
            assert store.ledger.verify(tx).sound
            return [entry.kind for entry in store.ledger.rows(tx) if entry.kind != "decision_log"]
    finally:
        store.close()


def error(result: Result) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(result.stdout)
    assert message["type"] == "error"
    payload: dict[str, Any] = message["payload"]
    return payload


def test_what_one_tool_leads_to_is_what_the_next_one_takes(run: Run, work: Path, state: Path) -> None:
    asked = ("full_stack_diagnosis", "--intent", "diagnose_error", "--facts", DIAGNOSE)
    found = run("call", str(INCIDENT), *asked, "--json")
    assert (found.exit_code, found.stderr) == (0, "")
    following = json.loads(found.stdout)["payload"]["next"]
    (suggested,) = following["suggested_intents"]
    Path("next.json").write_text(json.dumps(following["continuation_facts"]))
    more = ("--facts", "next.json", "--permission", "fix", "--now", "2026-02-19T14:31:00Z", "--workspace", str(work))
    fixed = run("call", str(INCIDENT), "apply_fix", "--intent", suggested["name"], *more, "--confirm")
    assert (fixed.exit_code, fixed.stderr) == (0, "")
    assert '"/api/users"' in (work / ROUTES).read_text()
    summary, result, events, changed, following = fixed.stdout.split("\n\n")
    assert summary == "Changed app/routes.toml."
    assert result.startswith("result\n  diff:\n    --- a/app/routes.toml\n")
    assert result.endswith('\n  routes: ["/", "/api/orders", "/api/users"]')
    assert [line.split()[:2] for line in events.splitlines()[1:]] == [
        ["success", "propose_patch"],
        ["success", "replace_file"],
        ["success", "check_routes"],
    ]
    assert changed == 'delta\n  - fix_candidate("app/routes.toml", _)'
    assert following == "next\n  observe --param focus=network: See whether the failure is gone.\n"
    assert kinds(state) == ["run", "approval", "approval", "admission", "turn", "step", "turn", "end"]


def test_without_approval_nothing_happens(run: Run, work: Path, state: Path) -> None:
    before = (work / ROUTES).read_text()
    shown = run("call", *APPLY, "--workspace", str(work))
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.startswith("apply_fix: Changes the file in the workspace.")
    assert "error[confirmation_required]" in shown.stderr
    assert shown.stderr.endswith("  add --confirm to approve this call\n")
    assert "manglecp approvals approve" not in shown.stderr, "at the time of the recording only this process is"
    assert (work / ROUTES).read_text() == before
    assert kinds(state) == ["approval"]


@pytest.mark.req("SEC-21")
@pytest.mark.parametrize(("said", "status"), [("n", 1), ("", 1), ("y", 0)])
def test_whoever_sits_at_the_terminal_is_asked(work: Path, said: str, status: int) -> None:
    ours, theirs = pty.openpty()
    asking = manglecp("call", *APPLY, "--workspace", str(work), stdin=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while b"[y/N]" not in seen:
        seen += os.read(ours, 1_024)
    assert b"apply_fix: " in seen
    os.write(ours, said.encode() + b"\n")
    out, _ = asking.communicate(timeout=PATIENCE)
    os.close(ours)
    assert asking.returncode == status
    assert ("Changed app/routes.toml." in out) == (status == 0)
    assert ("/api/users" in (work / ROUTES).read_text()) == (status == 0)


def test_a_tool_that_is_not_proven(run: Run) -> None:
    asked = ("call", *APPLY[:-2])
    shown = run(*asked)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "error[macro_not_found]: No tool apply_fix is proven for the intent fix_error; proven are propose_fix" in (
        shown.stderr
    )
    assert "why not apply_fix\n  exclusion: the permission fix is missing\n" in shown.stderr
    assert error(run(*asked, "--json"))["code"] == "macro_not_found"
    missing = run("call", str(INCIDENT), "full_stack_diagnosis", "--intent", "diagnose_error")
    assert missing.stderr.endswith("  missing: console_event\n  add --fact 'console_event(…)'\n")


def test_arguments_are_what_the_schema_says(run: Run, letters: str, tmp_path: Path) -> None:
    """A number for an argument of the type string is the text of its digits; an error has the path of the argument."""
    asked = ("call", letters, "file_letter", "--intent", "file", "--workspace", str(tmp_path))
    wrong = run(*asked, "--arg", "lettre=1", "--confirm")
    assert wrong.exit_code == 1
    assert wrong.stderr.startswith("error[schema_validation_failed]")
    assert "\n  /lettre: " in wrong.stderr
    assert run(*asked, "--arg", "letter=12", "--confirm").exit_code == 0
    assert (tmp_path / "cabinet.txt").read_text() == "12"


def test_what_an_action_said_is_for_the_owner_of_the_machine(run: Run, work: Path) -> None:
    routes = work / ROUTES
    routes.write_text(routes.read_text() + '"/api/users" = "users.index"\n')
    asked = ("call", *APPLY, "--workspace", str(work), "--confirm")
    shown = run(*asked)
    assert shown.exit_code == 1
    assert "The preview for the approver failed: propose_patch; nothing was changed\n" in shown.stderr
    assert "\n  propose_patch: ValueError: /api/users already has a route\n" in shown.stderr
    for other in (run(*asked, "--as", "kim"), run(*asked, "--json")):
        assert other.exit_code == 1
        assert "already has a route" not in other.output


def test_whoever_calls_says_which_of_the_programs_that_a_pack_names_are_started(run: Run, letters: str) -> None:
    asked = ("call", letters, "print_letter", "--intent", "print", "--arg", "letter=a", "--confirm", "--degrade")
    for others in (("none",), ("cat",)):
        refused = run(*asked, "--program", *others)
        assert (refused.exit_code, "Step 1 (press) failed" in refused.stderr) == (1, True)
    for allowed in (run(*asked), run(*asked, "--program", "echo")):
        assert (allowed.exit_code, "  printed: a\n" in allowed.stdout) == (0, True)
    both = run(*asked, "--program", "none", "--program", "echo")
    assert (both.exit_code, "cannot be combined" in both.stderr) == (2, True)


def test_wrong_command_lines(run: Run, letters: str, write: Any) -> None:
    assert "Missing option '--intent'" in run("call", letters, "send_letter").stderr
    twice = run("call", letters, "t", "--intent", "i", "--arg", "a=1", "--arg", "a=2")
    assert (twice.exit_code, "a is given twice" in twice.stderr) == (2, True)
    short = run("call", letters, "t", "--intent", "i", "--store-key", str(write("key", b"short")))
    assert (short.exit_code, "is not a key" in short.stderr) == (2, True)
    where = run("call", letters, "t", "--intent", "i", "--store", "ftp://x/y")
    assert (where.exit_code, where.stderr.startswith("error[store]: there is no store of the kind ftp://")) == (1, True)
    (Path(letters) / "pack.toml").write_text("[pack]\n")
    assert run("call", letters, "t", "--intent", "i").exit_code == 1


def test_a_request_key_has_it_done_once(run: Run, letters: str, tmp_path: Path) -> None:
    (tmp_path / "box.txt").touch()  # no letter is the first one
    asked = ("call", letters, "send_letter", "--intent", "send", "--workspace", str(tmp_path), "--confirm")
    key = ("--request-key", "k")
    first = run(*asked, *key, "--arg", "text=a", "--json")
    again = run(*asked, *key, "--arg", "text=a", "--json")
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert json.loads(first.stdout) == json.loads(again.stdout)
    other = run(*asked, *key, "--arg", "text=b", "--json")
    assert (other.exit_code, error(other)["code"]) == (1, "x-request_key_conflict")
    assert (tmp_path / "box.txt").read_text() == "A\n"


def test_a_call_goes_on_with_what_a_killed_one_began(run: Run, letters: str, tmp_path: Path, state: Path) -> None:
    (tmp_path / "box.txt").touch()
    (tmp_path / "wait").touch()
    asked = ("call", letters, "send_letter", "--intent", "send", "--workspace", str(tmp_path), "--confirm")
    told = (*asked, "--request-key", "k", "--arg", "text=a")
    killed = manglecp(*told)
    wait_for(tmp_path / "reached", killed)
    killed.kill()
    killed.communicate(timeout=PATIENCE)
    store = open_store(state / "store.sqlite3")
    with store.write_transaction() as tx:  # nobody wants to wait until the claim has lapsed
        tx.execute("UPDATE runs SET claim_until_ms = 0")
    store.close()
    shown = run(*told)
    assert shown.exit_code == 1
    assert "Only an operator can decide how step 3 (stamp) ended" in shown.stderr
    assert (tmp_path / "box.txt").read_text() == "A\n"
    assert not (tmp_path / "stamped.txt").exists()


def interrupted(letters: str, work: Path) -> subprocess.Popen[str]:
    """A call that was interrupted once, while its second step was under way."""
    (work / "wait").touch()
    asked = ("file_letter", "--intent", "file", "--arg", "letter=a", "--workspace", str(work), "--confirm")
    calling = manglecp("call", letters, *asked)
    wait_for(work / "reached", calling)
    calling.send_signal(signal.SIGINT)
    assert calling.stderr is not None
    assert calling.stderr.readline() == "\n"
    assert calling.stderr.readline().startswith("cancelling after the current step")
    return calling


def test_an_interrupt_cancels_between_steps(letters: str, work: Path, state: Path) -> None:
    calling = interrupted(letters, work)
    (work / "go").touch()
    out, err = calling.communicate(timeout=PATIENCE)
    assert (calling.returncode, out) == (130, "")
    assert "error[cancelled]: The run was cancelled; what it had done was undone" in err
    assert "step 1, store: it happened and was undone" in err
    assert not (work / "cabinet.txt").exists()
    assert not (work / "stamped.txt").exists()
    assert kinds(state)[-1] == "end"


def test_a_second_interrupt_ends_at_once(letters: str, work: Path) -> None:
    calling = interrupted(letters, work)
    calling.send_signal(signal.SIGINT)
    _, err = calling.communicate(timeout=PATIENCE)
    assert calling.returncode == 130
    assert "`manglecp runs list` lists unfinished runs" in err
    assert (work / "cabinet.txt").exists()


def test_a_pack_is_locked_in_less_only_where_whoever_runs_it_allows_that(run: Run, tmp_path: Path) -> None:
    require("strict")
    folder, secret = tmp_path / "open", tmp_path / "secret"
    (folder / "rules").mkdir(parents=True)
    (folder / "pack.toml").write_text(
        '[pack]\nname = "open"\n[sandbox]\nprofile = "none"\n[[intents]]\nname = "go"\ndescription = "Go"\n'
    )
    (folder / "actions.py").write_text(
        'from manglecp import action\n\n@action(effects=["none"])\ndef look(path: str) -> dict:\n'
        '    """Look."""\n    return {"text": open(path).read()}\n'
    )
    (folder / "rules" / "a.mg").write_text(
        'macro("t", "A tool."). mandatory("t") :- intent("go"). macro_step("t", 1, "look").'
    )
    secret.write_text("of whoever runs it")
    asked = ("call", str(folder), "t", "--intent", "go", "--arg", f"path={secret}", "--store", ":memory:")
    locked = run(*asked)
    assert (locked.exit_code, "of whoever runs it" in locked.stdout) == (1, False)
    allowed = run(*asked, "--allow-weaker")
    assert (allowed.exit_code, "of whoever runs it" in allowed.stdout) == (0, True)
    refused = run("call", "http://127.0.0.1:1", "t", "--intent", "go", "--allow-weaker")
    assert (refused.exit_code, "leave --allow-weaker out" in refused.stderr) == (2, True)


@pytest.mark.parametrize("value", ["a b", "5", "true", "null", '"x"', "[1", "", 5, None, [1, "x"], {"a": "é"}])
def test_what_is_shown_of_a_parameter_is_what_would_be_typed(value: object) -> None:
    (typed,) = shlex.split(assignment("n", value))
    name, _, text = typed.partition("=")
    assert (name, decode_value(text)) == ("n", value)
