"""`manglecp intent`: what the shell can ask, what people see, and what programs get."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from manglecp.cli.tool_text import tool_lines
from manglecp.wire.messages import MacroTool
from tests.cli.conftest import Run

PACK = Path(__file__).parents[2] / "examples" / "incident"
DIAGNOSE = str(PACK / "recorded" / "diagnose_error.json")
FIX = str(PACK / "recorded" / "fix_error.json")
Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def intent(run: Run) -> Run:
    def intent(*args: str, stdin: str | bytes | None = None) -> Result:
        return run("intent", str(PACK), *args, stdin=stdin)

    return intent


def rows(shown: Result) -> list[list[str]]:
    """The table, without its headings."""
    assert shown.exit_code == 0, shown.stderr
    heading, *lines = shown.stdout.partition("\n\n")[0].splitlines()
    assert heading.split() == ["TOOL", "LEVEL", "SCORE", "PHASE", "EFFECTS", "EXPIRES"]
    return [line.split() for line in lines]


def names(shown: Result) -> list[str]:
    return [row[0] for row in rows(shown)]


def document(shown: Result) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(shown.stdout)
    return message


# --- what is shown ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [("--budget", "12"), ("--max-tools", "0")])
def test_tools_that_are_proven_and_do_not_fit_are_counted(intent: Run, limit: tuple[str, str]) -> None:
    shown = intent("diagnose_error", "--facts", DIAGNOSE, *limit)
    assert shown.exit_code == 0
    assert shown.stdout.startswith("3 tools proven for this intent, but none fits the budget")
    shown = intent("diagnose_error", "--facts", DIAGNOSE, *limit, "--json")
    assert document(shown)["payload"]["diagnostics"]["x-tools_proven"] == 3
    shown = intent("diagnose_error", "--facts", DIAGNOSE, "--json")
    assert "x-tools_proven" not in document(shown)["payload"]["diagnostics"]


def test_a_table_and_what_the_best_tool_needs(intent: Run) -> None:
    shown = intent("diagnose_error", "--facts", DIAGNOSE)
    assert rows(shown) == [
        ["full_stack_diagnosis", "full", "95", "flesh", "filesystem", "2026-02-19T14:39:59Z"],
        ["list_failures", "condensed", "45", "flesh", "filesystem", "-"],
        ["read_errors", "minimal", "30", "flesh", "filesystem", "2026-02-19T14:39:59Z"],
    ]
    _, best, last = shown.stdout.split("\n\n")
    assert best.startswith("full_stack_diagnosis: Traces console errors")
    assert "  A recent request failed with status 404." in best
    assert "  lines (integer, optional): the maximum number of lines" in best
    assert "  skills: backend-logs, failed-requests" in best
    assert "  read file://api.log: the log of api" in best
    assert last.startswith("3 tools at 2026-02-19T14:30:10Z, ")
    assert shown.stderr == ""
    assert "\x1b" not in shown.stdout


def test_json_is_the_message_of_the_protocol(intent: Run) -> None:
    message = document(intent("diagnose_error", "--facts", DIAGNOSE, "--json"))
    assert (message["type"], message["manglecp"]) == ("intent_response", "2026-02-draft")
    assert message["payload"]["macro_tools"][0]["name"] == "full_stack_diagnosis"
    assert "proof_hints" not in message["payload"]


@pytest.mark.req("EVAL-31")
def test_an_unknown_intent_is_an_error(intent: Run) -> None:
    shown = intent("observ")
    assert (shown.exit_code, shown.stdout) == (1, "")
    told = "error[x-unknown_intent]: No rule of this server can match the intent 'observ'\n  Did you mean 'observe'?\n"
    assert shown.stderr == told


def test_why_tells_reasons_exclusions_and_idle_facts(intent: Run) -> None:
    shown = intent("diagnose_error", "--facts", DIAGNOSE, "--why").stdout
    assert "why full_stack_diagnosis: flesh, 95" in shown
    assert '  network_request("r3", "GET", "/api/users", 404)@[2026-02-19T14:29:59Z]' in shown
    assert "excluded\n  frontend_diagnosis, conflict: yields to full_stack_diagnosis\n" in shown
    assert "facts that were not used\n  current_url: " in shown


def test_why_not_tells_what_would_bring_a_tool(intent: Run) -> None:
    later = ["diagnose_error", "--facts", DIAGNOSE, "--now", "2026-02-19T14:45:00Z"]
    asked = ["--why-not", "full_stack_diagnosis", "--why-not", "reboot", "--why-not", "list_failures"]
    shown = intent(*later, *asked).stdout
    assert "excluded" not in shown
    told = shown.partition("why not full_stack_diagnosis\n")[2]
    blocked, unknown, there = told.replace("why not list_failures\n", "why not reboot\n").split("why not reboot\n")
    reasons, _, ways = blocked.partition("  it would be offered with\n")
    assert "relevant needs recent_error" in reasons
    assert ways.startswith(
        '    backend_log("api", "ERROR", _)@[2026-02-19T14:45:00Z]\n      and console_event(_, "error", '
    )
    assert unknown == "  no tool of this name could serve this intent\n\n"
    assert there.startswith("  it is offered\n\n")


def test_why_not_tells_what_only_the_server_knows_to_whoever_sits_there(intent: Run) -> None:
    """Which service is behind an address is the server's own fact."""
    facts = ["--fact", 'console_event("s", "error", "TypeError", "2026-02-19T14:30:00Z")']
    facts += ["--fact", 'network_request("r", "GET", "/api/users", 404)@[now]', "--now", "2026-02-19T14:30:10Z"]
    shown = intent("diagnose_error", *facts, "--why-not", "full_stack_diagnosis", "--as", "kim").stdout
    assert "failing_service needs backend_log, and there is no such fact" in shown
    assert "no facts were found that would unlock it and may be disclosed" in shown
    shown = intent("diagnose_error", *facts, "--why-not", "full_stack_diagnosis").stdout
    fact = 'backend_log("api", "ERROR", _)@[2026-02-19T14:30:10Z]'
    assert f"  it would be offered with\n    {fact}\n  other facts may unlock it too\n" in shown


