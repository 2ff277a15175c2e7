"""`make quick` runs the tests that a change can affect, whatever kind of file changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import affected
from tools.affected import Modules


@pytest.mark.parametrize(
    ("file", "yes", "no"),
    [
        (
            "src/manglecp/mangle/lexer.py",
            "tests.mangle.test_lexer tests.intent.test_domain",
            "tests.lanes.test_affected",
        ),
        ("src/manglecp/cli/fmt.py", "tests.cli.test_fmt", "tests.mangle.test_values tests.intent.test_domain"),
        ("src/manglecp/intent/rules/0_vocabulary.mg", "tests.intent.test_domain", "tests.mangle.test_parser"),
        ("tests/conformance/mangle/001-new.mg", "tests.mangle.test_conformance", "tests.cli.test_fmt"),
        ("examples/incident/rules/new.mg", "tests.examples.test_incident", "tests.mangle.test_lexer"),
        ("README.md", "tests.docs.test_readme", "tests.mangle.test_lexer"),
        ("tests/conftest.py", "tests.cli.test_fmt tests.mangle.test_lexer", ""),
    ],
)
def test_a_change_of_this_project(file: str, yes: str, no: str) -> None:
    chosen = Modules().affected([file])
    assert set(yes.split()) <= chosen
    assert not set(no.split()) & chosen


def written(root: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Modules:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(affected, "ROOT", root)
    monkeypatch.setattr(affected, "CACHE", root / "build" / "imports.pickle")
    return Modules()


def test_a_name_that_a_package_passes_on_leads_to_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "src/manglecp/__init__.py": "",
        "src/manglecp/a/__init__.py": "from .one import One\n",
        "src/manglecp/a/__init__.pyi": "from .two import Two as Two\n",
        "src/manglecp/a/one.py": "class One: ...\n",
        "src/manglecp/a/two.py": "class Two: ...\n",
        "src/manglecp/a/command.py": "",
        "tests/test_one.py": "from manglecp.a import One\n",
        "tests/test_two.py": "def test() -> None:\n    from manglecp.a import Two\n",
        "tests/test_all.py": "import manglecp.a\n",
        "tests/test_broken.py": "def\n",
    }
    modules = written(tmp_path, files, monkeypatch)
    assert modules.affected(["src/manglecp/a/one.py"]) == {"tests.test_one", "tests.test_all"}
    assert modules.affected(["src/manglecp/a/two.py"]) == {"tests.test_two", "tests.test_all"}
    for file in ("src/manglecp/a/__init__.py", "src/manglecp/a/__init__.pyi"):
        assert modules.affected([file]) == {"tests.test_one", "tests.test_two", "tests.test_all"}
    assert modules.affected(["src/manglecp/a/command.py"]) == {"tests.test_all"}, "loaded by its name"
    (tmp_path / "tests" / "test_two.py").write_text("from manglecp.a.one import One\n")
    assert Modules().affected(["src/manglecp/a/one.py"]) == {"tests.test_one", "tests.test_two", "tests.test_all"}


@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        ("tests/a/test_one.py", "tests.a.test_one"),
        ("tests/a/support.py", "tests.a.test_one tests.b.test_three"),
        ("tests/a/conftest.py", "tests.a.test_one tests.a.test_two"),
        ("tests/a/program.py", "tests.a.test_two"),
        ("tests/a/data/numbers.json", "tests.a.test_two"),
        ("tests/a/nobody-reads-this", "tests.a.test_one tests.a.test_two tests.b.test_three"),
        ("tests/cases/wire/001.json", "tests.b.test_three"),
        ("examples/shop/pack.toml", "tests.b.test_three"),
        ("examples/shop/actions.py", "tests.b.test_three"),
        ("docs/page.md", "tests.docs.test_pages"),
        ("Makefile", "tests.docs.test_pages"),
        (".editorconfig", ""),
    ],
)
def test_files_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, chosen: str) -> None:
    files = {
        "tests/__init__.py": "",
        "tests/a/__init__.py": "",
        "tests/a/conftest.py": "",
        "tests/a/support.py": "",
        "tests/a/program.py": "",
        "tests/a/test_one.py": "from .support import one\n",
        "tests/a/test_two.py": "PROGRAM, DATA = Path('program.py'), Path('data')\n",
        "tests/b/__init__.py": "",
        "tests/b/test_three.py": "from tests.a import support\nread('cases', 'wire')\nread('examples/shop')\n",
        "tests/docs/__init__.py": "",
        "tests/docs/test_pages.py": "TARGETS = Path('Makefile')\n",
        "examples/shop/actions.py": "",
    }
    assert written(tmp_path, files, monkeypatch).affected([file]) == set(chosen.split())


def test_where_a_change_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    def commit(name: str) -> str:
        (tmp_path / name).write_text("")
        git("add", name)
        git("commit", "-qm", name)
        return git("rev-parse", "HEAD").strip()

    monkeypatch.setattr(affected, "ROOT", tmp_path)
    monkeypatch.delenv("BASE", raising=False)
    git("init", "-q", "-b", "main")
    first = commit("one")
    assert affected.base() == first
    second = commit("two")
    assert affected.base() == first, "on main: the last commit"
    git("checkout", "-q", "-b", "topic")
    commit("three")
    commit("four")
    assert affected.base() == second, "on a branch: since it left main"
    (tmp_path / "five").write_text("")
    (tmp_path / "one").write_text("edited")
    assert affected.changed(affected.base()) == ["five", "four", "one", "three"]
    monkeypatch.setenv("BASE", "HEAD~")
    assert affected.changed(affected.base()) == ["five", "four", "one"]
    monkeypatch.setenv("BASE", "nowhere")
    with pytest.raises(SystemExit, match="nowhere"):
        affected.base()
