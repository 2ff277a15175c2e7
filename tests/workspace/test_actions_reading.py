"""Reading, searching and outlining a repository."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, strategies as st

from examples.workspace.repository.actions.file_walk import files as files_of
from examples.workspace.repository.actions.line_ranges import read_range
from examples.workspace.repository.actions.outlines import outline
from examples.workspace.repository.actions.roots import LARGEST, Root
from examples.workspace.repository.actions.text_search import search, search_text
from examples.workspace.repository.refusal import Refusal
from tests.effort import examples
from tests.workspace.acting import context
from tests.workspace.messy import messy
from tests.workspace.repositories import layered
from tests.workspace.repository import Repository, new


@pytest.fixture(scope="module")
def pricing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return layered(tmp_path_factory.mktemp("reading") / "pricing").root


def test_lines_are_those_that_were_asked_for(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_bytes(b"1\n2\r\n3\x0c3\n4\xe2\x80\xa84\n5")
    whole = read_range(context(tmp_path), "f.txt")
    assert (whole["start"], whole["end"], whole["total"], whole["more"]) == (1, 5, 5, False)
    assert whole["text"] == "1\n2\r\n3\x0c3\n4\u20284\n5"
    part = read_range(context(tmp_path), "f.txt", 2, 2)
    assert (part["text"], part["end"], part["more"]) == ("2\r\n3\x0c3\n", 3, True)
    assert part["sha256"] == whole["sha256"]
    after = read_range(context(tmp_path), "f.txt", 9)
    assert (after["text"], after["start"], after["end"], after["more"]) == ("", 9, 8, False)
    (tmp_path / "empty").touch()
    assert read_range(context(tmp_path), "empty")["total"] == 0


def test_there_is_an_end_to_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(("x" * 999 + "\n") * 1000)
    said = read_range(context(tmp_path), "long.txt", 1, 2000)
    assert (said["end"], said["more"], len(said["text"])) == (150, True, 150_000)
    with (tmp_path / "huge.txt").open("wb") as stream:
        stream.truncate(LARGEST + 1)
    with pytest.raises(Refusal, match="the limit is 4,194,304"):
        read_range(context(tmp_path), "huge.txt")


def test_hits_in_the_order_of_files_and_lines(pricing: Path) -> None:
    found = search_text(context(pricing), "def tax", glob="*.py")
    assert found == {
        "hits": [
            {"path": "pricing/tax.py", "line": 12, "column": 1, "text": "def tax(net: Money, kind: str) -> Money:"}
        ],
        "files": 1,
        "more": False,
        "by": "python",
        "problem": "",
    }
    every = search_text(context(pricing), "money", most=500)["hits"]
    assert [(hit["path"], hit["line"]) for hit in every] == sorted((hit["path"], hit["line"]) for hit in every)
    some = search_text(context(pricing), "money", most=2)
    assert (some["hits"], some["more"]) == (every[:2], True)
    under = search_text(context(pricing), "money", under="tests", most=500)["hits"]
    assert under == [hit for hit in every if hit["path"].startswith("tests/")]
    assert search_text(context(pricing), "money", under="tests/test_tax.py")["files"] == 1


def test_a_text_is_no_pattern_unless_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("a.b\naxb\n$(touch x); `id`\r\n")
    assert [hit["line"] for hit in search_text(context(tmp_path), "a.b")["hits"]] == [1]
    assert [hit["line"] for hit in search_text(context(tmp_path), "a.b", regex=True)["hits"]] == [1, 2]
    assert [hit["line"] for hit in search_text(context(tmp_path), "$(touch x); `id`")["hits"]] == [3]
    assert [hit["text"] for hit in search_text(context(tmp_path), "`$", regex=True)["hits"]] == ["$(touch x); `id`"]
    for wrong in ("(", "a\nb"):
        with pytest.raises(Refusal):
            search_text(context(tmp_path), wrong, regex=True)


def test_what_belongs_to_tools_is_not_searched_and_links_are_not_followed(tmp_path: Path) -> None:
    root = messy(tmp_path / "messy").root
    (root / ".venv").mkdir()
    (root / ".venv" / "pyvenv.cfg").write_text("odd\n")
    (root / "env").mkdir()
    for name in ("env/pyvenv.cfg", "env/lib.py"):
        (root / name).write_text("import odd\n")
    found = {hit["path"] for hit in search_text(context(root), "odd", most=500)["hits"]}
    assert {"src/odd/late.py", "fresh one.py", "-rf.py", "nested/theirs.py"} <= found
    assert not {path for path in found if path.startswith((".git/", ".venv/", "env/", "linked/", "out"))}
    assert search_text(context(root), "SECRET = ", most=500)["hits"] == []


IGNORING = st.lists(
    st.sampled_from(
        ["a", "b", "*", "**", "/", "?", "!", "\\", "[ab]", "[!a]", "[a-c]", ".", " ", "#", "x y", "d", "a/b"]
    ),
    min_size=1,
    max_size=5,
).map("".join)


@given(st.lists(IGNORING, min_size=1, max_size=4), st.lists(IGNORING, max_size=2))
@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_git_ignores_is_not_searched(tmp_path: Path, lines: list[str], deeper: list[str]) -> None:
    """As git itself says; it looks at a hundred files at a time."""
    root = tmp_path / "ignoring"
    if not root.exists():
        repository = new(root)
        names = ["a", "b", "c", "ab", "x y", "#", "d.a"]
        files = [f"{folder}{name}" for folder in ("", "d/", "d/e/", "f/", "a.d/") for name in names]
        repository.write({name: "text\n" for name in files if name != "d"})
    (root / ".gitignore").write_text("\n".join(lines) + "\n")
    (root / "d" / ".gitignore").write_text("\n".join(deeper) + "\n")
    said = Repository(root).git("ls-files", "--others", "--exclude-standard", "-z")
    wanted = {name for name in said.split("\0") if name and not name.endswith(".gitignore")}
    with Root.open({"root": str(root)}) as opened:
        assert {name for name in files_of(opened) if not name.endswith(".gitignore")} == wanted, (lines, deeper)


def test_a_pattern_that_takes_for_ever_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.workspace.repository.actions.text_search._SECONDS", 0.3)
    (tmp_path / "f.txt").write_text("a" * 60 + "b\n")
    begun = time.process_time()
    with pytest.raises(Refusal, match=r"took more than 0\.3 s"):
        search_text(context(tmp_path), "(a+)+c", regex=True)
    assert time.process_time() - begun < 20
    monkeypatch.undo()
    assert search_text(context(tmp_path), "ab")["files"] == 1, "the next one has its own time"
    refused: list[BaseException] = []

    def elsewhere() -> None:
        try:
            search_text(context(tmp_path), "x")
        except Refusal as error:
            refused.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(refused) == 1, "where it could not be stopped it is not begun"


RIPGREP = """#!{python} -IS
import sys
with open({log!r}, "a") as log:
    log.write(repr(sys.argv[1:]) + "\\n")