def test_coverage_tells_what_became_of_the_rules(intent: Run) -> None:
    shown = intent("diagnose_error", "--facts", DIAGNOSE, "--coverage").stdout
    assert " fired, " in shown.partition("\nrules: ")[2].splitlines()[0]
    assert "rule_coverage" in document(intent("observe", "--coverage", "--json"))["payload"]["diagnostics"]


def test_nothing_that_a_page_wrote_reaches_the_terminal_unseen(intent: Run, write: Write) -> None:
    odd = "a\x1b[31m\x9b31m\u202eb\nc"
    said: list[dict[str, Any]] = [
        {"pred": "console_event", "args": ["s", "error", odd, "2026-02-19T14:30:00Z"]},
        {"pred": "network_request", "args": ["r", "GET", "/x", 404], "t": {"at": "2026-02-19T14:30:00Z"}},
    ]
    common = ["diagnose_error", "--now", "2026-02-19T14:30:00Z", "--why"]
    shown = intent(*common, "--facts", str(write("facts.json", json.dumps(said))))
    assert '  console_event("s", "error", "a\\u001b[31m\\u009b31m\\u202eb\\nc", ' in shown.stdout
    said[0]["pred"] = f"bad{odd}"
    refused = intent(*common, "--facts", str(write("facts.json", json.dumps(said))))
    assert refused.exit_code == 1
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown.stdout + refused.stderr)


