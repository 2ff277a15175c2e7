"""The reference names every option of the verbs that talk to servers."""

from __future__ import annotations

import re

import click
import pytest

from manglecp.cli import cli
from tests.docs.test_pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")


def section(verb: str) -> str:
    (text,) = re.findall(rf"^## manglecp {verb}\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    return str(text)


@pytest.mark.parametrize("verb", ["intent", "call"])
def test_every_option_is_named(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    usage = section(verb).split("```")[1]
    for option in command.params:
        assert isinstance(option, click.Argument) or option.opts[0] in usage, option.opts[0]
    assert f"manglecp {verb} PACK|URL" in usage
