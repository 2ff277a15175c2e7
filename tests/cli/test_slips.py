"""The error of a wrong command line names the next step."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.docs.walking import Pasting

REFUND = ("call", "desk", "pay_back", "--intent", "help", "--fact", 'complaint("A-1")', "--permission", "refund")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack of the ten minutes."""
    folder = tmp_path_factory.mktemp("desk")
    page = Pasting("docs/tutorial/ten-minutes.md")
    page.blocks = [block for block in page.blocks if block[0] == "sh"][:2]
    page.paste(folder)
    return folder / "desk"


@pytest.fixture
def desk(folder: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(folder / "state"))
    return Path(shutil.copytree(made, folder / "desk"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["intnt"], "No such command 'intnt'. Did you mean 'intent'?"),
        (["runs", "lst"], "No such command 'lst'. Did you mean 'list'?"),
        (
            ["intent", "dsk", "help"],
            "there is no folder 'dsk'. Did you mean 'desk'? `manglecp new dsk` creates",
        ),
        (["serve", "far/away"], "there is no folder 'far/away'. `manglecp new far/away` creates an example pack"),
        (["intent", "desk/actions.py", "help"], "is a file, and a pack is a folder. Did you mean 'desk'?"),
        (["intent", "ftp://desk", "help"], "the address of a server begins with http://, https://, ws:// or wss://."),
        (["worker", "http://desk"], "give a folder of this machine."),
        (["eval", "desk"], "'desk' is a folder; give a file. Its rules are files in rules/."),
        (["serve", "desk", "--port", "80"], "use --http HOST:PORT"),
        (["serve", "desk", "--http", "80"], "'80' is not HOST:PORT, such as 127.0.0.1:8000."),
        (["new", "desk"], "'desk' exists already; choose another name"),
        (["new", "a b"], "'a b' is not a valid pack name; use letters, digits"),
    ],
)
@pytest.mark.usefixtures("desk")
def test_a_slip_of_the_command_line(run: Run, words: list[str], said: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_slip_in_a_pack(run: Run, desk: Path) -> None:
    rules, policy = desk / "rules" / "desk.mg", desk / "rules" / "policy" / "refunds.mg"
    written = rules.read_text()
    rules.write_text(written.replace('intent("help")', "intent(help)"))
    assert '; as a value write "help" or /help\n' in run("check", "desk").stderr
    rules.write_text(written)
    policy.write_text(policy.read_text().replace("permitted", "permited"))
    assert "did you mean permitted?" in run("intent", "desk", "help").stderr
    (desk / "actions.py").unlink()
    assert 'fix: write it in actions.py, under @action, or macro("pay_back", …)\n' in run("check", "desk").stderr


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ("relevant(t, 1) :- intent(_).", "variables begin with an upper-case letter, as T"),
        ('relevant("x", 1) :- not intent("help").', "write !p(X) in place of not p(X)"),
        ("// a comment", "a comment begins with #"),
        ('own("a")\nown("b").', "end the clause that begins in line {line} with a full stop"),
        (
            'own("2027-13-04T00:00:00Z").\nrelevant("x", 1) :- own(D), fn:time:now() < fn:time:parse_rfc3339(D).',
            "takes a date and time such as 2026-01-15T12:00:00Z",
        ),
        ('macro("look up: ä.b", "x").', 'write "look_up_a_b"'),
        (f'macro("{"x" * 65}", "x").', "model providers accept 1 to 64 letters"),
    ],
)
def test_a_slip_in_a_rule(run: Run, desk: Path, clause: str, said: str) -> None:
    rules = desk / "rules" / "desk.mg"
    written = rules.read_text().rstrip() + "\n"
    rules.write_text(written + clause + "\n")
    done = run("check", "desk")
    assert done.exit_code == 1
    assert said.format(line=written.count("\n") + 1) in done.stderr


def test_a_module_that_is_not_there(run: Run, desk: Path) -> None:
    actions = desk / "actions.py"
    actions.write_text("import nothing_like_it\n" + actions.read_text())
    done = run("check", "desk")
    assert "actions.py:1: ModuleNotFoundError" in done.stderr
    assert "put the module into the pack, or give the pack an environment of its own" in done.stderr
    (desk / "nothing_like_it.py").write_text("")
    assert run("check", "desk").exit_code == 0


def test_null_in_the_schema_of_an_argument(run: Run, desk: Path) -> None:
    (desk / "facts").mkdir(exist_ok=True)
    schema = {"type": ["string", "null"], "default": None}
    fact = {"pred": "macro_param", "args": ["look_up", "note", schema]}
    (desk / "facts" / "params.jsonl").write_text(json.dumps(fact) + "\n")
    done = run("intent", "desk", "help", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    (found,) = [t for t in json.loads(done.stdout)["payload"]["macro_tools"] if t["name"] == "look_up"]
    assert found["input_schema"]["properties"]["note"] == schema


@pytest.mark.usefixtures("desk")
def test_an_unknown_verb_that_resembles_none(run: Run) -> None:
    assert run("frobnicate").stderr.endswith("No such command 'frobnicate'.\n")


def test_an_intent_that_no_rule_is_about(run: Run, desk: Path) -> None:
    error = "error[x-unknown_intent]: No rule of this server can match the intent 'hepl'\n  Did you mean 'help'?\n"
    assert run("intent", "desk", "hepl").stderr == error
    assert run("intent", "desk", "help").stderr == ""
    (desk / "rules" / "any.mg").write_text('relevant("look_up", 1) :- intent(_).\n')
    assert run("intent", "desk", "hepl").stderr == "", "there is a rule about any"


@pytest.mark.usefixtures("desk")
def test_an_argument_that_is_missing(run: Run) -> None:
    assert run(*REFUND).stderr.endswith("Required property 'amount' is missing\n  add --arg amount=VALUE\n")
    assert "add --arg" not in run(*REFUND, "--arg", "amount=much").stderr


@pytest.mark.no_cover
def test_a_folder_that_is_missing(run: Run, desk: Path) -> None:
    hint = "  the run has no workspace: give one with --workspace DIR\n"
    paid = (*REFUND, "--arg", "amount=1", "--confirm")
    assert run(*paid).stderr.endswith(hint)
    (desk.parent / "book").mkdir()
    assert run(*paid, "--workspace", "book").exit_code == 0
    assert hint not in run("call", "desk", "look_up", "--intent", "help", "--arg", "order=A-9").stderr


@pytest.mark.usefixtures("desk")
def test_a_run_that_nobody_knows(run: Run) -> None:
    shown = run("runs", "resume", "r-1", "desk").stderr
    assert shown.endswith("there is no run r-1\n  `manglecp runs list` lists the runs\n")


def test_a_server_that_is_not_there_is_told_in_a_few_lines(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    shown = run("conformance", f"http://127.0.0.1:{port}")
    assert shown.exit_code == 1
    assert shown.stdout.endswith("the server did not answer. Is it running, and is the address right?\n")
    assert len(shown.stdout.splitlines()) < 15