def test_headings_are_bold_at_a_terminal(intent: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manglecp.cli.intent.bold", lambda: lambda text: f"<{text}>")
    shown = intent("observe", "--why-not", "reboot").stdout
    assert shown.startswith("<TOOL ")
    assert "\n<why not reboot>\n" in shown


# --- what can be asked -----------------------------------------------------------------------------------------------


def test_facts_come_from_the_command_line_and_from_files(intent: Run, write: Write) -> None:
    at = "2026-02-19T14:30:00Z"
    said = [
        {"pred": "console_event", "args": ["s", "error", "TypeError", at]},
        {"pred": "network_request", "args": ["r", "GET", "/api/users", 500], "t": {"at": at}},
    ]
    listed = write("facts.json", json.dumps(said))
    program = write("facts.mg", f'backend_log("api", "ERROR", "no route")@[{at}].\n')
    common = ["diagnose_error", "--now", at]
    assert names(intent(*common, "--facts", str(listed))) == ["frontend_diagnosis", "list_failures"]
    assert "full_stack_diagnosis" in names(intent(*common, "--facts", str(listed), "--facts", str(program)))
    assert "full_stack_diagnosis" in names(
        intent(
            *common,
            "--facts",
            "-",
            "--fact",
            f'backend_log("api", "ERROR", "x")@[{at}, now].',
            stdin=listed.read_bytes(),
        )
    )
    later = ["diagnose_error", "--now", "2026-02-19T14:40:01Z"]
    assert names(intent(*later, "--facts", str(listed), "--facts", str(program))) == ["list_failures"]


@pytest.mark.parametrize(
    ("annotation", "t"),
    [
        ("@[2026-01-15T10:00:00Z]", {"at": "2026-01-15T10:00:00Z"}),
        ("@[_, now]", {"at": "2026-01-15T12:00:00Z"}),
        ("@[2026-01-15T10:00:00Z, _]", {"start": "2026-01-15T10:00:00Z", "end": "2026-01-15T12:00:00Z"}),
        ("", {"at": "2026-01-15T12:00:00Z"}),
    ],
)
def test_times_of_facts(intent: Run, annotation: str, t: dict[str, str]) -> None:
    """The answer says with which facts a tool was proven; those of untimed("now") end at the evaluation time."""
    fact = f'backend_log("api", "ERROR", "x"){annotation}'
    message = document(intent("observe", "--fact", fact, "--now", "2026-01-15T12:00:00Z", "--why", "--json"))
    hints = message["payload"]["proof_hints"]
    told = [one for each in hints["derivations"] for one in each["supporting_facts"]]
    if annotation.startswith("@[2026-01-15T10:00:00Z]"):  # too long ago to prove anything
        assert told == []
        assert [fact["pred"] for fact in hints["unmatched_facts"]] == ["backend_log"]
    else:
        assert [one.get("t") for one in told] == [t]


def test_now_goes_before_the_time_of_a_recorded_request(intent: Run) -> None:
    shown = intent("diagnose_error", "--facts", DIAGNOSE, "--now", "2026-02-19T15:45:00+01:00")
    assert names(shown) == ["list_failures"]
    assert "1 tool at 2026-02-19T14:45:00Z" in shown.stdout


@pytest.mark.parametrize(
    ("eval_time", "shown"),
    [('"2026-01-15T13:00:00+01:00"', "2026-01-15T12:00:00Z"), ("1768478400000", "2026-01-15T12:00:00Z")],
)
def test_the_time_of_a_recorded_request(intent: Run, write: Write, eval_time: str, shown: str) -> None:
    request = write("request.json", f'{{"payload": {{"facts": [], "eval_time": {eval_time}}}}}')
    assert f"1 tool at {shown}, " in intent("observe", "--facts", str(request)).stdout


@pytest.mark.parametrize("eval_time", ["null", '"now"'])
def test_the_clock_goes_for_a_request_without_time(intent: Run, write: Write, eval_time: str) -> None:
    request = write("request.json", f'{{"payload": {{"facts": [], "eval_time": {eval_time}}}}}')
    before = time.strftime("%Y-%m-%dT", time.gmtime())
    used = document(intent("observe", "--facts", str(request), "--json"))["payload"]["eval_time_used"]
    assert before <= used <= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))


def test_limits_and_levels(intent: Run) -> None:
    ask = ["diagnose_error", "--facts", DIAGNOSE]
    assert [row[1] for row in rows(intent(*ask, "--level", "full"))] == ["full"] * 3
    assert names(intent(*ask, "--max-tools", "1")) == ["full_stack_diagnosis"]
    assert rows(intent(*ask, "--budget", "150"))[0][1] == "condensed"
    assert intent(*ask, "--budget", "0").stdout.startswith("3 tools proven")


