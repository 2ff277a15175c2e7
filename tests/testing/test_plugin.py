"""The plugin as authors of packs meet it: pytest in a process of its own, in a folder with a pack and its tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from shutil import copytree
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
RULES = """
macro("hello", "Says hello."). macro_step("hello", 1, "greet").
mandatory("hello") :- intent("meet"), guest(_).
relevant("hello", 40) :- intent("leave"), guest(_).
"""
ACTIONS = '''
from manglecp import action

@action(effects=["none"], idempotent=True)
def greet(name: str) -> dict[str, str]:
    """Say hello."""
    return {"said": f"hello {name}"}
'''
TESTS = """
def test_a_guest_is_greeted(pack):
    answer = pack.intent("meet", facts=['guest("ada")'])
    answer.offers("hello")
    assert answer.invoke("hello", {"name": "ada"}).result == {"said": "hello ada"}

def test_nobody_is_not(pack):
    pack.intent("meet").lacks("hello", because="needs guest")
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A pack, with tests in a folder of its own."""
    pack = tmp_path / "welcome"
    for folder in ("rules/schema", "rules/domain", "tests"):
        (pack / folder).mkdir(parents=True)
    (pack / "pack.toml").write_text(
        dedent("""
        [pack]
        name = "welcome"
        version = "1.0.0"
        description = "Greets guests."

        [domain]
        id = "welcome"
        description = "Greets guests"

        [[intents]]
        name = "meet"
        description = "Meet somebody"

        [[intents]]
        name = "leave"
        description = "Say goodbye"
        """)
    )
    (pack / "rules/schema/facts.mg").write_text(
        'Decl guest(Name) descr [doc("Somebody is here."), direction("input")] bound [/string].\n'
    )
    (pack / "rules/domain/greeting.mg").write_text(RULES)
    (pack / "actions.py").write_text(ACTIONS)
    (pack / "tests/test_welcome.py").write_text(TESTS)
    return pack


def run_pytest(where: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "pytest", "-p", "manglecp.testing.plugin", "-q", *options]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "COLUMNS": "200"}
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_a_pack_with_tests_of_its_own(house: Path) -> None:
    ended = run_pytest(house)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "2 passed" in ended.stdout
    assert "coverage" not in ended.stdout


def test_a_failure_says_why_and_points_at_the_test(house: Path) -> None:
    (house / "tests/test_welcome.py").write_text('def test_it(pack):\n    pack.intent("meet").offers("hello")\n')
    ended = run_pytest(house)
    assert ended.returncode == 1
    assert "mandatory needs guest, and there is no such fact" in ended.stdout
    assert "test_welcome.py:2: AssertionError" in ended.stdout
    assert "answers.py" not in ended.stdout, "where it failed is in the test"


def test_the_pack_can_be_elsewhere(house: Path, tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    copytree(house / "tests", apart)
    ended = run_pytest(apart)
    assert ended.returncode == 1
    assert "no pack.toml above" in ended.stdout
    assert run_pytest(apart, "--pack", "../welcome").returncode == 0
    (apart / "pytest.ini").write_text("[pytest]\nmanglecp_pack = ../welcome\n")
    assert run_pytest(apart).returncode == 0
    assert run_pytest(tmp_path, "-c", "apart/pytest.ini", "apart").returncode == 0


def test_a_broken_pack_is_told_with_its_place(house: Path) -> None:
    (house / "rules/domain/greeting.mg").write_text("mandatory(X) :- nobody(Y).\n")
    ended = run_pytest(house)
    assert ended.returncode == 1
    assert "rules/domain/greeting.mg:1" in ended.stdout


@pytest.mark.parametrize(
    "workers", [(), pytest.param(("-p", "xdist.plugin", "-n", "2"), marks=pytest.mark.soak)], ids=["one", "two"]
)
def test_rules_that_no_test_fired(house: Path, workers: tuple[str, ...]) -> None:
    ended = run_pytest(house, "--pack-coverage", *workers)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    summary = ended.stdout.partition(" pack coverage ")[2]
    assert "\nwelcome: 1 of 2 rules fired (50 %)" in summary
    assert "never fired: rules/domain/greeting.mg:4" in summary
    assert 'relevant("hello", 40)' in summary
    assert "mandatory" not in summary
    ended = run_pytest(house, "--pack-coverage-fail-under", "51", *workers)
    assert ended.returncode == 1
    assert "50 % is less than 51 %" in ended.stdout
    assert run_pytest(house, "--pack-coverage-fail-under", "50", *workers).returncode == 0


def test_every_installation_brings_the_plugin_and_it_is_light() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = project["entry-points"]["pytest11"]["manglecp"]
    assert hasattr(import_module(named), "pytest_addoption")
    code = f"import sys, {named}; print([name for name in sys.modules if name.startswith('manglecp.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "['manglecp.base', 'manglecp.base.lazy', 'manglecp.testing', 'manglecp.testing.plugin']"
