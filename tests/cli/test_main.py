"""What holds for every verb: help, usage, exit status, interruption, pipes."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from manglecp import __version__
from manglecp.cli import GROUPS, VERBS, cli
from tests.cli.conftest import Run
from tests.cli.test_eval import ENDLESS

ON_PROGRAMS = ("eval", "query", "check", "fmt")
"""The verbs that take the files of a program."""


def manglecp(*args: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "manglecp", *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        # A test run in the background ignores interrupts, and its children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"manglecp {__version__}\n"


def test_help_names_every_verb_and_fits_a_screen(run: Run) -> None:
    shown = run("--help")
    assert shown.exit_code == 0
    assert run("-h").stdout == shown.stdout
    lines = shown.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) < 80
    also = " ".join(lines[lines.index(next(line for line in lines if line.startswith("Also "))) : -1])
    main = [verb for verbs in GROUPS.values() for verb in verbs]
    for verb in main:
        assert any(line.startswith(f"  {verb} ") and line.endswith(VERBS[verb]) for line in lines)
    assert re.findall(r"[a-z][a-z-]+", also.removeprefix("Also ")) == [verb for verb in VERBS if verb not in main]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(run: Run, verb: str) -> None:
    shown = run(verb, "--help")
    assert shown.exit_code == 0
    others = {
        "call": "PACK|URL TOOL",
        "completion": "SHELL",
        "intent": "PACK|URL NAME",
        "conformance": "[URL]",
        "decide": "PACK|URL TOOL",
        "dev": "PACK",
        "doctor": "",
        "new": "PACK",
        "run": "PACK|PLUGIN|-- CMD [ARG]...",
        "schema": "[TYPE]",
        "serve": "PACK",
        "toolhost": "MODE PLUGIN [AID]",
        "worker": "PACK...",
    }
    takes = "FILE..." if verb in ON_PROGRAMS else others.get(verb, "COMMAND [ARGS]...")
    assert shown.stdout.startswith(f"Usage: manglecp {verb} [OPTIONS] {takes}".rstrip())


def test_help_imports_no_verb() -> None:
    code = "import sys, manglecp.cli as m\ntry: m.main()\nfinally: print(*sys.modules, file=sys.stderr)"
    shown = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    imported = shown.stderr.split()
    assert "click" in imported
    ours = {name for name in imported if name.startswith("manglecp")}
    assert ours == {"manglecp", "manglecp.base", "manglecp.base.lazy", "manglecp.cli"}


def test_an_unknown_verb(run: Run) -> None:
    shown = run("evla")
    assert shown.exit_code == 2
    assert "No such command 'evla'" in shown.stderr


@pytest.mark.parametrize("verb", ON_PROGRAMS)
class TestFiles:
    """Every verb takes the files of a program the same way."""

    def shown(self, run: Run, verb: str, *files: str) -> str:
        shown = run(verb, *files, *(["p(X)"] if verb == "query" else []))
        assert shown.exit_code == 2
        assert shown.stdout == ""
        return shown.stderr

    def test_none(self, run: Run, verb: str) -> None:
        assert "Missing argument 'FILE...'" in self.shown(run, verb)

    def test_missing(self, run: Run, verb: str) -> None:
        assert "File 'nowhere.mg' does not exist." in self.shown(run, verb, "nowhere.mg")

    def test_a_folder(self, run: Run, folder: Path, verb: str) -> None:
        folder.joinpath("rules").mkdir()
        if verb == "check":  # a folder is a pack, and a pack is not one of several files
            folder.joinpath("a.mg").touch()
            assert "a pack is checked on its own" in self.shown(run, verb, "a.mg", "rules")
            return
        assert "'rules' is a folder; give a file." in self.shown(run, verb, "rules")

    def test_unreadable(self, run: Run, folder: Path, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_: Path, mode: str) -> None:  # noqa: ARG001
            raise PermissionError(13, "Permission denied")

        folder.joinpath("secret.mg").touch()
        monkeypatch.setattr(Path, "open", refuse)
        assert "cannot read secret.mg: Permission denied" in self.shown(run, verb, "secret.mg")

    def test_not_text(self, run: Run, folder: Path, verb: str) -> None:
        folder.joinpath("latin.mg").write_bytes('p("é").'.encode("latin-1"))
        folder.joinpath("broken.mg").write_text("p(")
        folder.joinpath("fine.mg").write_text("p(1).")
        shown = run(verb, "fine.mg", "latin.mg", "broken.mg", *(["p(X)"] if verb == "query" else []))
        assert shown.exit_code == 1
        assert shown.stderr.startswith("error[parse]: latin.mg:1:4: not UTF-8: byte 0xe9")
        assert "error[parse]: broken.mg:1:3" in shown.stderr


def test_unexpected_exceptions_are_not_hidden(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    folder.joinpath("a.mg").touch()
    monkeypatch.setattr("manglecp.mangle.program.Program.load", fail)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run("eval", "a.mg")


def test_an_interrupt_gives_130(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    folder.joinpath("a.mg").touch()
    monkeypatch.setattr("manglecp.mangle.program.Program.load", interrupt)
    shown = run("eval", "a.mg")
    assert (shown.exit_code, shown.output) == (130, "")


def test_the_group_is_a_click_command() -> None:
    assert isinstance(cli, click.Group)
    assert cli.list_commands(click.Context(cli)) == list(VERBS)


# --- real processes ------------------------------------------------------------------------------------------------


def test_as_a_process() -> None:
    process = manglecp("eval", "-", "--pred", "q")
    out, err = process.communicate('p("é"). q(X) :- p(X).')
    assert (out, err, process.returncode) == ('q("é")\n', "", 0)


def test_output_is_utf8_whatever_the_locale_says() -> None:
    process = manglecp("eval", "-", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert process.communicate('p("é").')[0] == 'p("é")\n'


def test_a_reader_that_has_seen_enough() -> None:
    process = manglecp("eval", "-")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write("\n".join(f"p({number})." for number in range(20_000)))
    process.stdin.close()
    assert process.stdout.readline() == "p(0)\n"
    process.stdout.close()
    assert process.stderr.read() == ""
    process.wait(30)
    process.stderr.close()


def test_control_c(folder: Path) -> None:
    pipe = folder / "pipe.mg"
    os.mkfifo(pipe)
    process = manglecp("eval", str(pipe))
    with os.fdopen(_open_once_read(pipe, process), "w") as out:  # so it is at work
        out.write(ENDLESS)
    process.send_signal(signal.SIGINT)
    out_text, err_text = process.communicate(timeout=30)
    assert (out_text, err_text, process.returncode) == ("", "", 130)


def _open_once_read(pipe: Path, reader: subprocess.Popen[str]) -> int:
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or reader.poll() is not None:
                raise
        time.sleep(0.01)


PLAIN = {
    "completion": "a script for a shell",
    "dev": "logs, with --log-format where it serves in earnest",
    "fmt": "names of files, one a line",
    **{f"guard {verb}": "asks a person; guard report answers as JSON" for verb in ("install", "pin", "remove")},
    "guard relay": "standard output belongs to the MCP host",
    "harness ingest": "JSON anyway",
    "issue export": "JSON anyway",
    "ledger export": "JSON anyway",
    "mcp install": "a change of a file",
    "mcp serve": "messages of MCP",
    "new": "names of files, one a line",
    "schema": "JSON anyway",
    "serve": "logs, and --log-format says how",
    **{
        f"harness {verb}": "JSON anyway"
        for verb in (*(f"session {v}" for v in ("start", "turn", "stop", "show", "feature", "trajectory")), "work")
    },
    "token new": "the token, and nothing else",
    "token revoke": "one sentence; token list answers as JSON",
    "toolhost": "JSON anyway",
    "worker": "logs",
}
"""What has no --json, and why."""


def leaves(name: str, command: click.Command) -> dict[str, click.Command]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        found: dict[str, click.Command] = {}
        for part in command.list_commands(context):
            one = command.get_command(context, part)
            assert one is not None
            found |= leaves(f"{name} {part}", one)
        return found
    return {name: command}


def test_every_answer_can_be_had_as_json() -> None:
    without = set()
    for verb in VERBS:
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None
        for name, leaf in leaves(verb, command).items():
            if not any("--json" in option.opts for option in leaf.params):
                without.add(name)
    assert without == set(PLAIN)


def _groups() -> list[tuple[str, ...]]:
    context = click.Context(cli)
    found = {verb: cli.get_command(context, verb) for verb in VERBS}
    return [(), *((verb,) for verb, command in found.items() if isinstance(command, click.Group)), ("issue", "dep")]


@pytest.mark.parametrize("words", _groups(), ids=" ".join)
def test_no_line_of_a_list_of_commands_is_cut_off(run: Run, words: tuple[str, ...]) -> None:
    shown = run(*words, "--help")
    assert shown.exit_code == 0
    assert [line for line in shown.stdout.splitlines() if line.endswith("...") and not line.startswith("Usage")] == []
