"""The page about the toolhost: its program runs."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.toolhost.dispatch.hosts import nothing_left

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "toolhost.md"
PLUGIN = '''
from manglecp.toolhost.action import action


@action(effects=["none"])
def count(text: str) -> int:
    """How many words there are."""
    return len(text.split())
'''


def test_its_program_prints_an_answer_or_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    # Not every machine that tests this can lock a host in; that is tested elsewhere.
    program, replaced = re.subn(r"os\.environ\)", 'os.environ, sandbox="none")', found[1])
    assert replaced == 2
    names: dict[str, Any] = {}
    exec(program, names)
    plugin = tmp_path / "words.py"
    with nothing_left():
        plugin.write_text(PLUGIN)
        asyncio.run(names["main"](str(plugin)))
        plugin.write_text(PLUGIN.replace("text: str", "words: str").replace("text.", "words."))
        asyncio.run(names["main"](str(plugin)))
    said = capsys.readouterr().out.splitlines()
    assert said == ["2", "tool_error None the input does not fit the schema of the action: words missing"]
