"""Decisions about calls: what is recorded, refused, approved and reported."""

from __future__ import annotations

import json
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.guard.hosts import READ, TOOLS, Setup, approval_id, tool


def test_shadow_mode_blocks_nothing_and_records_the_verdict_of_the_rules(shadow: Setup) -> None:
    shadow.set_state(tools=[*TOOLS, tool("new", READ)])
    with shadow.host() as host:
        host.initialize()
        assert "new" in host.tools()
        for name in ("read", "fetch", "write", "delete", "mystery", "new"):
            assert host.call(name, path="/a")[0] is False
    assert [call["params"]["name"] for call in shadow.calls_received()] == [
        *("read", "fetch", "write", "delete", "mystery", "new")
    ]
    assert shadow.verdicts() == {
        "files__read": "allow",
        **dict.fromkeys(("files__fetch", "files__write", "files__delete", "files__mystery"), "ask"),
        "files__new": "deny",
    }


def test_a_shadow_verdict_is_not_mistaken_for_an_enforced_one(shadow: Setup) -> None:
    with shadow.host() as host:
        host.call("write", path="/a")
    [row] = shadow.report()
    assert (row["verdict"], row["mode"], row["calls"], row["approved"]) == ("ask", "shadow", 1, 0)
    lines = shadow.cli("decisions", "list", "--json", "--store", shadow.store).splitlines()
    outcome, listed = map(json.loads, lines)
    assert (listed["verdict"], listed["operation"]) == ("ask", "guard-shadow")
    assert outcome["run"] == listed["run"]
    assert not listed["run"].startswith("p-")  # no permit was given
    text = shadow.cli("guard", "report", str(shadow.config))
    assert "shadow" in text
    page = shadow.folder / "report.html"
    shadow.cli("guard", "report", str(shadow.config), "--html", str(page))
    assert "shadow: the calls were forwarded" in page.read_text()
    shadow.install("--enforce")  # what was forwarded in shadow mode was not approved
    with shadow.host() as host:
        assert host.call("write", path="/a")[0] is True
    assert sorted((row["mode"], row["calls"]) for row in shadow.report()) == [("enforced", 1), ("shadow", 1)]


def test_a_call_that_needs_an_approval_runs_once_after_it(enforced: Setup) -> None:
    with enforced.host() as host:
        failed, text = host.call("write", path="/a")
        assert failed
        assert "needs an approval, because it writes" in text
        assert f"manglecp approvals approve {approval_id(text)} --store {enforced.store}" in text
        assert host.call("write", path="/a")[1] == text  # still pending
        assert enforced.calls_received() == []
        enforced.approve(text)
        assert host.call("write", path="/a")[0] is False
        failed, again = host.call("write", path="/a")
        assert failed
        assert approval_id(again) != approval_id(text)
    assert len(enforced.calls_received()) == 1
    [row] = enforced.report()
    assert (row["approved"], row["mode"]) == (1, "enforced")
    outcomes = enforced.cli("decisions", "list", "--json", "--store", enforced.store)
    assert '"operation":"outcome"' in outcomes.replace(" ", "")


def test_an_approval_holds_after_a_restart(enforced: Setup) -> None:
    with enforced.host() as host:
        text = host.call("write", path="/a")[1]
    enforced.approve(text)
    with enforced.host() as host:
        assert host.call("write", path="/a")[0] is False
        assert host.call("write", path="/a")[0] is True
    assert len(enforced.calls_received()) == 1


def test_an_approval_is_for_one_call(enforced: Setup) -> None:
    with enforced.host() as host:
        enforced.approve(host.call("write", path="/a")[1])
        assert host.call("write", path="/b")[0] is True
        assert host.call("write", path="/a", mode="x")[0] is True
        assert host.call("delete", path="/a")[0] is True
    assert enforced.calls_received() == []


def test_an_approval_ends_when_the_tool_is_pinned_anew(enforced: Setup) -> None:
    with enforced.host() as host:
        enforced.approve(host.call("write", path="/a")[1])
    changed = [tool | ({"description": "Other"} if tool["name"] == "write" else {}) for tool in TOOLS]
    enforced.set_state(tools=changed)
    enforced.pin("--yes")
    with enforced.host() as host:
        assert host.call("write", path="/a")[0] is True
    assert enforced.calls_received() == []


