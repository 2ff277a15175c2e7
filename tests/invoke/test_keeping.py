"""A later run takes what an earlier one kept, such as the text that an edit replaced."""

from __future__ import annotations

import json
from typing import Any

from manglecp.intent import Identity
from manglecp.pack import Pack
from tests.intent.packs import action, pack
from tests.invoke.chains import effect
from tests.invoke.workshop import APPROVER, ME, Fails, Shop, shop

SCHEMA = """
Decl changed(Run, Path) descr [doc("A run has changed a file."), direction("both")] bound [/string, /string].
"""
RULES = """
macro("edit", "Change a file.").
macro_step("edit", 1, "write").
mandatory("edit") :- intent("go").
keep("write", "backup", "/before").
keep("write", "never there", "/missing").
asserts("changed", [Run, Path], "server") :- ran("edit"), run_id(Run), run_arg("path", Path).

macro("undo", "Put back what a run has changed.").
macro_step("undo", 1, "restore").
arg_kept("undo", 1, "text", Run, "backup") :- changed(Run, _).
arg_value("undo", 1, "path", Path) :- changed(_, Path).
mandatory("undo") :- intent("back"), changed(_, _).
needs_confirmation("undo").

macro("peek", "See what a run has changed.").
macro_step("peek", 1, "look").
arg_kept("peek", 1, "text", Run, "backup") :- changed(Run, _).
mandatory("peek") :- intent("back"), changed(_, _).
"""
PATH = {"path": {"type": "string"}}
TEXT = {"text": {"type": "string"}}


def workspace() -> Pack:
    actions = (
        effect("write", params=PATH),
        effect("restore", params=PATH | TEXT, idempotent=True),
        action("look", params=TEXT),
    )
    return pack(RULES, actions=actions, schema=SCHEMA, intents=("go", "back"))


WORK: dict[str, Any] = {"write": lambda given: {"before": f"old {given['path']}", "after": "new"}}


def at_will(identity: Identity) -> Identity:
    return identity._replace(auto_confirm_effects=("filesystem",))


async def edited(s: Shop) -> str:
    """The run that changed ``a.txt``."""
    answer = await s.invoke("edit", {"path": "a.txt"})
    (stated,) = answer.state_delta.asserts
    run, path = stated["args"]
    assert path == "a.txt"
    return str(run)


async def tools_after(s: Shop, run: str, identity: Identity = ME) -> dict[str, str]:
    return await s.tools("back", identity, facts=[{"pred": "changed", "args": [run, "a.txt"]}])


async def test_what_was_kept_comes_back_in_a_later_run() -> None:
    async with shop(workspace(), WORK, refresh_identity=at_will) as s:
        undo = (await tools_after(s, await edited(s)))["undo"]
        await s.invoke(undo, evaluate=False)
        assert s.bench.ran[-1] == ("restore", {"path": "a.txt", "text": "old a.txt"})


async def test_a_tool_without_effects_reads_it_too() -> None:
    async with shop(workspace(), WORK, refresh_identity=at_will) as s:
        peek = (await tools_after(s, await edited(s)))["peek"]
        assert (await s.invoke(peek, evaluate=False)).result == {"text": "old a.txt"}


async def test_the_approver_sees_the_value_and_the_requester_does_not() -> None:
    async with shop(workspace(), WORK) as s:
        run = await edited(s)
        refused = await s.refused((await tools_after(s, run))["undo"], evaluate=False)
        text = s.invoker.approvals.show(APPROVER, (refused.details or {})["challenge"]["approval"]).text
        assert f"text = backup kept by run {run}" in text
        assert text.splitlines()[-2:] == ["Values of step 1:", '  text: "old a.txt"']
        assert "old a.txt" not in f"{refused} {refused.details}"


async def test_somebody_else_s_is_not_there() -> None:
    other = Identity("other", frozenset(), "local")
    async with shop(workspace(), WORK, refresh_identity=at_will) as s:
        run = await edited(s)
        answers = []
        for one in (run, "r-unknown"):
            undo = (await tools_after(s, one, other))["undo"]
            refused = await s.refused(undo, evaluate=False, identity=other)
            details = refused.details or {}
            assert (refused.code, details["code"]) == ("execution_failed", "argument_missing")
            answers.append(json.dumps({**details, "run_id": "", "events": ""}))
        assert answers[0] == answers[1]
        assert [name for name, _ in s.bench.ran] == ["write"]


async def test_a_step_that_failed_keeps_nothing() -> None:
    def fails(_: dict[str, Any]) -> Any:
        raise Fails

    async with shop(workspace(), {"write": fails}, refresh_identity=at_will) as s:
        refused = await s.refused("edit", {"path": "a.txt"})
        run = (refused.details or {})["run_id"]
        with s.store.read_transaction() as tx:
            assert s.store.runs.kept(tx, "me", run, "backup") is None
