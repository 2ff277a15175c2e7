"""Whoever follows a tutorial or a how-to with commands sees what it shows."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from manglecp.pack import read_pack
from manglecp.server import load_server_settings
from manglecp.testing import load_pack
from tests.docs.snippets import PAGES, ROOT, blocks, commands
from tests.docs.walking import Pasting, comparable, follow
from tests.testing.test_plugin import run_pytest

pytestmark = pytest.mark.no_cover  # whole processes, and the code in them is tested elsewhere


def after_ten_minutes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that has the pack ``desk``."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(folder / "state"))
    pasted = Pasting("docs/tutorial/ten-minutes.md")
    pasted.blocks = [block for block in pasted.blocks if block[0] == "sh"][:2]
    pasted.paste(folder)


def test_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after_ten_minutes(tmp_path, monkeypatch)
    page = "docs/tutorial/policy.md"
    assert follow(page) == 10
    (command,) = (block.body for block in blocks(page) if block.language == "sh")
    (shown,) = (block.body for block in blocks(page) if block.language == "text")
    ended = run_pytest(tmp_path, *command.split()[1:])
    assert ended.returncode == 0, ended.stdout
    assert shown in ended.stdout


def test_a_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert follow("docs/tutorial/transcript.md") == 17


def test_writing_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "docs/how-to/write-rules.md"
    monkeypatch.chdir(tmp_path)
    assert follow(page) == 2
    (command,) = (block.body for block in blocks(page) if block.language == "sh")
    (shown,) = (block.body for block in blocks(page) if block.language == "text")
    ended = run_pytest(tmp_path, *command.split()[1:])
    assert ended.returncode == 0, ended.stdout
    assert shown in ended.stdout
    # What the tests of the page leave out: the action itself, and the rule that they do not fire.
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "tax.py").write_text("RATE = 20\n")
    with Path("lab/facts/covers.csv").open("a") as covers:
        covers.write("test_login,login.key\n")
    with load_pack(tmp_path / "lab") as pack:
        working = pack.with_workspace(tmp_path / "tree")
        failures = [f'failed("{test}")@[now]' for test in ("test_cart", "test_tax")]
        assert working.intent("diagnose", facts=failures).invoke("read_suspect").calls[0].output == "RATE = 20\n"
        pack.intent("diagnose", facts=['failed("test_login")@[now]']).lacks("read_suspect", because="keys are not read")


def test_running_a_goal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert follow("docs/how-to/run-a-goal.md") == 6


def test_finding_out_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert follow("docs/how-to/debug-rules.md") == 4


def test_explaining_a_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    assert follow("docs/how-to/explain-a-decision.md") == 5
    assert 'class="card absent"' in Path("refused.html").read_text("utf-8")
    settings = load_server_settings(Path("server.toml"))
    assert (settings.keep_decisions_ns, settings.decision_content) == (90 * 86_400 * 10**9, "digests")


def test_an_agent_gets_its_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    shutil.copytree(ROOT / "examples" / "agents" / "desk", "desk")
    assert follow("docs/how-to/give-an-agent-tools.md") == 1
    program = Path("examples/agents/anthropic_agent.py")
    assert program.read_text("utf-8") == (ROOT / program).read_text("utf-8")
    page = (ROOT / "docs/how-to/give-an-agent-tools.md").read_text("utf-8")
    for file in (ROOT / program.parent).glob("*.py"):
        assert f"`{file.name}`" in page
        assert len(file.read_text("utf-8").splitlines()) < 40


STAND_IN = '''
class MCPServer:
    """What the page needs of the SDK: tools stay functions."""

    def __init__(self, name):
        self.tools = []

    def tool(self):
        return lambda function: self.tools.append(function) or function

    def run(self):
        self.ran = True
'''


def test_migrating_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    assert follow("docs/how-to/migrate-an-mcp-server.md") == 7
    assert list((tmp_path / "notes").glob("*.md")) == []
    for module, text in (("mcp", ""), ("mcp.server", ""), ("mcp.server.mcpserver", STAND_IN)):
        made = ModuleType(module)
        exec(text, made.__dict__)
        monkeypatch.setitem(sys.modules, module, made)
    known = runpy.run_path(str(tmp_path / "server.py"), run_name="__main__")
    assert known["mcp"].ran
    before = {function.__name__ for function in known["mcp"].tools}
    after = set(read_pack(tmp_path / "notebook").actions)
    assert before == after == {"search_notes", "read_note", "delete_note"}
    assert "MCPServer" in known["read_note"]("../server.py"), "what the page says of the server is so"


@pytest.mark.soak  # tests/workspace tries the same in detail
def test_working_on_a_repository(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    # The kernel does not count the processes of root, and the page says what they do.
    as_root = 'manglecp() { command manglecp "$@" --degrade; }\n' if os.geteuid() == 0 else ""
    printed = Pasting("docs/how-to/workspace.md").paste(tmp_path, as_root)
    for shown, said in printed:
        assert comparable(shown) == comparable(said)
    assert len(printed) == 7


def test_what_tutorials_type_is_there_after_the_demo() -> None:
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / "run.txt").read_text("utf-8"), re.MULTILINE)
    everywhere = {"cat", "echo", "head", "kill", "mkdir", "rm", "sed", "sleep"}
    typed = set()
    for page in PAGES:
        for block in blocks(page) if page.startswith("docs/tutorial/") else ():
            body = re.sub(r" <<'EOF'\n.*?^EOF$", "", block.body, flags=re.DOTALL | re.MULTILINE)
            typed |= {line.split()[0] for line in commands(replace(block, body=body))}
    assert {"manglecp", "pytest"} <= typed
    assert typed <= {"manglecp", "python", *pinned} | everywhere
