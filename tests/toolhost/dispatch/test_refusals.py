"""What a caller gets wrong: a bad pool is refused when it is made, a bad call is answered with a value."""

import asyncio
import json
import math
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from manglecp.toolhost.dispatch import dispatcher
from manglecp.toolhost.dispatch.catalogue import read_catalogue
from manglecp.toolhost.dispatch.dispatcher import Dispatcher, ServedPlugin
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.messages import ActionResult, HostCall, failure
from manglecp.toolhost.dispatch.pool import Pool
from manglecp.toolhost.leases import mint
from tests.toolhost.dispatch.hosts import QUICK, call, command, nothing_left
from tests.toolhost.dispatch.test_dispatcher import DOZE, LENGTH, NOTE, dispatching, refused

TIMEOUTS: list[Any] = [math.nan, -1, -0.1, math.inf, -math.inf, "5", 10**400, 86_401, True, [1]]
SERVED = ServedPlugin(
    read_catalogue(json.dumps({"ok": True, "tools": [{"aid": "AID.X.v1"}]}).encode()),
    HostCommand(argv=("host",), environ={}),
)


@pytest.mark.parametrize("size", [0, -1, 65, 1.5, True, "2"])
def test_a_size_that_no_pool_can_have(size: Any) -> None:
    with pytest.raises(ValueError, match=r"^size is .*: a whole number from 1 to 64 is expected$"):
        Dispatcher([SERVED], size=size)


@pytest.mark.parametrize("timeout", [*TIMEOUTS, 0])
def test_a_time_that_no_pool_can_have(timeout: Any) -> None:
    with pytest.raises(ValueError, match=r"^timeout is .*: seconds are expected, more than 0 and at most 86400$"):
        Dispatcher([SERVED], timeout=timeout)


@pytest.mark.parametrize("ttl", [math.nan, -1.0, math.inf, -math.inf])
def test_no_lease_for_a_time_that_is_none(ttl: float) -> None:
    with pytest.raises(ValueError, match=r"^ttl is .*: seconds are expected, 0 or more$"):
        mint(bytes(32), aid="A", input_digest=None, call_id=None, tier=1, ttl=ttl)


@pytest.mark.req("IPC-32")
def test_a_bad_call_is_answered_with_a_value_and_reaches_no_host(tmp_path: Path) -> None:
    heard: list[object] = []

    async def work(dispatcher: Dispatcher) -> None:
        doze: Any = {"inputs": {"seconds": 0}}
        for timeout in TIMEOUTS:
            result = await dispatcher.call(DOZE, **doze, timeout=timeout)
            assert refused(result) == ("exception", None, None)
            assert isinstance(result, dict)
            assert result["detail"].startswith("timeout: seconds are expected, from 0 to 86400, not ")
        for wrong in ({"call_id": 5}, {"identity": 5}, {"idempotency_key": 5}, {"timeot": 5}, {"input_json": b"{}"}):
            arguments: Any = doze | wrong
            result = await dispatcher.call(DOZE, **arguments)
            assert refused(result)[0] in ("exception", "tool_error")
            assert isinstance(result, dict)
        anything: list[Any] = [None, 5, ["x"], {}]
        for aid in anything:
            result = await dispatcher.call(aid)
            assert isinstance(result, dict)
            assert (result["type"], result["detail"]) == ("exception", "aid is not a text")
        assert not heard
        assert isinstance(await dispatcher.call(DOZE, **doze, timeout=20), ActionResult)

    dispatching(work, tmp_path, audit=lambda event, _: heard.append(event))


def test_a_pool_answers_for_a_bad_call_too() -> None:
    async def main() -> None:
        async with Pool(command(), size=1, limits=QUICK) as pool:
            wrong: list[Any] = [
                {"timeout": math.nan},
                {"wait_timeout": "1"},
                {"call_id": 5},
                {"aid": []},
                {"identity": None},
            ]
            for member in wrong:
                result = await pool.call(HostCall(**({"aid": "AID.X.v1"} | member)))
                assert isinstance(result, dict)
                assert (result["type"], bool(result["detail"])) == ("exception", True)
            assert isinstance(await pool.call(call()), ActionResult)

    with nothing_left():
        asyncio.run(main())


@pytest.mark.req("IPC-21")
@pytest.mark.parametrize("text", ["{", "", " ", '{"a":1} 2', '{"path":"a","path":"b","text":"a"}', "{'a':1}", "NaN"])
def test_input_that_is_no_json_is_an_invalid_pick(text: str, tmp_path: Path) -> None:
    async def work(dispatcher: Dispatcher) -> None:
        assert refused(await dispatcher.call(NOTE, input_json=text)) == ("tool_error", None, "INVALID_PICK")

    dispatching(work, tmp_path)


def test_a_dispatcher_and_a_pool_are_entered_once(tmp_path: Path) -> None:
    async def work(dispatcher: Dispatcher) -> None:
        for again in (dispatcher, dispatcher._pools[0]):
            with pytest.raises(RuntimeError, match="is entered once"):
                await again.__aenter__()
        assert isinstance(await dispatcher.call(LENGTH), ActionResult)

    dispatching(work, tmp_path)


def test_reports_reach_the_call_that_they_name_and_a_listener_that_fails_harms_nobody() -> None:
    program = """
import json, os, sys
progress = int(sys.argv[sys.argv.index("--progress") + 1])
for line in sys.stdin:
    own = json.loads(line).get("call_id")
    for event, call_id in (("progress", own), ("log", own), ("lease_used", own), ("log", "another"), ("log", None)):
        os.write(progress, json.dumps({"event": event, "call_id": call_id}).encode() + b"\\n")
    os.write(progress, b"noise\\n[1]\\n")
    print(json.dumps({"ok": True, "status": "OK", "output_json": "{}", "ds_state": {}}), flush=True)
"""
    heard: list[dict[str, Any]] = []
    complaints: list[str] = []

    def listen(event: dict[str, Any]) -> None:
        heard.append(event)
        raise RuntimeError("on purpose")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
        host = HostCommand(argv=(command().argv[0], "-I", "-c", program), environ={}, progress_option="--progress")
        async with Pool(host, size=1, limits=QUICK) as pool:
            own = msgspec.structs.replace(call(), call_id="own", on_report=listen)
            assert isinstance(await pool.call(own), ActionResult)
            # The answer of the second call comes with the reports that the host wrote before it, and only with these.
            assert isinstance(await pool.call(msgspec.structs.replace(call(), call_id="another")), ActionResult)

    with nothing_left():
        asyncio.run(main())
    assert heard == [{"event": event, "call_id": "own"} for event in ("progress", "log")]
    assert complaints == ["on_report failed"] * 2


@pytest.mark.parametrize(("text", "at_once"), [("{}", True), (7, True), (f'{{"a": "{"x" * 600_000}"}}', False)])
def test_nobody_waits_until_a_large_input_has_been_looked_at(
    text: Any, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noted(*_: Any, **__: Any) -> Any:
        threads.append(threading.current_thread())
        return failure("AID.X.v1", "exception", "as planned")

    monkeypatch.setattr(dispatcher, "prepare_call", noted)
    answer = asyncio.run(Dispatcher([SERVED]).call("AID.X.v1", input_json=text))
    assert isinstance(answer, dict)
    assert answer["detail"] == "as planned"
    assert [one is threading.main_thread() for one in threads] == [at_once]
