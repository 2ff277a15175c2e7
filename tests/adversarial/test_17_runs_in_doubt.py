"""Case 17, a whole run: coordinator and host die after an effect, and nobody repeats it, whoever asks and whatever a
person decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from manglecp.store import Decision, RunState, Verdict
from tests.crash.kit import Case, Site, crash_cleanly, crashing

pytestmark = pytest.mark.no_cover


def in_doubt(site: Site, point: str) -> Case:
    """A run that waits for a person, since both who could tell are dead."""
    case = crash_cleanly(site, "mixed", point, "both", "w")
    answers = [site.ask("w", case.name, case.tool) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["details"]["reason"] == "needs_decision"
    assert answers[0]["details"]["effects"] == [{"step": 2, "action": "pay", "status": "unknown"}]
    assert case.run is not None
    assert (case.run.state, case.run.step) == (RunState.NEEDS_DECISION, 2)
    return case


def decide(site: Site, case: Case, verdict: Verdict) -> None:
    assert case.run is not None
    output = b'{"label":"s2"}' if verdict == "happened" else None
    with site.store.write_transaction() as tx:
        site.store.runs.decide(tx, case.run.run_id, Decision(verdict=verdict, step=2, output=output), "operator")


def test_what_happened_is_not_done_again_and_what_did_not_is_done_once(tmp_path: Path) -> None:
    with crashing(tmp_path, str(tmp_path / "store"), "w") as site:
        after, before = in_doubt(site, "after:s2"), in_doubt(site, "before:s2")
        assert (after.effects, before.effects) == ({"s2": 1}, {})
        decide(site, after, "happened")
        decide(site, before, "did_not")
        for case in (after, before):
            assert "ok" in site.ask("w", case.name, case.tool)
            site.look(case)
            assert case.effects == {"s2": 1, "s4": 1, "s6": 1}


def test_the_same_key_with_other_arguments_is_a_conflict_before_and_after(tmp_path: Path) -> None:
    with crashing(tmp_path, str(tmp_path / "store"), "w") as site:
        case = in_doubt(site, "after:s2")
        assert site.ask("w", case.name, "side")["error"] == "x-request_key_conflict"
        decide(site, case, "happened")
        assert "ok" in site.ask("w", case.name, case.tool)
        assert site.ask("w", case.name, "side")["error"] == "x-request_key_conflict"
        assert site.effects(case.name) == {"s2": 1, "s4": 1, "s6": 1}