def test_an_approval_is_for_one_configuration(enforced: Setup, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    shutil.copy(enforced.config, other)
    other.write_text(other.read_text().replace("mcp.json", "other.json"))
    lock = enforced.folder / "manglecp.lock"
    document = json.loads(lock.read_text())
    document["configurations"]["other.json"] = document["configurations"]["mcp.json"]
    lock.write_text(json.dumps(document))
    with enforced.host() as host:
        enforced.approve(host.call("write", path="/a")[1])
    enforced.config = other  # beside the same lock and store
    with enforced.host() as host:
        failed, text = host.call("write", path="/a")
        assert failed
        assert "needs an approval" in text
    assert enforced.calls_received() == []


def test_a_denied_request_stays_refused(enforced: Setup) -> None:
    with enforced.host() as host:
        request = approval_id(host.call("write", path="/a")[1])
        enforced.cli("approvals", "deny", request, "--store", enforced.store)
        assert host.call("write", path="/a")[0] is True
    assert enforced.calls_received() == []


def test_a_class_that_allows_needs_no_approval_and_the_outcome_is_recorded(enforced: Setup) -> None:
    rules = enforced.folder / "rules"
    rules.mkdir()
    (rules / "own.mg").write_text('exempt("files__write").\n')
    enforced.install("--rules", str(rules))
    with enforced.host() as host:
        assert host.call("write", path="/a")[0] is False
        assert host.call("fetch", path="/a")[0] is True
    assert enforced.verdicts() == {"files__write": "allow", "files__fetch": "ask"}


def test_the_report_proposes_rules_that_load(shadow: Setup) -> None:
    with shadow.host() as host:
        for name in ("a", "b/c"):
            host.call("write", path=f"/home/me/{name}")
    document = json.loads(shadow.cli("guard", "report", str(shadow.config), "--json"))
    rules = shadow.folder / "rules"
    rules.mkdir()
    proposals = [line.removeprefix("# ") for line in document["proposals"] if line.startswith("# exempt")]
    (rules / "own.mg").write_text("\n".join(proposals))
    shadow.install("--rules", str(rules), "--enforce")
    with shadow.host() as host:
        assert host.call("write", path="/home/me/d")[0] is False
        assert host.call("write", path="/home/me/../you")[0] is True
        assert host.call("write", path="/etc/passwd")[0] is True


def test_a_proposed_rule_restricts_every_argument_that_the_calls_have_in_common(setup: Setup) -> None:
    setup.set_state(tools=[tool("move", {"readOnlyHint": False}, "source", "destination", "note")])
    setup.install()
    with setup.host() as host:
        for name in ("a", "b/c"):
            host.call("move", source=f"/home/me/{name}", destination=f"/srv/notes/{name}", note=name)
    document = json.loads(setup.cli("guard", "report", str(setup.config), "--json"))
    [proposal] = [line for line in document["proposals"] if line.startswith("# exempt")]
    (setup.folder / "rules").mkdir()
    (setup.folder / "rules" / "own.mg").write_text(proposal.removeprefix("# "))
    setup.install("--rules", str(setup.folder / "rules"), "--enforce")
    with setup.host() as host:
        assert host.call("move", source="/home/me/d", destination="/srv/notes/d")[0] is False
        assert host.call("move", source="/home/me/d", destination="/etc/cron.d/d")[0] is True
        assert host.call("move", source="/etc/shadow", destination="/srv/notes/d")[0] is True
        assert host.call("move", destination="/srv/notes/d")[0] is True


def test_no_rule_is_proposed_for_a_tool_that_is_not_pinned_any_more(shadow: Setup) -> None:
    with shadow.host() as host:
        host.call("write", path="/a")
        host.call("fetch", path="/a")
    shadow.set_state(tools=[tool for tool in TOOLS if tool["name"] != "write"])
    shadow.pin("--yes")
    document = json.loads(shadow.cli("guard", "report", str(shadow.config), "--json"))
    assert "files__fetch" in "".join(document["proposals"])
    assert "files__write" not in "".join(document["proposals"])


def test_an_agent_cannot_choose_a_rule_that_is_proposed(shadow: Setup) -> None:
    with shadow.host() as host:
        for number in range(2):
            host.call("write", path=f"https://{number}.example.org/", note=f"ok/{number}")
            host.call("fetch", path=f"/a\u202e/{number}")
            host.call("delete", path=f"/a\n/{number}")
    document = json.loads(shadow.cli("guard", "report", str(shadow.config), "--json"))
    rules = [line for line in document["proposals"] if "exempt" in line]
    assert rules == [
        '# exempt("files__delete") :- call("files__delete"), call_arg("path", P), :string:starts_with(P, "/a\\n/"), '
        '!:string:contains(P, "..").',
        '# exempt("files__fetch").',
        '# exempt("files__write").',
    ]


def test_a_call_that_rules_cannot_decide_about_is_recorded_and_refused(enforced: Setup) -> None:
    rules = enforced.folder / "rules"
    rules.mkdir()
    (rules / "own.mg").write_text('prohibited(T, "big") :- call(T), call_arg("size", N), N > 100.\n')
    enforced.install("--rules", str(rules))
    with enforced.host() as host:
        for size in ("101", 2**64):
            failed, text = host.call("big", size=size)
            assert failed
            assert "the rules cannot decide" in text
        assert "does not fit into 64 bits" in text
        assert host.call("read", path="/a")[0] is False
    assert enforced.verdicts() == {"files__big": "deny", "files__read": "allow"}
    assert len(enforced.calls_received()) == 1


def test_the_command_for_the_approver_is_one_for_a_shell(tmp_path: Path) -> None:
    (tmp_path / "Application Support").mkdir()
    setup = Setup(tmp_path / "Application Support")
    setup.install("--enforce")
    with setup.host() as host:
        text = host.call("write", path="/a")[1]
    command = next(line for line in text.splitlines() if "manglecp approvals" in line).partition("run: ")[2]
    assert shlex.split(command)[-1] == setup.store


@pytest.mark.parametrize("flag", ["--shadow", "--enforce"])
def test_outcomes_are_recorded(setup: Setup, flag: str) -> None:
    setup.install(flag)
    with setup.host() as host:
        assert host.call("read", path="/a")[0] is False
        setup.set_state(fails=True)
        for _ in range(2):
            assert host.call("read", path="/a")[0] is True
    [row] = setup.report()
    assert (row["calls"], row["failed"]) == (3, 2)


def test_the_page_of_the_report_has_the_proof_of_each_verdict(shadow: Setup) -> None:
    with shadow.host() as host:
        host.call("write", path="/a")
    page = shadow.folder / "report.html"
    shadow.cli("guard", "report", str(shadow.config), "--html", str(page))
    for text in (
        "needs_confirmation(&quot;files__write&quot;)",
        "starter.mg:",
        "tool_class(&quot;files__write&quot;,&quot;write&quot;)",
    ):
        assert text in page.read_text()
    rules = shadow.folder / "rules"
    rules.mkdir()
    (rules / "own.mg").write_text('exempt("files__write").\n')
    shadow.install("--rules", str(rules))
    shadow.cli("guard", "report", str(shadow.config), "--html", str(page))
    assert "the decision was made with" in page.read_text()  # other rules prove nothing about an earlier verdict
    assert "needs_confirmation(" not in page.read_text()


@pytest.mark.parametrize("when", ["before the start", "while it runs"])
def test_nothing_passes_without_a_store(enforced: Setup, when: str) -> None:
    path = Path(enforced.store)
    if when == "before the start":
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"damaged" * 1_000)
    with enforced.host() as host:
        host.initialize()
        if when == "while it runs":
            assert host.call("read", path="/a")[0] is False
            with closing(sqlite3.connect(path)) as database:
                database.execute("DROP TABLE decision")
        before = len(enforced.calls_received())
        for tool in ("read", "write", "read"):
            failed, text = host.call(tool, path="/a")
            assert failed
            assert "was not executed" in text
    assert len(enforced.calls_received()) == before


