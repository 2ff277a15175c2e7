"""What tools do to the process that they run in, and that the host answers all the same."""

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.toolhost.conversation import HOST

PLUGIN = """
import asyncio, contextvars, functools, os, signal, sys, threading, time
from manglecp import Context, action
from manglecp.toolhost.state import Artifact

WHO = contextvars.ContextVar("WHO", default="nobody")


@action(effects=[])
def echo(text: str = "") -> str:
    return text


@action(effects=["process"])
def fork(how: str) -> list[int]:
    child = os.fork()
    if child == 0:
        if how == "exit":
            sys.exit(3)
        if how == "raise":
            raise RuntimeError("in the child")
        return []
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


@action(effects=["process"])
def linger() -> int:
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    return child


@action(effects=[])
def alarm() -> None:
    def late(*_: object) -> None:
        raise TimeoutError("late")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.05)


@action(effects=[])
def interrupt() -> None:
    import _thread

    threading.Timer(0.05, _thread.interrupt_main).start()


@action(effects=[])
def rest() -> str:
    time.sleep(0.3)
    return "rested"


def stray(*_: object) -> None:
    raise TimeoutError("stray")


signal.signal(signal.SIGUSR1, stray)


@action(effects=[])
def streams(how: str) -> None:
    if how == "close output":
        sys.stdout.close()
    if how == "close":
        sys.stdout.close()
        sys.stderr.close()
    if how == "none":
        sys.stdout = sys.stderr = None
    if how == "descriptors":
        os.close(1)
        os.close(2)


@action(effects=[])
def close_all(first: int, last: int) -> None:
    os.closerange(first, last)


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit(5)


@action(effects=[])
def fail(how: str) -> object:
    if how == "mute":
        raise Mute
    if how == "group":
        raise ExceptionGroup("two", [ExceptionGroup("one", [KeyError("first")]), ValueError("second")])
    if how == "names":
        return {1: "a", "1": "b"}
    if how == "names within":
        return [{"x": ({None: 1, "null": 2},)}]
    if how == "circle":
        circle = []
        circle.append(circle)
        return circle
    raise ValueError(how)


@action(effects=[])
def several() -> dict[str, object]:
    return {"set": {3, 1, 2}, "mixed": {1}, 7: "number"}


@action(effects=[])
def threaded(context: Context, go: str, done: str) -> None:
    slots = context.slots
    slots[1] = Artifact("a")

    def later() -> None:
        open(go).read()
        slots[2] = Artifact("late")
        del slots[1]
        open(done, "w").close()

    threading.Thread(target=later, daemon=True).start()


@action(effects=[])
def look(context: Context) -> list[int]:
    return sorted(context.slots)


@action(effects=[])
def enter(who: str) -> str:
    before = WHO.get()
    WHO.set(who)
    return before


@action(effects=[])
async def enter_later(who: str) -> str:
    before = WHO.get()
    WHO.set(who)
    return before


LEFT = []


@action(effects=[])
async def leave(stubborn: bool = False) -> None:
    async def later() -> None:
        while True:
            try:
                await asyncio.sleep(0)
                LEFT.append(1)
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    asyncio.get_running_loop().create_task(later())
    await asyncio.sleep(0)


@action(effects=[])
async def left() -> int:
    before = len(LEFT)
    await asyncio.sleep(0.01)
    return len(LEFT) - before


def made_async(function):
    @functools.wraps(function)
    async def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


def made_sync(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return asyncio.run(function(*args, **kwargs))

    return call


@action(effects=[])
@made_async
def now_async() -> int:
    return 1


@action(effects=[])
@made_sync
async def now_sync() -> int:
    return 2


@action(effects=[])
async def close_loop() -> None:
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
    await asyncio.sleep(60)
"""


