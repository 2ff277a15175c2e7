"""What the pages about calls and runs show is what happens, and their tables have every option."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from manglecp.cli import cli
from tests.docs.test_pages import ROOT
from tests.docs.walking import steps

PAGE = ROOT / "docs" / "how-to" / "needs-decision.md"
RUN_ID = re.compile(r"r-[0-9a-f]{32}")


def comparable(shown: str) -> str:
    """Without what differs from one time to the next, nor how wide that is."""
    for pattern, word in (
        (RUN_ID.pattern, "RUN"),
        (r"\d{4}-\d\d-\d\d[T ][\d:.,]+Z?", "TIME"),
        (r"\b[0-9a-f]{64}\b", "DIGEST"),
        (r"\d+ ms", "N ms"),
    ):
        shown = re.sub(pattern, word, shown)
    return re.sub(" +", " ", shown)


def shell(command: str, newest: str) -> str:
    """What a line of the page prints. ``RUN`` is the newest run."""
    words = shlex.split(command.replace("RUN", newest))
    match words:
        case ["manglecp", *args]:
            done = CliRunner().invoke(cli, args, catch_exceptions=False)
            assert done.exit_code == ("error[" in done.stderr), done.output
            return done.stderr + done.stdout
        case ["mkdir", folder]:
            Path(folder).mkdir()
        case ["cat", file]:
            return Path(file).read_text()
        case ["rm", file]:
            Path(file).unlink()
        case ["echo", text, ">", file]:
            Path(file).write_text(f"{text}\n")
        case _:
            raise AssertionError(f"the page has a command that nobody runs: {command}")
    return ""


def newest_run() -> str:
    if not Path("state", "store.sqlite3").exists():
        return "RUN"
    (run,) = json.loads(CliRunner().invoke(cli, ["runs", "list", "--limit", "1", "--json"]).stdout)
    return str(run["run_id"])


@pytest.mark.process
def test_deciding_about_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANGLECP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("MANGLECP_STORE", raising=False)
    commands = 0
    for command, expected in steps(PAGE.read_text("utf-8")):
        shown = shell(command, newest_run())
        assert comparable(shown).strip() == comparable(expected).strip(), command
        commands += 1
    assert commands == 15
    shutil.rmtree(tmp_path / "desk")


def commands_of(group: str) -> list[tuple[str, click.Command]]:
    context = click.Context(cli)
    command = cli.get_command(context, group)
    assert command is not None
    if isinstance(command, click.Group):
        return [(f"manglecp {group} {name}", verb) for name, verb in command.commands.items()]
    return [(f"manglecp {group} ", command)]


@pytest.mark.parametrize("group", ["call", "runs", "worker", "ledger"])
def test_the_usage_of_each_verb_has_every_option(group: str) -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    section = page.partition(f"\n## manglecp {group}\n")[2].partition("\n## ")[0]
    usage = re.sub(r"\n +", " ", section.partition("```\n")[2].partition("```")[0])
    for start, command in commands_of(group):
        (line,) = (line for line in usage.splitlines() if line.startswith(start))
        options = {name for one in command.params if isinstance(one, click.Option) for name in one.opts}
        shown = set(re.findall(r"--[a-z-]+", line))
        assert shown == {name for name in options if name.startswith("--")}, start
