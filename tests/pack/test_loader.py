"""Folders to packs: what is in them, and what must not be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from manglecp.mangle import Trust
from manglecp.pack import folder
from manglecp.pack.diagnostics import PackError
from manglecp.pack.loader import read_pack
from tests.pack.folders import ACTIONS, RULES, SKILL, SMALL, WHOLE, problem, problems, read, write


@pytest.mark.req("EVAL-49")
def test_a_whole_pack_is_read(tmp_path: Path) -> None:
    place = tmp_path / "greeter"
    pack = read(place, WHOLE, root="/srv")
    assert pack.name == "greeter"
    assert [(source.name, source.trust) for source in pack.sources] == [
        ("rules/domain/tools.mg", Trust.DOMAIN),
        ("rules/policy/manners.mg", Trust.POLICY),
        ("rules/schema/words.mg", Trust.SCHEMA),
    ]
    assert pack.sources[0].text == RULES
    assert pack.fact_files == (str(place / "facts/language.csv"),)
    assert list(pack.skills) == ["greeting"]
    assert list(pack.actions) == ["hello"]
    assert pack.params == {"root": "/srv"}
    assert pack.folder == str(place)
    assert pack.actions_file is not None
    assert pack.actions_file.path == str(place / "actions.py")
    assert pack.warnings == ()


def test_one_rule_file_and_one_action_are_a_pack(tmp_path: Path) -> None:
    pack = read(tmp_path / "small", SMALL)
    assert pack.name == "small"
    assert [source.trust for source in pack.sources] == [Trust.DOMAIN]
    assert pack.actions["hello"].aid == "AID.SMALL.HELLO.v1"


def test_a_folder_may_be_named_by_a_link_or_as_text(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write(tmp_path / "real", SMALL))
    assert read_pack(str(tmp_path / "link")).name == "real"


@pytest.mark.parametrize("name", ["nowhere", "file", "a\0b", "circle"])
def test_what_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(PackError, match="there is no folder"):
        read_pack(tmp_path / name)


def test_an_empty_folder_is_no_pack(tmp_path: Path) -> None:
    assert problem(tmp_path, {}).message == "a pack has actions or rules"
    assert problem(tmp_path, {"skills/a.md": SKILL, "README.md": "x"}).message == "a pack has actions or rules"


@pytest.mark.parametrize(
    ("name", "content", "about", "fix"),
    [
        ("rules/polcy/a.mg", RULES, "rules/polcy is not a trust level", "did you mean policy?"),
        ("rules/policy/deep/a.mg", RULES, "rule files lie directly", None),
        ("rules/notes.txt", "x", "the name is not that of a rule file", "rule files end in .mg"),
        ("tools.mg", RULES, "rules lie in rules/", "move it to rules/tools.mg"),
        ("policy/a.mg", RULES, "rules lie in rules/", "move it to rules/policy"),
        ("domain/a.mg", RULES, "rules lie in rules/", "move it to rules/domain"),
        ("schema/deep/a.mg", RULES, "rules lie in rules/", "move it to rules/schema"),
        ("facts", "p(1).", "facts is a file, and fact files lie in a folder", "move it into facts/"),
        ("skills", SKILL, "skills is a file, and skills lie in a folder", "move it into skills/"),
        ("facts/a.xlsx", "x", "the name is not that of a fact file", None),
        ("facts/deep/a.csv", "x", "the name is not that of a fact file", None),
        ("actions/other.py", ACTIONS, "there is a folder actions/ too", "keep one of the two"),
        ("rules/a.mg", b"p(1).\nq(\xff).\n", "not UTF-8: byte 0xff", None),
        ("rules/a.mg", "p(1).\n\0", "the text holds a NUL character", None),
        ("rules/a.mg", "#" * 16_777_217, "the file has more than 16,777,216 bytes", None),
        ("pack.toml", "#" * 65_537, "the file has more than 65,536 bytes", None),
        ("pack.toml", b"[pack]\n# \xe9\n", "not UTF-8: byte 0xe9", None),
    ],
)
def test_what_would_be_passed_over_is_refused(
    tmp_path: Path, name: str, content: str | bytes, about: str, fix: str | None
) -> None:
    found = problem(tmp_path, {**SMALL, name: content})
    assert found.message.startswith(about)
    assert fix is None or found.fix == fix
    if isinstance(content, bytes) or "\0" in content:
        assert found.line == 2


def test_rules_are_no_file(tmp_path: Path) -> None:
    found = problem(tmp_path, {"rules": RULES})
    assert (found.file, found.message) == ("rules", "rules is a file, and rules lie in a folder")
    assert found.fix == "move it into rules/"


def test_a_folder_that_is_called_like_a_level_is_a_warning(tmp_path: Path) -> None:
    (warning,) = read(tmp_path, {**SMALL, "schema/person.json": "{}", "policy": "be kind"}).warnings
    assert (warning.file, warning.fix) == ("schema/", "rules of that level lie in rules/schema")


def test_a_program_that_gives_no_facts_is_a_warning(tmp_path: Path) -> None:
    (warning,) = read(tmp_path, {**SMALL, "facts.py": "x = 1\n"}).warnings
    assert (warning.file, warning.message) == ("facts.py", "it declares no fact generator")


def test_a_misspelt_part_is_a_warning(tmp_path: Path) -> None:
    pack = read(tmp_path, {**SMALL, "skill/a.md": SKILL, "README.md": "x", "recorded/a.har": "{}"})
    (warning,) = pack.warnings
    assert (warning.file, warning.fix, warning.severity) == ("skill", "did you mean skills?", "warning")


def test_hidden_files_and_backups_are_not_part_of_a_pack(tmp_path: Path) -> None:
    plain = read(tmp_path, SMALL)
    noise = {".git/config": "x", "rules/.greet.mg.swp": "\0", "rules/greet.mg~": "p(", "__pycache__/actions.pyc": "x"}
    noisy = read(tmp_path, noise)
    assert [source.name for source in noisy.sources] == [source.name for source in plain.sources]
    assert (noisy.actions, noisy.warnings) == (plain.actions, ())


@pytest.mark.parametrize("folder", [".venv", ".cache/deep", "__pycache__", "node_modules", "data/.tox"])
def test_folders_of_tools_are_not_looked_into(tmp_path: Path, folder: str) -> None:
    write(tmp_path, {**SMALL, f"{folder}/rules/a.mg": "p(", f"{folder}/b\u3164": "x"})
    (tmp_path / folder / "python").symlink_to("/usr/bin/env")
    (tmp_path / folder / "lib").symlink_to(tmp_path.parent)
    pack = read_pack(tmp_path)
    assert (len(pack.sources), pack.warnings) == (1, ())


def test_nor_are_hidden_links_to_them(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    before = read_pack(tmp_path).digest
    (tmp_path / ".venv").symlink_to(tmp_path.parent)
    (tmp_path / ".python").symlink_to("/usr/bin/env")
    assert read_pack(tmp_path).digest == before


class TestLinks:
    def test_a_link_within_the_pack_is_a_file(self, tmp_path: Path) -> None:
        write(tmp_path, SMALL)
        (tmp_path / "rules/again.mg").symlink_to("greet.mg")
        assert [source.text for source in read_pack(tmp_path).sources] == [RULES, RULES]

    @pytest.mark.parametrize("place", ["rules/x.mg", "facts/x.csv", "skills/x.md", "actions.py", "pack.toml", "data"])
    def test_a_link_out_of_the_pack_is_refused(self, tmp_path: Path, place: str) -> None:
        secret = write(tmp_path, {"secret": "hunter2 = 1"}) / "secret"
        pack = write(tmp_path / "pack", {"rules/greet.mg": RULES})
        (pack / place).parent.mkdir(exist_ok=True)
        (pack / place).symlink_to(secret)
        found = problem(pack, {})
        assert (found.file, found.message) == (place, "the link leads out of the pack")

    @pytest.mark.parametrize(
        ("target", "about"),
        [
            ("nowhere", "the link leads nowhere"),
            ("x", "the link leads nowhere"),
            ("rules", "a link in a pack has to lead to a file"),
            ("/", "the link leads out of the pack"),
            (".hidden", "the link leads to a file that is not part of the pack"),
            (".venv/a", "the link leads to a file that is not part of the pack"),
            ("node_modules/a", "the link leads to a file that is not part of the pack"),
        ],
    )
    def test_other_links_are_refused(self, tmp_path: Path, target: str, about: str) -> None:
        write(tmp_path, {**SMALL, ".hidden": "x", ".venv/a": "x", "node_modules/a": "x"})
        (tmp_path / "x").symlink_to(target)
        assert problem(tmp_path, {}).message == about


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    os.mkfifo(tmp_path / "rules/pipe.mg")
    os.mkfifo(tmp_path / "data")
    assert {each.message for each in problems(tmp_path, {})} == {"neither a file nor a folder"}


def test_an_odd_name_is_shown_safely(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/rules/\xff\x1b[31m.mg")).write_text("x")
    found = problem(tmp_path, {})
    assert found.message == "the name is not printable"
    assert found.file.isprintable()


def test_folders_are_not_walked_without_end(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    (tmp_path / ("d/" * 40)).mkdir(parents=True)
    assert problem(tmp_path, {}).message == "folders are nested more than 16 deep"


def test_too_many_files_are_no_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.MAX_FILES == 10_000
    monkeypatch.setattr(folder, "MAX_FILES", 7)  # with the two folders
    assert read(tmp_path, {**SMALL, "data/1": "", "data/2": "", "data/3": ""}).name
    assert problem(tmp_path, {"data/4": ""}).message == "the folder has more than 7 files"
