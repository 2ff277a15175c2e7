"""One host process, against every way a host can go wrong (threats 18, 19 and 20). Nothing is ever left behind."""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.messages import HostCall, encode
from manglecp.toolhost.dispatch.process import HostProcess
from manglecp.toolhost.dispatch.responses import HostLost
from tests.toolhost.dispatch.hosts import FAULT_HOST, call, command, members, nothing_left, running


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def ask(host: HostProcess, request: HostCall) -> dict[str, Any]:
    assert request.timeout is not None
    deadline = asyncio.get_running_loop().time() + request.timeout
    return await host.exchange(encode(request), deadline=deadline, call_id=request.call_id)


@pytest.mark.req("IPC-10", "IPC-40")
def test_answers_come_in_the_order_of_requests_and_a_host_leaves_when_asked() -> None:
    async def work() -> None:
        host = HostProcess.start(command())
        for each in [call(tier=0) for _ in range(50)]:
            assert (await ask(host, each))["call_id"] == each.call_id
        assert host.resident_bytes() > 1_000_000
        await host.stop()
        assert not host.alive
        assert host.resident_bytes() == 0

    with nothing_left():
        run(work())


@pytest.mark.req("IPC-28", "IPC-29", "IPC-30")
@pytest.mark.parametrize(
    ("fault", "loss"),
    [
        ("crash", "crash"),
        ("killed", "crash"),
        ("half", "crash"),
        ("close", "crash"),
        ("leave", "empty_output"),
        ("empty", "empty_output"),
        ("noise", "parse_error"),
        ("binary", "parse_error"),
        ("array", "parse_error"),
        ("oversize", "oversize"),
        ("flood", "oversize"),
        ("hang", "timeout"),
        ("deaf", "timeout"),
        ("stop", "timeout"),
        ("child", "timeout"),
    ],
)
def test_a_fault_loses_the_call_and_ends_the_host(fault: str, loss: str) -> None:
    async def work() -> None:
        host = HostProcess.start(command())
        await ask(host, call())
        with pytest.raises(HostLost) as caught:
            await ask(host, call(fault=fault, timeout=0.15 if loss == "timeout" else 10))
        assert (caught.value.loss.code or caught.value.loss.kind, caught.value.sent, caught.value.suspect) == (
            loss,
            True,
            True,
        )
        assert not host.alive
        until = time.monotonic() + 5
        while members(host.pid) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        assert not members(host.pid)
        await host.stop()

    with nothing_left():
        run(work())


def test_the_detail_of_a_crash_is_what_the_host_said_last() -> None:
    async def work() -> None:
        host = HostProcess.start(command(FAULT_TEXT="plugin: no such file"))
        with pytest.raises(HostLost, match="exited with code 3: plugin: no such file"):
            await ask(host, call())

    with nothing_left():
        run(work())


def test_a_flood_on_stderr_is_drained_and_only_its_end_is_kept() -> None:
    async def work() -> None:
        host = HostProcess.start(command())
        await ask(host, call(fault="stderr"))
        with pytest.raises(HostLost) as caught:
            await ask(host, call(fault="crash"))
        assert 1_000 < len(caught.value.loss.detail) < 9_000
        await host.stop()

    with nothing_left():
        run(work())


def test_a_line_that_nobody_asked_for_ends_the_host_before_the_next_call_is_sent() -> None:
    async def work() -> None:
        host = HostProcess.start(command())
        await ask(host, call(fault="twice"))
        time.sleep(0.05)  # the loop must not see the line before the call does
        with pytest.raises(HostLost) as caught:
            await ask(host, call())
        assert not caught.value.sent
        await host.wait()

    with nothing_left():
        run(work())


def test_a_request_that_is_longer_than_the_pipe_is_sent_in_parts() -> None:
    async def work() -> None:
        host = HostProcess.start(command())
        with pytest.raises(HostLost, match="more than 1048576 bytes"):
            await ask(host, call(text="x" * 3_000_000))
        await host.stop()

    with nothing_left():
        run(work())


