"""What the page about replicas says can be done as it says. Its configuration of nginx is what the other tests use."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from manglecp.cli import cli
from manglecp.pack import Problems
from manglecp.server import ServerSettings
from manglecp.server.config import parse_server_settings
from manglecp.store import open_store
from tests.replicas.proxies import PAGE, PATIENCE
from tests.store.postgres import server_programs

pytestmark = pytest.mark.no_cover

TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = [
    line.replace("\\\n", " ")
    for block in re.findall(r"^```\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    for line in re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
]


def test_every_option_is_one() -> None:
    said = [command.split() for command in COMMANDS if command.startswith("manglecp ")]
    assert [words[1] for words in said] == ["serve", "ledger", "runs"]
    for words in said:
        command: click.Command | None = cli
        for verb in words[1:3]:
            if isinstance(command, click.Group):
                with click.Context(command) as context:
                    command = command.get_command(context, verb)
        assert command is not None
        known = {name for one in command.params for name in one.opts}
        assert {word for word in words if word.startswith("--")} <= known


def test_the_settings_are_the_defaults() -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    problems = Problems()
    assert parse_server_settings("server.toml", text, problems) == ServerSettings()
    assert not problems.any_error


def test_a_dump_is_a_backup(postgres_url: str, other_url: str, tmp_path: Path) -> None:
    with_entries = open_store(postgres_url)
    for n in range(3):
        with with_entries.write_transaction() as tx:
            with_entries.ledger.append(tx, "approval", {"n": n}, run=f"r-{n}", identity="ann")
    with_entries.close()
    dump, restore = (command for command in COMMANDS if command.startswith("pg_"))
    assert dump.endswith(" manglecp")
    dump = f"{dump.removesuffix('manglecp')}{postgres_url}"
    restore = restore.replace("--dbname=manglecp ", f"--dbname={other_url} ")
    for words in (dump.split(), restore.split()):
        words[0] = shutil.which(words[0]) or str(server_programs() / words[0])
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stderr
    verified = CliRunner().invoke(cli, ["ledger", "verify", "--store", other_url])
    assert (verified.exit_code, verified.stdout.startswith("3 entries")) == (0, True), verified.output
    assert CliRunner().invoke(cli, ["runs", "list", "--store", other_url]).exit_code == 0
