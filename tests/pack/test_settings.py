"""``pack.toml``: every key, every limit, every mistake."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from manglecp.pack.settings import Disclosure, PackLimits, Param
from tests.pack.folders import RULES, SETTINGS, problem, problems, read, setting


def test_everything_that_is_said_is_taken(tmp_path: Path) -> None:
    text = SETTINGS + (
        "[limits]\nmax_message_bytes = 20_000_000\nmax_facts_per_request = 7\nmax_derived_facts = 8\n"
        "max_intervals_per_atom = 9\nmax_compute_ms = 10\n"
        '[disclosure]\nfull = 90\ncondensed = 50\nminimal = 50\ntokens = "estimate"\ninline_skill_tokens = 100\n'
        '[auth]\nrequired = true\nschemes = ["bearer", "api_key"]\ntoken_url = "https://example.org/token"\n'
        '[sandbox]\nprofile = "standard"\n'
        "[extensions]\nstructured_facts = true\n"
    )
    settings = read(tmp_path, {"rules/a.mg": RULES, "pack.toml": text}).settings
    assert (settings.name, settings.version, settings.description) == ("greeter", "1.2.0", "Says hello")
    assert settings.domain.id == "hello"
    assert settings.domain.categories == ("testing", "x-manners")
    assert settings.domain.affinities == {"politeness": 90}
    (intent,) = settings.intents
    assert (intent.name, intent.description) == ("hello", "Greet somebody")
    assert (intent.required_facts, intent.optional_facts) == (("person",), ("language",))
    assert settings.limits == PackLimits(
        max_message_bytes=20_000_000,
        max_facts_per_request=7,
        max_derived_facts=8,
        max_intervals_per_atom=9,
        max_compute_ms=10,
    )
    assert settings.disclosure == Disclosure(
        full=90, condensed=50, minimal=50, tokens="estimate", inline_skill_tokens=100
    )
    assert (settings.auth.required, settings.auth.schemes) == (True, ("bearer", "api_key"))
    assert settings.auth.token_url == "https://example.org/token"
    assert settings.params == (Param(name="root", description="Where to look", default="."),)
    assert settings.sandbox == "standard"
    assert settings.structured_facts


def test_trust_levels_and_parameters_of_intents_are_declared(tmp_path: Path) -> None:
    text = '[pack]\ntrust_levels = ["staff"]\n[[intents]]\nname = "go"\ndescription = "x"\nparams = ["service"]\n'
    settings = read(tmp_path, {"rules/a.mg": RULES, "pack.toml": text}).settings
    assert (settings.trust_levels, settings.intents[0].params) == (("staff",), ("service",))


def test_permissions_are_declared_with_the_pack(tmp_path: Path) -> None:
    text = '[pack]\npermissions = ["refund", "deploy:prod"]\n'
    assert read(tmp_path, {"rules/a.mg": RULES, "pack.toml": text}).settings.permissions == ("refund", "deploy:prod")


def test_everything_has_a_default(tmp_path: Path) -> None:
    settings = read(tmp_path / "My pack", {"rules/a.mg": RULES}).settings
    assert settings.name == settings.domain.id == "My-pack"
    assert settings.limits == PackLimits()
    assert settings.disclosure == Disclosure()
    assert settings.sandbox == "strict"
    assert not settings.structured_facts
    assert settings.intents == ()
    assert not settings.auth.required


@pytest.mark.parametrize(
    ("text", "line", "about", "fix"),
    [
        ('[pack]\nname = "a"\nverson = "1"\n', 3, "pack.verson: unknown key", "did you mean version?"),
        ('name = "a"\n', 1, "name: unknown key", "write it below [pack]"),
        ('permissions = ["a"]\n', 1, "permissions: unknown key", "write it below [pack]"),
        ('[pack]\npermissions = [" a"]\n', 2, "pack.permissions: entry 1 is not a permission: one line of at most "
         "128 characters", None),
        ("[disclosures]\nfull = 80\n", 1, "disclosures: unknown key", "did you mean disclosure?"),
        ('\n[[intents]]\nname = "a"\ndescription = "b"\n\n[[intents]]\nname = "c"\ndescription = "d"\n'
         'required_fact = ["x"]\n', 9, "intents[2].required_fact: unknown key", "did you mean required_facts?"),
        ('[params.root]\ndefautl = "x"\n', 2, "params.root.defautl: unknown key", "did you mean default?"),
        ("limits = { max_compute = 3 }\n", 1, "limits.max_compute: unknown key", "did you mean max_compute_ms?"),
        ("disclosure.ful = 80\n", 1, "disclosure.ful: unknown key", "did you mean full?"),
        ('[pack]\ndescription = """a\n[b]\nc = 1"""\nnam = "x"\n', 5, "pack.nam: unknown key", "did you mean name?"),
        ('[pack]\r\nname = "a"\r\nnam = "b"\r\n', 3, "pack.nam: unknown key", "did you mean name?"),
        ('[domain]\ncategories = [ # ]\n "testing",\n]\nidd = "x"\n', 5, "domain.idd: unknown key", "did you mean id?"),
        ('["pack"]\n"nam\\u0065s" = "x"\n', 2, "pack.names: unknown key", "did you mean name?"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_an_error_that_names_the_nearest(
    tmp_path: Path, text: str, line: int, about: str, fix: str
) -> None:
    found = setting(tmp_path, text)
    assert (found.file, found.line, found.message, found.fix) == ("pack.toml", line, about, fix)


@pytest.mark.req("MANI-08", "MANI-09", "MANI-10", "MANI-12", "MANI-23", "MANI-26")
@pytest.mark.parametrize(
    ("text", "line", "about"),
    [
        ('[domain]\ncategories = ["testing", "cooking"]\n', 2, "domain.categories: entry 2 is not one of"),
        ('[domain]\ncategories = ["x-"]\n', 2, "domain.categories: entry 1 is not one of"),
        ('[domain]\ncategories = ["testing", "testing"]\n', 2, "domain.categories: entry 2 is a duplicate"),
        ("[domain]\naffinities = { a = 101 }\n", 2, "domain.affinities.a: has to be from 0 to 100"),
        ("[domain.affinities]\na = -1\n", 2, "domain.affinities.a: has to be from 0 to 100"),
        ("[domain]\naffinities = { a = true }\n", 2, "domain.affinities.a: takes a whole number, not true or false"),
        ('[[intents]]\nname = "a"\n', 1, "intents[1]: description is missing"),
        ('[[intents]]\ndescription = "a"\n', 1, "intents[1]: name is missing"),
        ("intents = [3]\n", 1, "intents: entry 1 is not a table"),
        ('[[intents]]\nname = "a b"\ndescription = "c"\n', 2, "intents[1].name: not a name"),
        ('[[intents]]\nname = "a"\ndescription = "c"\nrequired_facts = ["Person"]\n', 4,
         "intents[1].required_facts: entry 1 is not the name of a predicate"),
        ('[[intents]]\nname = "a"\ndescription = "c"\nrequired_facts = ["p"]\noptional_facts = ["p"]\n', 5,
         "intents[1].optional_facts: p is required already"),
        ('[[intents]]\nname = "a"\ndescription = "c"\n[[intents]]\nname = "a"\ndescription = "d"\n', 5,
         "intents[2].name: there is an intent a already"),
        ("[limits]\nmax_message_bytes = 16777215\n", 2, "limits.max_message_bytes: has to be from 16,777,216"),
        ("[limits]\nmax_derived_facts = 0\n", 2, "limits.max_derived_facts: has to be from 1"),
        ("[limits]\nmax_compute_ms = 1.5\n", 2, "limits.max_compute_ms: takes a whole number, not a float"),
        ("[disclosure]\nfull = 101\n", 2, "disclosure.full: has to be from 0 to 100"),
        ("[disclosure]\nfull = 30\n", 1, "disclosure: full 30, condensed 40, minimal 20 are not in"),
        ("[disclosure]\nminimal = 41\n", 1, "disclosure: full 70, condensed 40, minimal 41 are not in"),
        ('[disclosure]\ntokens = "o200k"\n', 2, "disclosure.tokens: takes one of auto"),
        ("[auth]\nrequired = true\n", 2, "auth.required: then schemes are needed too"),
        ('[auth]\nschemes = ["basic"]\n', 2, "auth.schemes: entry 1 is not one of bearer"),
        ('[auth]\ntoken_url = "file:///etc/passwd"\n', 2, "auth.token_url: not an http or https address"),
        ('[auth]\nrequired = true\nschemes = ["bearer", "oauth2"]\n', 3, "auth.schemes: oauth2 needs a token_url"),
        ('[auth]\ntoken_url = "https://me@example.org/"\n', 2, "auth.token_url: the address names a user"),
        ('[auth]\ntoken_url = "https://me:hunter2@example.org"\n', 2, "auth.token_url: the address names a user"),
        ("[extensions]\nstructured_fact = true\n", 2, "extensions.structured_fact: unknown key"),
        ('[sandbox]\nprofile = "loose"\n', 2, "sandbox.profile: takes one of none"),
        ("pack = 3\n", 1, "pack: takes a table, not a whole number"),
        ('[pack]\nname = ""\n', 2, "pack.name: the text is empty"),
        ('[pack]\nname = "../x"\n', 2, "pack.name: not a name"),
        ("[pack]\nname = 1979-05-27\n", 2, "pack.name: takes text, not a date"),
        ('[pack]\ndescription = "a\\u202Eb"\n', 2, "pack.description: the text holds the invisible character U+202E"),
        ('[params.Root]\ndefault = "x"\n', 1, "params.Root: a param is named in lower case"),
        ('[params.root]\ndefault = "x"\nrequired = true\n', 3, "params.root.required: a param with a default"),
        ("[params.root]\ndefault = 3\n", 2, "params.root.default: takes text, not a whole number"),
        ('[pack]\nname = "a"\nname = "b"\n', 3, "not TOML: Cannot overwrite a value"),
        ("[pack\n", 1, "not TOML: Expected ']'"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_its_place(tmp_path: Path, text: str, line: int, about: str) -> None:
    found = setting(tmp_path, text)
    assert (found.file, found.line) == ("pack.toml", line)
    assert found.message.startswith(about)


def test_all_mistakes_are_told_at_once_in_order(tmp_path: Path) -> None:
    text = '[pack]\nname = 1\n[limits]\nmax_compute_ms = 0\nmax = 3\n[auth]\nschemes = "bearer"\n'
    found = problems(tmp_path, {"rules/a.mg": "p(", "pack.toml": text, "skills/x.md": "nothing"})
    assert [(each.file, each.line) for each in found] == [
        ("pack.toml", 2),
        ("pack.toml", 4),
        ("pack.toml", 5),
        ("pack.toml", 7),
        ("rules/a.mg", 1),
        ("skills/x.md", 1),
    ]


def test_values_are_not_told(tmp_path: Path) -> None:
    text = (
        '[pack]\nname = "hunter2 is secret"\n[params.key]\ndefault = "\\u0007hunter2"\n[auth]\nschemes = ["hunter2"]\n'
    )
    found = problems(tmp_path, {"rules/a.mg": RULES, "pack.toml": text})
    assert [each.line for each in found] == [2, 4, 6]
    assert "hunter2" not in "".join(each.render() for each in found)


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 20_000 + " = 1\n",
        "a = " + "[" * 20_000 + "]" * 20_000 + "\n",
        "a = " + "9" * 20_000 + "\n",
        "[pack]\ndescription = '''" + "'\n" * 10_000,
        "[" * 30_000,
        "x" * 60_000,
        '"' * 60_000,
        "a. " * 23 + " " * 60_000,
    ],
)
def test_hostile_text_is_refused_soon(tmp_path: Path, text: str) -> None:
    start = time.process_time()
    assert problem(tmp_path, {"rules/a.mg": RULES, "pack.toml": text}).file == "pack.toml"
    assert time.process_time() - start < 5


class TestParams:
    TEXT = '[params.root]\nrequired = true\n[params.mode]\ndefault = ""\n'

    def test_values_are_given_or_defaults(self, tmp_path: Path) -> None:
        assert read(tmp_path, {"rules/a.mg": RULES, "pack.toml": self.TEXT}, root="/x").params == {
            "root": "/x",
            "mode": "",
        }

    def test_a_required_one_is_asked_for(self, tmp_path: Path) -> None:
        found = setting(tmp_path, self.TEXT)
        assert (found.message, found.fix) == ("params.root: a value is needed", "give --set root=… or a default")

    def test_an_unknown_one_is_refused(self, tmp_path: Path) -> None:
        found = setting(tmp_path, self.TEXT, root="/x", mod="y")
        assert found.message == "--set mod: the pack has no param of that name"
        assert found.fix == "did you mean mode?"

    @pytest.mark.parametrize("value", ["a\0b", "\udcff", "x" * 65_537])
    def test_a_value_is_text(self, tmp_path: Path, value: str) -> None:
        assert setting(tmp_path, self.TEXT, root=value).message.startswith("--set root: text of at most")


def test_an_intent_knows_its_line(tmp_path: Path) -> None:
    one, other = ('[[intents]]\nname = "x"\ndescription = "X"\n', '[[intents]]\nname = "y"\ndescription = "Y"\n')
    text = f'[pack]\nname = "a"\n\n{one}\n{other}'
    first, second = read(tmp_path, {"rules/a.mg": RULES, "pack.toml": text}).settings.intents
    assert (first.line, second.line) == (4, 8)
