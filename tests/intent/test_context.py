"""Instructions, resources and summaries."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from manglecp.intent.definition import Resource
from manglecp.intent.rendering import MAX_SUMMARY_CHARACTERS, instructions, one_line, resources, summary, uri
from manglecp.intent.tokens import ESTIMATE, counter
from manglecp.pack import Disclosure
from tests.intent.answering import tools
from tests.intent.packs import pack, skill

COUNTERS = (ESTIMATE, counter("o200k_base"))
SENTENCE = "Look at the log of the service first and compare it with the last build that was green. "


@pytest.mark.req("SKILL-16")
@pytest.mark.parametrize("by", COUNTERS, ids=lambda one: one.by)
def test_long_instructions_are_cut_where_a_sentence_ends(by: object) -> None:
    found = instructions([SENTENCE * 8, SENTENCE * 8], by)  # type: ignore[arg-type]
    assert found.endswith("green.")
    assert 150 < ESTIMATE.count(found.encode()) < 200
    assert (SENTENCE * 8).strip() in found.replace("\n", " ")


@pytest.mark.req("SKILL-16")
@given(st.lists(st.text(max_size=3000), max_size=4))
def test_instructions_stay_under_two_hundred_tokens_whatever_they_are(texts: list[str]) -> None:
    for by in COUNTERS:
        whole = "\n".join(text.strip() for text in texts if text.strip())
        found = instructions(texts, by)
        assert by.count(found.encode("utf-8", "replace")) < 200
        assert found == whole or found.removesuffix("…") == whole[: len(found.removesuffix("…"))]


def test_a_single_endless_sentence_is_cut_between_words() -> None:
    found = instructions(["word " * 1000], ESTIMATE)
    assert found.endswith("word…")
    assert 100 < ESTIMATE.count(found.encode()) < 200


@pytest.mark.req("SKILL-16")
@pytest.mark.parametrize("by", COUNTERS, ids=lambda one: one.by)
def test_text_without_spaces_is_cut_too(by: object) -> None:
    sentence = "首先查看服务的日志，并与上一次成功的构建进行比较。"
    found = instructions([sentence * 40], by)  # type: ignore[arg-type]
    assert found.endswith("比较。")
    assert len(found) >= 2 * len(sentence)
    endless = instructions(["日志" * 1000], by)  # type: ignore[arg-type]
    assert endless.endswith(("日…", "志…"))
    assert len(endless) > 40
    after_a_word = instructions(["See " + "x" * 5000], by)  # type: ignore[arg-type]
    assert after_a_word.startswith("See xxxxxxxxxx")


def test_short_instructions_are_kept_as_they_are() -> None:
    assert instructions(["  Mind e.g. this! ", "", "And that."], ESTIMATE) == "Mind e.g. this!\nAnd that."


@pytest.mark.req("SKILL-10", "SKILL-11")
@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("src/app.py", "file://src/app.py"),
        ("/var/log/app.log", "file:///var/log/app.log"),
        ("a file#1.txt", "file://a%20file%231.txt"),
        ("file:///etc/hosts", "file:///etc/hosts"),
        ("https://example.invalid/a b", "https://example.invalid/a b"),
        ("arangodb://db/users", "arangodb://db/users"),
        ("urn:isbn:0451450523", "urn:isbn:0451450523"),
        ("C:\\logs\\app.log", "file:///C:/logs/app.log"),
        ("old.md", "file://old.md"),
        (" docs/\tx.md\n", "file://docs/x.md"),
        ("node_modules/@scope/a.js", "file://node_modules/@scope/a.js"),
        ("https://me:secret@example.invalid/@a?b@c", "https://example.invalid/@a?b@c"),
        ("postgres://admin@db:5432/users", "postgres://db:5432/users"),
        ("javascript:alert(1)", None),
        (" java\nScript:alert(1)", None),
        ("data:text/html,<script>alert(1)</script>", None),
        ("DATA:Text/HTML;charset=utf-8;base64,PHNjcmlwdD4=", None),
        ("da\tta: text/html ,<b>", None),
        ("data:image/svg+xml,<svg onload='x()'/>", None),
        ("data:text/javascript,x()", None),
        ("data:text/html", None),
        ("data:text/plain,the%20words", "data:text/plain,the%20words"),
        ("data:,the%20words", "data:,the%20words"),
        ("data:;base64,AAAA", "data:;base64,AAAA"),
        ("data:image/PNG;base64,AAAA", "data:image/PNG;base64,AAAA"),
        ("", None),
        (" \n", None),
        ("src/a:b", "file://src/a:b"),
    ],
)
def test_an_address_without_a_scheme_is_a_file(address: str, expected: str | None) -> None:
    assert uri(address) == expected


@pytest.mark.req("SKILL-10")
def test_what_is_no_address_is_no_resource() -> None:
    assert resources([("", "nothing", 5), ("javascript:alert(1)", "code", 90), ("a", "", 1)]) == (
        Resource("file://a", "", 1),
    )


@pytest.mark.req("SKILL-10", "SKILL-19")
def test_resources_are_sorted_by_priority_and_stand_once() -> None:
    rows = [("b", "why b", 5), ("a", "why a", 5), ("c", "less", 3), ("c", "more", 90), ("d", "", -4), ("e", "", 1000)]
    assert resources(rows) == (
        Resource("file://e", "", 100),
        Resource("file://c", "more", 90),
        Resource("file://a", "why a", 5),
        Resource("file://b", "why b", 5),
        Resource("file://d", "", 0),
    )


@pytest.mark.req("SKILL-10")
@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=3), st.integers(-200, 300)), max_size=8))
def test_the_order_of_resources_does_not_depend_on_how_they_were_found(rows: list[tuple[str, str, int]]) -> None:
    found = resources(rows)
    assert found == resources(rows[::-1])
    assert [one.priority for one in found] == sorted((one.priority for one in found), reverse=True)
    assert all(0 <= one.priority <= 100 for one in found)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Does it. Then more.", "Does it."),
        ("Does it\nwith care. Then more.", "Does it with care."),
        ("No full stop", "No full stop"),
        ("Version 1.2 of it. More.", "Version 1.2 of it."),
        ("First paragraph\n\nSecond.", "First paragraph"),
        ("Really? Yes.", "Really?"),
        ("Looks at logs, e.g. those of nginx. More.", "Looks at logs, e.g. those of nginx."),
        ("Sagt es. Äußerst knapp.", "Sagt es."),
        ("  \n Spaced   out. ", "Spaced out."),
        ("", ""),
        ("读取日志。然后比较。", "读取日志。"),
        ("「読みますか？」と書く。", "「読みますか？」"),
    ],
)
def test_one_line_is_the_first_sentence(text: str, line: str) -> None:
    assert one_line(text) == line


@pytest.mark.req("TOOL-06")
@given(st.text(max_size=200))
def test_one_line_has_no_line_break(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


@pytest.mark.req("SKILL-08")
def test_a_summary_is_the_first_paragraph_without_headings() -> None:
    content = "# Title\n\n---\n\nThe first\nparagraph. It counts.\n\nThe second.\n"
    assert summary(content) == "The first paragraph. It counts."
    assert summary("# Only\n\n## Headings\n") == ""
    assert summary("x" * 1000) == "x" * (MAX_SUMMARY_CHARACTERS - 1) + "…"
    assert summary("One sentence. " * 50).endswith("sentence.")


@given(st.text())
def test_a_summary_is_short(content: str) -> None:
    assert len(summary(content)) <= MAX_SUMMARY_CHARACTERS


# --- through the whole way -------------------------------------------------------------------------------------------

RULES = """
mandatory("t"). macro("t", "Does it."). macro_step("t", 1, "look").
needs_skill("t", "short"). needs_skill("t", "long").
"""


@pytest.mark.req("SKILL-05", "SKILL-06", "SKILL-07")
def test_a_short_skill_is_told_in_full_and_a_long_one_is_referred_to() -> None:
    skills = (skill("short", "Read all of it.\n"), skill("long", SENTENCE * 60))
    found = tools(pack(RULES, skills=skills))["t"]["context_injection"]["skills"]
    assert found == [
        {"skill_id": "long", "inline": False},
        {"skill_id": "short", "inline": True, "content": "Read all of it."},
    ]
    lowered = Disclosure(inline_skill_tokens=2)
    found = tools(pack(RULES, skills=skills, disclosure=lowered))["t"]["context_injection"]["skills"]
    assert [one["inline"] for one in found] == [False, False]