def test_roles_of_the_rules_are_demanded(enforced: Setup) -> None:
    rules = enforced.folder / "rules"
    rules.mkdir()
    (rules / "own.mg").write_text(
        'exempt("files__write").\nneeds_approval(T, "lead") :- call(T), tool_of(T, "files", "write").\n'
    )
    enforced.install("--rules", str(rules))
    with enforced.host() as host:
        failed, text = host.call("write", path="/a")
        assert failed
        assert "by an approver with the role lead" in text
        assert host.call("write", path="/b", urgent=True)[0] is True
        [first, _] = json.loads(enforced.cli("approvals", "list", "--json", "--store", enforced.store))
        assert first["roles"] == ["lead"]
        enforced.approve(text)  # the operator of the machine has every role
        assert host.call("write", path="/a")[0] is False


def test_a_report_before_the_first_call_says_so(setup: Setup) -> None:
    assert "no call was recorded" in setup.cli("guard", "report", str(setup.config), status=1)


def test_a_denial_has_the_public_reason_and_what_would_be_allowed(enforced: Setup) -> None:
    rules = enforced.folder / "rules"
    rules.mkdir()
    denial = ':- call("files__big"), call_arg("size", N), N > 100.\n'
    (rules / "own.mg").write_text(
        f'prohibited("files__big", "limit") {denial}public_reason("files__big", "at most 100 bytes") {denial}'
    )
    enforced.install("--rules", str(rules))
    with enforced.host() as host:
        failed, text = host.call("big", size=101)
        assert failed
        assert "at most 100 bytes" in text
        assert "size of at most 100" in text
        assert host.call("big", size=100)[0] is False
    [row] = [row for row in enforced.report() if row["verdict"] == "deny"]
    assert (row["reason"], row["rules"]) == ("at most 100 bytes", ["own.mg:1"])


def test_the_report_is_about_one_configuration(shadow: Setup, tmp_path: Path) -> None:
    with shadow.host() as host:
        host.call("read", path="/a")
    other = tmp_path / "other.json"
    other.write_text(shadow.config.read_text())
    assert json.loads(shadow.cli("guard", "report", str(other), "--json"))["calls"] == []
