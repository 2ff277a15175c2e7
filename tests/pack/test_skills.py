"""Skills: front matter, text, and everything that is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from manglecp.pack.model import SkillText
from tests.pack.folders import RULES, SKILL, problem, problems, read

HEAD = "---\nname: N\ndescription: D\n"


def skill(folder: Path, text: str, name: str = "s") -> SkillText:
    return read(folder, {"rules/a.mg": RULES, f"skills/{name}.md": text}).skills[name]


@pytest.mark.req("SKILL-01", "SKILL-02")
def test_a_skill_has_its_front_matter_and_text(tmp_path: Path) -> None:
    text = (
        "---\r\n# about it\r\nname: Reading logs\r\ndescription: \"Use it: always\"\r\ncontent_type: text/plain\r\n"
        "resources:\r\n  - uri: https://example.org/a#b\r\n    type: text/html\r\n    description: 'It''s a page'\r\n"
        "  - uri: log.txt\r\n---\r\n\r\nFirst line.\r\n\r\n---\r\nLast line.\r\n"
    )  # fmt: skip
    assert skill(tmp_path, text, "reading-logs.v2") == SkillText(
        skill_id="reading-logs.v2",
        name="Reading logs",
        description="Use it: always",
        content="First line.\n\n---\nLast line.\n",
        content_type="text/plain",
        resources=(
            {"uri": "https://example.org/a#b", "type": "text/html", "description": "It's a page"},
            {"uri": "log.txt"},
        ),
    )


def test_content_is_markdown_unless_it_says_so(tmp_path: Path) -> None:
    found = skill(tmp_path, "\N{ZERO WIDTH NO-BREAK SPACE}" + SKILL)
    assert (found.content_type, found.resources) == ("text/markdown", ())


@pytest.mark.parametrize(
    ("text", "line", "about"),
    [
        ("", 1, "a skill begins with front matter"),
        ("name: x\n", 1, "a skill begins with front matter"),
        ("---\nname: x\n", 1, "the front matter does not end"),
        ("---\nname: x\n---\ntext\n", 1, "description is missing"),
        (HEAD + "---\n \n", 4, "there is no text after the front matter"),
        (HEAD + "title: x\n---\ntext", 4, "unknown key title"),
        (HEAD + "name: again\n---\ntext", 4, "name is given twice"),
        (HEAD + "  more\n---\ntext", 4, "not a line of front matter"),
        ("---\nname:\ndescription: D\n---\ntext", 2, "name is empty"),
        ("---\nname: [a, b]\ndescription: D\n---\ntext", 2, "name has another meaning in YAML"),
        ("---\nname: |\ndescription: D\n---\ntext", 2, "name has another meaning in YAML"),
        ("---\nname: a: b\ndescription: D\n---\ntext", 2, "name has another meaning in YAML"),
        ("---\nname: a # b\ndescription: D\n---\ntext", 2, "name has another meaning in YAML"),
        ('---\nname: "a\ndescription: D\n---\ntext', 2, "name is not quoted properly"),
        ("---\nname: 'a'b'\ndescription: D\n---\ntext", 2, "name is not quoted properly"),
        (f"---\nname: {'a' * 2_001}\ndescription: D\n---\ntext", 2, "name has more than 2,000 characters"),
        ("---\nname: a\u200bb\ndescription: D\n---\ntext", 2, "name holds the invisible character U+200B"),
        (HEAD + "---\nfine\n\nhidden \U000e0041\n", 7, "the text holds the invisible character U+E0041"),
        (HEAD + "content_type: markdown\n---\ntext", None, "content_type is not a MIME type"),
        (HEAD + "resources:\n---\ntext", None, "resources is empty"),
        (HEAD + "resources: x\n  - uri: y\n---\ntext", 4, "resources is a list"),
        (HEAD + "resources:\n  - type: x\n---\ntext", None, "a resource has no uri"),
        (HEAD + "resources:\n  - uri: x\n    uri: y\n---\ntext", 6, "uri is given twice"),
        (HEAD + "resources:\n  - uri: x\n    link: y\n---\ntext", 6, "unknown key link"),
        (HEAD + "---\na\0b\n", 5, "the text holds a NUL character"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, line: int | None, about: str) -> None:
    found = problem(tmp_path, {"rules/a.mg": RULES, "skills/s.md": text})
    assert (found.file, found.line) == ("skills/s.md", line)
    assert found.message.startswith(about)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        *((number, "a number") for number in ("404", "+3", "1_000", "0x1F", "0o17", "0b1", "1.5", ".5", "1e3")),
        *((number, "a number") for number in (".inf", "+.INF", ".nan", "12:30:00", "007")),
        *((flag, "true or false") for flag in ("true", "False", "YES", "no", "On", "off")),
        *((nothing, "nothing") for nothing in ("~", "null", "Null", "NULL")),
        *((date, "a date") for date in ("2026-01-15", "2026-1-5", "2026-01-15T12:00:00Z", "2026-01-15 12:00:00.5 +1")),
    ],
)
def test_what_yaml_takes_for_something_else_is_quoted(tmp_path: Path, written: str, kind: str) -> None:
    text = "---\nname: {}\ndescription: D\n---\ntext"
    found = problem(tmp_path, {"rules/a.mg": RULES, "skills/s.md": text.replace("{}", written)})
    assert (found.line, found.message) == (2, f"name is {kind} in YAML, not text")
    assert found.fix == f'put it in quotes: "{written}"'
    assert skill(tmp_path, text.replace("{}", f'"{written}"')).name == written


@pytest.mark.parametrize("written", ["404s", "1.2.3", "v1", "yes and no", "2026-01-15 was a day", "nullable", "12:3x"])
def test_what_only_begins_like_that_is_text(tmp_path: Path, written: str) -> None:
    assert skill(tmp_path, f"---\nname: {written}\ndescription: D\n---\ntext").name == written


def test_joiners_of_scripts_are_text(tmp_path: Path) -> None:
    assert "\u200c" in skill(tmp_path, HEAD + "---\nمی\u200cخواهم\n").content


def test_a_skill_is_bounded(tmp_path: Path) -> None:
    found = problem(tmp_path, {"rules/a.mg": RULES, "skills/s.md": HEAD + "---\n" + "a" * 262_144})
    assert found.message == "the file has more than 262,144 bytes"


@pytest.mark.parametrize("name", ["skills/a b.md", "skills/deep/a.md", "skills/a.txt"])
def test_a_skill_has_an_id(tmp_path: Path, name: str) -> None:
    assert [each.file for each in problems(tmp_path, {"rules/a.mg": RULES, name: SKILL})] == [name]