class Serving:
    """A host in the middle of a conversation."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def call(self, name: str, /, **inputs: Any) -> dict[str, Any]:
        self.send(json.dumps({"aid": f"AID.WILD.{name.upper()}.v1", "inputs": inputs}).encode())
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the host left with {self.process.wait(30)}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def output(self, name: str, /, **inputs: Any) -> Any:
        answer = self.call(name, **inputs)
        assert answer.get("status") == "OK", answer
        return json.loads(answer["output_json"])

    def leave(self) -> int:
        self.send(b"")
        return self.process.wait(30)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    file = tmp_path / "wild.py"
    file.write_text(PLUGIN)
    return file


@contextmanager
def serving(plugin: Path, **options: Any) -> Iterator[Serving]:
    process = subprocess.Popen(
        [*HOST, "--serve", str(plugin)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **{"stderr": subprocess.DEVNULL, **options},
    )
    with process:
        try:
            yield Serving(process)
        finally:
            process.kill()


@pytest.mark.parametrize(("how", "status"), [("exit", 3), ("raise", 1), ("return", 0)])
def test_a_child_of_a_tool_answers_nothing(plugin: Path, how: str, status: int) -> None:
    with serving(plugin) as host:
        assert host.output("fork", how=how) == [status]
        assert [host.output("echo", text=text) for text in "abc"] == ["a", "b", "c"]
        assert host.leave() == 0
        assert host.process.stdout is not None
        assert host.process.stdout.read() == b""


def test_a_child_does_not_keep_the_pipe_open(plugin: Path) -> None:
    with serving(plugin) as host:
        child = host.output("linger")
        try:
            assert host.leave() == 0
            assert host.process.stdout is not None
            ended, _, _ = select.select([host.process.stdout], [], [], 20)
            assert ended, "the end comes although the child lives"
        finally:
            os.kill(child, 9)


def test_a_plugin_that_forks_while_it_loads_is_one_host(tmp_path: Path) -> None:
    file = tmp_path / "forks.py"
    file.write_text("import os\nos.fork()\n")
    done = subprocess.run([*HOST, "--list", str(file)], capture_output=True, timeout=30, check=False)
    assert json.loads(done.stdout)["tools"] == []


@pytest.mark.parametrize("what", ["alarm", "interrupt"])
def test_what_a_tool_leaves_to_happen_does_not_happen_to_the_host(plugin: Path, what: str) -> None:
    with serving(plugin) as host:
        assert host.output(what) is None
        with pytest.raises(subprocess.TimeoutExpired):
            host.process.wait(0.3)
        assert host.output("echo", text="a") == "a"
        assert host.leave() == 0


@pytest.mark.parametrize("what", ["alarm", "interrupt"])
def test_what_a_tool_leaves_to_happen_does_not_happen_to_the_next_call(plugin: Path, what: str) -> None:
    with serving(plugin) as host:
        assert host.output(what) is None
        assert host.output("rest") == "rested"


def test_an_exception_between_two_calls_costs_nothing(plugin: Path) -> None:
    with serving(plugin, stderr=subprocess.PIPE) as host:
        assert host.output("echo", text="a") == "a"
        line = b'{"aid":"AID.WILD.ECHO.v1","inputs":{"text":"whole"}}'
        assert host.process.stdin is not None
        assert host.process.stderr is not None
        host.process.stdin.write(line[:20])
        host.process.stdin.flush()
        host.process.send_signal(signal.SIGUSR1)
        host.send(line[20:])
        assert json.loads(host.answer()["output_json"]) == "whole"
        assert host.leave() == 0
        assert b"stray" not in host.process.stderr.read()


def test_a_plugin_does_not_keep_an_idle_host_from_ending(plugin: Path) -> None:
    plugin.write_text(PLUGIN + "\nsignal.signal(signal.SIGTERM, lambda *_: None)\n")
    with serving(plugin) as host:
        assert host.output("echo", text="a") == "a"
        host.process.terminate()
        assert host.process.wait(30) == -signal.SIGTERM


@pytest.mark.parametrize("how", ["close", "none", "descriptors"])
def test_a_host_leaves_cleanly_without_its_streams(plugin: Path, how: str) -> None:
    with serving(plugin) as host:
        assert host.output("streams", how=how) is None
        assert host.call("fail", how="badly")["error"] == "ValueError: badly"
        assert host.leave() == 0


@pytest.mark.parametrize("closed", ["2>&-", "1>&- 2>&-", "<&-"])
def test_a_host_starts_with_closed_streams(plugin: Path, closed: str) -> None:
    command = f'exec "$0" -m manglecp.toolhost.host --serve "$1" {closed}'
    request = b'{"aid":"AID.WILD.FAIL.v1","inputs":{"how":"badly"}}\n'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, str(plugin)], input=request, capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b"ValueError: badly" in done.stdout) is (closed == "2>&-")


def test_a_wrong_command_line_without_standard_error() -> None:
    command = ["sh", "-c", 'exec "$0" -m manglecp.toolhost.host --list 2>&-', sys.executable]
    assert subprocess.run(command, timeout=30, check=False).returncode == 2


def test_low_descriptors_are_not_the_hosts(plugin: Path) -> None:
    with serving(plugin) as host:
        assert host.output("close_all", first=3, last=64) is None
        assert host.output("echo", text="a") == "a"
        assert host.leave() == 0


def test_a_host_whose_pipe_was_closed_says_so_when_it_leaves(plugin: Path) -> None:
    with serving(plugin, stderr=subprocess.PIPE) as host:
        request = b'{"aid":"AID.WILD.CLOSE_ALL.v1","inputs":{"first":3,"last":4096}}\n'
        out, err = host.process.communicate(request, timeout=30)
        assert (host.process.returncode, out, err) == (7, b"", b"")


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("mute", "Mute"),
        ("group", "ExceptionGroup: two (2 sub-exceptions): ExceptionGroup: one (1 sub-exception): KeyError: 'first'"),
        ("names", "ValueError: the result has two names in an object that are the same as text"),
        ("names within", "ValueError: the result has two names in an object that are the same as text"),
        ("circle", "ValueError: Circular reference detected"),
    ],
)  # fmt: skip
def test_failures_are_described(plugin: Path, how: str, error: str) -> None:
    with serving(plugin) as host:
        answer = host.call("fail", how=how)
        assert (answer["status"], answer["error"]) == ("TOOL_ERROR", error)
        assert host.output("echo", text="a") == "a"


def test_where_a_failure_came_from_is_told_to_whoever_operates_the_host(plugin: Path) -> None:
    request = (
        b'{"aid":"AID.WILD.STREAMS.v1","inputs":{"how":"close output"}}\n'
        b'{"aid":"AID.WILD.FAIL.v1","inputs":{"how":"badly"}}\n'
    )
    done = subprocess.run([*HOST, "--serve", str(plugin)], input=request, capture_output=True, timeout=30, check=False)
    assert b"raise ValueError(how)" in done.stderr
    assert "raise ValueError(how)" in json.loads(done.stdout.splitlines()[-1])["traceback"]


def test_a_plugin_whose_exception_is_mute(tmp_path: Path) -> None:
    file = tmp_path / "mute.py"
    file.write_text("class Mute(Exception):\n    def __str__(self): raise SystemExit(9)\nraise Mute\n")
    done = subprocess.run([*HOST, "--list", str(file)], capture_output=True, timeout=30, check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]) == (3, f"cannot load plugin {file}: Mute (line 3)")


def test_sets_and_numbers_as_names_become_what_json_has(plugin: Path) -> None:
    with serving(plugin) as host:
        assert host.output("several") == {"set": [1, 2, 3], "mixed": [1], "7": "number"}


def test_what_a_thread_writes_after_the_return_changes_nothing(plugin: Path) -> None:
    go, done = plugin.with_name("go"), plugin.with_name("done")
    os.mkfifo(go)
    os.mkfifo(done)
    with serving(plugin) as host:
        assert list(host.call("threaded", go=str(go), done=str(done))["ds_state"]["slots"]) == ["1"]
        go.write_text("now")
        assert done.read_text() == ""  # it has
        assert host.output("look") == [1]


@pytest.mark.parametrize("name", ["enter", "enter_later"])
def test_context_variables_belong_to_one_call(plugin: Path, name: str) -> None:
    with serving(plugin) as host:
        assert [host.output(name, who=who) for who in ("ann", "bob")] == ["nobody", "nobody"]


@pytest.mark.parametrize("stubborn", [False, True])
def test_tasks_end_with_their_call(plugin: Path, stubborn: bool) -> None:
    with serving(plugin) as host:
        assert host.output("leave", stubborn=stubborn) is None
        assert host.output("left") == 0


def test_what_came_back_decides_whether_it_is_awaited(plugin: Path) -> None:
    with serving(plugin) as host:
        assert (host.output("now_async"), host.output("now_sync"), host.output("now_async")) == (1, 2, 1)
        assert host.call("close_loop")["status"] == "TOOL_ERROR"
        assert host.output("enter_later", who="x") == "nobody"


def test_a_listing_knows_a_plugin_by_what_it_defines(tmp_path: Path) -> None:
    define = "@action(effects=[])\ndef {}() -> None: ...\n"
    (tmp_path / "helper.py").write_text(
        "from manglecp import action\n" + define.format("lent") + define.format("given")
    )
    own = tmp_path / "own.py"
    own.write_text("from manglecp import action\nfrom helper import given, lent\n" + define.format("mine"))
    assert names(own) == ["mine"]
    own.write_text(own.read_text() + "__all__ = ['given']\n")
    assert names(own) == ["given", "mine"]


def test_packages_import_their_own_and_only_if_they_are_pinned(tmp_path: Path) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "words.py").write_text("WORD = 'w'\n")
    (package / "__init__.py").write_text(
        "from manglecp import action\nfrom .words import WORD\n"
        f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
        "@action(effects=[])\ndef top() -> str:\n    return WORD\n"
    )
    (package / "plug.py").write_text(
        "from manglecp import action\nfrom .words import WORD\nfrom . import words\n"
        "@action(effects=[])\ndef inner() -> str:\n    return words.WORD\n"
    )
    for where in ("pack", "pack.plug", str(package / "__init__.py")):
        (tmp_path / "ran").unlink(missing_ok=True)
        wrong = listed(where, "--sha256", "0" * 64, cwd=tmp_path)
        assert (wrong.returncode, (tmp_path / "ran").exists()) == (3, False)
        done = listed(where, cwd=tmp_path)
        assert done.returncode == 0, done.stdout
        assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == ["inner" if "plug" in where else "top"]


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def f() -> datetime.datetime: ...", "datetime"),
        ("def f(a: Context, b: Context) -> None: ...", "there is one Context for a call, not 2"),
        ("def f() -> Any:\n    yield 1", "a generator has none"),
        ("async def f() -> Any:\n    yield 1", "a generator has none"),
        ("def f(a: Annotated[float, Limits(ge=float('inf'))]) -> None: ...", ""),
    ],
)
def test_what_is_wrong_with_an_action_shows_when_its_plugin_loads(tmp_path: Path, source: str, error: str) -> None:
    file = tmp_path / "wrong.py"
    head = "import datetime\nfrom typing import *\nfrom manglecp import Context, Limits, action\n"
    file.write_text(f"{head}@action(effects=[])\n{source}\n")
    done = subprocess.run([*HOST, "--serve", str(file)], capture_output=True, timeout=30, check=False)
    assert done.returncode == 3
    assert error in json.loads(done.stdout)["error"]


def test_descriptions_and_defaults_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "said.py"
    file.write_text(
        textwrap.dedent('''
        import enum
        from typing import *
        from manglecp import action

        class Colour(enum.Enum):
            RED = "red"

        @action(effects=[])
        def f(
            path: str, n: int = 1, q: Colour = Colour.RED, z: list[int] = [1], w: tuple[int, ...] = (2,),
            i: float = float("inf"), o: Any = object(),
        ) -> int:
            """Summary line
            goes on.

            More text.

            Args:
                path: first line
                    and continuation: here
                n (int): number

                q: after blank
            Returns:
                int: a thing
            """
            return 1
        ''')
    )
    (tool,) = json.loads(listed(str(file)).stdout)["tools"]
    assert tool["description"] == "Summary line goes on.\n\nMore text."
    members = tool["inputs_schema"]["properties"]
    said = {name: member["description"] for name, member in members.items() if "description" in member}
    assert said == {"path": "first line and continuation: here", "n": "number", "q": "after blank"}
    defaults = {name: member["default"] for name, member in members.items() if "default" in member}
    assert defaults == {"n": 1, "q": "red", "z": [1], "w": [2]}


def listed(where: str, *options: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[bytes]":
    command = [*HOST, "--list", where, *options]
    return subprocess.run(command, capture_output=True, cwd=cwd, timeout=30, check=False)


def names(plugin: Path) -> list[str]:
    return [tool["name"] for tool in json.loads(listed(str(plugin)).stdout)["tools"]]
