"""The documentation says what is true: its programs run, and its tables are those of the code."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from manglecp.cli import cli
from manglecp.mangle import Program, Result, Source

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def fences(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [body for _, body in FENCE.findall(text)]


def test_the_tutorial_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = Path("services.mg")
    commands = 0
    *steps, broken = fences("tutorial/first-program.md")
    for step in steps:
        if not step.startswith("$ manglecp "):
            program.write_text((program.read_text() if program.exists() else "") + step)
            continue
        command, _, expected = step.partition("\n")
        result = CliRunner().invoke(cli, shlex.split(command)[2:])
        assert (result.exit_code, result.stdout) == (0, expected), command
        commands += 1
    assert commands == 6
    program.write_text(program.read_text() + broken)
    result = CliRunner().invoke(cli, ["check", "services.mg"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error[analysis]: services.mg:")


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("explanation/engine.md", 'result.facts("path")'),
        ("explanation/explanations.md", 'result.explainer.why_not("may_enter(/kim)").would_unlock'),
        ("explanation/harness.md", "classes[-1]"),
        ("explanation/incremental-bases.md", 'request.facts("affected")'),
        (
            "explanation/time.md",
            '[len(base.evaluate([], now=ten + passed * minute).facts("recent")) for passed in (0, 9, 10, 11)]',
        ),
    ],
)
def test_python_in_the_pages_runs(page: str, shown: str) -> None:
    """What stands in a comment behind the last line is what it gives."""
    (code,) = (body for body in fences(page) if body.startswith("from manglecp"))
    known: dict[str, object] = {}
    exec(code, known)  # our own pages
    expected = code.strip().splitlines()[-1].partition("# ")[2]
    assert str(eval(shown, known)) == expected


def test_the_declaration_of_the_page_about_time() -> None:
    (text,) = (body for body in fences("explanation/time.md") if body.startswith("Decl"))
    assert ("seen", 2) in Program.load([Source("time.md", text)]).predicates


def test_the_threats_are_tried() -> None:
    text = (ROOT / "docs" / "explanation" / "threat-model.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests/|test_)[^`]+)`", text)
    assert len(named) > 30
    places = [ROOT / (name if "/" in name else f"tests/adversarial/{name}") for name in named]
    assert [str(place) for place in places if not place.exists()] == []
    tried = {place.name for place in (ROOT / "tests" / "adversarial").glob("test_*.py")}
    assert tried <= {place.name for place in places}, "the page leaves one out"


def test_programs_in_the_reference_load() -> None:
    snippets = [body for body in fences("reference/mangle.md") if not body.startswith("program ")]
    assert len(snippets) == 2
    for body in snippets:
        Program.load(
            [Source("snippet", "Decl q(X) bound [/number]. Decl q(X, Y) bound [/name, /any]. " + body)], bounds="off"
        )


def test_no_file_names_a_registry() -> None:
    """Neither hosts of package registries nor paths of somebody's machine belong into the repository."""
    forbidden = re.compile(
        "|".join(
            [
                "py" + r"pi\.org",
                "python" + "hosted",
                "npmjs" + r"\.",
                "deb" + r"ian\.org",
                r"(?<![\w}])/(?:work|" + "root)/",
            ]
        )
    )
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    assert names, "git lists no file"
    found = [name for name in names if forbidden.search((ROOT / name).read_text(encoding="utf-8", errors="replace"))]
    assert found == []


def test_the_example_of_the_engine_page() -> None:
    (snippet,) = fences("explanation/engine.md")
    *lines, _ = snippet.splitlines()
    scope: dict[str, object] = {}
    exec("\n".join(lines), scope)
    result = scope["result"]
    assert isinstance(result, Result)
    assert result.facts("path") == ["path(1,2)", "path(2,3)"]
