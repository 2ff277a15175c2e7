"""Packs on disk for tests: a folder from a few texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from manglecp.base.diagnostic import Diagnostic
from manglecp.pack.diagnostics import PackError
from manglecp.pack.loader import read_pack
from manglecp.pack.model import Pack

RULES = 'relevant("greet", 80) :- intent("hello").\nmacro("greet", "Say hello").\nmacro_step("greet", 1, "hello").\n'
ACTIONS = '''from manglecp import action


@action(effects=[])
def hello(name: str, loud: bool = False) -> str:
    """Say hello."""
    return f"hello {name}"
'''
EXTERNALS = '''from manglecp import external


@external("similar(Text, Count, Id)", mode="++-", deterministic=False, seconds=20)
def similar(text: str, count: int) -> list[tuple[str]]:
    """Texts that are alike."""
    return [(f"{text}-{number}",) for number in range(count)]
'''
SKILL = "---\nname: Greeting\ndescription: How to greet.\n---\nBe kind.\n"
SETTINGS = """[pack]
name = "greeter"
version = "1.2.0"
description = "Says hello"

[domain]
id = "hello"
categories = ["testing", "x-manners"]
affinities = { politeness = 90 }

[[intents]]
name = "hello"
description = "Greet somebody"
required_facts = ["person"]
optional_facts = ["language"]

[params.root]
description = "Where to look"
default = "."
"""
WHOLE = {
    "pack.toml": SETTINGS,
    "rules/schema/words.mg": 'Decl person(Name) descr [direction("input")] bound [/string].\n',
    "rules/policy/manners.mg": 'prohibited("shout", "be quiet").\n',
    "rules/domain/tools.mg": RULES,
    "facts/language.csv": "code\nen\n",
    "skills/greeting.md": SKILL,
    "actions.py": ACTIONS,
}
SMALL = {"rules/greet.mg": RULES, "actions.py": ACTIONS}


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def read(folder: Path, files: Mapping[str, str | bytes], **params: str) -> Pack:
    return read_pack(write(folder, files), params)


def problems(folder: Path, files: Mapping[str, str | bytes], **params: str) -> tuple[Diagnostic, ...]:
    """What keeps the pack from being read."""
    with pytest.raises(PackError) as caught:
        read(folder, files, **params)
    return caught.value.diagnostics


def problem(folder: Path, files: Mapping[str, str | bytes], **params: str) -> Diagnostic:
    found = problems(folder, files, **params)
    assert len(found) == 1, found
    return found[0]


def setting(folder: Path, text: str, **params: str) -> Diagnostic:
    """The only thing that is wrong with a ``pack.toml``."""
    return problem(folder, {"rules/a.mg": RULES, "pack.toml": text}, **params)
