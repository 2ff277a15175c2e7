"""`manglecp shell`: from a pipe, at a terminal, with a pack and with a server."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import Result

from manglecp.cli.intent_request import decode_value
from manglecp.cli.servers import Approver
from manglecp.cli.shell_commands import LoopThread, Shell, candidates
from manglecp.cli.tool_text import assignment
from manglecp.client import Client
from tests.cli.conftest import Run
from tests.cli.letters import wait_for, write_pack
from tests.cli.test_servers import served
from tests.deadlines import patience
from tests.intent.packs import clock
from tests.invoke.chains import chain, steps
from tests.server.house import house

INCIDENT = Path(__file__).parents[2] / "examples" / "incident"
DIAGNOSE = INCIDENT / "recorded" / "diagnose_error.json"
NOW = ("--now", "2026-02-19T14:30:10Z")
PATIENCE = patience(120.0)
Say = Callable[..., Result]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(folder))
    for name in ("MANGLECP_STORE", "MANGLECP_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Path:
    shutil.copytree(INCIDENT / "recorded" / "app", tmp_path / "work" / "app")
    return tmp_path / "work"


@pytest.fixture
def say(run: Run) -> Say:
    """Lines from a pipe, to the incident pack at the time of the recording."""

    def say(*lines: str, options: tuple[str, ...] = (), target: str = str(INCIDENT)) -> Result:
        return run("shell", target, *NOW, *options, stdin="".join(f"{line}\n" for line in lines))

    return say


def routes(work: Path) -> str:
    return (work / "app" / "routes.toml").read_text("utf-8")


@pytest.mark.req("NEXT-03", "DELTA-05")
def test_from_an_intent_to_the_change_that_it_leads_to(say: Say, work: Path) -> None:
    ended = say(
        f"load {DIAGNOSE}",
        "",
        "# what is there to do?",
        "intent diagnose_error",
        "invoke full_stack_diagnosis lines=5",
        "facts",
        "next",
        "follow",
        "invoke apply_fix",
        "facts",
        options=("--permission", "fix", "--workspace", str(work), "--confirm"),
    )
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "/api/users" in routes(work)
    assert "full_stack_diagnosis  full          95" in ended.stdout
    assert '7  fix_candidate("app/routes.toml", "add_route /api/users")\n' in ended.stdout
    typed = "file=app/routes.toml 'fix=add_route /api/users'"
    assert f"\n1  fix_error {typed}: The cause has a straightforward fix.\n" in ended.stdout, "as `intent` takes it"
    last = ended.stdout.rpartition("See whether the failure is gone.")[2]
    assert "diagnosed_error" in last
    assert "fix_candidate" not in last, "the delta of the last run took it back"


@pytest.mark.parametrize("value", ["a b", "5", "true", "null", '"x"', "[1", "", 5, None, [1, "x"], {"a": "é"}])
def test_what_is_shown_of_a_parameter_is_what_would_be_typed(value: object) -> None:
    (typed,) = shlex.split(assignment("n", value))
    name, _, text = typed.partition("=")
    assert (name, decode_value(text)) == ("n", value)


def test_reasons(say: Say) -> None:
    ended = say(
        f"load {DIAGNOSE}",
        "intent diagnose_error",
        "why full_stack_diagnosis",
        "why not frontend_diagnosis",
        "show read_errors",
        "coverage",
    )
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "why full_stack_diagnosis: flesh, 95\n  by final_selected" in ended.stdout
    assert "why not frontend_diagnosis\n  conflict: yields to full_stack_diagnosis" in ended.stdout
    assert "read_errors: Reads the newest errors from the log of a failing service." in ended.stdout
    assert re.search(r"rules: \d+ of \d+ fired", ended.stdout)


def test_reasons_are_those_of_the_answer_and_not_of_what_was_stated_since(say: Say) -> None:
    log = 'backend_log("api", "ERROR", "no route for GET /api/users")'
    asked = (f"load {DIAGNOSE}", "drop backend_log", "intent diagnose_error", f"add {log}@[now]")
    ended = say(*asked, "why not full_stack_diagnosis", "intent diagnose_error", "why full_stack_diagnosis")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "failing_service needs backend_log, and there is no such fact" in ended.stdout
    assert "why full_stack_diagnosis: flesh, 95" in ended.stdout


def test_what_there_is_to_ask(say: Say) -> None:
    ended = say("server", "intents", "predicates", "help", "help follow", "exit", "nonsense")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "incident 1.0.0, ready" in ended.stdout
    assert "you are local (local), with explain_policy" in ended.stdout
    assert (
        "diagnose_error: Find the cause of an error that the browser console shows (needs console_event)"
        in ended.stdout
    )
    assert "network_request(request_id, method, url, status)@[…]: A request of the page" in ended.stdout
    assert ended.stdout.count("evaluate a suggested intent") == 2


def test_facts_are_stated_and_taken_back(say: Say) -> None:
    ended = say(
        'add network_request("r", "GET", "/a", 404)@[now]',
        'add current_url("a")',
        'add current_url("b").',
        'add fix_candidate("f", "x")',
        "drop 2",
        "facts",
        'drop fix_candidate("f", _)',
        "drop current_url",
        "facts",
        "clear",
        "facts",
    )
    assert (ended.exit_code, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[0] == '- current_url("a")'
    assert lines[1].startswith('1  network_request("r", "GET", "/a", 404)@[2026-02-19T14:30:1')
    assert lines[2:6] == [
        '2  current_url("b")',
        '3  fix_candidate("f", "x")',
        '- fix_candidate("f", "x")',
        '- current_url("b")',
    ]
    assert len(lines) == 7


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("wander", "there is no command wander"),
        ("tools", "evaluate an intent first"),
        ("intent", "an intent is missing"),
        ("intent diagnose_error", "missing: console_event"),
        ("intent observe focus", "'focus' is not KEY=VALUE"),
        ("intent observe 'a", "no closing quotation"),
        ("follow", "invoke a tool first"),
        ("add current_url(", "parse"),
        ("add current_url(X)", "a fact has no variables"),
        ("add", "a fact is missing"),
        ("drop current_url", "there is no such fact"),
        ("drop 0", "there is no such fact"),
        ("load nowhere.json", "nowhere.json"),
        ("quit now", "quit takes no arguments"),
        ("help wander", "there is no command wander"),
    ],
)
def test_the_first_line_that_fails_ends_it(say: Say, line: str, told: str) -> None:
    ended = say("server", line, "intents")
    assert ended.exit_code == 1
    assert told in ended.stderr
    assert f"line 2 failed: {line}" in ended.stderr
    assert "List recent failures" not in ended.stdout


def test_tools_that_are_not_there_and_suggestions_that_are_not(say: Say) -> None:
    ended = say("intent observe", "invoke apply_fix")
    assert "the last intent has no tool apply_fix; `why not apply_fix` explains why" in ended.stderr
    ended = say("intent observe", "invoke list_failures", "follow fix_error")
    assert "did not suggest the intent 'fix_error'" in ended.stderr
    ended = say("intent observe", "invoke list_failures depth=1")
    assert (ended.exit_code, "schema_validation_failed" in ended.stderr) == (1, True)
    ended = say("intent wander")
    assert (ended.exit_code, "x-unknown_intent" in ended.stderr) == (1, True)


def test_nobody_at_the_other_end_of_a_pipe_agrees(say: Say, work: Path) -> None:
    lines = (
        'add diagnosed_error("e", "missing_route")',
        'add fix_candidate("app/routes.toml", "add_route /api/users")',
    )
    ended = say(
        *lines, "intent fix_error", "invoke apply_fix", options=("--permission", "fix", "--workspace", str(work))
    )
    assert ended.exit_code == 1
    assert "Effects: filesystem. It can be undone.\n" in ended.stderr
    assert "add --confirm to approve" in ended.stderr
    assert "/api/users" not in routes(work)


def test_somebody_else_is_tried_out(say: Say) -> None:
    lines = (
        'add diagnosed_error("e", "missing_route")',
        'add fix_candidate("app/routes.toml", "add_route /api/users")',
    )
    ended = say("server", *lines, "intent fix_error", "why not apply_fix", options=("--as", "lee"))
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "you are lee (user)\n" in ended.stdout
    assert "propose_fix" in ended.stdout
    assert "no tool of this name could serve this intent" in ended.stdout


def test_a_pack_that_is_broken_and_a_server_that_is_not_there(say: Say, tmp_path: Path) -> None:
    folder = write_pack(tmp_path / "letters")
    rules = next(folder.rglob("*.mg"))
    rules.write_text("mandatory(X) :- nobody(Y).\n")
    ended = say("server", target=str(folder))
    assert ended.exit_code == 1
    assert rules.name in ended.stderr
    ended = say("server", target="http://127.0.0.1:9")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "error[x-no_answer]" in ended.stderr
    ended = say("server", target="http://desk.example")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "not encrypted" in ended.stderr
    ended = say("server", target="http://127.0.0.1:9", options=("--store", ":memory:"))
    assert (ended.exit_code, "leave --store out" in ended.stderr) == (2, True)


@pytest.mark.parametrize("way", ["http", "ws"])
def test_a_server(run: Run, way: str) -> None:
    with served() as url:
        address = url if way == "http" else url.replace("http:", "ws:") + "/ws"
        lines = f"load {DIAGNOSE}\nintent diagnose_error\nwhy full_stack_diagnosis\ninvoke list_failures\n"
        ended = run("shell", address, *NOW, stdin=lines)
        assert (ended.exit_code, ended.stderr) == (0, "")
        assert "why full_stack_diagnosis" in ended.stdout
        assert "Ran 1 action for list_failures." in ended.stdout


# --- at a terminal ---------------------------------------------------------------------------------------------------


class Terminal:
    """A person who reads and types."""

    def __init__(self, *args: str) -> None:
        master, slave = pty.openpty()
        self._master = master
        self.process = subprocess.Popen(
            [sys.executable, "-m", "manglecp", "shell", *args],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "dumb", "COLUMNS": "200"},
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(slave)
        self.seen = ""

    def see(self, text: str) -> str:
        """What is shown up to and with this text."""
        until = time.monotonic() + PATIENCE
        while text not in self.seen:
            ready, _, _ = select.select([self._master], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"no {text!r} in {self.seen!r}"
            try:
                self.seen += os.read(self._master, 65_536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"it ended without {text!r}: {self.seen!r}") from None
        before, found, self.seen = self.seen.partition(text)
        return before + found

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        os.close(self._master)


@contextmanager
def terminal(*args: str) -> Iterator[Terminal]:
    person = Terminal(*args)
    try:
        yield person
    finally:
        person.close()


def test_a_person_completes_is_asked_and_leaves(state: Path, work: Path) -> None:
    with terminal(str(INCIDENT), *NOW, "--permission", "fix", "--workspace", str(work)) as person:
        person.see("incident> ")
        person.type('add diagnosed_error("e", "missing_route")\r')
        person.see("incident> ")
        person.type('add fix_candidate("app/routes.toml", "add_route /api/users")\r')
        person.see("incident> ")
        person.type("intent fi\t\r")
        person.see("fix_error")
        person.see("2 tools at")
        person.see("incident> ")
        person.type("invoke apply_fix\r")
        asked = person.see("Approve? [y/N]: ")
        assert "Effects: filesystem. It can be undone." in asked
        person.type("n\r")
        person.see("confirmation_declined")
        assert "/api/users" not in routes(work)
        person.see("incident> ")
        person.type("inv\tapp\t\r")
        person.see("Approve? [y/N]: ")
        person.type("y\r")
        person.see("Changed app/routes.toml.")
        person.see("incident> ")
        assert "/api/users" in routes(work)
        person.type("wander\r")
        person.see("there is no command wander")
        person.see("incident> ")
        person.type("\x04")
        assert person.process.wait(PATIENCE) == 0, "what fails at a terminal is not the end"
    kept = state / "shell_history"
    assert kept.stat().st_mode & 0o077 == 0
    assert "invoke apply_fix" in kept.read_text("utf-8")


def test_an_interrupt_cancels_what_is_under_way_and_not_the_shell(tmp_path: Path) -> None:
    work = tmp_path / "box"
    work.mkdir()
    (work / "wait").touch()
    with terminal(str(write_pack(tmp_path / "letters")), "--workspace", str(work), "--confirm") as person:
        person.see("letters> ")
        person.type("intent file\r")
        person.see("1 tool at")
        person.see("letters> ")
        person.type("invoke file_letter letter=a\r")
        wait_for(work / "reached", person.process)
        person.process.send_signal(signal.SIGINT)
        person.see("cancelled")
        person.see("letters> ")
        (work / "go").touch()
        time.sleep(1)  # readline shows its prompt a moment before a signal can wake it
        person.process.send_signal(signal.SIGINT)  # at the prompt it means nothing
        person.see("letters> ")
        person.type("server\r")
        person.see("you are local")
        person.type("quit\r")
        assert person.process.wait(PATIENCE) == 0


# --- the tab key -----------------------------------------------------------------------------------------------------


def test_what_can_be_completed() -> None:
    async def asked() -> Shell:
        async with (
            house(chain(steps("look"), 'suggests("later", [], "so") :- ran("t").')) as h,
            Client(h.url) as client,
        ):
            shell = Shell(
                client,
                LoopThread(),
                Approver(client, lambda _: False),
                lambda _: False,
                clock=clock,
            )
            client.state.add([{"pred": "done", "args": [1]}, {"pred": "held", "args": [1, "on"]}])
            assert candidates(shell, "invoke ", "") == []
            assert candidates(shell, "follow ", "") == []
            shell.evaluation = await client.evaluate("go")
            shell.outcome = await client.invoke("t", {"n": 1})
            return shell

    shell = asyncio.run(asked())
    assert candidates(shell, "", "in") == ["intents ", "intent ", "invoke "]
    assert candidates(shell, "intent ", "") == ["go ", "later "]
    assert candidates(shell, "intent go ", "") == []
    assert candidates(shell, "invoke ", "t") == ["t "]
    assert candidates(shell, "invoke t ", "") == ["n="]
    assert candidates(shell, "invoke u ", "") == []
    assert candidates(shell, "why ", "") == ["t ", "not "]
    assert candidates(shell, "follow ", "l") == ["later"]
    assert "asked(" in candidates(shell, "add ", "as")
    assert candidates(shell, "drop ", "") == ["done", "held"]
    assert candidates(shell, "help ", "cov") == ["coverage"]
    assert candidates(shell, "wander ", "") == []


def test_files_can_be_completed(folder: Path) -> None:
    (folder / "more").mkdir()
    for name in ("a.json", "b.mg", "c.txt", "more/d.json"):
        (folder / name).touch()
    shell = cast(Shell, SimpleNamespace(client=SimpleNamespace(manifest=None), evaluation=None))
    assert candidates(shell, "load ", "") == ["a.json", "b.mg", "more/"]
    assert candidates(shell, "load ", "mo") == ["more/"]
    assert candidates(shell, "load ", "more/") == ["more/d.json"]
