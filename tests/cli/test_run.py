"""`manglecp run` as a process: rules and policies that select, effects that need approval, targets, errors."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from manglecp.runner import verify
from tests.cli.conftest import Run

PLUGIN = '''
from manglecp import Context, action
from manglecp.toolhost import Artifact


@action(effects=["none"], tags=["tag.count"])
def add(context: Context, by: int = 1) -> int:
    """Add to the number in slot 0; from 3 on, slot 1 is occupied."""
    number = by + (int(context.slots[0].content_json) if 0 in context.slots else 0)
    context.slots[0] = Artifact("number", "add", str(number))
    if number >= 3:
        context.slots[1] = Artifact("text", "add", "enough")
    return number


@action(effects=["filesystem"], tags=["tag.count"])
def note(context: Context, text: str) -> str:
    """Append to a file; after the second line, slot 2 is occupied."""
    with open("notes", "a") as file:
        file.write(text)
    with open("notes") as file:
        if len(file.read()) > 1:
            context.slots[2] = Artifact("text", "note", "twice")
    return text
'''
RULES = """
enough() :- slot(1, _, _, _).
pick(Sid) :- menu(Sid, _, "add"), goal("goal.COUNT.v1").
input_value(Sid, "by", 2) :- menu(Sid, _, "add").
pick(Sid, 1) :- menu(Sid, _, "note"), menu_input(Sid, "text", /true), goal("goal.NOTE.v1"), !enough().
input_value(Sid, "text", "x") :- menu(Sid, _, "note").
"""


def goal(name: str, *slots: int, **members: Any) -> dict[str, Any]:
    return {
        "goal_id": f"goal.{name}.v1",
        "dsl_schema": {"type": "object", "properties": {"by": {"type": "integer"}}},
        "candidate_tags": ["tag.count"],
        "default_budget_profile": "budget.profileA.default",
        "required_tools": ["AID.COUNT.ADD.v1", "AID.ASK_SUP.v1"],
        "completion_slots": list(slots),
        **members,
    }


def goal_pack(*goals: dict[str, Any], **members: Any) -> str:
    pack = {"goalpack_id": "goalpack.count", "goalpack_version": "1.0.0", "trust_tier": "goal_tier0_builtin"}
    return json.dumps({**pack, "goals": goals, **members})


@pytest.fixture(autouse=True)
def files(folder: Path) -> Path:
    (folder / "plugin").mkdir()
    (folder / "work").mkdir()
    (folder / "plugin" / "count.py").write_text(PLUGIN)
    (folder / "goal.json").write_text(goal_pack(goal("COUNT", 1)))
    (folder / "note.json").write_text(goal_pack(goal("NOTE", 2)))
    (folder / "pick.mg").write_text(RULES)
    return folder


def start(*words: str, status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "manglecp", "run", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def logged(file: str, event: str) -> list[dict[str, Any]]:
    return [record.payload for record in verify(Path(file)).records if record.event == event]


@pytest.mark.req("IPC-01", "IPC-03", "IPC-04")
def test_rules_pick_with_a_proof_that_is_printed_and_recorded(run: Run) -> None:
    words = ("plugin/count.py", "--goal", "goal.json", "--rules", "pick.mg", "--request-id", "req-7", "--log", "log")
    done = start(*words, "--why")
    proof = 'by pick(Sid) :- menu(Sid, _, "add"), goal("goal.COUNT.v1").  (pick.mg:3)'
    assert proof in done.stdout
    assert "  1  AID.COUNT.ADD.v1  2\n" in done.stdout
    assert "goal_done after 2 steps\n" in done.stdout
    (first, _) = logged("log", "selector_policy_raw")
    assert first["raw"] == '<PICK><SID0001><INP>{"by": 2}</INP><END>'
    assert proof in first["why"]
    shown = run("run-log", "verify", "log", "--json")
    assert json.loads(shown.stdout)["request_id"] == "req-7"
    assert run("run-log", "replay", "log").stdout == "ok: goal_done after 2 steps\n"
    assert "cannot create log: File exists" in start(*words, status=2).stderr


@pytest.mark.req("IPC-04", "IPC-06", "IPC-07")
def test_a_policy_process_selects_and_a_wrong_selection_is_refused(folder: Path) -> None:
    (folder / "policy.py").write_text(
        "import json, os, sys\n"
        "with open(sys.argv[-1]) as file: situation = json.load(file)\n"
        "assert os.environ['SHARED'] == 'yes' and 'HIDDEN' not in os.environ\n"
        "if not situation['ds_state']['slots'] and not os.path.exists('asked'):\n"
        "    open('asked', 'w').close()\n"
        "    print('<PICK><SID0099><END>')\n"
        "else:\n"
        "    print('<PICK><SID0001><INP>{\"by\": 9}</INP><END>')\n"
    )
    words = ("plugin/count.py", "--goal", "goal.json", "--policy", f"{sys.executable} policy.py", "--json")
    done = start(*words, "--policy-env", "SHARED", "--policy-timeout", "60", SHARED="yes", HIDDEN="no")
    document = json.loads(done.stdout)
    assert (document["ok"], document["reason"], document["steps"]) == (True, "goal_done", 2)
    assert document["ds_state"]["slots"]["0"]["content_json"] == "9"
    assert "  1  refused selection: SID0099 is not on the menu\n" in done.stderr
    assert [refused["why"] for refused in logged(document["log"], "invalid_pick")] == ["SID0099 is not on the menu"]


def test_the_rules_are_a_policy_process_too() -> None:
    command = f"{sys.executable} -m manglecp.runner.rules pick.mg"
    done = start("plugin/count.py", "--goal", "goal.json", "--policy", command, "--policy-timeout", "60")
    assert "goal_done after 2 steps\n" in done.stdout


def test_an_effect_needs_an_approval_and_a_judged_turn(folder: Path) -> None:
    words = ("plugin/count.py", "--goal", "note.json", "--rules", "pick.mg", "--workspace", "work")
    refused = start(*words, "--log", "refused", "--allow", "AID.COUNT.NOTE", status=1)
    assert "AID.COUNT.NOTE.v1 was not approved; --allow AID.COUNT.NOTE.v1 approves it\n" in refused.stderr
    assert logged("refused", "tool_error")[0]["err"]["code"] == "lease_refused"
    assert not (folder / "work" / "notes").exists()
    start(*words, "--log", "log", "--allow", "AID.COUNT.NOTE.*")
    assert (folder / "work" / "notes").read_text() == "xx"
    turns = [each["turn"] for each in logged("log", "tool_ok")]
    assert len(set(turns)) == 2
    assert all(turn.startswith("jw1_") for turn in turns)


def test_a_foreign_toolhost_is_listed_and_driven_by_its_command(folder: Path) -> None:
    host = (sys.executable, "-m", "manglecp.toolhost.host", "plugin/count.py")
    done = start("--goal", "goal.json", "--autopilot", "9", "--", *host)
    assert "goal_done after 3 steps\n" in done.stdout
    absent = start("--goal", "goal.json", "--autopilot", "9", "--", "./none", "x", status=2)
    assert "cannot start ./none: No such file or directory\n" in absent.stderr
    refused = start("--goal", "note.json", "--rules", "pick.mg", "--", *host, status=1)
    assert "was not approved" in refused.stderr
    assert not (folder / "notes").exists()


def test_the_autopilot_ends_after_its_steps() -> None:
    done = start("plugin/count.py", "--goal", "goal.json", "--autopilot", "2", "--log", "log", status=1)
    assert "max_steps after 2 steps\n" in done.stdout
    assert logged("log", "run_start")[0]["control_mode"] == "FALLBACK_ONLY"
    assert "give --rules, --policy or --autopilot" in start("plugin/count.py", "--goal", "goal.json", status=2).stderr


def test_a_user_picks_at_the_terminal_and_approves_the_effect(folder: Path) -> None:
    ours, theirs = pty.openpty()
    words = ["plugin/count.py", "--goal", "note.json", "--workspace", "work", "--log", "log"]
    process = subprocess.Popen(
        [sys.executable, "-m", "manglecp", "run", *words], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    for prompt, answer in [
        (b"Enter ends)", b"2\n"),
        (b"text: ", b"a\n"),
        (b"[y/N]: ", b"y\n"),
        (b"Enter ends)", b"\n"),
    ]:
        while prompt not in shown:
            shown += os.read(ours, 4096)
        shown = shown.partition(prompt)[2]
        os.write(ours, answer)
    output, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert b"noop after 2 steps\n" in output
    assert (folder / "work" / "notes").read_text() == "a"


def test_a_pack_offers_reads_and_proven_tools(folder: Path, run: Run) -> None:
    pack = folder / "desk"
    (pack / "rules" / "policy").mkdir(parents=True)
    (pack / "actions.py").write_text(
        "from pathlib import Path\n"
        "from manglecp import action\n"
        "@action(effects=['none'])\n"
        "def look(order: str) -> str:\n    return order\n"
        "@action(effects=['filesystem'])\n"
        "def refund(order: str) -> str:\n    Path('refunds').write_text(order)\n    return order\n"
    )
    (pack / "rules" / "desk.mg").write_text(
        'Decl complaint(Order) descr [doc("d"), direction("input")] bound [/string].\n'
        'macro("pay_back", "Refund.").\nmacro_step("pay_back", 1, "refund").\n'
        'arg_value("pay_back", 1, "order", Order) :- complaint(Order).\n'
        'relevant("pay_back", 80) :- intent("help"), complaint(_).\n'
    )
    (pack / "rules" / "policy" / "desk.mg").write_text('needs_confirmation("pay_back").\n')
    members = {"required_tools": ["AID.DESK.LOOK.v1"], "completion_slots": [0]}
    (folder / "desk.json").write_text(goal_pack(goal("DESK", **members)))
    (folder / "tool.json").write_text(goal_pack(goal("DESK", **members | {"required_tools": ["AID.TOOL.PAY_BACK.v1"]})))
    (folder / "desk.mg").write_text('pick(Sid) :- menu(Sid, "AID.TOOL.PAY_BACK.v1", _).\n')
    words = ("desk", "--rules", "desk.mg", "--workspace", "work", "--store", "store.db")
    # Without an intent there is no tool, and the action with an effect is not offered.
    absent = start(*words, "--goal", "tool.json", status=2)
    assert "requires AID.TOOL.PAY_BACK.v1, and the target offers AID.DESK.LOOK.v1\n" in absent.stderr
    proven = (*words, "--goal", "desk.json", "--intent", "help", "--fact", 'complaint("A-1")')
    assert "An approver has to approve this call" in start(*proven, status=1).stdout
    assert not (folder / "work" / "refunds").exists()
    done = start(*proven, "--confirm", "--log", "log")
    assert "goal_done after 1 step\n" in done.stdout
    assert (folder / "work" / "refunds").read_text() == "A-1"
    assert run("run-log", "replay", "log").exit_code == 0
    assert run("ledger", "verify", "--store", "store.db").exit_code == 0


WITHOUT_ID = goal("COUNT", 1) | {"goal_id": "count"}


@pytest.mark.parametrize(
    ("text", "words", "error"),
    [
        ("{", (), "goal.json: "),
        ("[]", (), "not a goal pack: Expected `object`, got `array`"),
        (goal_pack(), (), "not a goal pack: Expected `array` of length >= 1 - at `$.goals`"),
        (goal_pack(WITHOUT_ID), (), r"not a goal pack: Expected `str` matching regex "),
        (goal_pack(goal("A", 8)), (), "at `$.goals[0].completion_slots[0]`"),
        (goal_pack(goal("A", 1), trust_tier="x"), (), "not a goal pack: Invalid enum value 'x' - at `$.trust_tier`"),
        (goal_pack(goal("A", 1), goal("A", 1)), (), "goal.A.v1 is defined twice"),
        (
            goal_pack(goal("A", 1), goal("B", 1)),
            (),
            "has several goals: select one of goal.A.v1, goal.B.v1 with --goal-id",
        ),
        (goal_pack(goal("A", 1)), ("--goal-id", "goal.B.v1"), "has no goal goal.B.v1: select one of goal.A.v1"),
        (goal_pack(goal("A", 1)), ("--input", "by=x"), "the inputs do not fit goal.A.v1: /by: "),
        (
            goal_pack(goal("A", 1, required_tools=["AID.X.v1"])),
            (),
            "requires AID.X.v1, and the target offers AID.COUNT.ADD",
        ),
        (goal_pack(goal("A", 1, candidate_tags=["t"])), (), "no action has a tag of t; tags here: tag.count"),
        (goal_pack(goal("A", 1)), ("--rules", "pick.mg", "--policy", "x"), "give either --rules or --policy"),
        (goal_pack(goal("A", 1)), ("--policy", "no-such-program"), "there is no program 'no-such-program'"),
        (goal_pack(goal("A", 1)), ("--intent", "x"), "--intent is for a pack"),
    ],
)
def test_a_run_that_cannot_start_says_why(
    folder: Path, run: Run, text: str, words: tuple[str, ...], error: str
) -> None:
    (folder / "goal.json").write_text(text)
    shown = run("run", "plugin/count.py", "--goal", "goal.json", "--autopilot", "1", *words)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert error in shown.stderr
    assert not list(folder.glob("run-*.jsonl"))