@pytest.mark.req("SEC-04")
def test_who_asks_decides(intent: Run) -> None:
    ask = ["fix_error", "--facts", FIX]
    assert names(intent(*ask)) == ["propose_fix"]
    assert names(intent(*ask, "--permission", "fix")) == ["propose_fix", "apply_fix"]
    assert names(intent(*ask, "--as", "kim", "--permission", "fix")) == ["propose_fix", "apply_fix"]
    refused = intent(*ask, "--as", "anonymous")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error[auth_required]: ")


def test_only_who_may_know_is_told_about_policy(intent: Run) -> None:
    ask = ["fix_error", "--facts", FIX, "--why"]
    assert "apply_fix, exclusion: the permission fix is missing" in intent(*ask).stdout
    assert "apply_fix" not in intent(*ask, "--as", "kim").stdout


def test_parameters_of_the_intent_and_of_the_pack(run: Run, folder: Path) -> None:
    (folder / "p" / "rules").mkdir(parents=True)
    (folder / "p" / "pack.toml").write_text('[params.unit]\ndescription = "of length"\ndefault = "m"\n')
    (folder / "p" / "actions.py").write_text(
        'from manglecp import action\n\n@action(effects=[])\ndef measure() -> int:\n    """Measure."""\n    return 1\n'
    )
    (folder / "p" / "rules" / "tools.mg").write_text(
        'macro("measure", "Measures.").\nmacro_step("measure", 1, "measure").\n'
        'mandatory("measure") :- intent("look"), setting("unit", "km"), intent_param("deep", /true), '
        'intent_param("times", 3), intent_param("mood", "good").\n'
    )
    params = ["--param", "deep=true", "--param", "times=3", "--param", "mood=good"]
    assert names(run("intent", "p", "look", *params, "--set", "unit=km")) == ["measure"]
    assert run("intent", "p", "look", *params).stdout.startswith("No tool")
    refused = run("intent", "p", "look", "--set", "size=km")
    assert refused.exit_code == 1
    assert "size" in refused.stderr


def test_external_predicates_are_answered(run: Run, folder: Path) -> None:
    (folder / "p" / "rules").mkdir(parents=True)
    (folder / "p" / "actions.py").write_text(
        'from manglecp import action\n\n@action(effects=[])\ndef measure() -> int:\n    """Measure."""\n    return 1\n'
    )
    (folder / "p" / "externals.py").write_text(
        "from manglecp import external\n\n"
        '@external("doubled(Number, Twice)", mode="+-")\n'
        'def doubled(number: int) -> list[int]:\n    """Twice the number."""\n    return [2 * number]\n'
    )
    (folder / "p" / "rules" / "tools.mg").write_text(
        "Decl doubled(Number, Twice) descr [external(), mode('+', '-')] bound [/number, /number].\n"
        'macro("measure", "Measures.").\nmacro_step("measure", 1, "measure").\n'
        'relevant("measure", Score) :- intent("look"), doubled(21, Score).\n'
    )
    shown = run("intent", "p", "look")
    assert [row[2] for row in rows(shown)] == ["42"]


# --- what is refused -------------------------------------------------------------------------------------------------


def test_errors_of_the_protocol_are_readable(intent: Run) -> None:
    wrong = ["--fact", 'console_event("s", "error", "x")', "--fact", 'network_requests("r")']
    shown = intent("diagnose_error", *wrong)
    assert (shown.exit_code, shown.stdout) == (1, "")
    first, *others = shown.stderr.splitlines()
    assert first == "error[invalid_facts]: 2 fact validation errors"
    assert others[0].startswith("  fact 0, console_event: Predicate 'console_event' expects 4 arguments (session_id, ")
    assert any("network_request'" in line for line in others[2:])
    missing = intent("diagnose_error")
    assert missing.exit_code == 1
    assert missing.stderr.endswith("  missing: console_event\n  add --fact 'console_event(…)'\n")


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "string"),
        ({"type": ["integer", "null"]}, "integer"),
        ({"anyOf": [{"type": "array", "items": {}}, {"type": "null"}]}, "array"),
        ({"anyOf": [{"type": "number"}, {"type": "string"}, True]}, "number or string"),
        *(({**odd}, "any") for odd in ({}, {"type": 1}, {"type": [2]}, {"anyOf": 3}, {"anyOf": [{"type": "null"}]})),
    ],
)
def test_an_argument_is_said_to_be_what_its_schema_says(schema: dict[str, Any], kind: str) -> None:
    tool = MacroTool(macro_id="m", name="t", disclosure_level="full", input_schema={"properties": {"a": schema}})
    assert list(tool_lines(tool)) == ["t", f"  a ({kind}, optional)"]


