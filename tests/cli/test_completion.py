"""The tab key: what a real shell gets, and what is offered without running anything of a pack."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from manglecp.cli import VERBS
from tests.cli.conftest import Run

ROOT = Path(__file__).resolve().parents[2]
INCIDENT = str(ROOT / "examples" / "incident")
RECORDED = str(ROOT / "examples" / "incident" / "recorded" / "diagnose_error.json")
ASK = [sys.executable, "-m", "manglecp", "intent", INCIDENT, "diagnose_error", "--facts", RECORDED]


def offered(words: str, number: int) -> list[str]:
    """The words that are offered for the given one, as bash would be told."""
    environment = {**os.environ, "COMP_WORDS": words, "COMP_CWORD": str(number), "_MANGLECP_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", "from manglecp.cli import main; main()"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_verbs_are_offered() -> None:
    assert offered("manglecp ", 1) == [f"plain,{verb}" for verb in VERBS]
    assert offered("manglecp ru", 1) == ["plain,runs", "plain,run-log"]
    assert "plain,--version" in offered("manglecp --", 1)


def test_options_and_their_choices_are_offered() -> None:
    assert "plain,--why-not" in offered("manglecp intent --w", 2)
    assert offered("manglecp intent --level m", 3) == ["plain,minimal"]
    assert offered("manglecp runs d", 2) == ["plain,decide"]


def test_a_pack_is_a_folder() -> None:
    assert offered("manglecp intent examples/", 2) == ["dir,examples/"]


def test_the_intents_of_a_pack_are_offered(tmp_path: Path) -> None:
    assert offered(f"manglecp intent {INCIDENT} diag", 3) == ["plain,diagnose_error"]
    assert offered(f"manglecp call {INCIDENT} list_failures --intent diag", 5) == ["plain,diagnose_error"]
    assert offered(f"manglecp intent {tmp_path / 'nowhere'} diag", 3) == []
    (tmp_path / "pack.toml").write_text("this is [no TOML")
    assert offered(f"manglecp intent {tmp_path} diag", 3) == []


def test_offering_intents_runs_nothing_of_the_pack(tmp_path: Path) -> None:
    (tmp_path / "pack.toml").write_text('[[intents]]\nname = "look"\ndescription = "Looks."\n')
    (tmp_path / "actions.py").write_text(f"open({str(tmp_path / 'was_here')!r}, 'w').close()\n")
    assert offered(f"manglecp intent {tmp_path} ", 3) == ["plain,look"]
    assert not (tmp_path / "was_here").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(run: Run, shell: str) -> None:
    shown = run("completion", shell)
    assert shown.exit_code == 0
    assert f"_MANGLECP_COMPLETE={shell}_complete" in shown.stdout


def test_an_unknown_shell_is_refused(run: Run) -> None:
    shown = run("completion", "tcsh")
    assert shown.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in shown.stderr


def test_a_real_bash_completes(tmp_path: Path) -> None:
    """The script is read by bash, and its function asked as the tab key would ask it."""
    command = tmp_path / "manglecp"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m manglecp "$@"\n')
    command.chmod(0o755)
    asked = (
        'eval "$(manglecp completion bash)"; COMP_WORDS=(manglecp led); COMP_CWORD=1; '
        '_manglecp_completion manglecp led manglecp; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", asked],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "ledger\n", done.stderr


def at_a_terminal(environment: dict[str, str]) -> bytes:
    """What a person at a terminal sees of an intent."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            ASK,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                read = os.read(ours, 65_536)
            except OSError:  # how a terminal says that nobody writes any more
                break
            if not read:
                break
            shown += read
        assert process.wait() == 0, shown
        return shown
    finally:
        os.close(ours)


@pytest.mark.no_cover
def test_output_is_plain_where_it_is_wanted_plain() -> None:
    """NO_COLOR takes the marks away that a terminal gets otherwise; no terminal gets none at all."""
    colourful = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    bold = b"\x1b[1m"
    assert bold in at_a_terminal(colourful)
    assert bold not in at_a_terminal({**colourful, "NO_COLOR": "1"})
    piped = subprocess.run(
        ASK,
        env=colourful,
        capture_output=True,
        check=True,
    )
    assert b"\x1b" not in piped.stdout + piped.stderr
