"""Patterns: the host and the validator find the same."""

import jsonschema_rs
import pytest
from hypothesis import given, strategies as st

from manglecp.toolhost.patterns import matcher
from tests.effort import examples

SYNTAX = r"a b é 1 # : & ~ $ ^ . [ ] ( ) | * + ? {2} {1,} {,2} { } - [a-z] [^a] [\s$] [\S] [^\S] (?: (?= (?! (?<= (?<n>"
ESCAPES = r"\s \S \d \w \W \D \b \1 \$ \. \] \- \\ \n \u00a0 \xa0"
PIECES = [*SYNTAX.split(), *ESCAPES.split(), " ", "\n"]
TEXTS = [*"ab$^[]- 1_é\\.&~#{}|,", "\u00a0", "\u2028", "\n", "\r", "\x0b", "\x1c", "\x85", "\ufeff"]


def found_by_validator(pattern: str, text: str) -> bool:
    return jsonschema_rs.Draft202012Validator({"pattern": pattern}).is_valid(text)


@examples(400)
@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), st.lists(st.sampled_from(TEXTS), max_size=3))
def test_what_is_taken_means_the_same_to_the_validator(pattern: str, text: list[str]) -> None:
    try:
        search = matcher(pattern)
    except ValueError:
        return
    assert (search("".join(text)) is not None) == found_by_validator(pattern, "".join(text))


@pytest.mark.parametrize(
    "pattern", [r"^\s$", r"^\S$", r"^[\s]$", r"^[^\s]$", r"^[\Sx]$", r"^\w$", r"^\D$", "^.$", "^[^a]$"]
)
def test_every_character_is_of_the_same_kind(pattern: str) -> None:
    search = matcher(pattern)
    validator = jsonschema_rs.Draft202012Validator({"pattern": pattern})
    characters = [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000] + ["\U0001f600", "\U0010ffff"]
    assert [c for c in characters if (search(c) is not None) != validator.is_valid(c)] == []


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("^[a-z$]+$", "a$b", True),
        ("^[a-z$]+$", "a$b\n", False),
        (r"^a\$$", "a$", True),
        (r"^\\$", "\\", True),
        ("^a$|^b$", "b", True),
        (r"^\d+\s*$", "1\u00a0\u2028", True),
        (r"^\S+$", "a\u00a0b", False),
        ("^(?<year>[0-9]{4})-[0-9]{2}$", "2024-05", True),
        ("^(?!x)[a-z]+$", "xa", False),
        ("^[a&&[|~]+$", "&[|~", True),
        (r"^\u00e9\x41$", "éA", True),
        ("^a+?b*$", "ab", True),
    ],
)
def test_patterns(pattern: str, text: str, expected: bool) -> None:
    assert (matcher(pattern)(text) is not None) is expected
    assert found_by_validator(pattern, text) is expected


REFUSED = r"""
    \bword (a)\1 (?i:a) (?i)a (?P<x>a) a{,3} { a++ (?>a) \p{L} \Z \ud83d []a] [^]
    [\s-a] [a-\d] [a--b] ( a** (?=a)\w (?=a)* ()*
"""


@pytest.mark.parametrize("pattern", REFUSED.split())
def test_what_does_not_mean_the_same_everywhere_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        matcher(pattern)
