"""Our host in the hands of a client that behaves like the C++ pool."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.toolhost.conversation import HOST, UNMEASURED, WORKSPACE
from tests.toolhost.dispatch.hosts import members
from tests.toolhost.peers.cpp_client import ServeSession, listing, run_once

ECHO = "AID.WORKSPACE.ECHO.v1"
KEEP = "AID.WORKSPACE.KEEP.v1"
HELD: dict[str, Any] = {"5": {"type": "t", "provenance": "p/q", "content_json": '{"a":"\u2028"}', "size_bytes": 9}}
POLITE = 20.0


def keep(slot: int, text: str, **more: Any) -> str:
    return json.dumps({"slot": slot, "text": text, **more})


@pytest.mark.req("IPC-10", "IPC-13", "IPC-19", "IPC-22", "IPC-40")
def test_a_session_of_calls() -> None:
    session = ServeSession(HOST, WORKSPACE)
    said = session.call(ECHO, '{"text":"a/b é \u2028"}', {})
    assert (said.status, json.loads(said.output_json), said.error, said.slots) == ("OK", "a/b é \u2028", "", {})
    kept = session.call(KEEP, keep(1, "one"), HELD)
    assert (kept.output_json, set(kept.slots), kept.slots["5"]) == ("[1,5]", {"1", "5"}, HELD["5"])
    assert session.call(KEEP, keep(2, "two"), kept.slots).output_json == "[1,2,5]"
    fewer = session.call(KEEP, keep(3, "three"), {"1": kept.slots["1"]})
    assert (fewer.output_json, set(fewer.slots)) == ("[1,3]", {"1", "3"})
    assert session.leave(POLITE)[0] == 0


def test_a_failed_call_leaves_both_sides_with_the_same_state() -> None:
    session = ServeSession(HOST, WORKSPACE)
    kept = session.call(KEEP, keep(1, "one"), {})
    failed = session.call(KEEP, keep(2, "two", fail=True), kept.slots)
    assert (failed.status, failed.slots) == ("TOOL_ERROR", kept.slots)
    assert "after writing" in failed.error
    assert session.call(KEEP, keep(3, "three"), failed.slots).output_json == "[1,3]"
    session.leave(POLITE)


def test_what_is_refused_has_a_status_that_the_client_reads() -> None:
    session = ServeSession(HOST, WORKSPACE)
    refused = session.call("AID.NO.SUCH.TOOL.v1", "{}", {})
    assert (refused.status, refused.error) == ("INVALID_PICK", "tool not found: AID.NO.SUCH.TOOL.v1")
    assert session.call(ECHO, '{"text":7}', {}).status == "INVALID_PICK"
    assert session.call(ECHO, "{}", {}).status == "OK"
    session.leave(POLITE)


def test_a_client_that_believes_every_answer_is_right_to_do_so_when_input_is_refused() -> None:
    """The C++ runner gives all tools the same inputs, and counts its state as taken whatever the answer says."""
    session = ServeSession(HOST, WORKSPACE)
    refused = session.call(KEEP, keep(1, "one", unknown=True), HELD)
    assert (refused.status, refused.slots) == ("INVALID_PICK", HELD)
    assert session.call(KEEP, keep(1, "one"), refused.slots).output_json == "[1,5]"
    session.leave(POLITE)


def test_a_listing_can_be_read_with_stderr_in_it() -> None:
    assert ECHO in listing(HOST, WORKSPACE)


def test_the_call_that_is_repeated_in_run_mode() -> None:
    result = run_once(HOST, WORKSPACE, KEEP, keep(1, "a/b"), HELD)
    assert (result.status, result.output_json, set(result.slots)) == ("OK", "[1,5]", {"1", "5"})
    assert run_once(HOST, WORKSPACE, "AID.X", "{}", {}).error == "tool not found in plugin: AID.X"


def test_a_host_is_gone_before_the_client_is_impatient() -> None:
    took: list[float] = []
    for _ in range(10):
        session = ServeSession(HOST, WORKSPACE, UNMEASURED)
        assert session.call(ECHO, "{}", {}).status == "OK"
        status, seconds = session.leave(POLITE)
        assert status == 0
        took.append(seconds)
    assert min(took) < 0.05, took  # a busy machine may be slow ten times out of ten, but not the host


def test_a_host_that_is_busy_ends_with_its_group(tmp_path: Path) -> None:
    plugin = tmp_path / "busy.py"
    plugin.write_text(
        "import subprocess\n"
        "from manglecp import Context, action\n"
        "@action(effects=['process'])\n"
        "def work(context: Context) -> None:\n"
        "    subprocess.run(['sleep', '60'])\n"
    )
    session = ServeSession(HOST, str(plugin))
    session.send("AID.BUSY.WORK.v1", "{}", {})
    until = time.monotonic() + 30
    while len(members(session.pid)) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert session.leave()[0] in (-signal.SIGTERM, -signal.SIGKILL)
    while members(session.pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert members(session.pid) == []
