"""A folder with only an ``actions.py`` is a pack: it is checked, shown, called and served."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from manglecp import Client, Server
from manglecp.client import RequestRefused
from tests.cli.conftest import Run

ACTIONS = '''
from pathlib import Path

from manglecp import action


@action(effects=["filesystem"])
def add_note(text: str, times: int = 2) -> int:
    """Add a line to the notes.

    The same line can be added several times.

    Args:
        text: the line
    """
    with Path("notes.txt").open("a") as notes:
        notes.write(f"{text}\\n" * times)
    return times


@action(effects=["none"], tool=False)
def helper() -> int:
    """Return one."""
    return 1
'''


@pytest.fixture
def notes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(folder / "state"))
    (folder / "notes").mkdir()
    (folder / "notes" / "actions.py").write_text(ACTIONS)
    return folder


@pytest.mark.process
@pytest.mark.usefixtures("notes")
def test_from_the_shell(run: Run, folder: Path) -> None:
    checked = run("check", "notes")
    assert (checked.stdout, checked.stderr) == ("notes, 0 rules, 2 actions, 0 skills: ok\n", "")
    (tool,) = json.loads(run("intent", "notes", "any", "--json").stdout)["payload"]["macro_tools"]
    assert tool["name"] == "add_note"
    assert tool["description"] == "Add a line to the notes.\n\nThe same line can be added several times."
    assert tool["input_schema"]["properties"]["text"] == {"type": "string", "description": "the line"}
    called = run("call", "notes", "add_note", "--intent", "any", "--arg", "text=tea", "--workspace", ".", "--degrade")
    assert (called.exit_code, called.stderr) == (0, "")
    assert (folder / "notes.txt").read_text() == "tea\ntea\n"
    unknown = run("intent", "notes", "help")
    assert (unknown.exit_code, "Did you mean 'any'?" in unknown.stderr) == (1, True)
    hidden = run("call", "notes", "helper", "--intent", "any", "--workspace", ".", "--degrade")
    assert hidden.exit_code == 1
    assert run("decide", "notes", "helper").stdout.splitlines()[0] == "deny"


@pytest.mark.process
def test_at_a_server(notes: Path) -> None:
    async def session() -> None:
        async with Server(notes / "notes", workspace=[notes], degrade=True) as server, Client(server) as client:
            await client.ready()
            assert [intent.name for intent in client.manifest.intents] == ["any"]
            evaluation = await client.evaluate("any")
            assert [tool.name for tool in evaluation.tools] == ["add_note"]
            await client.invoke("add_note", {"text": "tea", "times": 1})
            for tool in ("helper", "refund"):
                with pytest.raises(RequestRefused, match="returned a tool"):
                    await client.invoke(tool, {})

    asyncio.run(session())
    assert (notes / "notes.txt").read_text() == "tea\n"


@pytest.mark.process
@pytest.mark.usefixtures("notes")
def test_a_broken_action_does_not_make_its_rules_wrong(run: Run, folder: Path) -> None:
    policy = folder / "notes" / "rules" / "policy"
    policy.mkdir(parents=True)
    rules = 'permitted("add_note").\nneeds_confirmation("add_note") :- call("add_note"), call_arg("times", N), N > 9.\n'
    (policy / "notes.mg").write_text(rules)
    (folder / "notes" / "rules" / "notes.mg").write_text('arg_value("add_note", 1, "times", 3).\n')
    assert run("check", "notes").exit_code == 0
    (folder / "notes" / "actions.py").write_text(ACTIONS.replace("times: int", "times: Nothing"))
    broken = run("check", "notes")
    assert broken.stdout == "notes: 1 error\n"
    assert "NameError" in broken.stderr
