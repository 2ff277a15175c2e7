"""A repository that is kept well: every kind of fact, as a person would write it down."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest

from examples.workspace.repository.scan.scan_facts import Fact
from examples.workspace.repository.scan.scanner import Settings
from tests.workspace.repositories import Repository, layered
from tests.workspace.scans import of, pairs, scanned


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return layered(tmp_path_factory.mktemp("layered") / "pricing")


@pytest.fixture(scope="module")
def facts(repository: Repository) -> set[Fact]:
    return scanned(repository.root, None, Settings(protected="migrations/ *.lock README.md .github/CODEOWNERS"))


def test_files(facts: set[Fact], repository: Repository) -> None:
    data = (repository.root / "pricing/tax.py").read_bytes()
    files = {fact[0]: fact[1:] for fact in of(facts, "file")}
    assert files["pricing/tax.py"] == ("python", len(data), hashlib.sha256(data).hexdigest())
    assert set(files) == set(repository.git("ls-files").splitlines())
    assert {name: files[name][0] for name in ("README.md", "pyproject.toml", "uv.lock")} == {
        "README.md": "markdown",
        "pyproject.toml": "toml",
        "uv.lock": "other",
    }
    assert of(facts, "config_file") == {
        (".github/CODEOWNERS", "owners"),
        (".gitignore", "git"),
        ("pyproject.toml", "python project"),
        ("tests/conftest.py", "pytest"),
    }
    assert of(facts, "lock_file") == {("uv.lock", "uv")}
    assert not of(facts, "unreadable", "secret_in", "generated", "odd_name", "link", "syntax_error")


def test_symbols(facts: set[Fact]) -> None:
    assert {fact[1:] for fact in of(facts, "symbol") if fact[0] == "pricing/money.py"} == {
        ("Money", "class", 8, 19),  # from its decorator on
        ("Money.plus", "method", 13, 15),
        ("Money.share", "method", 17, 19),
        ("same_currency", "function", 22, 24),
    }
    assert ("pricing/tax.py", "RATES", "variable", 5, 5) in of(facts, "symbol")


def test_imports(facts: set[Fact]) -> None:
    assert {fact for fact in of(facts, "imports_file") if str(fact[0]).startswith("pricing/")} == {
        ("pricing/__init__.py", "pricing/basket.py"),
        ("pricing/__init__.py", "pricing/money.py"),
        ("pricing/api.py", "pricing/__init__.py"),
        ("pricing/basket.py", "pricing/money.py"),
        ("pricing/basket.py", "pricing/tax.py"),
        ("pricing/tax.py", "pricing/money.py"),
    }
    assert {fact[1] for fact in of(facts, "imports") if fact[0] == "pricing/basket.py"} == {
        "__future__",
        "pricing.money",
        "pricing.tax",
    }
    assert ("pricing/api.py", "pricing/__init__.py") in of(facts, "in_package")
    assert ("pricing/api.py", "pricing.api") in of(facts, "module")


def test_tests_are_those_that_pytest_collects(facts: set[Fact], repository: Repository) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:manglecp"],
        cwd=repository.root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    collected = {line for line in done.stdout.splitlines() if "::" in line}
    assert len(collected) == 8
    assert {fact[0] for fact in of(facts, "test")} == collected
    lines = (repository.root / "tests/test_tax.py").read_text().splitlines()
    for name, path, line in of(facts, "test"):
        if path == "tests/test_tax.py":
            assert lines[int(str(line)) - 1].startswith(f"def {str(name).rpartition('::')[2]}(")


def test_what_tests_name(facts: set[Fact]) -> None:
    assert {fact[1:] for fact in of(facts, "tests_symbol") if "test_tax" in str(fact[0])} == {
        ("pricing/tax.py", "tax"),
        ("pricing/tax.py", "rate"),
        ("pricing/money.py", "Money"),
    }
    quotes = "tests/test_api.py::Quotes::test_quote"
    assert {fact[1:] for fact in of(facts, "tests_symbol") if fact[0] == quotes} == {("pricing/api.py", "quote")}
    assert of(facts, "conftest_of") == {
        (f"tests/test_{name}.py", "tests/conftest.py") for name in ("api", "basket", "money", "tax")
    }


def test_history(facts: set[Fact], repository: Repository) -> None:
    commits = repository.commits
    last = {fact[0]: fact[1:] for fact in of(facts, "last_change")}
    assert last["pricing/money.py"] == ("2026-01-04T00:00:00Z", commits[2])
    assert last["pricing/basket.py"] == ("2026-01-05T00:00:00Z", commits[3])  # on a branch that was merged later
    assert last["pricing/legacy.py"] == ("2026-01-09T00:00:00Z", commits[7])
    churn, authors = pairs(facts, "churn"), pairs(facts, "authors")
    assert (churn["pricing/money.py"], authors["pricing/money.py"]) == (2, 2)
    assert (churn["pricing/tax.py"], authors["pricing/tax.py"]) == (1, 1)
    assert churn["pricing/legacy.py"] == 2  # one of them under its old name
    assert "pricing/old.py" not in churn


def test_owners(facts: set[Fact]) -> None:
    owners: dict[object, set[object]] = {}
    for path, owner in of(facts, "owner"):
        owners.setdefault(path, set()).add(owner)
    assert owners["pricing/tax.py"] == {"@ben", "@shop/legal"}
    assert owners["pricing/money.py"] == {"@shop/core"}
    assert owners["README.md"] == {"docs@example.org"}
    assert owners["migrations/0001_orders.py"] == {"@chi"}
    assert "pricing/legacy.py" not in owners  # a later line takes them away


def test_the_tree(facts: set[Fact], repository: Repository) -> None:
    assert of(facts, "current_branch") == of(facts, "default_branch") == {("main",)}
    assert of(facts, "head") == {(repository.commits[-1],)}
    assert not of(facts, "changed", "staged", "renamed", "under_way")


def test_what_is_protected(facts: set[Fact]) -> None:
    assert of(facts, "protected_path", "protected_start", "protected_end") == {
        ("protected_start", "migrations/"),
        ("protected_end", ".lock"),
        ("protected_path", "readme.md"),
        ("protected_end", "/readme.md"),
        ("protected_path", ".github/codeowners"),
    }, "in small letters"


@pytest.mark.parametrize("pattern", ["*", "**/x", "a*", "src/*.py", "../x", "/etc/", "a//b", "*.py/", "a?"])
def test_a_pattern_that_rules_cannot_compare_is_refused(repository: Repository, pattern: str) -> None:
    with pytest.raises(ValueError, match="none of the forms folder/"):
        scanned(repository.root, None, Settings(protected=pattern))


def test_what_tests_may_take(facts: set[Fact], repository: Repository) -> None:
    assert of(facts, "limit_of_tests") == {("seconds", 300), ("memory", 1_024)}
    for wrong in (Settings(test_seconds=0), Settings(test_seconds=801), Settings(test_memory=4_096)):
        with pytest.raises(ValueError, match=r"test_(seconds|memory): \d+ is not a number from \d+ to \d+"):
            scanned(repository.root, None, wrong)


def test_facts_are_plain(facts: set[Fact]) -> None:
    assert {tuple(json.loads(json.dumps(fact))) for fact in facts} == facts
