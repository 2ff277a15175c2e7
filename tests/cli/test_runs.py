"""`manglecp runs`: the output about runs, and the effect of a decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from manglecp.invoke import decode_response
from manglecp.store import open_store
from manglecp.wire import WireError
from tests.cli.conftest import Run
from tests.cli.journals import journal
from tests.cli.letters import write_pack


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "store.db"
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MANGLECP_STORE", str(path))
    monkeypatch.setenv("MANGLECP_ACTOR", "kim")
    return path


def document(shown: Result) -> Any:
    assert shown.exit_code == 0, shown.stderr
    return json.loads(shown.stdout)


def state_of(run: Run, run_id: str) -> str:
    return str(document(run("runs", "show", run_id, "--json"))["state"])


# --- looking ---------------------------------------------------------------------------------------------------------


def test_runs_are_listed_the_newest_first(run: Run, store: Path) -> None:
    done, doubted = journal(store, "done", "unknown")
    heading, *rows = run("runs", "list").stdout.splitlines()
    assert heading.split() == ["RUN", "STATE", "TOOL", "FOR", "SINCE", "ABOUT"]
    found = {row.split()[0]: row.split() for row in rows}
    assert found[done][1:4] == ["succeeded", "t", "me"]
    assert found[doubted][1:4] == ["needs_decision", "t", "me"]
    assert found[doubted][5:] == ["step", "2:", "outcome_unknown"]
    assert [one["run_id"] for one in document(run("runs", "list", "--json", "--state", "succeeded"))] == [done]
    assert len(run("runs", "list", "--limit", "1").stdout.splitlines()) == 2
    assert run("runs", "list", "--state", "cancelled").stdout == "No such runs.\n"


def test_a_run_is_shown_with_its_steps_and_what_to_decide(run: Run, store: Path) -> None:
    done, doubted = journal(store, "done", "unknown")
    shown = run("runs", "show", doubted).stdout
    assert shown.startswith(f"run {doubted}: needs_decision, outcome_unknown\n  t for me, admitted 20")
    assert [line.split() for line in shown.split("\n\n")[1].splitlines()] == [
        ["STEP", "ACTION", "STATE", "CODE", "BY"],
        ["1", "look", "done", "-", "-"],
        ["2", "write", "unknown", "outcome_unknown", "-"],
    ]
    assert f"\n  manglecp runs decide {doubted} --step 2 --did-not\n" in shown
    assert "decide" not in run("runs", "show", done).stdout


def test_no_value_of_a_run_is_told(run: Run, store: Path) -> None:
    (doubted,) = journal(store, "unknown")
    for step in document(run("runs", "show", doubted, "--json"))["steps"]:
        assert step.keys().isdisjoint({"input", "output", "note"})


def test_the_response_of_a_run_is_shown_while_it_is_stored(run: Run, store: Path) -> None:
    """After a lost connection the operator reads the response by the id of the run."""
    done, failed, doubted = journal(store, "done", "failed", "unknown")
    assert "\nresult\n  n: 1\n" in run("runs", "show", done).stdout
    assert document(run("runs", "show", done, "--json"))["response"]["result"]["result"] == {"n": 1}
    assert "\nerror[execution_failed]: " in run("runs", "show", failed).stdout
    assert document(run("runs", "show", failed, "--json"))["response"]["error"]["code"] == "execution_failed"
    assert document(run("runs", "show", doubted, "--json"))["response"] is None, "it is not over"
    opened = open_store(store)
    with opened.write_transaction() as tx:
        tx.execute("UPDATE runs SET answer_until_ms = 0")
        opened.runs.sweep(tx)
    opened.close()
    assert document(run("runs", "show", done, "--json"))["response"] is None
    assert "result" not in run("runs", "show", done).stdout


def test_a_sealed_response_needs_the_key(run: Run, store: Path, tmp_path: Path) -> None:
    key = tmp_path / "store.key"
    key.write_text("ab" * 32)
    key.chmod(0o600)
    (done,) = journal(store, "done", key=bytes.fromhex("ab" * 32))
    shown = run("runs", "show", done)
    assert (shown.exit_code, "n: 1" in shown.stdout, "key" in shown.stdout) == (0, False, True)
    assert "\nresult\n  n: 1\n" in run("runs", "show", done, "--store-key", str(key)).stdout


def test_what_is_not_there(run: Run, store: Path) -> None:
    missing = run("runs", "list")
    assert (missing.exit_code, f"there is no store {store}" in missing.stderr) == (1, True)
    assert not store.exists()
    journal(store)
    for verb in (("show", "r-1"), ("decide", "r-1", "--abort")):
        shown = run("runs", *verb)
        assert (shown.exit_code, shown.stdout) == (1, "")
        assert "r-1" in shown.stderr


# --- deciding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", ["--happened", "--did-not"])
def test_a_decision_is_in_the_ledger_under_the_name_of_whoever_made_it(run: Run, store: Path, verdict: str) -> None:
    (doubted,) = journal(store, "unknown")
    shown = run("runs", "decide", doubted, "--step", "2", verdict)
    assert shown.exit_code == 0
    assert shown.stdout.startswith(f"run {doubted}: running\n")
    assert f"manglecp runs resume {doubted} PACK" in shown.stdout
    (entry,) = document(run("ledger", "list", "--kind", "decision", "--json"))
    assert (entry["run"], entry["identity"]) == (doubted, "kim")
    said = {"verdict": verdict.removeprefix("--").replace("-", "_"), "state": "running", "step": 2, "kind": "do"}
    assert entry["body"] == said
    assert run("ledger", "verify").exit_code == 0


def test_what_an_action_returned_is_kept_as_a_digest_only(run: Run, store: Path) -> None:
    (doubted,) = journal(store, "unknown")
    shown = run("runs", "decide", doubted, "--step", "2", "--happened", "--output", "-", stdin='{"n": "a secret"}')
    assert shown.exit_code == 0
    (entry,) = document(run("ledger", "list", "--kind", "decision", "--json"))
    assert entry["body"]["output_digest"].startswith("sha256:")
    assert "a secret" not in run("ledger", "export").stdout


def test_an_aborted_run_keeps_an_answer_that_says_so(run: Run, store: Path) -> None:
    (doubted,) = journal(store, "unknown")
    assert document(run("runs", "decide", doubted, "--abort", "--by", "lee", "--json")) == {
        "run": doubted,
        "verdict": "abort",
        "state": "failed",
    }
    opened = open_store(store)
    with opened.read_transaction() as tx:
        response = decode_response(opened.runs.answer(tx, doubted) or b"")
        (entry,) = opened.ledger.rows(tx, kind="decision")
    opened.close()
    assert entry.identity == "lee"
    assert isinstance(response, WireError)
    assert response.details is not None
    assert response.details["reason"] == "aborted"
    assert response.details["effects"] == [{"step": 2, "action": "write", "status": "unknown"}]


@pytest.mark.parametrize(
    ("said", "status", "told"),
    [
        ((), 2, "give one of --happened"),
        (("--happened", "--did-not"), 2, "give one of --happened"),
        (("--happened",), 2, "--step N"),
        (("--abort", "--step", "2"), 2, "leave --step out"),
        (("--did-not", "--step", "2", "--output", "-"), 2, "--output goes with --happened only"),
        (("--happened", "--step", "2", "--output", "-"), 2, "<stdin>: "),
        (("--happened", "--step", "1"), 1, "the outcome of step 1"),
        (("--happened", "--step", "2", "--by", ""), 2, "needs the name of its operator"),
    ],
)
def test_decisions_that_are_none(run: Run, store: Path, said: tuple[str, ...], status: int, told: str) -> None:
    (doubted,) = journal(store, "unknown")
    shown = run("runs", "decide", doubted, *said, stdin="no JSON")
    assert (shown.exit_code, told in shown.stderr) == (status, True), shown.stderr
    assert state_of(run, doubted) == "needs_decision"
    assert document(run("ledger", "list", "--kind", "decision", "--json")) == []


def test_what_is_over_is_not_decided(run: Run, store: Path) -> None:
    (done,) = journal(store, "done")
    shown = run("runs", "decide", done, "--abort")
    assert (shown.exit_code, "is succeeded: it needs no decision" in shown.stderr) == (1, True)


# --- going on --------------------------------------------------------------------------------------------------------


class Letters:
    """A pack whose first letter is in doubt."""

    def __init__(self, run: Run, tmp_path: Path) -> None:
        self._run = run
        self.pack = write_pack(tmp_path / "letters")
        self.work = tmp_path / "work"
        self.work.mkdir()
        sent = ("--intent", "send", "--arg", "text=a", "--workspace", str(self.work), "--confirm", "--request-key", "k")
        self.call = ("call", str(self.pack), "send_letter", *sent)
        assert run(*self.call).exit_code == 1
        (self.doubted,) = (one["run_id"] for one in document(run("runs", "list", "--json")))

    def decide(self, *verdict: str, stdin: str | None = None) -> None:
        assert self._run("runs", "decide", self.doubted, "--step", "2", *verdict, stdin=stdin).exit_code == 0

    def resume(self, *more: str) -> Result:
        return self._run("runs", "resume", self.doubted, str(self.pack), "--workspace", str(self.work), *more)


@pytest.fixture
def letters(run: Run, tmp_path: Path) -> Letters:
    return Letters(run, tmp_path)


def test_a_step_that_did_not_happen_is_tried_again(run: Run, letters: Letters) -> None:
    letters.decide("--did-not")
    shown = letters.resume()
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "result\n  noted: n1\n" in shown.stdout
    assert (letters.work / "box.txt").read_text() == "A\nA\n"
    assert [(one["number"], one["attempt"], one["state"]) for one in steps(run, letters.doubted)] == [
        (1, 1, "done"),
        (2, 1, "failed"),
        (2, 2, "done"),
        (3, 1, "done"),
    ]
    assert run(*letters.call).stdout == shown.stdout


def steps(run: Run, run_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document(run("runs", "show", run_id, "--json"))["steps"]
    return found


def test_a_step_that_happened_is_not_repeated(run: Run, letters: Letters) -> None:
    """And what an operator says it returned is what the next step gets."""
    early = letters.resume()
    assert (early.exit_code, "step 2" in early.stderr and "is in doubt" in early.stderr) == (1, True)
    letters.decide("--happened", "--output", "-", stdin='{"number": "n77"}')
    shown = letters.resume("--json")
    assert json.loads(shown.stdout)["payload"]["result"] == {"noted": "n77"}
    assert (letters.work / "box.txt").read_text() == "A\n"
    assert (letters.work / "stamped.txt").read_text() == "n77\n"
    again = letters.resume()
    assert (again.exit_code, "is over: it succeeded" in again.stderr) == (1, True)
    assert run("ledger", "verify").exit_code == 0


def test_a_run_goes_on_with_its_own_edition_of_the_pack_only(letters: Letters) -> None:
    letters.decide("--did-not")
    other = letters.resume("--set", "carrier=dove")
    assert (other.exit_code, "belongs to another pack revision" in other.stderr) == (1, True)
    assert (letters.work / "box.txt").read_text() == "A\n"


def test_a_run_that_somebody_carries_out_is_left_to_them(letters: Letters, store: Path) -> None:
    letters.decide("--did-not")
    opened = open_store(store)
    with opened.read_transaction() as tx:
        digest = opened.runs.list(tx)[0].pack_digest
    assert opened.runs.take_over("somebody", 60_000, [digest], 5) is not None
    opened.close()
    shown = letters.resume()
    assert (shown.exit_code, "is owned by somebody; if that process has ended" in shown.stderr) == (1, True)
