"""Characters that nobody sees: refused wherever a person or a model would read them, with their place."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any, ClassVar

import pytest

from manglecp.base.text import find_invisible, find_invisible_in, replace_invisible
from manglecp.pack import PackError, Problems
from manglecp.pack.descriptions import read_actions
from tests.pack.folders import RULES, SKILL, SMALL, problem, read, setting

HIDDEN = {
    "variation selector": "\ufe00",
    "emoji selector": "\ufe0f",
    "variation selector supplement": "\U000e0100",
    "last variation selector": "\U000e01ef",
    "Hangul filler": "\u3164",
    "Hangul choseong filler": "\u115f",
    "Hangul jungseong filler": "\u1160",
    "halfwidth Hangul filler": "\uffa0",
    "Braille blank": "\u2800",
    "grapheme joiner": "\u034f",
    "tag": "\U000e0041",
    "first tag": "\U000e0000",
    "override": "\u202e",
    "isolate": "\u2066",
    "mark": "\u200f",
    "zero width space": "\u200b",
    "zero width joiner": "\u200d",
    "word joiner": "\u2060",
    "byte order mark": "\ufeff",
    "soft hyphen": "\u00ad",
    "escape": "\x1b",
    "carriage return": "\r",
    "private use": "\ue000",
    "no character": "\ufdd0",
}
PROSE = ["❤️ and 👩‍💻, 👍🏽, 1️⃣, ℹ️, ✔︎, ⚠️", "می‌خواهم", "क्‍ष", "two\nlines\tand a tab\r\n", "日本語, עברית, ½ × €"]
hidden = pytest.mark.parametrize("character", HIDDEN.values(), ids=HIDDEN)
some_hidden = pytest.mark.parametrize("character", ["\ufe0f", "\U000e0100", "\u3164", "\U000e0041", "\u202e", "\u200b"])
"""One of each kind, for whoever asks what the tests above ask."""


def code(character: str) -> str:
    return f"U+{ord(character):04X}"


class TestWhatIsSeen:
    @hidden
    def test_a_hidden_character_is_found_where_it_stands(self, character: str) -> None:
        text = f"read{character}file"
        assert find_invisible(text) == find_invisible(text, running=True) == (4, code(character))
        assert find_invisible(character + text, running=True) == (0, code(character))
        assert code(character) not in replace_invisible(text)
        assert find_invisible(replace_invisible(text)) is None

    def test_the_first_one_is_told(self) -> None:
        assert find_invisible("a\nb\u200b") == (1, "U+000A")
        assert find_invisible("a\u200bb\n") == (1, "U+200B")
        assert find_invisible("a\nb\u200b", running=True) == (3, "U+200B")

    @pytest.mark.parametrize("text", PROSE)
    def test_letters_and_emoji_may_have_theirs_in_prose(self, text: str) -> None:
        assert find_invisible(text, running=True) is None

    @pytest.mark.parametrize("text", PROSE[:4])
    def test_and_not_in_names(self, text: str) -> None:
        assert find_invisible(text) is not None

    @pytest.mark.parametrize(
        ("text", "at"),
        [
            ("❤️️", 2),  # one is enough
            ("a️", 1),
            ("+️", 1),
            ("1️", 1),  # a keycap is more than that
            ("👩‍ x", 1),  # nothing to be joined
            ("x‍👩", 1),
            ("می‌‌خواهم", 3),
            ("日‍本", 1),
            ("🏴\U000e0067\U000e007f", 1),
            ("a\rb", 1),
        ],
    )
    def test_prose_is_no_place_to_hide(self, text: str, at: int) -> None:
        found = find_invisible(text, running=True)
        assert found is not None
        assert found[0] == at

    def test_everything_that_unicode_calls_invisible_is(self) -> None:
        """But for signs of scripts that are drawn around numbers and verses, and hieroglyphs' arrangement."""
        kinds = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        passed = {
            c for c in map(chr, range(0x110000)) if unicodedata.category(c) in kinds and find_invisible(c) is None
        }
        assert all(unicodedata.name(c).split()[0] in ("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN") for c in passed)


class TestSettings:
    @some_hidden
    @pytest.mark.parametrize(
        ("toml", "line", "key"),
        [
            ('[pack]\ndescription = "a{}b"\n', 2, "pack.description"),
            ('[domain]\n\ndescription = "a{}b"\n', 3, "domain.description"),
            ('[[intents]]\nname = "a"\ndescription = "a{}b"\n', 3, "intents[1].description"),
            ('[domain.affinities]\n"a{}b" = 3\n', 2, "domain.affinities.a\N{REPLACEMENT CHARACTER}b"),
            ('[params.root]\ndefault = "a{}b"\n', 2, "params.root.default"),
        ],
    )
    def test_texts_of_settings(self, tmp_path: Path, toml: str, line: int, key: str, character: str) -> None:
        found = setting(tmp_path, toml.replace("{}", f"\\U{ord(character):08x}"))
        assert (found.file, found.line) == ("pack.toml", line)
        assert found.message.startswith(f"{key}: the ")
        assert found.message.endswith(f"holds the invisible character {code(character)}")

    @pytest.mark.parametrize("key", ['""', '" "', f'"{"a" * 201}"'])
    def test_a_key_of_affinities_is_a_short_text(self, tmp_path: Path, key: str) -> None:
        found = setting(tmp_path, f"[domain.affinities]\n{key} = 3\n")
        assert found.message.endswith("a key has from 1 to 200 characters")

    def test_prose_is_taken(self, tmp_path: Path) -> None:
        text = json.dumps(PROSE[0] + PROSE[1], ensure_ascii=False)
        pack = read(tmp_path, {"rules/a.mg": RULES, "pack.toml": f"[pack]\ndescription = {text}\n"})
        assert pack.settings.description == PROSE[0] + PROSE[1]


