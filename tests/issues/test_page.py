"""The reference page says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from manglecp.cli.issue import command
from manglecp.issues.model import EDGE_TYPES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "issue-memory.md").read_text(encoding="utf-8")
AUDIT_ONLY = {"mutation_missing"}
"""Said of events that no operation makes."""


def test_every_code_is_there() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "manglecp" / "issues").rglob("*.py")]
    codes = {code for text in sources for code in re.findall(r'ChangeRefused\(\s*"([a-z_]+)"', text)}
    assert len(codes) > 15
    assert [code for code in sorted(codes - AUDIT_ONLY) if f"`{code}`" not in PAGE] == []


def test_every_verb_and_option_is_there() -> None:
    assert isinstance(command, click.Group)
    commands = {name: one for name, one in command.commands.items() if not isinstance(one, click.Group)}
    group = command.commands["dep"]
    assert isinstance(group, click.Group)
    commands |= {f"dep {name}": one for name, one in group.commands.items()}
    for name, one in commands.items():
        verb = "dep add|remove" if name.startswith("dep ") else name
        (usage,) = [line for line in PAGE.splitlines() if f"{line} ".startswith(f"manglecp issue {verb} ")]
        for parameter in one.params:
            for option in parameter.opts:
                if option.startswith("--") and option not in ("--db", "--actor", "--json", "--active-policy", "--pin"):
                    assert option in usage, (name, option)


@pytest.mark.parametrize("edge", sorted(EDGE_TYPES))
def test_every_type_of_edge_is_there(edge: str) -> None:
    assert f"`{edge}`" in PAGE


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    known: dict[str, object] = {}
    exec(code, known)
    assert known["waiting"] == []
