"""What the bytes of one file tell, whatever they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from examples.workspace.repository.credentials import holds_credentials
from examples.workspace.repository.scan.analysis import analyse
from examples.workspace.repository.scan.configuration import Configuration, read_configuration
from examples.workspace.repository.scan.file_kinds import config_of, generated_by_text, language_of, lock_of
from examples.workspace.repository.scan.pytest_collection import collect_tests, is_test_file
from examples.workspace.repository.scan.python import parse_outline
from examples.workspace.repository.secrets import secret_locations
from tests.workspace.repository import new
from tests.workspace.scans import of, scanned

# --- Python -----------------------------------------------------------------------------------------------------------

DEFINITIONS = """
@decorated
@twice(1)
def plain(): ...

async def later():
    def nobody_sees_me(): ...
    class NorMe: ...

class Outer(Base, mod.Other[int], metaclass=Meta):
    field = 1
    class Inner:
        @property
        def method(self):
            return lambda: 0

if CONDITION:
    def under_condition(): ...
else:
    with_value: int = 1
annotated: int
one = two = 3
x.y = 4
(a, b) = 5, 6
"""


def test_definitions() -> None:
    found = {
        symbol.name: (symbol.kind, symbol.line, symbol.end) for symbol in parse_outline(DEFINITIONS.encode()).symbols
    }
    assert found == {
        "plain": ("function", 2, 4),
        "later": ("function", 6, 8),
        "Outer": ("class", 10, 15),
        "Outer.Inner": ("class", 12, 15),
        "Outer.Inner.method": ("method", 13, 15),
        "under_condition": ("function", 18, 18),
        "with_value": ("variable", 20, 20),
        "annotated": ("variable", 21, 21),
        "one": ("variable", 22, 22),
        "two": ("variable", 22, 22),
    }


@pytest.mark.parametrize(
    ("data", "why", "line"),
    [
        (b"x = 1\ndef f(:\n", "syntax error", 2),
        (b"x = 1\n# caf\xe9\n", "not UTF-8", 2),
        (b"x = 1\n\n\0", "NUL byte", 3),
        (b"# coding: no-such-thing\nx = 1\n", "syntax error", 0),
        (b"x = " + b"-" * 100_000 + b"1", "nested too deeply", 0),
        (b"x = " + b"(" * 100_000, "syntax error", 1),
        (b"x" + b".y" * 100_000, "nested too deeply", 0),
        (b"if x:\n" + b"".join(b" " * n + b"if x:\n" for n in range(1, 200)), "syntax error", 101),
        (b"# coding: latin-1\nx = '\xe9'\n", "", 0),
        (b"\xef\xbb\xbfx = 1\n", "", 0),
        (b"x = '\\d'\n", "", 0),
        (b"", "", 0),
        (b"x = 1\r\ny = 2\r", "", 0),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_raised(data: bytes, why: str, line: int) -> None:
    found = analyse(data, "python")
    assert found.problem == why
    if line:
        assert found.line == line


@given(st.binary(max_size=200), st.sampled_from(["python", "text", "other"]))
def test_any_bytes_can_be_analysed(data: bytes, language: str) -> None:
    found = analyse(data, language)
    assert found == analyse(data, language)


@given(st.text(st.sampled_from("imporfcldesta: ().,=*\n\t\"'@_1#\\"), max_size=80))
def test_any_text_can_be_analysed(text: str) -> None:
    analyse(text.encode(), "python")


# --- tests ------------------------------------------------------------------------------------------------------------

COLLECTED = """
import unittest

import pytest


def test_one(): ...
def testament(): ...
def helper_test(): ...
async def test_later(): ...

@pytest.mark.parametrize("x", [1, 2])
def test_many(x): ...

class TestPlain:
    def test_method(self): ...
    def helper(self): ...
    class TestInner:
        def test_inner(self): ...
    class Inner:
        def test_nobody(self): ...

class TestMade:
    def __init__(self): ...
    def test_never(self): ...

class Mixin:
    def test_mixed_in(self): ...
    def test_both(self): ...

class TestMixed(Mixin):
    def test_both(self): ...

class Unit(unittest.TestCase):
    def test_unit(self): ...
    def testUnit(self): ...

class SubUnit(Unit):
    def test_more(self): ...

if True:
    def test_conditional(): ...

def outer():
    def test_hidden(): ...

