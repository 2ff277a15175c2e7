"""CODEOWNERS matches as GitHub's documentation says."""

from __future__ import annotations

import pytest

from examples.workspace.repository.scan.owners import Owners


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*", ["a", "a/b.py", ".hidden/x"], []),
        ("*.js", ["a.js", "deep/er/b.js"], ["a.jsx", "js"]),
        ("/build/logs/", ["build/logs/a", "build/logs/b/c"], ["x/build/logs/a", "build/logs"]),
        ("docs/*", ["docs/getting-started.md"], ["docs/build-app/troubleshooting.md", "x/docs/a.md"]),
        ("apps/", ["apps/a", "x/apps/b/c"], ["apps", "myapps/a"]),
        ("/docs/", ["docs/a", "docs/b/c"], ["x/docs/a"]),
        ("/scripts/", ["scripts/a"], ["a/scripts/b"]),
        ("**/logs", ["logs/a", "build/logs/a", "scripts/logs", "deeply/nested/logs/b/c"], ["logs2/a"]),
        ("/apps/github", ["apps/github", "apps/github/a"], ["apps/github2", "x/apps/github"]),
        ("/apps/**/test", ["apps/test", "apps/a/test/b", "apps/a/b/test"], ["apps/tests", "test"]),
        ("/apps/**", ["apps/a", "apps/a/b"], ["apps"]),
        ("src/*.py", ["src/a.py"], ["src/a/b.py", "x/src/a.py", "src/a.pyc"]),
        ("Make?ile", ["Makefile", "a/Makefile"], ["Makefiles", "Make/ile"]),
        ("file.py", ["file.py", "a/file.py", "file.py/inside"], ["myfile.py", "fileXpy"]),
        (r"with\ space.py", ["with space.py", "a/with space.py"], ["with", "space.py"]),
        ("**", ["a", "b/c", "new\nline"], []),
        ("a**b", ["aXb", "x/ab"], ["a/b"]),
        ("new*line", ["new\nline"], []),
    ],
)
def test_a_pattern_matches(pattern: str, matching: list[str], other: list[str]) -> None:
    owners = Owners(f"{pattern} @who\n")
    assert owners.invalid == []
    assert {path: owners.owners_of(path) for path in matching} == dict.fromkeys(matching, ("@who",))
    assert {path: owners.owners_of(path) for path in other} == dict.fromkeys(other, ())


def test_the_last_line_that_matches_counts() -> None:
    owners = Owners("# all\n* @all second@example.org @all\n\n*.py @python # not @me\n/vendor/\n  /vendor/ours/ @us\n")
    assert owners.owners_of("a.md") == ("@all", "second@example.org")
    assert owners.owners_of("a.py") == ("@python",)
    assert owners.owners_of("vendor/a.py") == ()
    assert owners.owners_of("vendor/ours/a.py") == ("@us",)
    assert owners.invalid == []


@pytest.mark.parametrize(
    "line", ["!a @x", "[ab].py @x", "a nobody", "a @x nobody", "a @", "/ @x", "a***b @x", "a//b @x"]
)
def test_a_line_that_breaks_the_rules_says_nothing(line: str) -> None:
    owners = Owners(f"* @all\n{line}\n")
    assert owners.invalid == [2]
    assert owners.owners_of("a") == ("@all",)


def test_a_pattern_cannot_take_long() -> None:
    owners = Owners("/" + "**/a" * 12 + "/b @x\n" + "*a*" * 20 + " @y\n")
    assert owners.owners_of("/".join(["a"] * 60)) in ((), ("@y",))
