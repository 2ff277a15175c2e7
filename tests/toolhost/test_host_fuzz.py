"""Whatever is written to a living host, each line gets one answer and the host stays the same process."""

import json
import subprocess
import threading
from random import Random
from typing import Any

import pytest

from tests.toolhost.conversation import HOST, WORKSPACE, request

SEEDS = [
    request("echo", {"text": "a"}),
    request("echo", {"text": "a", "times": 2}, idempotency_key="k", call_id="c"),
    request("keep", {"slot": 1, "text": "a"}, ds_state={"delta": True, "slots": {}, "removed_slots": [1]}),
    request("fail", {"how": "badly"}, _lease_token="lease_a.b"),
    request("write", {"path": "a"}, ds_state={"slots": {"3": {"type": "t"}}}),
    b'{"aid":"_lease.issue","tool_aid":"*","tier":3,"ttl_ms":-1}',
    b'{"aid":"_lease.gc"}',
]
PIECES = [
    b"{",
    b"}",
    b"[",
    b'"',
    b"\\u0000",
    b"\\ud800",
    b"1e999",
    b"-0",
    b"null",
    b"true",
    b"\xff",
    b"\r",
    b"\xe2\x80\xa8",
]


def mutated(random: Random) -> bytes:
    """A request with some of its bytes changed, moved or made of others."""
    line = bytearray(random.choice(SEEDS))
    for _ in range(random.randrange(4)):
        at = random.randrange(len(line) + 1)
        match random.randrange(4):
            case 0:
                line[at:at] = random.choice(PIECES)
            case 1:
                del line[at : at + random.randrange(1, 9)]
            case 2:
                line[at : at + 1] = bytes([random.randrange(256)])
            case _:
                line[at:at] = bytes(random.choice(SEEDS))[: random.randrange(40)]
    return bytes(line).replace(b"\n", b" ") or b" "


def converse(lines: list[bytes]) -> tuple[list[dict[str, Any]], int]:
    command = [*HOST, "--serve", WORKSPACE, "--pipe-leases"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def write() -> None:
            for line in lines:
                stdin.write(line + b"\n")
            stdin.close()

        writer = threading.Thread(target=write)
        writer.start()
        answers = [json.loads(line) for line in stdout]
        writer.join()
        return answers, process.wait(10)


def check(count: int, seed: int) -> None:
    random = Random(seed)
    lines = [mutated(random) for _ in range(count)]
    pid = request("pid", version=2)
    answers, status = converse([pid, *lines, pid])
    assert (len(answers), status) == (count + 2, 0)
    assert answers[0] == answers[-1]
    for answer in answers:
        if answer["ok"] is False:
            assert answer["error"]
            assert answer.keys() >= {"status", "output_json", "ds_state"}
            assert answer["ds_state"] == {} or answer["error"].startswith("invalid input")
        elif "status" in answer:
            assert answer["status"] in ("OK", "TOOL_ERROR")
            assert "idempotent_hit" in answer or answer["ds_state"]["delta"] is True


@pytest.mark.req("IPC-40")
def test_a_host_survives_what_is_written_to_it() -> None:
    check(3_000, seed=5)


@pytest.mark.soak
def test_a_host_survives_a_hundred_thousand_lines() -> None:
    check(100_000, seed=15)
