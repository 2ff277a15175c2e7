"""Verbs and packs with fact generators: the generators run, and their progress is shown."""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path

import pytest

from manglecp.cli.output import GeneratorProgress, ProgressLine, generator_text
from manglecp.toolhost import PassProgress
from tests.cli.conftest import Run
from tests.pack.folders import ACTIONS, write

RULES = """Decl file(Name) bound [/string].
macro("greet", "Say hello").
macro_step("greet", 1, "hello").
arg_value("greet", 1, "name", N) :- file(N).
relevant("greet", 80) :- intent("hello"), file(_).
"""
FACTS = """from pathlib import Path
from manglecp import facts

@facts("file")
def scan(root: Path, cache: Path | None):
    if (root / "broken").exists():
        raise OSError("no disk")
    for path in root.iterdir():
        yield "file", path.name
    if cache is not None:
        (cache / "kept").touch()
"""


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(tmp_path / "root", {"ada": ""})
    settings = '[params.root]\nkind = "folder"\n'
    return write(
        tmp_path / "pack", {"pack.toml": settings, "rules/a.mg": RULES, "actions.py": ACTIONS, "facts.py": FACTS}
    )


def test_an_intent_is_answered_by_what_is_found_out(pack: Path, run: Run, tmp_path: Path) -> None:
    root = f"root={tmp_path / 'root'}"
    shown = run("intent", str(pack), "hello", "--set", root)
    assert shown.stdout.splitlines()[1].startswith("greet"), shown.stderr
    assert len(list((tmp_path / "cache").rglob("kept"))) == 1
    (tmp_path / "root/ada").unlink()
    shown = run("intent", str(pack), "hello", "--set", root, "--facts-cache", "none")
    assert shown.stdout.startswith("No tool"), shown.stdout
    run("intent", str(pack), "hello", "--set", root, "--facts-cache", str(tmp_path / "elsewhere"))
    assert len(list((tmp_path / "elsewhere").rglob("kept"))) == 1


def test_a_tool_is_called_by_what_is_found_out(pack: Path, run: Run, tmp_path: Path) -> None:
    where = ("--set", f"root={tmp_path / 'root'}", "--facts-cache", "none", "--store", ":memory:")
    shown = run("call", str(pack), "greet", "--intent", "hello", *where)
    assert shown.exit_code == 0, shown.stderr
    assert "hello ada" in shown.stdout


def test_a_check_has_the_pack_find_out(pack: Path, run: Run, tmp_path: Path) -> None:
    arguments = ("check", str(pack), "--set", f"root={tmp_path / 'root'}", "--facts-cache", "none")
    shown = run(*arguments)
    assert shown.stdout == "pack, 2 rules, 1 action, 0 skills, 1 generator: ok\n"
    (tmp_path / "root/broken").touch()
    shown = run(*arguments)
    assert shown.exit_code == 1
    assert shown.stderr == "error[pack]: facts.py: scan: OSError: no disk\n"


# --- how far it is -------------------------------------------------------------------------------------------------


def looking(seconds: float, done: int | None = None, *, over: bool = False) -> PassProgress:
    total = None if done is None else 5_000
    return PassProgress("scan", done, total, "" if done is None else "files", 150_000 if over else 1_000, seconds, over)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_where_nobody_watches_it_is_a_plain_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda _: False)  # nobody has set up a log
    show = GeneratorProgress()
    for second in range(10):
        show(looking(float(second), second * 100))
    show(looking(12.0, over=True))
    assert capsys.readouterr().err.splitlines() == ["scan: 200 of 5,000 files", "scan: 150,000 facts in 12.0 s"]


def test_a_server_has_it_in_its_log(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.INFO, "manglecp.facts")
    GeneratorProgress()(looking(3.0, over=True))
    assert caplog.messages == ["scan: 150,000 facts in 3.0 s"]
    assert capsys.readouterr().err == ""


def test_what_draws_already_draws_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    show = GeneratorProgress()
    with ProgressLine("loading") as progress:
        show(looking(1.0, 10))
        assert progress.detail == ""  # not worth a word yet
        show(looking(2.5, 2_500))
        assert progress.detail == "scan: [############............] 2,500 of 5,000 files"
        show(looking(2.6))  # a piece without news
        assert progress.detail == "scan: [############............] 2,500 of 5,000 files"
        show(looking(2.7, over=True))
        assert progress.detail == ""
    assert ProgressLine.current is None


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (PassProgress("scan", None, None, "", 12_000, 3.0), "scan: 12,000 facts"),
        (PassProgress("scan", 7, None, "commits", 1, 3.0), "scan: 7 commits"),
        (PassProgress("scan", 9, 3, "", 1, 3.0), "scan: [########################] 3 of 3"),
        (PassProgress("scan", 1, 2, "\x1b[2J", 1, 3.0), "scan: [############............] 1 of 2 \\u001b[2J"),
    ],
)
def test_as_far_as_it_is_known(told: PassProgress, text: str) -> None:
    assert generator_text(told) == text
