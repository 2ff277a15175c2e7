"""What the contract says of the calling side: one dict for every failure, and the two constants."""

import asyncio
import json
import os
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.messages import ActionResult, DispatchError, HostCall
from manglecp.toolhost.dispatch.pool import Pool
from tests.toolhost.dispatch.hosts import QUICK, nothing_left

MAX_OUTPUT = 1_048_576
TYPES = {"timeout", "crash", "parse_error", "not_found", "exception"}

# Answers a call with what its input asks for; sleeps, leaves or says nonsense instead if that is asked for.
HOST = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    asked = json.loads(request.get("input_json", "{}"))
    if "exit" in asked:
        os._exit(asked["exit"])
    time.sleep(asked.get("sleep", 0))
    answer = {"ok": True, "status": "OK", "output_json": "", "error": "", "ds_state": {}}
    text = asked.get("say") or json.dumps(answer)
    if "bytes" in asked:
        answer["output_json"] = "x" * (asked["bytes"] - len(text))
        text = json.dumps(answer)
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()
"""


def dispatch(
    work: Callable[[Pool], Awaitable[None]], *, argv: tuple[str, ...] = (sys.executable, "-I", "-S", "-c", HOST)
) -> None:
    async def main() -> None:
        command = HostCommand(argv=argv, environ=HostCommand.inherited(os.environ))
        async with Pool(command, size=1, limits=QUICK) as pool:
            await work(pool)

    with nothing_left():
        asyncio.run(main())


def asking(**wanted: Any) -> HostCall:
    return HostCall(aid="AID.X.v1", input_json=json.dumps(wanted), tier=0)


def failed(result: ActionResult | DispatchError) -> DispatchError:
    """The error, once it has been seen to have the shape of the contract."""
    assert isinstance(result, dict)
    assert result["error"] is True
    assert result["aid"] == "AID.X.v1"
    assert result["type"] in TYPES
    assert isinstance(result["detail"], str)
    assert result["detail"]
    return result


@pytest.mark.req("IPC-27", "IPC-29", "IPC-30", "IPC-33")
@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        ({"exit": 7}, "crash"),
        ({"exit": 0}, "parse_error"),
        ({"say": "hello"}, "parse_error"),
        ({"say": "[1]"}, "parse_error"),
        ({"say": "null"}, "parse_error"),
    ],
)
def test_a_failure_is_a_dict_with_one_of_five_types(wanted: dict[str, Any], kind: str) -> None:
    async def work(pool: Pool) -> None:
        assert failed(await pool.call(asking(**wanted)))["type"] == kind

    dispatch(work)


@pytest.mark.req("IPC-27", "IPC-28", "IPC-35")
def test_the_environment_says_how_long_a_call_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACHINA_TOOLHOST_TIMEOUT", "1.5")

    async def work(pool: Pool) -> None:
        assert isinstance(await pool.call(asking()), ActionResult)
        assert failed(await pool.call(asking(sleep=60)))["type"] == "timeout"

    dispatch(work)


@pytest.mark.req("IPC-27", "IPC-31")
@pytest.mark.parametrize("missing", ["/no/such/toolhost", "no-such-toolhost"])
def test_a_toolhost_that_is_missing(missing: str) -> None:
    async def work(pool: Pool) -> None:
        assert failed(await pool.call(asking()))["type"] == "not_found"

    dispatch(work, argv=(missing, "--serve", "plugin"))


@pytest.mark.req("IPC-32", "IPC-33")
def test_a_toolhost_that_cannot_be_executed_is_no_exception_to_the_caller(tmp_path: Path) -> None:
    program = tmp_path / "toolhost"
    program.write_bytes(b"\x00no program")
    program.chmod(stat.S_IRWXU)

    async def work(pool: Pool) -> None:
        assert failed(await pool.call(asking()))["type"] == "exception"

    dispatch(work, argv=(str(program),))


@pytest.mark.req("IPC-36")
def test_an_answer_has_a_mebibyte_and_not_a_byte_more() -> None:
    async def work(pool: Pool) -> None:
        whole = await pool.call(asking(bytes=MAX_OUTPUT))
        assert isinstance(whole, ActionResult)
        assert len(whole.output_json) > MAX_OUTPUT - 200
        over = failed(await pool.call(asking(bytes=MAX_OUTPUT + 1)))
        assert (over["type"], over.get("code")) == ("parse_error", "oversize")
        assert str(MAX_OUTPUT) in over["detail"]
        assert isinstance(await pool.call(asking()), ActionResult)

    dispatch(work)
