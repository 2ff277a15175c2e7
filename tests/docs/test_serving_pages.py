"""What the pages about serving say is what the code takes."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import click
import pytest

from manglecp.cli import cli
from manglecp.intent import Identity
from manglecp.pack import Problems, SecretSource
from manglecp.server import ServerSettings
from manglecp.server.auth.tokens import TokensFile
from manglecp.server.config import parse_server_settings
from tests.docs.snippets import ROOT, blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
TOML = re.compile(r"^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def toml(page: str) -> str:
    (text,) = TOML.findall((DOCS / page).read_text(encoding="utf-8"))
    return str(text)


async def _identified(file: Path) -> Identity | None:
    return await TokensFile(file).identify("bearer", "test")


def test_the_file_of_tokens_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(toml("how-to/who-may-ask.md"))
    file.chmod(0o600)
    assert TokensFile(file).schemes == ("bearer", "api_key")
    identity = asyncio.run(_identified(file))
    assert identity is not None
    assert identity[:3] == ("ann", frozenset({"explain_policy"}), "user")


def test_the_limits_are_the_defaults() -> None:
    problems = Problems()
    settings = parse_server_settings("server.toml", toml("how-to/serve-a-pack.md"), problems)
    assert not problems.any_error
    sources = {"GITHUB_TOKEN": SecretSource("file", ("/run/secrets/github",))}
    assert settings == ServerSettings(base="/api", secrets=sources)


def test_a_server_inside_of_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (one for one in blocks("docs/how-to/serve-a-pack.md") if one.language == "python")
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(compile(block.body, str(block), "exec"), names)
    assert {one["status"] for one in asyncio.run(names["failures"]())["requests"]} >= {404}


@pytest.mark.parametrize("verb", ["serve", "dev"])
def test_the_reference_has_every_option(verb: str) -> None:
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    section = text.split(f"## manglecp {verb}\n")[1].split("\n## ")[0]
    with click.Context(cli) as context:
        command = cli.get_command(context, verb)
    assert command is not None
    options = {one.opts[0] for one in command.params if isinstance(one, click.Option) and not one.hidden}
    assert options == set(re.findall(r"--[a-z-]+", section.split("```")[1]))
