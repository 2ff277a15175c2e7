"""`manglecp decisions` and `manglecp runs explain`: records, their proofs as text and as pages, and retention."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from manglecp import Client
from manglecp.intent import Identity
from manglecp.invoke import DecisionContent, DecisionLog, PackOptions, decide_call, load_domain
from manglecp.invoke.runtime import run_retention
from manglecp.pack import SandboxPolicy
from manglecp.server import Server, ServerSettings
from manglecp.server.logs import JsonLines
from manglecp.store import open_store
from manglecp.wire.messages import DecidePayload, Intent
from tests.cli.conftest import Run
from tests.deadlines import patience

NOW = 1_768_478_400 * 10**9
DAY = 86_400 * 10**9
ANN = Identity("ann", frozenset({"refund"}), "user")
ACTIONS = '''
from manglecp import action

@action(effects=["filesystem"])
def refund(order: str, amount: int) -> str:
    """Write a refund into the book."""
    return order
'''
RULES = """
Decl complaint(Order) descr [doc("A customer wants money back."), direction("input")] bound [/string].
Decl region(Order, Region) bound [/string, /string].
region("A-1", "north").
macro("pay_back", "Refunds an order.").
macro_step("pay_back", 1, "refund").
relevant("pay_back", 80) :- intent("help"), complaint(_).
"""
POLICY = """permitted("pay_back") :- client_permission("refund").
prohibited("pay_back", "limit of clerks") :-
  call("pay_back"), call_arg("amount", N), call_arg("order", O), region(O, _), N > 100, !client_permission("large").
