"""Answers that are too long: our own host says so and lives on, and what is counted is bytes of UTF-8."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.messages import ActionResult, HostCall
from manglecp.toolhost.dispatch.pool import Pool
from tests.toolhost.dispatch.hosts import QUICK, error, nothing_left, pids_of
from tests.toolhost.rights import authorised

PLUGIN = '''
from manglecp.toolhost.actions import action
from manglecp.toolhost.context import Context
from manglecp.toolhost.state import Artifact


@action(effects=["none"])
def text(letter: str, count: int) -> str:
    """A long text."""
    return letter * count


@action(effects=["filesystem"])
def append(path: str) -> str:
    """Do something, and say too much about it."""
    with open(path, "a") as file:
        file.write("x")
    return "x" * 2_000_000


@action(effects=["none"])
def put(context: Context, count: int) -> int:
    """Fill slot 0; how much was in it."""
    before = len(context.slots[0].content_json) if 0 in context.slots else 0
    context.slots[0] = Artifact("text", "put", "x" * count, count)
    return before
'''


def call(name: str, **inputs: object) -> HostCall:
    tier = 1 if name == "APPEND" else 0
    return authorised(HostCall(aid=f"AID.PLUGIN.{name}.v1", tier=tier, input_json=json.dumps(inputs)))


@pytest.mark.req("IPC-36")
def test_our_host_says_that_its_answer_is_too_long_and_nobody_else_hears_of_it(tmp_path: Path) -> None:
    plugin, effects = tmp_path / "plugin.py", tmp_path / "effects"
    plugin.write_text(PLUGIN)

    async def main() -> None:
        command = HostCommand.for_plugin(str(plugin), os.environ, sandbox="none")
        async with Pool(command, size=1, timeout=30, limits=QUICK) as pool:
            short = call("TEXT", letter="a", count=1)
            assert isinstance(await pool.call(short), ActionResult)
            pids = pids_of(pool)
            calls = [call("TEXT", letter="a", count=count) for count in (1, 2, 2_000_000, 3, 4)]
            results = await asyncio.gather(*map(pool.call, calls))
            assert [isinstance(result, ActionResult) for result in results] == [True, True, False, True, True]
            assert error(results[2]) == ("parse_error", "oversize")
            assert isinstance(results[2], dict)
            assert "1048576 are allowed" in results[2]["detail"]
            for _ in range(6):  # an answer is an answer: no breaker opens
                assert error(await pool.call(call("TEXT", letter="a", count=1_048_576))) == ("parse_error", "oversize")
            for letter, count in (("\u4e2d", 340_000), ("\u2028", 340_000), ("\U0001f600", 255_000), ("\ud800", 9)):
                result = await pool.call(call("TEXT", letter=letter, count=count))
                assert isinstance(result, ActionResult)
                assert json.loads(result.output_json) == letter * count
            assert error(await pool.call(call("TEXT", letter="\u4e2d", count=350_000))) == ("parse_error", "oversize")
            keyed = replace(call("APPEND", path=str(effects)), idempotency_key="k")
            assert error(await pool.call(keyed)) == ("parse_error", "oversize")
            again = replace(call("APPEND", path=str(effects)), idempotency_key="k")
            assert error(await pool.call(again)) == ("crash", "outcome_unknown")
            assert pids_of(pool) == pids

    with nothing_left():
        asyncio.run(main())
    assert effects.read_text() == "x"


def test_the_state_of_an_answer_that_could_not_be_sent_is_taken_back(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(PLUGIN)
    unchanged = {"delta": True, "slots": {}, "removed_slots": []}
    lines = [
        json.dumps({"aid": "AID.PLUGIN.PUT.v1", "input_json": json.dumps({"count": count}), "ds_state": unchanged})
        for count in (5, 1_100_000, 1)
    ]
    host = [sys.executable, "-I", "-m", "manglecp.toolhost.host", "--serve", str(plugin), "--sandbox", "none"]
    said = subprocess.run(host, input="\n".join(lines) + "\n\n", capture_output=True, text=True, check=True).stdout
    answers = [json.loads(line) for line in said.splitlines()]
    assert [answer["ok"] for answer in answers] == [True, False, True]
    assert (answers[1]["error"], answers[1]["status"]) == ("oversize", "TOOL_ERROR")
    assert answers[2]["output_json"] == "5"
