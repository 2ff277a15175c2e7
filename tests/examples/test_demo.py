"""``make demo`` walks through all of it, and says at which step something does not hold."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import patience

pytestmark = pytest.mark.no_cover  # whole processes, and the code in them is tested elsewhere

ROOT = Path(__file__).parents[2]
PACK = ROOT / "examples" / "incident"
PATIENCE = patience(300)
HEADINGS = [
    *("Manifest", "Intent", "Why", "Why not", "Invocation"),
    *("Delta", "Suggestion", "Approval", "Change", "Attack: the clock", "Attack: the file", "Guard", "Ledger"),
]


def demo(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "temporary").mkdir()
    return subprocess.run(
        [sys.executable, "-m", "tools.demo", *args],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder / "temporary"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def headings(told: str) -> list[str]:
    found = re.findall(r"^(\d+)\. (.*)$", told, re.MULTILINE)
    assert [int(number) for number, _ in found] == list(range(1, len(found) + 1))
    return [title for _, title in found]


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_whole_walk(tmp_path: Path) -> None:
    before = digests(PACK)
    done = demo(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert headings(done.stdout) == HEADINGS
    for part in (
        "full_stack_diagnosis  full",
        "why not full_stack_diagnosis\n     relevant needs recent_error",
        "75 %  running     name_cause",
        '+ fix_candidate("app/routes.toml", "add_route /api/users")',
        "lee is offered propose_fix\n",
        "kim's agent tries to approve it: auth_insufficient",
        "The same id again: confirmation_invalid",
        "The agent invokes deploy_release: macro_expired",
        "The file is swapped, and the approval used: confirmation_invalid",
        '   "/api/users" = "users.index"\n',
        ": ok\n",
        "entry 1: its content does not match its hash",
        "All 13 steps did what they should",
    ):
        assert part in done.stdout
    assert "\x1b" not in done.stdout, "nobody sits at a terminal"
    assert max(map(len, done.stdout.splitlines())) < 120
    assert list((tmp_path / "temporary").iterdir()) == [], "something is left behind"
    assert digests(PACK) == before


@pytest.mark.parametrize(
    ("step", "file", "text", "instead"),
    [
        pytest.param("Manifest", "pack.toml", 'id = "incident"', 'id = "other"', marks=pytest.mark.soak),
        pytest.param(
            "Intent",
            "rules/domain/3_diagnose.mg",
            'conflicts("frontend_diagnosis", "full_stack_diagnosis").',
            "",
            marks=pytest.mark.soak,
        ),
        ("Why not", "rules/domain/1_situation.mg", "<-[10m]", "<-[60m]"),
        pytest.param(
            "Invocation",
            "actions.py",
            "path, status = urlsplit",
            "raise ValueError('no')\n    path, status = urlsplit",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "Delta",
            "rules/domain/5_results.mg",
            'retracts("undiagnosed_error"',
            'retracts("fix_candidate"',
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "Suggestion",
            "rules/policy/fixes.mg",
            '!client_permission("fix")',
            'client_permission("never")',
            marks=pytest.mark.soak,
        ),
        ("Approval", "rules/policy/fixes.mg", 'needs_confirmation("apply_fix").', ""),
        ("Change", "actions.py", 'target.write_text(text, encoding="utf-8")', "pass"),
    ],
    ids=[*HEADINGS[:2], *HEADINGS[3:9]],
)
def test_a_changed_pack_fails_at_the_step_that_it_spoils(
    tmp_path: Path, step: str, file: str, text: str, instead: str
) -> None:
    pack = tmp_path / "incident"
    shutil.copytree(PACK, pack, ignore=shutil.ignore_patterns("__pycache__"))
    whole = (pack / file).read_text("utf-8")
    assert text in whole
    (pack / file).write_text(whole.replace(text, instead), "utf-8")
    done = demo(tmp_path, str(pack))
    assert done.returncode == 1, done.stdout
    place = HEADINGS.index(step)
    assert headings(done.stdout) == HEADINGS[: place + 1], done.stderr
    assert f"FAILED at step {place + 1}, {step}: " in done.stderr
    assert "server: " in done.stderr
    assert "did what they should" not in done.stdout
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_pack_that_cannot_be_served(tmp_path: Path) -> None:
    pack = tmp_path / "incident"
    shutil.copytree(PACK, pack, ignore=shutil.ignore_patterns("__pycache__"))
    (pack / "rules" / "domain" / "2_observe.mg").write_text("this is no rule")
    done = demo(tmp_path, str(pack))
    assert done.returncode == 1
    assert "All 13 steps" not in done.stdout
    assert "FAILED at step " in done.stderr
    assert "2_observe.mg" in done.stderr, "what the server said about it is shown"


def test_make_demo_is_this_walk() -> None:
    said = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert ".venv/bin/python -m tools.demo" in said.splitlines()
