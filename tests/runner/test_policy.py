"""Real processes that hang, crash, flood and leave children behind."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from manglecp.runner import (
    ControlMode,
    EndReason,
    ExternalPolicy,
    PolicyLimits,
    PolicyRefused,
    RunRequest,
    Selection,
    SelectionKind,
    Situation,
)
from manglecp.toolhost.dispatch.breakers import Breaker, Permit
from tests.runner.playing import MENU, play

SITUATION = Situation("g", "s", ControlMode.POLICY_ONLY, {"a": "é"}, MENU, "req-1")
PYTHON = [sys.executable, "-I", "-S"]


def policy(code: str, *, seconds: float = 30.0, **options: Any) -> ExternalPolicy:
    return ExternalPolicy(
        [*PYTHON, "-c", code], {sys.executable}, limits=PolicyLimits(seconds=seconds, output_bytes=4096), **options
    )


def ask(asked: ExternalPolicy) -> Selection:
    return asyncio.run(asked(SITUATION))


def gone(pid: int) -> bool:
    """Within a second, because the process that adopts an orphan has to reap it."""
    for _ in range(100):
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.req("IPC-07")
def test_a_policy_reads_the_situation_and_picks() -> None:
    code = (
        "import json, sys\n"
        "with open(sys.argv[-1], 'rb') as f: said = json.loads(f.read())\n"
        "assert said['inputs'] == {'a': '\\xe9'} and said['request_id'] == 'req-1', said\n"
        "print('a line of log', file=sys.stderr)\n"
        "print('<PICK><' + said['menu'][1]['sid'] + '><END>')\n"
    )
    selection = ask(policy(code))
    assert (selection.kind, selection.sid, selection.raw) == (SelectionKind.PICK, "SID0002", "<PICK><SID0002><END>\n")


def test_nobody_else_can_read_the_situation() -> None:
    code = (
        "import os, sys\n"
        "modes = os.stat(os.path.dirname(sys.argv[-1])).st_mode & 0o77\n"
        "print('<NOOP><END>' if modes == 0 else modes)"
    )
    assert ask(policy(code)).kind is SelectionKind.NOOP


def test_a_policy_sees_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    code = "import os; print('<NOOP><END>' if 'API_KEY' not in os.environ and os.environ['MODE'] == 'x' else 'leak')"
    assert ask(policy(code, env={"MODE": "x"})).kind is SelectionKind.NOOP


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import time; time.sleep(60)", "no selection within"),
        ("import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)", "no selection within"),
        ("import os, time; os.close(1); time.sleep(60)", "no selection within"),
        ("print('<NOOP><END>'); raise SystemExit(3)", "exit code 3"),
        ("print('<NOOP><END>', flush=True); import os; os.kill(os.getpid(), 9)", "signal 9"),
        ("while True: print('x' * 1000)", "printed more than"),
        ("import sys\nwhile True: sys.stderr.write('x' * 1000)", "no selection within"),
        ("", "an empty text"),
        ("print('I pick the first')", "not a selection"),
        ("print('<PICK><SID0077><END>')", "not on the menu"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "not UTF-8"),
    ],
)
def test_whatever_a_policy_does_it_is_a_selection(code: str, why: str) -> None:
    began = time.monotonic()
    # Short only for those that are waited for in vain: a loaded machine is slow to start the others.
    selection = ask(policy(code, seconds=0.3 if why == "no selection within" else 30))
    assert selection.kind is SelectionKind.INVALID
    assert why in selection.why
    assert time.monotonic() - began < 30


def test_a_policy_cannot_fill_the_disk(tmp_path: Path) -> None:
    file = tmp_path / "large"
    code = f"print('<NOOP><END>'); import time; time.sleep(0.2); open({str(file)!r}, 'wb').write(bytes(11 << 20))"
    assert ask(policy(code)).kind is SelectionKind.INVALID
    assert file.stat().st_size <= 10 << 20


@pytest.mark.parametrize("after", ["print('<NOOP><END>', flush=True)", "time.sleep(60)"])
def test_children_of_a_policy_go_with_it_and_do_not_delay_the_answer(tmp_path: Path, after: str) -> None:
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n{after}\n"
    )
    began = time.monotonic()
    selection = ask(policy(code, seconds=30 if "NOOP" in after else 2))
    assert time.monotonic() - began < 30
    assert selection.kind is (SelectionKind.NOOP if "NOOP" in after else SelectionKind.INVALID)
    assert gone(int(note.read_text()))


def test_nothing_is_left_open() -> None:
    def held() -> tuple[int, str]:
        children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
        return len(list(Path("/proc/self/fd").iterdir())), children.read_text() if children.exists() else ""

    before = held()
    for code in ("print('<NOOP><END>')", "raise SystemExit(1)", "import time; time.sleep(60)"):
        ask(policy(code, seconds=0.3))
    assert held() == before


@pytest.mark.parametrize(
    ("argv", "allowed"),
    [
        ([], [sys.executable]),
        (sys.executable, [sys.executable]),
        (["python3"], ["python3"]),
        (["/bin/sh", "-c", "true"], [sys.executable]),
        (["/bin/../bin/sh"], ["/bin/../bin/sh"]),
        ([sys.executable, "a\0b"], [sys.executable]),
        ([sys.executable, 1], [sys.executable]),
    ],
)
def test_only_listed_executables_start(argv: Any, allowed: list[str]) -> None:
    with pytest.raises(PolicyRefused):
        ExternalPolicy(argv, allowed)


def test_an_executable_that_is_not_there_is_a_failure() -> None:
    selection = ask(ExternalPolicy(["/nowhere/policy"], {"/nowhere/policy"}))
    assert (selection.kind, selection.why) == (
        SelectionKind.INVALID,
        "the policy failed: not started: FileNotFoundError",
    )


@settings(max_examples=8)
@given(st.text(st.sampled_from("$`'\"\\;&|<>*?!(){}[]~# \n\tab-"), max_size=12))
def test_no_argument_passes_a_shell(argument: str) -> None:
    code = "import sys; print('<NOOP><END>' if sys.argv[1] == bytes.fromhex(sys.argv[2]).decode() else sys.argv)"
    argv = [*PYTHON, "-c", code, argument, argument.encode().hex()]
    assert ask(ExternalPolicy(argv, {sys.executable}, limits=PolicyLimits(seconds=30))).kind is SelectionKind.NOOP


def test_after_five_failures_the_policy_rests_for_30_seconds_and_then_has_one_try(tmp_path: Path) -> None:
    now = [0.0]
    started = tmp_path / "started"
    good = tmp_path / "good"
    code = (
        f"open({str(started)!r}, 'a').write('x')\n"
        f"import os; print('<NOOP><END>' if os.path.exists({str(good)!r}) else 'junk')"
    )
    asked = policy(code, breaker=Breaker(lambda: now[0]))

    def starts() -> int:
        ask(asked)
        return len(started.read_text())

    assert [starts() for _ in range(7)] == [1, 2, 3, 4, 5, 5, 5]
    now[0] = 29.9
    assert starts() == 5
    now[0] = 30.0
    assert [starts(), starts()] == [6, 6]
    now[0] = 60.0
    good.touch()
    assert [starts(), starts()] == [7, 8]
    good.unlink()
    assert [starts() for _ in range(6)] == [9, 10, 11, 12, 13, 13]


def test_a_try_that_was_given_up_leaves_room_for_another(tmp_path: Path) -> None:
    now = [0.0]
    breaker = Breaker(lambda: now[0], threshold=1)
    assert ask(policy("raise SystemExit(1)", breaker=breaker)).kind is SelectionKind.INVALID
    assert breaker.admit() is None
    now[0] = 30.0
    started = tmp_path / "started"
    os.mkfifo(started)

    async def give_up() -> None:
        code = f"import time\nwith open({str(started)!r}, 'w') as file: file.write('x')\ntime.sleep(120)"
        asked = asyncio.create_task(policy(code, seconds=120, breaker=breaker)(SITUATION))
        await asyncio.to_thread(started.read_text)
        assert breaker.admit() is None
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(give_up())
    assert ask(policy("print('<NOOP><END>')", breaker=breaker)).kind is SelectionKind.NOOP


class RecordingBreaker(Breaker):
    """Records how each permit was handed back."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.settled: list[str] = []

    def succeeded(self, permit: Permit) -> None:
        self.settled.append("succeeded")
        super().succeeded(permit)

    def failed(self, permit: Permit) -> None:
        self.settled.append("failed")
        super().failed(permit)

    def abandoned(self, permit: Permit) -> None:
        self.settled.append("abandoned")
        super().abandoned(permit)