at = sys.argv.index("--")
wanted = next(word[9:] for word in sys.argv[:at] if word.startswith("--regexp="))
if "--fixed-strings" not in sys.argv[:at]:
    sys.exit(2)
names = [name for name in sys.argv[at + 1:] if wanted in open(name, errors="replace").read()]
sys.stdout.write("".join(name + "\\0" for name in names))
sys.exit(0 if names else 1)
"""


def test_ripgrep_says_in_which_files_to_look(pricing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that takes the same arguments; what is found is the same as without it."""
    log, program = tmp_path / "log", tmp_path / "rg"
    program.write_text(RIPGREP.format(python=Path(sys.executable).resolve(), log=str(log)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for text in ("money", "--files"):
        found = search(context(pricing), text, most=500)
        assert found["by"] == "ripgrep"
        assert {**found, "by": "python"} == search_text(context(pricing), text, most=500)
    first = log.read_text().split("\n")[0]
    assert "'--no-config'" in first
    assert "'--', './.github/CODEOWNERS'" in first
    found = search(context(pricing), "def .*tax", regex=True)
    assert (found["by"], found["files"]) == ("python", 3), "it would not, so it was done without"
    program.unlink()
    by = "python" if shutil.which("rg") is None else "ripgrep"  # which, where it is installed, finds the same
    for text, regex in {"money": False, "$(": False, "def .*tax": True, r"^\w+ = \d+$": True}.items():
        found = search(context(pricing), text, regex, most=500)
        assert found["by"] == by
        assert {**found, "by": "python"} == search_text(context(pricing), text, regex, most=500)


CODE = '''"""What it is.

More.
"""
import os, json
from . import sibling
from ..far import thing
LIMIT: int = 3
a = b = 1
if LIMIT:
    def one(x: int, *, y: str = "z") -> None:
        """Do one."""
        def inner(): ...
class Two(Base, metaclass=M):
    """Two things."""
    field = 1
    async def go(self): ...
    class Deep:
        def down(self): ...
'''


def test_an_outline_is_what_a_file_defines(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(CODE)
    said = outline(context(tmp_path), "m.py")
    assert said["summary"] == "What it is."
    assert said["imports"] == [".", "..far", "json", "os"]
    assert [(one["kind"], one["name"], one["line"], one["end"], one["signature"]) for one in said["symbols"]] == [
        ("variable", "LIMIT", 8, 8, "LIMIT: int"),
        ("variable", "a", 9, 9, "a"),
        ("variable", "b", 9, 9, "b"),
        ("function", "one", 11, 13, "def one(x: int, *, y: str='z') -> None"),
        ("class", "Two", 14, 19, "class Two(Base, M)"),
        ("variable", "Two.field", 16, 16, "field"),
        ("method", "Two.go", 17, 17, "async def go(self)"),
        ("class", "Two.Deep", 18, 19, "class Deep"),
        ("method", "Two.Deep.down", 19, 19, "def down(self)"),
    ]
    assert [one["summary"] for one in said["symbols"] if one["summary"]] == ["Do one.", "Two things."]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("m.txt", "x = 1", "is not a Python file"),
        ("m.py", "x = 1\ny = (", "line 2"),
        ("m.py", "(" * 3000, "nested|too many nested"),
        ("m.py", "x = " + "-" * 50_000 + "1", "nested too deeply"),
        ("m.py", "x = 1\n" * 200_000, "more than 1,048,576 bytes"),
    ],
)
def test_what_has_no_outline_says_why(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Refusal, match=problem):
        outline(context(tmp_path), name)
