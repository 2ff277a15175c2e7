"""`manglecp decide`: verdicts, reasons, rules and exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

from manglecp.testing import load_pack
from tests.cli.conftest import Run

ACTIONS = '''
from manglecp import action

@action(effects=["filesystem"])
def pay(amount: int) -> str:
    """Pay an amount."""
    return "paid"
'''
RULES = 'macro("refund", "Refunds."). macro_step("refund", 1, "pay"). relevant("refund", 50) :- intent("help").\n'
POLICY = """prohibited("refund", "limit") :- call("refund"), call_arg("amount", N), N > 100.
needs_confirmation("refund") :- call("refund"), call_arg("amount", N), N > 50.
public_reason("refund", "above 50 an approver has to agree") :- call("refund"), call_arg("amount", N), N > 50.
"""


def test_a_verdict_with_its_reasons_and_rules(run: Run, tmp_path: Path) -> None:
    pack = tmp_path / "desk"
    (pack / "rules" / "policy").mkdir(parents=True)
    (pack / "actions.py").write_text(ACTIONS)
    (pack / "rules" / "desk.mg").write_text(RULES)
    (pack / "rules" / "policy" / "limits.mg").write_text(POLICY)
    allowed = run("decide", str(pack), "refund", "--arg", "amount=50", "--intent", "help", "--degrade")
    assert (allowed.exit_code, allowed.stdout) == (0, "allow\n")
    asked = run("decide", str(pack), "refund", "--arg", "amount=51", "--degrade")
    lines = ["ask", "  above 50 an approver has to agree", "  by rules/policy/limits.mg:2"]
    assert (asked.exit_code, asked.stdout.splitlines()) == (3, lines)
    denied = run("decide", str(pack), "refund", "--arg", "amount=101", "--degrade", "--json")
    document = json.loads(denied.stdout)
    assert denied.exit_code == 1
    assert (document["verdict"], document["reasons"]) == ("deny", ["limit", "above 50 an approver has to agree"])
    text = "amount of at most 100: 100 would need an approval, 101 would be denied"
    assert document["would_unlock"] == [{"args": {"amount": 100}, "facts": [], "verdict": "ask", "text": text}]
    shown = run("decide", str(pack), "refund", "--arg", "amount=101", "--degrade")
    assert f"  {text}" in shown.stdout.splitlines()
    with load_pack(pack, degrade=True) as tested:
        (remedy,) = tested.decide("refund", {"amount": 101}).would_unlock
        assert (remedy.args, remedy.text) == ({"amount": 100}, text)
    wrong = run("decide", str(pack), "refund", "--arg", "amount=much", "--intent", "help", "--degrade")
    assert wrong.exit_code == 1
    assert "schema_validation_failed" in wrong.stderr
