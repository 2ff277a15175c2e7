"""README.md: the recorded session is current, the pack is valid, tests, benchmarks and links exist, it stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT, blocks
from tests.docs.walking import Pasting, comparable
from tools.recording import COMMANDS, recorded, recording

PAGE = (ROOT / "README.md").read_text("utf-8")


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= 150
    (pack,) = (block.body for block in blocks("README.md") if "cat > " in block.body)
    assert len(pack.splitlines()) <= 30
    (session,) = (block.body for block in blocks("README.md") if block.language == "console")
    assert len(session.splitlines()) <= 30


@pytest.mark.no_cover
def test_the_recording_is_current() -> None:
    (block,) = (block for block in blocks("README.md") if block.language == "console")
    assert comparable(block.body) == comparable(recorded()), "run: .venv/bin/python -m tools.recording"
    assert block.body in recording()
    for command in COMMANDS:
        assert f"$ {command}\n" in block.body
    assert "deny\n  at most 20 can be refunded for A-1\n" in block.body
    assert "ask\n  a lead has to agree to more than 100\n" in block.body


@pytest.mark.no_cover
def test_the_pack_is_valid(tmp_path: Path) -> None:
    page = Pasting("README.md")
    page.blocks = [("sh", body + "manglecp check desk") for _, body in page.blocks if "cat > " in body]
    ((shown, _),) = page.paste(tmp_path)
    assert "desk, 6 rules, 1 action, 0 skills: ok" in shown


def test_the_pack_of_the_agents_is_that_of_the_page() -> None:
    (block,) = (block.body for block in blocks("README.md") if "cat > " in block.body)
    files = re.findall(r"^cat > desk/(\S+) <<'EOF'\n(.*?)^EOF$", block, re.DOTALL | re.MULTILINE)
    assert len(files) == 2
    for name, text in files:
        kept = (ROOT / "examples" / "agents" / "desk" / name).read_text("utf-8")
        assert kept.split() == text.split(), name  # the layout differs: examples are formatted


def test_every_named_test_exists() -> None:
    section = PAGE.partition("## Guarantees")[2].partition("\n## ")[0]
    named = re.findall(r"`((?:tests/|test_)[^`]+)`", section)
    assert len(named) > 8
    for name in named:
        path = name if name.startswith("tests/") else f"tests/adversarial/{name}"
        assert (ROOT / path).exists(), name


def test_every_named_benchmark_exists() -> None:
    named = re.findall(r"`benchmarks/(\w+\.py)`", PAGE)
    assert len(named) == 2
    assert all((ROOT / "benchmarks" / name).exists() for name in named)


def test_every_link_has_a_target() -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE)
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link).exists()] == []