class TestSkills:
    @some_hidden
    def test_front_matter_and_content(self, tmp_path: Path, character: str) -> None:
        written = json.dumps(f"a{character}b")
        files = {"rules/a.mg": RULES, "skills/s.md": f"---\nname: N\ndescription: {written}\n---\nText\n"}
        found = problem(tmp_path, files)
        assert (found.line, found.message) == (3, f"description holds the invisible character {code(character)}")
        files["skills/s.md"] = f"---\nname: N\ndescription: D\n---\n\nFirst.\nIt is{character}hidden.\n"
        found = problem(tmp_path, files)
        assert (found.file, found.line, found.column) == ("skills/s.md", 7, 6)
        assert found.message == f"the text holds the invisible character {code(character)}"

    def test_prose_is_taken(self, tmp_path: Path) -> None:
        skill = SKILL.replace("How to greet.", PROSE[0]).replace("Be kind.", "\n".join(PROSE))
        found = read(tmp_path, {"rules/a.mg": RULES, "skills/s.md": skill}).skills["s"]
        assert found.description == PROSE[0]
        assert PROSE[1] in found.content


class TestRules:
    @some_hidden
    @pytest.mark.parametrize("text", ['p(1).\nmacro("t", "a{}b").\n', "p(1).\n# reviewed{} twice\n"])
    def test_nothing_in_a_rule_file_is_invisible(self, tmp_path: Path, text: str, character: str) -> None:
        found = problem(tmp_path, {"rules/a.mg": text.replace("{}", character)})
        assert (found.line, found.column) == (2, 1 + text.splitlines()[1].index("{"))
        assert found.message == f"the text holds the invisible character {code(character)}"
        assert found.fix is not None
        assert f"\\u{{{ord(character):04x}}}" in found.fix


class TestActions:
    """A listing is the word of the file about itself."""

    TOOL: ClassVar[dict[str, Any]] = {
        "name": "hello",
        "aid": "AID.A.HELLO.v1",
        "description": "Say hello.",
        "inputs_schema": {"type": "object", "properties": {"name": {"type": "string"}}},
        "outputs_schema": {"type": "object"},
        "side_effects": [],
        "tier": 0,
    }

    def told(self, **changes: Any) -> list[str]:
        problems = Problems()
        read_actions({}, {"tools": [{**self.TOOL, **changes}]}, "actions.py", problems)
        with pytest.raises(PackError) as caught:
            problems.raise_if_errors()
        return [each.message for each in caught.value.diagnostics]

    @hidden
    def test_descriptions_parameters_and_values(self, character: str) -> None:
        text = f"a{character}b"
        assert self.told(description=text) == [
            f"hello: its description holds the invisible character {code(character)}"
        ]
        for schema, way in (
            ({"properties": {text: {}}}, "/properties/a\N{REPLACEMENT CHARACTER}b"),
            ({"properties": {"x": {"description": text}}}, "/properties/x/description"),
            ({"properties": {"x": {"enum": ["c", text]}}}, "/properties/x/enum/1"),
            ({"properties": {"x": {"default": text}}}, "/properties/x/default"),
            ({"title": text}, "/title"),
        ):
            expected = f"holds the invisible character {code(character)} at {way}"
            assert self.told(inputs_schema={"type": "object", **schema}) == [f"hello: its inputs_schema {expected}"]
            assert self.told(outputs_schema=schema) == [f"hello: its outputs_schema {expected}"]

    @pytest.mark.parametrize("name", ["he\u3164llo", "he\u115fllo", "he\uffa0llo"])
    def test_a_function_has_a_name_that_is_seen(self, name: str) -> None:
        expected = "he\N{REPLACEMENT CHARACTER}llo: a word of its listing holds an invisible character"
        assert self.told(name=name) == [expected]

    def test_lines_are_seen(self) -> None:
        assert find_invisible_in({"default": "\n", "enum": ["\t"], "description": PROSE[0]}) is None
        assert find_invisible_in({"a\nb": 1}) == ("/a b", "U+000A")


@pytest.mark.parametrize("character", ["\u3164", "\ufe0f", "\u200b"])
def test_no_file_has_such_a_name(tmp_path: Path, character: str) -> None:
    found = problem(tmp_path, {**SMALL, f"data/a{character}b": "x"})
    assert (found.file, found.message) == ("data/a\N{REPLACEMENT CHARACTER}b", "the name is not printable")
