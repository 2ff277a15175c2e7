"""The relay: bytes, order, sizes, and the ends of processes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.deadlines import patience
from tests.guard.hosts import TOOLS, Host, Setup

_MIRROR = (
    "import sys\nfor line in sys.stdin.buffer:\n    sys.stdout.buffer.write(line)\n    sys.stdout.buffer.flush()\n"
)


def _value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(7 if depth < 3 else 5)
    if kind == 0:
        return rng.choice([True, False, None])
    if kind == 1:
        return rng.randrange(-(2**70), 2**70)
    if kind == 2:
        return rng.uniform(-1e9, 1e9)
    if kind in (3, 4):
        return "".join(rng.choice('az "\\/\n\t\x00é\u2028\U0001f600{}[]:,') for _ in range(rng.randrange(12)))
    if kind == 5:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {f"k{index}": _value(rng, depth + 1) for index in range(rng.randrange(4))}


def _frame(rng: random.Random, number: int) -> bytes:
    shape = rng.randrange(5)
    message: dict[str, Any] = {"jsonrpc": "2.0"}
    if shape == 0:
        message |= {"method": f"notifications/{number}", "params": {"p": _value(rng)}}
    elif shape == 1:
        message |= {"id": rng.choice([number, str(number)]), "method": "resources/read", "params": {"p": _value(rng)}}
    elif shape == 2:
        message |= {"id": number, "result": _value(rng)}
    elif shape == 3:
        message |= {"id": number, "error": {"code": -1, "message": "m", "data": _value(rng)}}
    else:
        message |= {"id": number, "method": "prompts/get", "x-extra": _value(rng)}
    items = list(message.items())
    rng.shuffle(items)
    separators = rng.choice([(",", ":"), (", ", ": "), (" ,\t", " :  ")])
    text = json.dumps(dict(items), ensure_ascii=rng.random() < 0.5, separators=separators)
    return rng.choice([b"", b" "]) + text.encode() + rng.choice([b"\n", b"\r\n", b" \n"])


@pytest.mark.parametrize("flags", [(), ("--enforce",)], ids=["shadow", "enforced"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_other_frame_passes_unchanged_in_both_directions(
    setup: Setup, tmp_path: Path, flags: tuple[str, ...], seed: int
) -> None:
    setup.install(*flags)
    mirror = tmp_path / "mirror.py"
    mirror.write_text(_MIRROR)
    command = setup.command()
    rng = random.Random(seed)
    frames = [_frame(rng, number) for number in range(300)]
    # The mirror sends responses that nothing requested.
    returned = [frame for frame in frames if not flags or "method" in json.loads(frame)]
    with Host([*command[: command.index("--") + 2], sys.executable, str(mirror)]) as host:
        host.send_raw(b"".join(frames))
        assert [host.receive_raw() for _ in returned] == returned
        host.close()
        assert host.is_silent()


def test_calls_that_pass_are_forwarded_as_received(enforced: Setup) -> None:
    call = b'"method":"tools\\/call","id":"x","jsonrpc":"2.0"'
    frame = b'{ "params":{"arguments":{"path":"\\u002fa", "n": 1.50},"name":"read"},' + call + b"}\n"
    with enforced.host() as host:
        host.send_raw(frame)
        host.receive()
    assert enforced.received.read_bytes() == frame


def test_a_large_frame_passes_in_both_directions(enforced: Setup) -> None:
    with enforced.host() as host:
        failed, text = host.call("big", size=12_000_000)
        assert (failed, len(text)) == (False, 12_000_000)
        failed, text = host.call("read", path="y" * 3_000_000)
        assert not failed
        assert json.loads(text)["arguments"]["path"] == "y" * 3_000_000


def test_a_slow_call_does_not_block_others(enforced: Setup) -> None:
    with enforced.host() as host:
        host.send("tools/call", {"name": "sleep", "arguments": {"seconds": patience(2)}}, "slow")
        for number in range(20):
            host.send("tools/call", {"name": "read", "arguments": {"path": str(number)}}, number)
        assert {host.receive()["id"] for _ in range(20)} == set(range(20))
        assert host.receive()["id"] == "slow"  # the last
    paths = [call["params"]["arguments"].get("path") for call in enforced.calls_received()]
    assert paths == [None, *map(str, range(20))]  # in the order of the host


def test_the_end_of_the_input_ends_the_server_with_status_0(shadow: Setup) -> None:
    with shadow.host() as host:
        host.initialize()
        assert host.close() == 0
        assert "the server has started" in host.stderr


def test_the_last_frame_needs_no_line_feed(enforced: Setup) -> None:
    with enforced.host() as host:
        host.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{}}}')
        assert host.process.stdin is not None
        host.process.stdin.close()
        assert host.receive()["result"]["isError"]
    assert enforced.calls_received() == []


def test_the_death_of_the_server_ends_the_relay_with_its_status(shadow: Setup) -> None:
    with shadow.host() as host:
        host.initialize()
        host.send("tools/call", {"name": "die", "arguments": {}})
        assert host.process.wait(patience(20)) == 7


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_server_outlives_its_relay(setup: Setup, number: int) -> None:
    command = shlex.join([setup.entry()["command"], *setup.entry()["args"]])
    # As npx starts a server: below a shell, and beside a process that does not notice the end of its input.
    setup.write_config(
        {"files": {"command": "/bin/sh", "args": ["-c", f"sleep 600 >/dev/null 2>&1 & {command}; true"]}}
    )
    setup.install()
    with setup.host() as host:
        host.initialize()
        processes = _children(host.process.pid)
        processes += [child for process in processes for child in _children(process)]
        assert len(processes) == 4  # the shell, the watchdog, the other process, the server
        host.send("tools/call", {"name": "sleep", "arguments": {"seconds": 60}})
        os.kill(host.process.pid, number)
        host.process.wait(patience(20))
        end = time.monotonic() + patience(10)
        while any(map(_is_running, processes)) and time.monotonic() < end:
            time.sleep(0.02)
        assert not any(map(_is_running, processes))


def test_the_death_of_the_host_ends_a_server_that_reads_nothing(shadow: Setup) -> None:
    command = shadow.command()
    deaf = [*command[: command.index("--") + 2], sys.executable, "-c", "import time; time.sleep(600)"]
    process = subprocess.Popen(deaf, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        os.set_blocking(process.stdin.fileno(), False)
        frame, end = b'{"jsonrpc":"2.0","method":"notifications/x"}\n' * 1000, time.monotonic() + 2
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                os.write(process.stdin.fileno(), frame)
            time.sleep(0.01)
        children = _children(process.pid)
        process.stdout.close()
        process.stdin.close()
        assert process.wait(patience(20)) == 0
        assert not any(map(_is_running, children))
    finally:
        process.kill()
        process.wait()


def test_a_server_that_does_not_exist_is_an_error(shadow: Setup) -> None:
    command = shadow.command()
    with Host([*command[: command.index("--") + 2], "/does/not/exist"]) as host:
        assert host.process.wait(patience(20)) == 1
        host.close()
        assert "/does/not/exist" in host.stderr


def test_shadow_mode_relays_even_without_a_lock_and_a_store(shadow: Setup) -> None:
    (shadow.folder / "manglecp.lock").write_text("{")
    with shadow.host() as host:
        host.initialize()
        assert host.tools() == [tool["name"] for tool in TOOLS]
        assert host.call("write", path="/a")[0] is False
        host.close()
        assert "forwarded without a decision" in host.stderr


def test_no_module_of_the_server_or_of_the_project_is_imported(
    enforced: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lib", "project"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "click.py").write_text("raise SystemExit('imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))  # as an entry sets it for its server
    monkeypatch.chdir(tmp_path / "project")
    with enforced.host() as host:
        assert host.call("write", path="/a")[0] is True
        host.close()
        assert "imported" not in host.stderr


def test_relays_of_one_configuration_share_a_store(setup: Setup) -> None:
    setup.write_config({name: setup.entry() for name in ("a", "b", "c")})
    setup.install()
    hosts = [setup.host(name) for name in ("a", "b", "c")]  # they open a store that does not exist yet
    for _ in range(5):
        for host in hosts:
            assert host.call("read", path="/a")[0] is False
    assert [host.close() for host in hosts] == [0, 0, 0]
    assert {row["name"]: row["calls"] for row in setup.report()} == {f"{name}__read": 5 for name in ("a", "b", "c")}


_TOO_MUCH = 67_108_864


@pytest.mark.parametrize("flag", ["--shadow", "--enforce"])
def test_a_frame_above_the_limit_is_an_error_of_its_request(setup: Setup, flag: str) -> None:
    setup.install(flag)
    with setup.host() as host:
        for request_id in ("end", 0):
            message: dict[str, Any] = {"method": "tools/call", "params": {"x": "y" * _TOO_MUCH}, "id": request_id}
            if request_id == 0:
                message = dict(reversed(message.items()))
            host.send_raw(json.dumps(message).encode() + b"\n")
            answer = host.receive()
            assert (answer["id"], answer["error"]["code"]) == (request_id, -32600)
            assert "more than 67,108,864 bytes" in answer["error"]["message"]
        host.send_raw(b'{"id":1,"result":"' + b"x" * _TOO_MUCH + b'"}\n')  # no answer: the host would read it as one
        assert host.receive()["id"] is None
        request_id = host.send("tools/call", {"name": "big", "arguments": {"size": _TOO_MUCH}})
        answer = host.receive()
        assert (answer["id"], answer["error"]["code"]) == (request_id, -32603)
        assert host.call("read", path="/a")[0] is False
    assert [call["params"]["name"] for call in setup.calls_received()] == ["big", "read"]
