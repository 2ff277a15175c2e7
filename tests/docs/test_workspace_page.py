"""The page of the workspace pack names every setting, fact, intent and tool that the pack has, and no other."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from examples.workspace.repository.protection import matches_bounds
from tests.docs.snippets import ROOT

PACK: Final = ROOT / "examples" / "workspace"
PAGE: Final = (PACK / "README.md").read_text("utf-8")
SETTINGS: Final = tomllib.loads((PACK / "pack.toml").read_text("utf-8"))


def table(head: str) -> list[list[str]]:
    """The cells of the table whose first line begins so."""
    lines = PAGE.partition(f"\n| {head} |")[2].split("\n\n")[0].split("\n")[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def code(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)(?:\([^`]*\))?`", text))


def test_settings() -> None:
    named = [code(cells[0]) for cells in table("setting")]
    assert set().union(*named) == set(SETTINGS["params"])


def test_facts() -> None:
    declared = set(re.findall(r"^Decl (\w+)\(", (PACK / "rules/schema/repository.mg").read_text("utf-8"), re.MULTILINE))
    told = {name for name in declared if not name.startswith(("protected_", "area_", "limit_"))}
    assert set().union(*(code(cells[1]) for cells in table("about"))) == told


def test_intents_and_tools() -> None:
    rows = {next(iter(code(cells[0]))): cells for cells in table("intent")}
    assert set(rows) == {intent["name"] for intent in SETTINGS["intents"]}
    for intent in SETTINGS["intents"]:
        wanted = {*intent.get("required_facts", ()), *intent.get("optional_facts", ())} - {"failed_at", "raised_at"}
        assert wanted <= code(rows[intent["name"]][1]), intent["name"]
    rules = "\n".join(file.read_text("utf-8") for file in (PACK / "rules" / "domain").iterdir())
    tools = set(re.findall(r'^macro\("(\w+)"', rules, re.MULTILINE))
    assert set().union(*(code(cells[2]) for cells in rows.values())) - {"explore"} == tools


def test_files() -> None:
    for cells in table("file"):
        for name in re.findall(r"`([^`]+)`", cells[0]):
            assert (PACK / name).exists(), name


def test_what_is_protected_by_default_is_what_the_page_says() -> None:
    protected = SETTINGS["params"]["protected"]["default"]
    for path in (".git/config", ".github/workflows/ci.yml", "uv.lock", "sub/poetry.lock", "tls.key", ".env"):
        assert matches_bounds(path, "protected", protected), path
