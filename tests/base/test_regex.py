"""Regular expressions in linear time."""

import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from manglecp.base.regex import InvalidPattern, has_word, searches

WORD = st.text("aÄß9_+. ", max_size=4)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("b+", "abb", True),
        ("^b", "ab", False),
        ("(?i)STRA.E$", "Die Straße", True),
        ("a.c", "a\nc", False),
        ("(?s)a.c", "a\nc", True),
        ("", "", True),
        ("(x+x+)+y", "x" * 50_000, False),  # takes for ever by backtracking
    ],
)
def test_a_part_of_the_text_matches(pattern: str, text: str, found: bool) -> None:
    assert searches(pattern, text) is found


@pytest.mark.parametrize("pattern", ["(a", "a{9999}", r"(a)\1", "(?=a)", r"(?:\pL|\pN){900}", "["])
def test_what_has_no_linear_matcher_is_no_pattern(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        searches(pattern, "a")


@pytest.mark.parametrize(
    ("word", "text", "found"),
    [
        ("ill", "I will", False),
        ("ill", "still ill", True),
        ("Ill", "He is ILL.", True),
        ("ill", "ill_1 ill2 illä", False),
        ("ärger", "ÄRGER!", True),
        ("c++", "I like C++!", True),
        ("next day", "the NEXT DAY", True),
        ("", "a  b", False),
    ],
)
def test_whole_words(word: str, text: str, found: bool) -> None:
    assert has_word(word, text) is found


@given(word=WORD, before=WORD, after=WORD)
def test_a_word_has_no_letter_beside_it(word: str, before: str, after: str) -> None:
    alone = not (before[-1:].isalnum() or before.endswith("_") or after[:1].isalnum() or after.startswith("_"))
    text = before + word + after
    if word and (alone or text.lower().count(word.lower()) == 1):
        assert has_word(word, text) is alone


def test_re2_is_imported_by_its_first_use() -> None:
    code = "import sys, manglecp.mangle.builtins as b; b.PREDICATES; print('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
