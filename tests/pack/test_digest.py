"""The digest of a pack: another content is another pack, another place is not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from manglecp.pack import loader
from manglecp.pack.diagnostics import Problems
from manglecp.pack.host_listing import list_tools
from manglecp.pack.loader import read_pack
from tests.pack.folders import EXTERNALS, SETTINGS, WHOLE, read, write

LISTED: dict[tuple[str, str], dict[str, Any] | None] = {}
FILES = {**WHOLE, "externals.py": EXTERNALS, "lookup.py": "TABLE = {}\n", "recorded/a.har": "{}\n"}


@pytest.fixture(autouse=True)
def hosts_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes describe themselves in the same way, and a host takes its time to start."""

    def ask(root: Path, file: str, sha256: str, problems: Problems, **options: Any) -> dict[str, Any] | None:
        if (file, sha256) not in LISTED:
            LISTED[file, sha256] = list_tools(root, file, sha256, problems, **options)
        return LISTED[file, sha256]

    monkeypatch.setattr(loader, "list_tools", ask)


def test_it_does_not_depend_on_place_or_time(tmp_path: Path) -> None:
    first = read(tmp_path / "a/greeter", FILES).digest
    for name, content in reversed(FILES.items()):
        write(tmp_path / "b/greeter", {name: content})
        os.utime(tmp_path / "b/greeter" / name, (1, 1))
    shutil.copytree(tmp_path / "a/greeter", tmp_path / "c")
    assert {read_pack(tmp_path / "b/greeter").digest, read_pack(tmp_path / "c").digest} == {first}
    assert len(first) == 64


@pytest.mark.parametrize("name", FILES)
def test_every_file_counts(tmp_path: Path, name: str) -> None:
    before = read(tmp_path, FILES).digest
    blank = "# \n" if not name.endswith((".har", ".csv", ".md")) else "\nde\n"
    with (tmp_path / name).open("a") as file:
        file.write(blank)
    changed = read_pack(tmp_path).digest
    assert changed != before
    write(tmp_path, FILES)
    assert read_pack(tmp_path).digest == before


@pytest.mark.parametrize("name", [".hidden", "rules/.greet.mg.swp", "rules/domain/tools.mg~", "a~/b"])
def test_what_a_host_can_read_beside_the_pack_counts(tmp_path: Path, name: str) -> None:
    before = read(tmp_path, FILES)
    added = read(tmp_path, {name: "one"})
    changed = read(tmp_path, {name: "two"})
    assert len({before.digest, added.digest, changed.digest}) == 3
    names = [source.name for source in before.sources]
    assert [source.name for source in added.sources] == names  # it is not part of the pack all the same


@pytest.mark.parametrize(
    "name", [".git/config", ".venv/pyvenv.cfg", "x/.lib/helper.py", "x/__pycache__/a.pyc", "node_modules/a/index.js"]
)
def test_folders_of_tools_do_not_count(tmp_path: Path, name: str) -> None:
    before = read(tmp_path, FILES).digest
    assert read(tmp_path, {name: "x"}).digest == before


def test_the_lock_of_an_editor_is_no_mistake(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    (tmp_path / "rules/.#tools.mg").symlink_to("somebody@somewhere.1:2")
    assert read_pack(tmp_path).warnings == ()


def test_names_count(tmp_path: Path) -> None:
    before = read(tmp_path, FILES).digest
    (tmp_path / "rules/domain/tools.mg").rename(tmp_path / "rules/policy/tools.mg")
    moved = read_pack(tmp_path).digest
    (tmp_path / "rules/policy/tools.mg").rename(tmp_path / "rules/domain/other.mg")
    assert len({before, moved, read_pack(tmp_path).digest}) == 3


def test_the_name_counts_that_comes_from_the_folder(tmp_path: Path) -> None:
    files = {"rules/a.mg": "p(1).\n"}
    first, second = read(tmp_path / "one", files), read(tmp_path / "two", files)
    assert (first.name, second.name) == ("one", "two")
    assert first.digest != second.digest
    assert read(tmp_path / "else/one", files).digest == first.digest


def test_params_count(tmp_path: Path) -> None:
    write(tmp_path, {**FILES, "pack.toml": SETTINGS + '[params.b]\ndefault = "x"\n'})
    digests = [read_pack(tmp_path, given).digest for given in ({}, {"root": "x"}, {"root": "xb"}, {"b": ""})]
    assert len(set(digests)) == 4
    assert read_pack(tmp_path, {"root": "."}).digest == digests[0]  # the default is a value like any other


def test_contents_do_not_run_together(tmp_path: Path) -> None:
    first = read(tmp_path / "1/pack", {"rules/a.mg": "p(1).\n", "x": "ab", "y": "c"}).digest
    second = read(tmp_path / "2/pack", {"rules/a.mg": "p(1).\n", "x": "a", "y": "bc"}).digest
    assert first != second


def test_params_do_not_run_together(tmp_path: Path) -> None:
    write(tmp_path, {"rules/a.mg": "p(1).\n", "pack.toml": '[params.a]\ndefault = ""\n[params.b]\ndefault = ""\n'})
    assert read_pack(tmp_path, {"a": "paramb"}).digest != read_pack(tmp_path, {"b": "paramb"}).digest