public_reason("pay_back", "at most 100") :- prohibited("pay_back", "limit of clerks").
needs_approval("pay_back", "treasurer") :- call("pay_back"), call_arg("amount", N), N > 50.
"""
HOSTILE = '</code><script>alert("x")</script><img src=x onerror=alert(1)>'


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pack = tmp_path / "desk"
    (pack / "rules" / "policy").mkdir(parents=True)
    (pack / "actions.py").write_text(ACTIONS)
    (pack / "rules" / "desk.mg").write_text(RULES)
    (pack / "rules" / "policy" / "limits.mg").write_text(POLICY)
    (pack / "pack.toml").write_text('[pack]\npermissions = ["refund", "large", "treasurer"]\n')
    monkeypatch.setenv("MANGLECP_STORE", str(tmp_path / "store.db"))
    return pack


Records = Callable[..., list[str]]


@pytest.fixture
def record(desk: Path, tmp_path: Path) -> Records:
    """Record a decision for each amount, and return the ids; ``orders`` by amount."""

    def record(
        *amounts: int,
        at: int = NOW,
        order: str = "A-1",
        run: str | None = None,
        identity: Identity = ANN,
        content: DecisionContent = "full",
        key: bytes | None = None,
        intent: str | None = "help",
        **members: Any,
    ) -> list[str]:
        with ExitStack() as hosts:
            domain, _ = load_domain(PackOptions(desk, sandbox=SandboxPolicy(degrade=True)), hosts)
        store = open_store(tmp_path / "store.db", key=key)
        log = DecisionLog(store, lambda: at, content)
        facts = [{"pred": "complaint", "args": ["A-1"]}]
        named = None if intent is None else Intent(name=intent)
        records = []
        for amount in amounts:
            payload = DecidePayload(tool="pay_back", args={"order": order, "amount": amount}, intent=named, facts=facts)
            built = log.build(decide_call(domain, payload, identity, at), "decide", run)
            details = {**json.loads(built.content), **members}
            records.append(msgspec.structs.replace(built, content=msgspec.json.encode(details)))
        with store.write_transaction() as tx:
            store.decisions.append_all(tx, records)
        store.close()
        return [one.id for one in records]

    return record


def test_decisions_are_listed_and_shown(run: Run, record: Records) -> None:
    allowed, denied = record(20, 150)
    (other,) = record(60, identity=Identity("eve", frozenset({"refund"}), "user"), run="r-1")
    lines = run("decisions", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["DECISION", other, denied, allowed]
    assert lines[2].endswith("limit of clerks")
    for option, value, expected in (
        ("--principal", "eve", [other]),
        ("--verdict", "deny", [denied]),
        ("--run", "r-1", [other]),
        ("--tool", "pay_back", [other, denied, allowed]),
        ("--limit", "1", [other]),
        ("--tool", "pay", []),
    ):
        found = run("decisions", "list", option, value, "--json").stdout.splitlines()
        assert [json.loads(line)["id"] for line in found] == expected
    shown = run("decisions", "show", denied).stdout
    for text in ("deny pay_back", "ann (user)", '"amount":150', "limit of clerks", "at most 100", "limits.mg:2"):
        assert text in shown
    document = json.loads(run("decisions", "show", denied, "--json").stdout)
    assert (document["inputs"]["args"]["amount"], document["entry"]) == (150, 1)
    missing = run("decisions", "show", "d-0")
    assert (missing.exit_code, "there is no decision d-0" in missing.stderr) == (1, True)


def test_a_denial_is_proven_from_its_facts(run: Run, record: Records, desk: Path) -> None:
    (denied,) = record(150)
    explained = run("decisions", "explain", denied, str(desk), "--degrade")
    assert explained.exit_code == 0
    proof = explained.stdout.partition("because\n")[2].splitlines()
    assert proof == [
        '  prohibited("pay_back","limit of clerks")  by rules/policy/limits.mg:2',
        '      with N = 150, O = "A-1"',
        '    call("pay_back")  [session]',
        '    call_arg("amount",150)  [session]',
        '    call_arg("order","A-1")  [session]',
        '    region("A-1","north")  by rules/desk.mg:4',
        '    !client_permission("large")  [absent]',
    ]


def test_an_allowed_call_is_proven_by_the_policy_that_permitted_it(run: Run, record: Records, desk: Path) -> None:
    allowed, asked = record(20, 60)
    explained = run("decisions", "explain", allowed, str(desk), "--degrade").stdout
    assert 'permitted("pay_back")  by rules/policy/limits.mg:1\n    client_permission("refund")  [session]' in explained
    assert 'relevant("pay_back",80)  by rules/desk.mg:7' in explained
    assert 'complaint("A-1")  [client]' in explained
    assert "stops at 20 > 100 with" in explained  # what policy could have denied
    explained = run("decisions", "explain", asked, str(desk), "--degrade").stdout
    assert 'needs_approval("pay_back","treasurer")  by rules/policy/limits.mg:5' in explained


def test_a_tool_that_is_not_permitted_or_not_offered(run: Run, record: Records, desk: Path) -> None:
    stranger = Identity("eve", frozenset(), "user")
    (unpermitted,) = record(20, identity=stranger)
    explained = run("decisions", "explain", unpermitted, str(desk), "--degrade").stdout
    assert '    !permitted("pay_back")  [absent]' in explained
    assert 'stops at client_permission("refund")' in explained
    (unoffered,) = record(20, intent="other")
    result = run("decisions", "explain", unoffered, str(desk), "--degrade")
    assert result.exit_code == 0
    assert 'stops at intent("help")' in result.stdout


def test_without_the_same_pack_facts_or_inputs_the_record_is_printed(run: Run, record: Records, desk: Path) -> None:
    (denied,) = record(150)
    (digests,) = record(150, content="digests")
    (stale,) = record(150, facts_version="abc")
    (altered,) = record(150, reasons=["never"])
    alone = run("decisions", "explain", denied)
    assert (alone.exit_code, "name its folder" in alone.stdout, "limit of clerks" in alone.stdout) == (0, True, True)

    def difference(decision: str) -> str:
        explained = run("decisions", "explain", decision, str(desk), "--degrade")
        assert explained.exit_code == 1
        assert "limits.mg:2" in explained.stdout  # the recorded rule
        assert "because" not in explained.stdout
        return explained.stdout.splitlines()[-1]

    assert "server is configured to record digests only" in difference(digests)
    assert difference(stale) == "The generated facts have the version none, and the decision was made with abc."
    assert difference(altered) == "Different reasons: recorded never, made again limit of clerks."
    policy = desk / "rules" / "policy" / "limits.mg"
    policy.write_text(policy.read_text().replace("N > 100", "N > 120"))
    assert difference(denied).startswith("The pack has the revision ")


def test_sealed_records_need_the_key(run: Run, record: Records, tmp_path: Path) -> None:
    (denied,) = record(150, key=bytes(32))
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    assert "(sealed)" in run("decisions", "list").stdout
    assert "limit of clerks" in run("decisions", "list", "--store-key", str(key)).stdout
    assert run("decisions", "show", denied).exit_code == 1
    assert "limit of clerks" in run("decisions", "show", denied, "--store-key", str(key)).stdout


class Page(HTMLParser):
    """Collects the tags, and checks that they are balanced."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_shows_the_proofs_and_escapes_hostile_arguments(
    run: Run, record: Records, desk: Path, tmp_path: Path
) -> None:
    rules = desk / "rules" / "desk.mg"
    quoted = HOSTILE.replace('"', '\\"')
    rules.write_text(f'{rules.read_text()}region("{quoted}", "north").\n')
    record(20, run="r-1")
    record(150, order=HOSTILE, run="r-1")
    file = tmp_path / "run.html"
    explained = run("runs", "explain", "r-1", str(desk), "--degrade", "--html", str(file))
    assert explained.exit_code == 0
    html = file.read_text()
    page = Page(html)
    assert page.tags.count("section") == 2
    assert page.attributes <= {"class", "lang", "charset", "name", "content", "http-equiv"}
    assert set(page.tags).isdisjoint({"script", "img", "link", "iframe", "a", "svg"})
    assert f'region("{quoted}","north")' in page.text  # as it is in the proof
    for address in ("http:", "https:", "//", "url(", "@import"):
        assert address not in html
    for origin in ("client", "session", "server", "rule", "absent"):
        assert f'class="card {origin}"' in html
    assert "rules/policy/limits.mg:2" in page.text
    assert run("runs", "explain", "r-2", str(desk), "--degrade").exit_code == 1