def test_a_cancelled_call_ends_its_host() -> None:
    async def work() -> None:
        host = HostProcess.start(command())
        await ask(host, call())
        task = asyncio.create_task(ask(host, call(fault="hang")))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not host.alive
        assert not running(host.pid)  # the caller can be sure

    with nothing_left():
        run(work())


def test_a_host_gets_its_key_and_a_pipe_for_reports_on_descriptors_of_their_own() -> None:
    async def work() -> None:
        plain = command()
        host = HostProcess.start(
            HostCommand(argv=plain.argv, environ=plain.environ, lease_key_option="--key", progress_option="--progress")
        )
        assert host.lease_key is not None
        assert len(host.lease_key) == 32
        await ask(host, call())
        await host.stop()

    with nothing_left():
        run(work())


TALKATIVE = """
import os, sys
descriptor = int(sys.argv[sys.argv.index("--progress") + 1])
for line in sys.stdin:
    os.write(descriptor, b'{"event":"log","message":"' + b"x" * 200_000 + b'"}\\n')
    print('{"ok":true}', flush=True)
"""


def test_what_nobody_listens_to_holds_no_host_up() -> None:
    async def work() -> None:
        argv = (sys.executable, "-I", "-S", "-c", TALKATIVE)
        host = HostProcess.start(HostCommand(argv=argv, environ={}, progress_option="--progress"))
        for _ in range(3):
            assert await ask(host, call()) == {"ok": True}
        await host.stop()

    with nothing_left():
        run(work())


def test_secrets_of_the_environment_stay_here() -> None:
    assert HostCommand.inherited({"PATH": "/bin", "API_KEY": "secret"}) == {"PATH": "/bin"}


def test_a_program_that_is_missing_leaves_nothing() -> None:
    async def work() -> None:
        for key, progress in ((None, None), ("--key", "--progress")):
            missing = HostCommand(argv=("/no/such/host",), environ={}, lease_key_option=key, progress_option=progress)
            with pytest.raises(FileNotFoundError):
                HostProcess.start(missing)

    with nothing_left():
        run(work())


def _broken_hosts(count: int, seed: int) -> None:
    """Processes that answer with anything: each call is answered or lost, at once, and nothing stays."""
    chance = random.Random(seed)
    program = "import os, sys; os.read(0, 65536); os.write(1, bytes.fromhex(sys.argv[1]))"
    good = b'{"ok":true,"status":"OK"}\n'

    async def work() -> None:
        for _ in range(count):
            scraps = [good, b"\n", b"{", b"null\n", chance.randbytes(9), good[: chance.randrange(len(good))]]
            said = b"".join(chance.choices(scraps, k=chance.randrange(4)))
            argv = (sys.executable, "-I", "-S", "-c", program, said.hex())
            host = HostProcess.start(HostCommand(argv=argv, environ={}))
            if said.startswith(good):
                assert (await ask(host, call()))["ok"] is True
            else:
                with pytest.raises(HostLost) as caught:
                    await ask(host, call())
                assert (caught.value.loss.code or caught.value.loss.kind) in ("crash", "parse_error", "empty_output")
            await host.stop()

    with nothing_left():
        run(work())


def test_hosts_that_answer_with_anything() -> None:
    _broken_hosts(30, seed=18)


@pytest.mark.soak
def test_hosts_that_answer_with_anything_at_length() -> None:
    _broken_hosts(500, seed=19)


def test_no_host_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    program = f"""
import asyncio, os, signal
from manglecp.toolhost.dispatch.launch import HostCommand
from manglecp.toolhost.dispatch.process import HostProcess
async def main():
    host = HostProcess.start(HostCommand(argv=({sys.executable!r}, "-I", "-S", {str(FAULT_HOST)!r}), environ={{}}))
    await host.exchange(b'{{"aid":"_health"}}\\n', deadline=asyncio.get_running_loop().time() + 10)
    print(host.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    script = tmp_path / "parent.py"
    script.write_text(program)
    pid = int(subprocess.run([sys.executable, str(script)], capture_output=True, check=False).stdout)
    until = time.monotonic() + 5
    while running(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not running(pid)
