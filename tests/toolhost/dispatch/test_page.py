"""The page about the toolhost: its program runs."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.toolhost.dispatch.hosts import nothing_left
from tests.toolhost.sandbox.confined import require

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "toolhost.md"
PLUGIN = '''
from manglecp.toolhost.actions import action


@action(effects=["none"])
def count(text: str) -> int:
    """How many words there are."""
    return len(text.split())
'''


def program() -> str:
    found = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def said(text: str, plugin: Path, capsys: pytest.CaptureFixture[str], *plugins: str) -> list[str]:
    """What the program prints about one plugin after the other."""
    names: dict[str, Any] = {}
    exec(text, names)
    with nothing_left():
        for each in plugins:
            plugin.write_text(each)
            asyncio.run(names["main"](str(plugin)))
    return capsys.readouterr().out.splitlines()


PLUGINS = (PLUGIN, PLUGIN.replace("text: str", "words: str").replace("text.", "words."), "raise ValueError('broken')")


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    folder = tmp_path / "plugins"
    folder.mkdir()
    return folder / "words.py"


def expected(plugin: Path) -> list[str]:
    return [
        "2",
        "tool_error None invalid input: 'words' is missing",
        f"tool_error plugin {plugin}: cannot load plugin {plugin}: ValueError: broken (line 1)",
    ]


def test_its_program_prints_an_answer_or_an_error(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("strict")
    assert said(program(), plugin, capsys, *PLUGINS) == expected(plugin)


def test_its_program_without_a_sandbox(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not every machine that tests this can lock a host in."""
    free, replaced = re.subn(r"os\.environ\)", 'os.environ, sandbox="none")', program())
    assert replaced == 2
    assert said(free, plugin, capsys, *PLUGINS) == expected(plugin)


def test_its_program_says_that_a_program_is_missing(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    free, replaced = re.subn(r"command\(os\.environ\)", 'command({"PATH": "/nowhere"}, programs=["wc"])', program())
    assert replaced == 1
    free = free.replace("os.environ)", 'os.environ, sandbox="none")')
    wanting = PLUGIN.replace('effects=["none"]', 'effects=["process"], spawn=["wc"]')
    detail = "AID.WORDS.COUNT.v1 names the program 'wc', which is not installed"
    assert said(free, plugin, capsys, wanting) == [f"not_found {detail}"]
