"""The tab key: what a real shell gets, and what is offered without running anything of a pack."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
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


LONG_STORY = '''
[[intents]]
name = "look"
description = """Looks, then
plain
tells: all"""
'''
"""The scripts print three lines for each word in zsh, and in fish a word, a comma and its description."""


def told(shell: str, words: str, word: str | int, **environment: str) -> str:
    """Return the completions for a shell; ``word`` is the number of the word or, in fish, the word itself."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(word), "_MANGLECP_COMPLETE": f"{shell}_complete"}
    done = subprocess.run(
        [sys.executable, "-c", "from manglecp.cli import main; main()"],
        env={**os.environ, **environment, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def offered(words: str, number: int, **environment: str) -> list[str]:
    """Return the completions of the last word, as bash receives them."""
    return told("bash", words, number, **environment).split()


def test_verbs_are_offered() -> None:
    assert offered("manglecp ", 1) == [f"plain,{verb}" for verb in VERBS]
    assert offered("manglecp ru", 1) == ["plain,runs", "plain,run", "plain,run-log"]
    assert "plain,--version" in offered("manglecp --", 1)


def test_options_and_their_choices_are_offered() -> None:
    assert "plain,--why-not" in offered("manglecp intent --w", 2)
    assert offered("manglecp intent --level m", 3) == ["plain,minimal"]
    assert offered("manglecp runs d", 2) == ["plain,decide"]


def test_a_pack_is_a_folder() -> None:
    assert offered("manglecp intent examples/", 2) == ["dir,examples/"]
    assert offered("manglecp serve examples/", 2) == ["dir,examples/"]


def test_the_intents_of_a_pack_are_offered(tmp_path: Path) -> None:
    assert offered(f"manglecp intent {INCIDENT} diag", 3) == ["plain,diagnose_error"]
    assert offered(f"manglecp call {INCIDENT} list_failures --intent diag", 5) == ["plain,diagnose_error"]
    assert offered(f"manglecp intent {tmp_path / 'nowhere'} diag", 3) == []
    (tmp_path / "pack.toml").write_text("this is [no TOML")
    assert offered(f"manglecp intent {tmp_path} diag", 3) == []


def test_the_pack_may_be_at_home() -> None:
    asked = "manglecp intent ~/incident diag"
    assert offered(asked, 3, HOME=str(Path(INCIDENT).parent)) == ["plain,diagnose_error"]
    assert offered("manglecp intent ~nobody.of.this.name/incident diag", 3) == []


def test_zsh_and_fish_are_told_what_words_mean(tmp_path: Path) -> None:
    assert told("zsh", "manglecp led", 1) == f"plain\nledger\n{VERBS['ledger']}\n"
    assert told("fish", "manglecp led", "led") == f"plain,ledger\t{VERBS['ledger']}\n"
    assert told("zsh", "manglecp intent exam", 2) == "dir\nexam\n_\n"
    assert told("fish", "manglecp intent exam", "exam") == "dir,exam\n"
    (tmp_path / "pack.toml").write_text(LONG_STORY)
    assert told("zsh", f"manglecp intent {tmp_path} ", 3) == "plain\nlook\nLooks, then plain tells: all\n"
    assert told("fish", f"manglecp intent {tmp_path} ", "") == "plain,look\tLooks, then plain tells: all\n"


def test_offering_intents_runs_nothing_of_the_pack(tmp_path: Path) -> None:
    (tmp_path / "pack.toml").write_text('[[intents]]\nname = "look"\ndescription = "Looks."\n')
    (tmp_path / "actions.py").write_text(f"open({str(tmp_path / 'was_here')!r}, 'w').close()\n")
    assert offered(f"manglecp intent {tmp_path} ", 3) == ["plain,look"]
    assert not (tmp_path / "was_here").exists()


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(run: Run, shell: str) -> None:
    shown = run("completion", shell)
    assert shown.exit_code == 0
    assert f"_MANGLECP_COMPLETE={shell}_complete" in shown.stdout


def test_an_unknown_shell_is_refused(run: Run) -> None:
    shown = run("completion", "tcsh")
    assert shown.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in shown.stderr


def in_bash(words: list[str], environment: dict[str, str]) -> str:
    """Its function, called as the tab key would; it shows no descriptions."""
    asked = (
        'eval "$(manglecp completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_manglecp_completion manglecp "${COMP_WORDS[COMP_CWORD]}" x; echo "${COMPREPLY[@]}"'
    )
    return subprocess.run(
        ["bash", "--norc", "-c", asked, "bash", *words], env=environment, capture_output=True, text=True, check=True
    ).stdout


def in_fish(words: list[str], environment: dict[str, str]) -> str:
    """What it offers, and what that means."""
    asked = "manglecp completion fish | source; complete --do-complete (string join ' ' $argv)"
    command = ["fish", "--no-config", "--command", asked, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def in_zsh(words: list[str], environment: dict[str, str]) -> str:
    """What stands on its line after the tab key: it completes in a terminal and nowhere else."""
    keys = f'bindkey -e; autoload -Uz compinit; compinit -D -u; eval "$(manglecp completion zsh)"\n{" ".join(words)}\t'
    keys += "\x01print -r -- \x05; print -r -- EN''D; exit\n"  # the start of the line, and its end
    shown = b""
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**environment, "TERM": "dumb"})
    try:
        os.write(terminal, keys.encode())
        while b"END\r\n" not in shown:
            assert select.select([terminal], [], [], 120)[0], shown
            shown += os.read(terminal, 65_536)
    finally:
        os.close(terminal)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    return shown.decode().replace("\r", "").rpartition("\nEND\n")[0].rpartition("\n")[2]


REAL = {
    "bash": (in_bash, "ledger\n", "look\n"),
    "fish": (in_fish, f"ledger\t{VERBS['ledger']}\n", "look\tLooks, then plain tells: all\n"),
    "zsh": (in_zsh, "manglecp ledger", "manglecp intent pack look"),
}


@pytest.mark.process
@pytest.mark.no_cover
@pytest.mark.parametrize("shell", [shell for shell in REAL if shell == "bash" or shutil.which(shell) is not None])
def test_a_real_shell_completes(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the scripts in fish and zsh if they are installed; the tests above check their input everywhere."""
    ask, verb, look = REAL[shell]
    command = tmp_path / "manglecp"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m manglecp "$@"\n')
    command.chmod(0o755)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "pack.toml").write_text(LONG_STORY)
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    assert ask(["manglecp", "led"], environment) == verb
    assert ask(["manglecp", "intent", "pack", "lo"], environment) == look


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
    assert bold not in at_a_terminal({**colourful, "TERM": "dumb"})
    piped = subprocess.run(
        ASK,
        env=colourful,
        capture_output=True,
        check=True,
    )
    assert b"\x1b" not in piped.stdout + piped.stderr