def test_errors_of_the_protocol_as_json(intent: Run) -> None:
    shown = intent("observe", "--facts", "-", "--json", stdin='[{"pred": "_manglecp_x", "args": [1]}]')
    message = document(shown)
    assert (shown.exit_code, message["type"]) == (1, "error")
    assert message["payload"]["code"] == "reserved_predicate"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--fact", "p("], "error[parse]"),
        (["--fact", "p(X)"], "a fact has no variables, found X"),
        (["--fact", "p(1) :- q(1)"], "this is a rule"),
        (["--fact", "Decl p(X)"], "facts have no declarations"),
        (["--now", "yesterday"], "'yesterday' is not a time"),
        (["--param", "deep"], "'deep' is not NAME=VALUE"),
        (["--param", "a=1", "--param", "a=2"], "a is given twice"),
        (["--facts", "missing.json"], "missing.json"),
        (["--level", "some"], "'some' is not one of"),
        (["--budget", "-1"], "-1"),
        (["--as", "anonymous", "--permission", "fix"], "has no permissions"),
    ],
)
def test_a_wrong_command_line(intent: Run, args: list[str], told: str) -> None:
    shown = intent("observe", *args)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert told in shown.stderr


@pytest.mark.parametrize("content", ["{", '{"payload": {"facts": 1}}', '"text"'])
def test_files_that_hold_no_facts(intent: Run, write: Write, content: str) -> None:
    shown = intent("observe", "--facts", str(write("facts.json", content)))
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "facts.json" in shown.stderr


@pytest.mark.parametrize("odd", ['["\\ud800"]', "[NaN]", "[1e999]", "[" * 5000 + "]" * 5000, "[{}]", "[null]"])
def test_what_no_client_could_send_is_refused_like_any_message(intent: Run, write: Write, odd: str) -> None:
    facts = write("facts.json", f'[{{"pred": "current_url", "args": {odd}}}]')
    shown = intent("observe", "--facts", str(facts))
    assert shown.exit_code in (1, 2)
    assert shown.stdout == ""
    assert "rror" in shown.stderr


def test_bytes_that_are_no_text(intent: Run) -> None:
    shown = intent("observe", "--param", "a=\udcff")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.startswith("error[malformed_message]: ")


def test_a_pack_that_cannot_be_used(run: Run, folder: Path) -> None:
    (folder / "p" / "rules").mkdir(parents=True)
    (folder / "p" / "rules" / "tools.mg").write_text("mandatory(X) :- p(Y).\n")
    shown = run("intent", "p", "observe")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "rules/tools.mg:1" in shown.stderr


def test_only_the_owner_of_the_machine_sees_which_rule_failed(run: Run, folder: Path) -> None:
    (folder / "p" / "rules").mkdir(parents=True)
    (folder / "p" / "rules" / "tools.mg").write_text("ratio(N) :- intent(_), M = 0, N = fn:div(1, M).\n")
    shown = run("intent", "p", "observe")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "rules/tools.mg:1" in shown.stderr
    assert "error[evaluation_failed]" in shown.stderr
    shown = run("intent", "p", "observe", "--as", "kim")
    assert shown.stderr.startswith("error[evaluation_failed]")
    assert "tools.mg" not in shown.stderr


def test_a_wrong_command_line_loads_nothing() -> None:
    """The language and the packs cost a good part of a second."""
    code = (
        "import sys; from manglecp.cli import cli; cli(['intent', '--help'], standalone_mode=False)\n"
        "print([name for name in sys.modules if name.startswith(('manglecp.mangle', 'manglecp.wire', 'msgspec'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
