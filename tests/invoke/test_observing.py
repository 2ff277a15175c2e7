"""What whoever invoked a tool is told about how it went, and how much of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from manglecp.invoke.calls import StepOutcome
from manglecp.invoke.progress import events_of, summary_of
from manglecp.wire import encode
from manglecp.wire.messages import InvokeResponse, InvokeResult
from tests.invoke.chains import chain, steps
from tests.invoke.workshop import Fails, shop

RAW = "SELECT * FROM users; https://admin:hunter2@db.internal/x password=hunter2 Bearer abcdefgh12345678"


def fail(_: dict[str, Any]) -> Any:
    raise Fails


async def run(*rules: str, work: Any = None, **more: Any) -> InvokeResult:
    async with shop(chain(*rules, **more), work or {}) as s:
        return await s.invoke("t", {"n": 1})


@pytest.mark.req("OBS-01", "OBS-02", "OBS-03", "OBS-08", "OBS-11")
async def test_one_event_for_each_step() -> None:
    rules = (
        steps("look", "erase", "write"),
        'skip_step(2, "There is nothing to erase.") :- step_status(1, _, "success").',
    )
    answer = await run(*rules)
    observed = answer.observability
    assert [(one.action, one.status) for one in observed.events] == [
        ("look", "success"),
        ("erase", "skipped"),
        ("write", "success"),
    ]
    assert observed.events[1].detail == "There is nothing to erase."
    assert isinstance(observed.events[0].duration_ms, int)
    assert isinstance(observed.duration_ms, int)
    assert observed.summary == "Ran 2 actions and left out 1 for t."


@pytest.mark.req("OBS-02", "OBS-11")
async def test_a_step_that_failed_is_an_event_of_a_run_that_went_on() -> None:
    answer = await run(steps("look", "write"), 'on_error("t", 1, "continue").', work={"look": fail})
    first = answer.observability.events[0]
    assert (first.status, first.detail) == ("failure", "The action reported an error")


@pytest.mark.req("OBS-04", "OBS-07")
@pytest.mark.parametrize(("limits", "most"), [(None, 20), ({"max_events": 3}, 3), ({"max_events": 1}, 1)])
async def test_the_number_of_events_is_a_setting(limits: Any, most: int) -> None:
    answer = await run(steps(*["look"] * 25), invocation=limits)
    assert len(answer.observability.events) == most
    assert {(one.action, one.status) for one in answer.observability.events} == {("look", "success")}
    assert answer.observability.events_omitted == 25 - most
    assert b'"x-events_omitted"' in encode(InvokeResponse(id="1", payload=answer))
    answer = await run(steps(*["look"] * most), invocation=limits)
    assert b"x-events_omitted" not in encode(InvokeResponse(id="1", payload=answer))
    assert [one.action for one in answer.observability.events] == ["look"] * most


@pytest.mark.req("OBS-07")
@pytest.mark.parametrize("most", range(9))
@pytest.mark.parametrize("failures", [(), (0,), (6,), (1, 4, 6), tuple(range(7))])
def test_events_never_exceed_their_number(most: int, failures: tuple[int, ...]) -> None:
    outcomes = [
        StepOutcome(call=None, number=n, action=f"a{n}", status="failed" if n in failures else "done") for n in range(7)
    ]
    events = events_of(outcomes, most)
    assert len(events) == min(most, 7)
    listed = [one.action for one in events]
    assert listed == sorted(listed)
    told = [one for one in events if one.status == "failure"]
    assert len(told) == min(most, len(failures))


@pytest.mark.req("OBS-09")
@pytest.mark.parametrize(
    ("said", "text"),
    [
        (["One. Two! Three? Four. Five."], "One. Two! Three?"),
        (["Version 1.2 is there."], "Version 1.2 is there."),
        (["A.", "B."], "A. B."),
        (["Line\none.\r\n\tLine two."], "Line one. Line two."),
        (["x" * 5_000], "x" * 399 + "…"),
        (["  "], "Ran 0 actions for t."),
    ],
)
def test_a_summary_has_one_to_three_sentences(said: list[str], text: str) -> None:
    assert summary_of(said, (), "t") == text


@pytest.mark.req("OBS-09", "OBS-10")
async def test_output_and_complaints_of_actions_are_not_told() -> None:
    """A summary of rules may quote what an extractor found; what looks like a credential is taken out."""
    rules = (
        steps("look", "look"),
        'on_error("t", 2, "continue").',
        'extract("look", "raw", "/raw").',
        'summary(T) :- step_value(1, "raw", R), T = fn:string:concat("Found ", R).',
        'skip_step(2, T) :- step_value(1, "raw", R), T = fn:string:concat("As it is ", R).',
    )
    answer = await run(*rules, work={"look": lambda _: {"raw": RAW}})
    told = f"{answer.observability}"
    assert "hunter2" not in told
    assert "abcdefgh12345678" not in told
    quiet = await run(steps("look"), work={"look": lambda _: {"raw": RAW}})
    assert not re.search("SELECT|internal|hunter2", f"{quiet.observability}")


@pytest.mark.req("OBS-10")
@pytest.mark.parametrize("kind", ["tool_error", "crash", "timeout", "parse_error"])
async def test_an_error_of_an_action_is_told_in_words_of_ours(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def leak(_: dict[str, Any]) -> Any:
        fails = Fails(kind)
        fails.error["detail"] = RAW
        raise fails

    async with shop(chain(steps("look")), {"look": leak}) as s:
        error = await s.refused("t", {"n": 1})
        entries = str(s.ledger())
    for text in (error.message, str(error.details), entries):
        assert "SELECT" not in text
        assert "hunter2" not in text
    assert "SELECT" in caplog.text  # the operator learns the cause
    assert "hunter2" not in caplog.text


@pytest.mark.req("OBS-07")
async def test_omitted_events_of_a_failed_run_are_counted() -> None:
    rules = steps("look", "look", "look", "write")
    async with shop(chain(rules, invocation={"max_events": 1}), {"write": fail}) as s:
        error = await s.refused("t", {"n": 1})
    assert error.details is not None
    assert [event["action"] for event in error.details["events"]] == ["write"]
    assert error.details["x-events_omitted"] == 3


async def test_a_rule_may_say_which_tool_it_is_about() -> None:
    rules = (
        steps("look", "look"),
        'skip_step(2, "Not here.") :- run_of("t").',
        'skip_step(1, "Elsewhere.") :- run_of("other"). macro("other", "Another one.").',
    )
    async with shop(chain(*rules)) as s:
        answer = await s.invoke("t", {"n": 1})
    assert [event.status for event in answer.observability.events] == ["success", "skipped"]
