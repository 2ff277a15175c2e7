"""What a pack says about the facts that it finds out: ``facts.py``, and the folders that it may look into."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pack.folders import RULES, SMALL, problem, read, setting

FACTS = '''from collections.abc import Iterator
from pathlib import Path

from manglecp import Part, Progress, facts


@facts("file", "symbol", every=0.5, seconds=120, changes=True, spawn=["git"])
def scan(root: Path, *, cache: Path | None) -> Iterator[Part | Progress]:
    """What is in the repository."""
    yield Part("a", [("file", "a")])


@facts("weekday")
def today():
    yield "weekday", "monday"
'''
ROOT = '[params.root]\nkind = "folder"\nwritable = true\n'


def test_generators_are_described_and_not_run_here(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    folder = tmp_path / "pack"
    pack = read(folder, {**SMALL, "pack.toml": ROOT, "facts.py": FACTS, "facts/more.jsonl": ""}, root=str(tmp_path))
    assert list(pack.generators) == ["scan", "today"]
    scan, today = pack.generators.values()
    assert (scan.predicates, scan.every, scan.seconds, scan.changes) == (("file", "symbol"), 0.5, 120.0, True)
    assert (scan.settings, scan.cache, scan.spawn) == (("root",), True, ("git",))
    assert scan.description == "What is in the repository."
    assert (today.predicates, today.every, today.seconds, today.changes) == (("weekday",), 5.0, 60.0, False)
    assert (today.settings, today.cache, today.spawn) == ((), False, ())
    assert pack.generators_file is not None
    assert pack.generators_file.path == str(folder / "facts.py")
    assert [Path(file).name for file in pack.fact_files] == ["more.jsonl"]


def test_another_facts_file_is_another_pack(tmp_path: Path) -> None:
    first = read(tmp_path / "a", {**SMALL, "facts.py": 'from manglecp import facts\n@facts("p")\ndef f(): ...\n'})
    second = read(tmp_path / "b", {**SMALL, "facts.py": 'from manglecp import facts\n@facts("q")\ndef f(): ...\n'})
    assert first.digest != second.digest


@pytest.mark.parametrize(
    ("source", "about"),
    [
        ("@facts()\ndef f(): ...\n", "ValueError: facts: name the predicates"),
        ("@facts('p', 'p')\ndef f(): ...\n", "ValueError: facts: a predicate is named twice"),
        ("@facts('p', every=0)\ndef f(): ...\n", "ValueError: facts: every has to be"),
        ("@facts('p', seconds=-1)\ndef f(): ...\n", "ValueError: facts: seconds has to be"),
        ("@facts('p', spawn='git')\ndef f(): ...\n", "TypeError: spawn is a list"),
        ("@facts('p', spawn=['bin/git'])\ndef f(): ...\n", "ValueError: spawn: 'bin/git'"),
        ("@facts('p')\ndef f(*a): ...\n", "TypeError: facts: the decorated"),
        ("@facts('p')\ndef f(rot): ...\n", "f: it takes rot, and the pack has no param of that name"),
        ("@facts('p')\ndef f(): ...\n@facts('p')\ndef g(): ...\n", "g: p is supplied by f already"),
        ("@facts('P')\ndef f(): ...\n", "f: its declaration as a fact generator is invalid"),
        ("from manglecp import action\n@action(effects=[])\ndef f() -> int: ...\n", "f: not a fact generator"),
    ],
)  # fmt: skip
def test_a_broken_generator_is_a_problem(tmp_path: Path, source: str, about: str) -> None:
    found = problem(tmp_path, {**SMALL, "facts.py": f"from manglecp import facts\n{source}"})
    assert found.file == "facts.py"
    assert found.message.startswith(about)


def test_generators_do_not_belong_among_actions(tmp_path: Path) -> None:
    source = "from manglecp import facts\n@facts('p')\ndef f(): ...\n"
    found = problem(tmp_path, {**SMALL, "actions.py": source})
    assert found.message == "f: a fact generator belongs in facts.py"


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_is_the_one_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    text = ROOT + '[params.data]\nkind = "folder"\ndefault = ""\n[params.note]\ndefault = "x"\n'
    pack = read(tmp_path / "pack", {"rules/a.mg": RULES, "pack.toml": text}, root=str(tmp_path / "link"))
    assert pack.params == {"root": str(tmp_path / "real"), "data": "", "note": "x"}
    assert (pack.writable, pack.readable) == ((str(tmp_path / "real"),), ())
    both = {"root": str(tmp_path / "real"), "data": str(tmp_path)}
    assert read(tmp_path / "pack", {}, **both).readable == (str(tmp_path),)


@pytest.mark.parametrize(("name", "about"), [("nowhere", "there is no such folder"), ("file", "that is not a folder")])
def test_what_is_no_folder_is_refused(tmp_path: Path, name: str, about: str) -> None:
    (tmp_path / "file").touch()
    found = problem(tmp_path / "pack", {"rules/a.mg": RULES, "pack.toml": ROOT}, root=str(tmp_path / name))
    assert found.message == f"--set root: {about}"


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ('kind = "folder"\ndefault = "/"\n', "params.a.default: a folder is named by the operator, not by the pack"),
        ('writable = true\ndefault = "x"\n', "params.a.writable: only a folder can be written"),
        ('kind = "file"\ndefault = "x"\n', "params.a.kind: takes one of text, folder"),
    ],
)
def test_a_pack_opens_no_folder_by_itself(tmp_path: Path, text: str, about: str) -> None:
    assert setting(tmp_path, f"[params.a]\n{text}").message == about