def test_old_decisions_are_deleted_and_the_ledger_stays_verifiable(run: Run, record: Records) -> None:
    record(20, at=NOW)
    record(20, at=NOW + DAY)
    (kept,) = record(20, at=NOW + 2 * DAY)
    assert run("decisions", "prune", "--before", "2026-01-17T12:00:00Z").stdout == "2 decisions deleted\n"
    assert [json.loads(line)["id"] for line in run("decisions", "list", "--json").stdout.splitlines()] == [kept]
    assert run("ledger", "verify").exit_code == 0
    assert run("decisions", "prune", "--before", "90000d").stdout == "0 decisions deleted\n"
    assert run("decisions", "prune", "--before", "1d", "--json").stdout == '{"deleted": 1}\n'
    assert run("ledger", "verify").exit_code == 0
    assert run("decisions", "prune", "--before", "yesterday").exit_code == 2


def test_a_server_logs_and_deletes_decisions_as_it_is_configured(
    desk: Path, record: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record(20, 30)
    monkeypatch.setattr("manglecp.invoke.runtime.run_retention", partial(run_retention, pause=0.05))
    path = str(tmp_path / "store.db")
    settings = ServerSettings(decision_content="digests", log_decisions=True, keep_decisions_ns=DAY)

    async def serve() -> None:
        async with Server(desk, store=path, settings=settings, degrade=True) as server, Client(server) as client:
            decided = await client.decide("pay_back", {"order": "A-1", "amount": 98_765})
            assert decided.verdict == "deny"
            while "2 decisions" not in caplog.text:
                await asyncio.sleep(0.05)

    with caplog.at_level("INFO"):
        asyncio.run(asyncio.wait_for(serve(), patience(60)))
    (line,) = [json.loads(JsonLines().format(one)) for one in caplog.records if hasattr(one, "decision")]
    assert (line["decision"]["verdict"], line["decision"]["tool"]) == ("deny", "pay_back")
    assert not re.search(r"\b98765\b", json.dumps(line))  # the digits may be part of a digest
    store = open_store(path)
    with store.read_transaction() as tx:
        (kept,) = store.decisions.newest(tx, 10)
        assert "inputs" not in json.loads(store.decisions.content(kept))
        assert store.ledger.verify(tx).sound
        assert store.decisions.verify(tx) == []
    store.close()


def test_a_deep_proof_is_cut(run: Run, record: Records, desk: Path) -> None:
    rules = desk / "rules" / "desk.mg"
    chain = "Decl far(N) bound [/number]. far(0). far(M) :- far(N), M = fn:plus(N, 1), M < 60.\n"
    rules.write_text(rules.read_text() + chain)
    policy = desk / "rules" / "policy" / "limits.mg"
    policy.write_text(policy.read_text() + 'prohibited("pay_back", "too far") :- far(59).\n')
    (denied,) = record(20)
    lines = run("decisions", "explain", denied, str(desk), "--degrade").stdout.splitlines()
    assert sum("far(" in line for line in lines if " by rules/desk.mg" in line) < 30
    assert any(line.strip() == "…" for line in lines)
