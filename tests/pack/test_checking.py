"""What checking a whole pack says, and what it leaves unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest

from manglecp.base.diagnostic import Diagnostic
from manglecp.intent import survey
from tests.base.test_text import PROSE
from tests.pack.folders import ACTIONS, EXTERNALS, RULES, SMALL, write

LOOP = "Decl count(N) bound [/number].\ncount(1).\ncount(N) :- count(M), N = fn:plus(M, 1).\n"
INTENT = '[[intents]]\nname = "hello"\ndescription = "Greet somebody"\nrequired_facts = ["person"]\n'
PERSON = 'Decl person(Name) descr [direction("input")] bound [/string].\n'
WHOLE = {"pack.toml": INTENT, "rules/a.mg": RULES, "rules/schema/words.mg": PERSON, "actions.py": ACTIONS}


def checked(folder: Path, files: dict[str, str]) -> tuple[Diagnostic, ...]:
    return survey(write(folder, files))[1]


class TestRulesWithoutEnd:
    def test_derive_so_many_facts_and_no_more(self, tmp_path: Path) -> None:
        settings = INTENT + "[limits]\nmax_base_facts = 1_000\n"
        (found,) = checked(tmp_path, {**WHOLE, "pack.toml": settings, "rules/loop.mg": LOOP})
        assert (found.file, found.line) == ("rules/loop.mg", 3)
        assert found.message.startswith("the pack's rules cannot be evaluated: limit of 1000 derived facts passed")
        assert found.fix == "make the recursion of the rules finite, or raise limits.max_base_facts in pack.toml"

    def test_have_so_much_time(self, tmp_path: Path) -> None:
        settings = INTENT + "[limits]\nmax_base_facts = 1_000_000_000\nmax_load_ms = 100\n"
        (found,) = checked(tmp_path, {**WHOLE, "pack.toml": settings, "rules/loop.mg": LOOP})
        assert found.message.startswith("the pack's rules cannot be evaluated: limit of 0.1 seconds passed")
        assert found.fix == "make the recursion of the rules finite, or raise limits.max_load_ms in pack.toml"

    def test_a_limit_is_exact(self, tmp_path: Path) -> None:
        """The kernel's rules derive something too, so the limit is looked for."""
        bounded = LOOP.replace("N = fn", "M < 50, N = fn")
        domain, found = survey(write(tmp_path, {**WHOLE, "rules/loop.mg": bounded}))
        assert found == ()
        assert domain is not None
        derived = domain.base.derived
        assert checked(tmp_path, {"pack.toml": f"{INTENT}[limits]\nmax_base_facts = {derived}\n"}) == ()
        (refused,) = checked(tmp_path, {"pack.toml": f"{INTENT}[limits]\nmax_base_facts = {derived - 1}\n"})
        assert "derived facts passed" in refused.message


class TestWhatDidNotParse:
    """It may hold whatever seems to be missing."""

    @pytest.mark.parametrize("broken", ["rules/a.mg", "rules/b.mg", "rules/schema/words.mg"])
    def test_nothing_else_is_said(self, tmp_path: Path, broken: str) -> None:
        files = {
            **WHOLE,
            "externals.py": EXTERNALS,
            "rules/b.mg": "Decl similar_to(Id).\nsimilar_to(I) :- person(N), similar(N, 1, I).\n",
            "facts/language.csv": "code\nen\n",
            "rules/schema/words.mg": PERSON + "Decl language(Code) bound [/string].\n",
        }
        assert checked(tmp_path, files) == ()
        found = checked(tmp_path, {broken: files[broken] + "oh no(\n"})
        assert [(each.file, each.severity) for each in found] == [(broken, "error")]

    def test_what_is_wrong_all_the_same_is_said(self, tmp_path: Path) -> None:
        files = {**WHOLE, "rules/b.mg": "oh no(", "rules/c.mg": 'macro_step("greet", 2, "hallo").\n'}
        assert {(each.file, each.line) for each in checked(tmp_path, files)} == {("rules/b.mg", 1), ("rules/c.mg", 1)}


class TestTextsOfRules:
    @pytest.mark.parametrize(
        "text",
        [
            'macro("t", "a\\u{200b}b").',
            'macro_summary("t", "a\\u{200b}b").',
            'instruction("t", 1, fn:string:concatenate("a\\u{e0041}", X)) :- intent(X).',
            'macro_param("t", "name", {"type": "string", "enum": ["a\\u{fe0f}"]}).',
            'needs_resource("t", "https://example.org", "a\\u{3164}", 1).',
            'Decl seen(Name) descr [doc("a\\u{202e}b"), direction("input")] bound [/string].',
            'Decl seen(Name) descr [arg(Name, "a\\u{202e}b"), direction("input")] bound [/string].',
        ],
    )
    def test_what_reaches_a_client_is_not_written_as_an_escape_either(self, tmp_path: Path, text: str) -> None:
        found = checked(tmp_path, {"rules/a.mg": f"{RULES}{text}\n", "actions.py": SMALL["actions.py"]})
        assert [(each.line, each.file) for each in found if "invisible" in each.message] == [(4, "rules/a.mg")]

    def test_a_rule_may_look_for_one(self, tmp_path: Path) -> None:
        rules = 'odd(1) :- intent_param("text", T), :string:contains(T, "\\u{200b}").\nlisted("\\u{200b}").\n'
        found = checked(tmp_path, {**SMALL, "rules/b.mg": rules})
        assert not [each for each in found if each.severity == "error"]

    def test_prose_is_taken(self, tmp_path: Path) -> None:
        rules = SMALL["rules/greet.mg"].replace("Say hello", PROSE[0])
        assert not [each for each in checked(tmp_path, {**SMALL, "rules/greet.mg": rules}) if each.severity == "error"]