test_variable = 1
"""


def test_tests_are_those_that_pytest_collects(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(COLLECTED)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:manglecp"),
            "test_all.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    collected = {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}
    assert len(collected) > 10, done.stdout + done.stderr
    found = {test for test, _ in collect_tests("test_all.py", parse_outline(COLLECTED.encode()), Configuration())}
    assert found == collected


def test_configuration_says_what_is_a_test() -> None:
    said = read_configuration({"pyproject.toml": '[tool.pytest.ini_options]\npython_files = "check_*.py tests/*"\n'})
    assert [is_test_file(name, said) for name in ("check_a.py", "x/check_a.py", "test_a.py")] == [True, True, False]
    text = b"class CheckA:\n    def it_works(self): ...\nclass TestB:\n    def test_x(self): ...\ndef it_is(): ...\n"
    chosen = read_configuration({"setup.cfg": "[tool:pytest]\npython_classes = Check*\npython_functions = it_\n"})
    assert [test for test, _ in collect_tests("t.py", parse_outline(text), chosen)] == [
        "t.py::it_is",
        "t.py::CheckA::it_works",
    ]


@pytest.mark.parametrize(
    ("texts", "roots"),
    [
        ({"pytest.ini": "[pytest]\npythonpath = lib ./more/\n"}, ("lib", "more")),
        ({"pyproject.toml": '[tool.setuptools.packages.find]\nwhere = ["python"]\n'}, ("python",)),
        ({"pyproject.toml": '[tool.setuptools.package-dir]\n"" = "code"\n'}, ("code",)),
        ({"pyproject.toml": '[tool.hatch.build.targets.wheel]\npackages = ["py/thing"]\n'}, ("py",)),
        ({"pytest.ini": "", "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["no"]\n'}, ()),
        ({"pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["../out", "/etc", ".", 7]\n'}, ()),
        ({"pyproject.toml": "not toml ["}, ()),
        ({"pyproject.toml": 'tool = "x"\n', "setup.cfg": "no section\n"}, ()),
        ({"tox.ini": "[pytest]\npythonpath = it's\n"}, ("it's",)),
    ],
)
def test_configuration_says_where_imports_begin(texts: dict[str, str], roots: tuple[str, ...]) -> None:
    assert read_configuration(texts).import_roots == roots


# --- marks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "data", "language"),
    [
        ("a/b.PY", b"", "python"),
        ("a.pyi", b"", "python"),
        ("run", b"#!/usr/bin/env python3.11\n", "python"),
        ("run", b"#!/bin/sh\n", "shell"),
        ("run", b"echo python", "other"),
        ("run.conf", b"#!/usr/bin/python\n", "other"),
        (".hidden", b"", "other"),
        ("Dockerfile", b"", "docker"),
    ],
)
def test_languages(path: str, data: bytes, language: str) -> None:
    assert language_of(path, data) == language


def test_files_with_a_meaning() -> None:
    assert config_of(".github/workflows/ci.yml") == "ci"
    assert config_of("requirements-dev.txt") == "pip"
    assert config_of("src/setup_thing.py") is None
    assert lock_of("deep/poetry.lock") == "poetry"
    assert lock_of("locked.py") is None


@pytest.mark.parametrize(
    ("text", "generated"),
    [
        ("# Generated by tool 1.2. DO NOT EDIT!\n", True),
        ("// Code generated by protoc-gen-go. DO NOT EDIT.\n", True),
        ("# -*- coding: utf-8 -*-\n# Generated by the protocol buffer compiler.\n", True),
        ("/* @generated */\n", True),
        ('"""Autogenerated file."""\n', True),
        ("# do not edit: generated from schema.json\n", True),
        ("text = 'Generated by x. DO NOT EDIT'\n", False),
        ("# This finds files that were generated by tools.\n", False),
        ("x = 1\n" * 40 + "# @generated\n", False),
    ],
)
def test_comments_that_say_generated(text: str, generated: bool) -> None:
    assert generated_by_text(text) is generated


# --- secrets ----------------------------------------------------------------------------------------------------------

SECRETS = {
    "aws access key": "AKIA" + "IOSFODNN7ABCDEFG",
    "github token": "github_pat_" + "11ABCDEFG0" * 7,
    "gitlab token": "glpat-" + "abcDEF123456ghiJKL78",
    "slack token": "xoxb-" + "123456789012-abcdefABCDEF",
    "slack webhook": "https://hooks.slack.com/" + "services/T0AB12CD3/B0AB12CD3/9a8B7c6D5e4F3g2H1i0J9k8L",
    "google token": "ya29." + "a0AfB_byC1234567890abcdef",
    "sendgrid key": "SG." + "aB3dE5fG7hI9jK1lM3nO5p.qR7sT9uV1wX3yZ5aB7cD9eF1gH3iJ5kL7mN9oP1qR",
    "azure key": "DefaultEndpointsProtocol=https;AccountKey=" + "aB3dE5fG7hI9" * 7 + "==;",
    "stripe key": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "google api key": "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "npm token": "npm_" + "abcdefghijklmnopqrstuvwxyz0123456789",
    "pypi token": "pypi-" + "AgEIcHlwaS5vcmcCJ" * 4,
    "model api key": "sk-ant-" + "api03-abcdefghijklmnopqrstuvwxyz012345",
    "json web token": "eyJhbGciOiJI" + ".eyJzdWIiOiIx" + ".SflKxwRJSMeKKF2QT4",
    "password in an address": "postgresql://shop:" + "h7Kq29xWpLz@db.internal/shop",
    "private key": "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_found_by_its_form(kind: str) -> None:
    assert secret_locations(f"first\nx = [{SECRETS[kind]}]\nlast\n") == ((2, kind),)


@pytest.mark.parametrize(
    "line",
    [
        "password = 'h7Kq-29xW_pLz'",
        'API_KEY: str = "a8f5f167f44f4964e6c998dee827110c"',
        '"client_secret": "8Q~x7Tq2mNfR4wYz"',
        "export DB_PASSWORD=h7Kq29xWpLz",
        "SECRET_KEY=8f42a73054b1749f8f58848be5e6502c",
        "auth_token => 'd41d8cd98f00b204'",
        "DB_PASS=h7Kq29xWpLz",
        "smtp_pw = 'h7Kq29xWpLz'",
    ],
)
def test_a_secret_that_is_given_to_a_name(line: str) -> None:
    assert secret_locations(f"\n{line}\n") == ((2, "assigned secret"),)


@pytest.mark.parametrize(
    "line",
    [
        "password = os.environ['PASSWORD']",
        "password = 'changeme1'",
        "token = '<your-token-1>'",
        "token = 'hello_world'",
        'secret_name = "projects/1/secrets"',
        "tokens = ['a1', 'b2']",
        "password: 'aaaaaaaa1'",
        "postgresql://user:password@localhost/x",
        "postgresql://user:${PASSWORD}@localhost/x",
        "https://example.org:8080/a@b",
        "AKIA is how such keys begin",
        "the key = 'value12345678'",
        "sk-learn is a library",
        "first_pass = 'h7Kq' + x",
        "two_passes = 'h7Kq29xWpLz'",
        "my_pwm = 'h7Kq29xWpLz'",
        "https://hooks.slack.com/services/XXXXXXXXX/XXXXXXXXX/XXXXXXXXXXXXXXXXXXXXXXXX",
    ],
)
def test_what_is_no_secret(line: str) -> None:
    assert secret_locations(line) == ()


@pytest.mark.parametrize(
    ("path", "holds"),
    [
        *((path, True) for path in (".env", "a/.env.production", "a/prod.env", ".ENV", ".netrc", "keys/id_rsa")),
        *((path, True) for path in (".aws/credentials", "home/.aws/credentials", "login.ppk")),
        *((path, False) for path in (".env.example", "env.sample", "sample.env", ".env-template", "environment.py")),
        *((path, False) for path in ("env", "credentials", "src/credentials.py", "x.aws/credentials", "env/a.py")),
    ],
)
def test_names_of_files_that_are_made_for_secrets(path: str, holds: bool) -> None:
    assert holds_credentials(path) is holds


def test_lines_are_counted_where_letters_grow() -> None:
    assert secret_locations("İİİİ\n\nİ password = 'h7Kq-29xW_pLz'\n") == ((3, "assigned secret"),)


def test_looking_for_secrets_is_quick_on_hostile_text() -> None:
    for text in ("password" * 50_000, "token=" * 50_000, "a://" * 50_000, "eyJ" * 50_000, "_KEY" * 50_000 + "="):
        assert secret_locations(text) == ()


@pytest.mark.parametrize(
    ("name", "stem", "subject"),
    [
        ("a/orders.py", "orders", None),
        ("tests/test_orders.py", "test_orders", "orders"),
        ("orders_test.py", "orders_test", "orders"),
        ("a/b.c.pyi", "b.c", None),
    ],
)
def test_names_say_what_is_tested(tmp_path: Path, name: str, stem: str, subject: str | None) -> None:
    repository = new(tmp_path / "repository")
    repository.commit("One file", files={name: "X = 1\n"})
    facts = scanned(repository.root)
    assert of(facts, "base_name") == {(name, stem)}
    assert of(facts, "subject") == (set() if subject is None else {(name, subject)})
