"""Packs that find facts out, under test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from manglecp.testing import load_pack
from manglecp.testing.coverage import PackCoverage
from manglecp.toolhost import PassError
from tests.pack.folders import ACTIONS, write
from tests.testing.test_plugin import run_pytest

RULES = """Decl file(Name) bound [/string].
macro("greet", "Say hello").
macro_step("greet", 1, "hello").
arg_value("greet", 1, "name", "you").
relevant("greet", 80) :- intent("hello"), file("ada").
relevant("greet", 90) :- intent("hello"), file("bob").
"""
FACTS = """from pathlib import Path
from manglecp import facts

@facts("file")
def scan(root: Path, cache: Path | None):
    assert cache is None
    for path in root.iterdir():
        if path.name == "broken":
            raise OSError("no disk")
        yield "file", path.name
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "root", {"ada": ""})
    settings = '[params.root]\nkind = "folder"\n[[intents]]\nname = "hello"\ndescription = "Greet"\n'
    files = {"pack.toml": settings, "rules/a.mg": RULES, "actions.py": ACTIONS, "facts.py": FACTS}
    return write(tmp_path / "pack", files)


def test_a_pack_looks_when_it_is_loaded_and_when_a_test_says_so(folder: Path) -> None:
    root = folder.parent / "root"
    coverage = PackCoverage("pack")
    with load_pack(folder, {"root": str(root)}, coverage=coverage) as first:
        first.intent("hello").offers("greet")
        (root / "ada").unlink()
        first.intent("hello").offers("greet")  # nobody has looked
        second = first.refresh_facts()
        second.intent("hello").lacks("greet")
        (root / "bob").touch()
        first.intent("hello").offers("greet")
        assert coverage.fired_count == 1
        third = first.refresh_facts()
        third.intent("hello").offers("greet")
        assert coverage.fired_count == 2
        (root / "broken").touch()
        with pytest.raises(PassError, match="no disk"):
            third.refresh_facts()
        third.intent("hello").offers("greet")


def test_the_fixture_takes_settings(folder: Path) -> None:
    write(folder, {"tests/test_it.py": 'def test_it(pack):\n    pack.intent("hello").offers("greet")\n'})
    without = run_pytest(folder)
    assert "params.root: a value is needed" in without.stdout
    given = run_pytest(folder, "--pack-set", f"root={folder.parent / 'root'}")
    assert given.returncode == 0, given.stdout


@pytest.mark.parametrize(
    "last", ["", "\npack.intent('hello').invoke('greet')", "\nfresh = pack.fresh()\nfresh.invoker"]
)
def test_python_ends_although_a_pack_is_not_closed(folder: Path, last: str) -> None:
    script = "import sys\nfrom manglecp.testing import load_pack\n"
    script += "pack = load_pack(sys.argv[1], {'root': sys.argv[2]})\npack.intent('hello').offers('greet')" + last
    command = [sys.executable, "-c", script, str(folder), str(folder.parent / "root")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
