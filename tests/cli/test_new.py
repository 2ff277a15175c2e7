"""``manglecp new``."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run


def test_a_new_pack_is_written_and_passes_its_check(run: Run, folder: Path) -> None:
    shown = run("new", "notes")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        "notes/pack.toml",
        "notes/rules/schema/drafts.mg",
        "notes/rules/policy/privacy.mg",
        "notes/rules/domain/tools.mg",
        "notes/skills/plain_style.md",
        "notes/actions.py",
    ]
    assert all((folder / name).is_file() for name in shown.stdout.splitlines())
    assert shown.stderr == "try: manglecp check notes && manglecp intent notes review\n"
    assert run("check", "notes").exit_code == 0


def test_what_exists_is_left_alone(run: Run, folder: Path) -> None:
    (folder / "notes").write_text("mine")
    shown = run("new", "notes")
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "'notes' exists already" in shown.stderr
    assert (folder / "notes").read_text() == "mine"
