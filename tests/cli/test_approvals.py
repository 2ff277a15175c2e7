"""`manglecp approvals` in a store of this machine, and calls that use what was approved there."""

from __future__ import annotations

import json
import os
import pty
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.letters import PATIENCE, manglecp

RULES = """
macro("pay", "Pays an amount.").
mandatory("pay") :- intent("pay").
macro_step("pay", 1, "book").
arg_value("pay", 1, "account", "main").
needs_confirmation("pay").
"""
ACTIONS = '''
from pathlib import Path
from manglecp import action


@action(effects=["filesystem"])
def book(account: str, amount: int) -> str:
    """Book an amount."""
    with Path("book.txt").open("a") as book:
        book.write(f"{account} {amount}\\n")
    return "booked"
'''


@pytest.fixture(autouse=True)
def state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(folder / "state"))
    for name in ("MANGLECP_STORE", "MANGLECP_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (folder / "desk" / "rules").mkdir(parents=True)
    (folder / "desk" / "rules" / "pay.mg").write_text(RULES)
    (folder / "desk" / "actions.py").write_text(ACTIONS)
    (folder / "work").mkdir()


def add_rule(folder: Path, rule: str) -> None:
    with (folder / "desk" / "rules" / "pay.mg").open("a") as rules:
        rules.write(rule)


def pay(amount: int, *more: str) -> tuple[str, ...]:
    return ("call", "desk", "pay", "--intent", "pay", "--arg", f"amount={amount}", "--workspace", "work", *more)


def booked(folder: Path) -> list[str]:
    book = folder / "work" / "book.txt"
    return book.read_text().splitlines() if book.exists() else []


def requested(run: Run, amount: int = 5) -> str:
    refused = run(*pay(amount))
    assert refused.exit_code == 1
    (approval,) = set(re.findall(r"ap-\w+", refused.stderr))
    return str(approval)


def test_a_request_is_shown_approved_and_used_once(run: Run, folder: Path) -> None:
    refused = run(*pay(5))
    text, _, rest = refused.stderr.partition("error[confirmation_required]")
    assert text.splitlines()[-1] == "Effects: filesystem. It cannot be undone."
    assert '1. book(account = "main", amount = 5)' in text
    approval = requested(run)
    assert rest.endswith(
        f"  approve it with: manglecp approvals approve {approval}\n"
        f"  then repeat the call with --approval {approval}\n  or add --confirm to approve it now\n"
    )
    listed = run("approvals", "list").stdout.splitlines()
    cells = [line.split()[:4] for line in listed]
    assert cells == [["ID", "TOOL", "REQUESTER", "CONDITIONS"], [approval, "pay", "local", "-"]]
    assert run("approvals", "show", approval).stdout.partition("\n\n")[2] == text, "as it is stored"
    assert json.loads(run("approvals", "show", approval, "--json").stdout)["text"] == text.rstrip("\n")
    assert booked(folder) == []

    approved = run("approvals", "approve", approval, "--yes", "--json")
    assert json.loads(approved.stdout)["state"] == "approved"
    assert approved.stderr.partition("\n\n")[2] == text
    assert run("approvals", "list").stdout == "No request is pending.\n"
    other = run(*pay(6, "--approval", approval))
    assert "the approval is not for this call" in other.stderr
    assert run(*pay(5, "--approval", approval)).exit_code == 0
    assert booked(folder) == ["main 5"]
    assert run("approvals", "show", approval).stdout.startswith(f"{approval}: used by local, run r-")
    assert "the approval was used already" in run(*pay(5, "--approval", approval)).stderr
    assert booked(folder) == ["main 5"]


def test_a_repeated_call_uses_what_was_approved(run: Run, folder: Path) -> None:
    run("approvals", "approve", requested(run), "--yes")
    assert run(*pay(5)).exit_code == 0
    assert run(*pay(5)).exit_code == 1
    assert run(*pay(5, "--confirm")).exit_code == 0
    assert booked(folder) == ["main 5", "main 5"]


def test_a_denied_request_is_not_used(run: Run, folder: Path) -> None:
    approval = requested(run)
    assert run("approvals", "deny", approval).stdout == f"{approval} is denied\n"
    assert "the approver denied this call" in run(*pay(5, "--approval", approval)).stderr
    late = run("approvals", "approve", approval, "--yes")
    assert (late.exit_code, "is denied\n  `manglecp approvals show` shows it" in late.stderr) == (1, True)
    assert booked(folder) == []
    assert requested(run) != approval


def test_a_changed_pack_needs_another_approval(run: Run, folder: Path) -> None:
    approval = requested(run)
    run("approvals", "approve", approval, "--yes")
    add_rule(folder, 'macro_summary("pay", "Pay.").\n')
    assert "the pack was changed after the approval" in run(*pay(5, "--approval", approval)).stderr
    assert booked(folder) == []


def test_an_approval_does_not_hold_in_another_workspace(run: Run, folder: Path) -> None:
    approval = requested(run)
    run("approvals", "approve", approval, "--yes")
    (folder / "production").mkdir()
    other = run(*pay(5, "--approval", approval)[:-4], "--workspace", "production", "--approval", approval)
    assert "the approval is for a server with another workspace" in other.stderr
    assert list((folder / "production").iterdir()) == []
    absolute = str(folder / "work")
    assert run(*pay(5)[:-2], "--workspace", absolute, "--approval", approval).exit_code == 0
    assert booked(folder) == ["main 5"]


@pytest.mark.parametrize("caller", [(), ("--as", "kim")])
def test_the_requester_does_not_confirm_a_tool_that_needs_four_eyes(
    run: Run, folder: Path, caller: tuple[str, ...]
) -> None:
    add_rule(folder, 'four_eyes("pay").\n')
    refused = run(*pay(5, "--confirm", *caller))
    assert refused.exit_code == 1
    assert "four eyes: the approver must not be the requester, so --confirm cannot approve this call" in refused.stderr
    assert "or add --confirm" not in refused.stderr
    approval = str(re.search(r"approvals approve (ap-\w+)", refused.stderr)[1])  # type: ignore[index]
    decided = run("approvals", "approve", approval, "--yes")
    if caller:  # the operator is not kim
        assert "the approver is not kim" in decided.stderr
        assert run(*pay(5, "--approval", approval, *caller)).exit_code == 0
    else:
        assert decided.stderr.startswith("error[auth_insufficient]")
        assert "an approver decides with --server URL" in decided.stderr
    assert booked(folder) == ["main 5"] * len(caller[:1])


def test_the_roles_of_an_approver_are_shown(run: Run, folder: Path) -> None:
    add_rule(folder, 'needs_approval("pay", "cashier").\n')
    (folder / "desk" / "pack.toml").write_text('[pack]\npermissions = ["cashier"]\n')
    refused = run(*pay(5))
    assert "  the approver needs the permission cashier\n" in refused.stderr
    assert "needs cashier" in run("approvals", "list").stdout


@pytest.mark.parametrize(("typed", "status"), [("n", 1), ("", 1), ("y", 0)])
def test_an_approver_at_a_terminal_reads_and_is_asked(run: Run, typed: str, status: int) -> None:
    approval = requested(run)
    ours, theirs = pty.openpty()
    asking = manglecp("approvals", "approve", approval, stdin=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while b"Approve? [y/N]" not in seen:
        seen += os.read(ours, 1_024)
    assert b'1. book(account = "main", amount = 5)' in seen
    os.write(ours, typed.encode() + b"\n")
    out, _ = asking.communicate(timeout=PATIENCE)
    os.close(ours)
    assert (asking.returncode, "is approved" in out) == (status, status == 0)
    state = json.loads(run("approvals", "show", approval, "--json").stdout)["state"]
    assert state == ("approved" if status == 0 else "pending")


def test_a_long_text_is_complete_and_goes_through_the_pager_of_a_terminal(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = 'macro_step("pay", N, "book"). arg_value("pay", N, "account", "aN"). arg_value("pay", N, "amount", N).\n'
    add_rule(folder, "".join(step.replace("N", str(number)) for number in range(2, 60)))
    approval = requested(run)
    shown = run("approvals", "show", approval).stdout
    assert '59. book(account = "a59", amount = 59)\n' in shown
    for name, value in (("PAGER", "tee paged.txt"), ("LINES", "24"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    ours, theirs = pty.openpty()
    paging = manglecp("approvals", "show", approval, stdin=theirs, stdout=theirs)
    os.close(theirs)
    paging.communicate(timeout=PATIENCE)
    os.close(ours)
    assert (folder / "paged.txt").read_text() == shown


def test_what_there_is_not(run: Run, folder: Path) -> None:
    missing = run("approvals", "list")
    assert (missing.exit_code, "there is no store" in missing.stderr) == (1, True)
    requested(run)
    unknown = run("approvals", "show", "ap-none")
    assert unknown.exit_code == 1
    assert unknown.stderr.endswith("\n  `manglecp approvals list` lists the pending requests\n")
    waiting = run(*pay(5, "--wait", "5"))
    assert (waiting.exit_code, "--wait is for a server" in waiting.stderr) == (2, True)
    for options in (["--token", "t"], ["--server", "http://127.0.0.1:9", "--store", "s.db"]):
        mixed = run("approvals", "approve", "ap-none", "--yes", *options)
        assert (mixed.exit_code, f"leave {options[-2]} out." in mixed.stderr) == (2, True)
    away = run("approvals", "list", "--server", "http://127.0.0.1:9")
    assert (away.exit_code, away.stderr.startswith("error[x-no_answer]")) == (1, True)
    assert booked(folder) == []