def test_each_permit_of_the_breaker_is_handed_back_once(tmp_path: Path) -> None:
    breaker = RecordingBreaker()
    ask(policy("print('<NOOP><END>')", breaker=breaker))
    ask(policy("print('junk')", breaker=breaker))
    started = tmp_path / "started"
    os.mkfifo(started)

    async def cancel() -> None:
        code = f"import time\nopen({str(started)!r}, 'w').close()\ntime.sleep(120)"
        task = asyncio.create_task(policy(code, seconds=120, breaker=breaker)(SITUATION))
        await asyncio.to_thread(started.read_text)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert breaker.settled == ["succeeded", "failed", "abandoned"]


def test_a_failing_policy_never_falls_back() -> None:
    request = RunRequest("g", control_mode=ControlMode.POLICY_ONLY)
    played = play(request, policy=policy("raise SystemExit(1)"), goal_done=lambda state: 0 in state)
    assert played.result.reason is EndReason.MAX_INVALID
    assert played.payloads("selector_policy_raw")[0]["kind"] == "INVALID"


def test_the_limits_are_there_before_the_first_instruction() -> None:
    asked = "import resource; print('<NOOP><END>' if resource.getrlimit(resource.RLIMIT_NOFILE) == (64, 64) else 'no')"
    assert ask(policy(asked)).kind is SelectionKind.NOOP
    first = ["/bin/sh", "-c", '[ "$(ulimit -Hn)" = 64 ] && echo "<NOOP><END>"']
    for _ in range(20):  # whoever sets them from outside is sometimes too late
        assert ask(ExternalPolicy(first, {"/bin/sh"}, limits=PolicyLimits(seconds=30))).kind is SelectionKind.NOOP
