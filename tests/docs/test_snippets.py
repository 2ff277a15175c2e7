"""No block of the documentation is left to chance: it is run, written from the code, or says why not."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from manglecp.cli import cli
from tests.docs.snippets import PAGES, PICTURES, ROOT, RUN_BY, Block, blocks, commands

ALL = [block for page in PAGES for block in blocks(page)]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
OPTION = re.compile(r"--[a-z][a-z-]*")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_checked(page: str) -> None:
    open_ones = [block for block in ALL if block.page == page and not block.generated and block.reason is None]
    pictures = PICTURES.get(page, 0)
    known, _ = RUN_BY.get(page, (0, ""))
    assert len(open_ones) == known + pictures, (
        f"{page} has {len(open_ones)} blocks that something has to check, and {known + pictures} are known to be: "
        "see tests/docs/snippets.py"
    )


def test_everything_registered_is_there() -> None:
    assert set(RUN_BY) | set(PICTURES) <= set(PAGES)


@pytest.mark.parametrize("page", RUN_BY)
def test_the_tests_that_run_a_page_name_it(page: str) -> None:
    for test in RUN_BY[page][1].split():
        text = (ROOT / test).read_text("utf-8")
        assert Path(page).name in text, f"{test} has nothing to do with {page}"


def of(*languages: str) -> list[Block]:
    return [block for block in ALL if block.language in languages]


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_can_be_compiled(block: Block) -> None:
    compile(block.body, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_toml_can_be_read(block: Block) -> None:
    assert tomllib.loads(block.body)


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_json_can_be_read(block: Block) -> None:
    """One document, or one a line."""
    try:
        json.loads(block.body)
    except json.JSONDecodeError:
        assert [json.loads(line) for line in block.body.splitlines()]


TYPED = [(str(block), line) for block in ALL for line in commands(block) if "manglecp" in line or "make " in line]


@pytest.mark.parametrize(("place", "line"), TYPED)
def test_what_is_typed_is_possible(place: str, line: str) -> None:
    """Verbs and options that stand on a page exist, and so do targets of make."""
    for part in re.split(r"&&|\||;", re.sub(r"\$\([^)]*\)|'[^']*'|\"[^\"]*\"", "TEXT", line)):
        words = shlex.split(part)
        match [word for word in words if "=" not in word or word.startswith("-")]:
            case ["make", *targets]:
                assert {word for word in targets if not word.startswith("-")} <= TARGETS, place
            case [program, *args] if Path(program).name == "manglecp":
                possible(args, place)
            case _:
                pass


def possible(args: list[str], place: str) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group) and args and not args[0].startswith("-"):
        with click.Context(command) as context:
            _, found, args = command.resolve_command(context, args)
        assert found is not None, place
        command = found
    if command.name == "toolhost":  # reads its arguments itself
        return
    known = {name for one in command.params for name in one.opts} | {"--help", "-h"}
    for word in args:
        if OPTION.match(word):
            assert word.partition("=")[0] in known, f"{place}: {command.name} has no {word}"
