"""The check of prose finds avoided words in text, and skips code, links and quotations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import prose
from tools.prose import check_mangle, check_markdown, check_python


def words(found: object) -> list[tuple[int, str]]:
    assert isinstance(found, list)
    return [(line, word) for line, word, _ in sorted(found)]


def test_a_page() -> None:
    page = "# Title\n\nWhoever runs it,\nnobody else.\n"
    assert words(list(check_markdown(page))) == [(3, "Whoever"), (4, "nobody")]


@pytest.mark.parametrize(
    "page",
    [
        "Set `nobody` as the user.\n",
        "See [the page](docs/whoever.md).\n",
        "<!-- nobody\nreads this -->\n",
        "```sh\nsu nobody\n```\n",
        "1. Run\n\n   ```sh\n   su nobody\n   ```\n",
    ],
)
def test_code_links_and_comments_of_a_page_are_skipped(page: str) -> None:
    assert list(check_markdown(page)) == []


def test_lines_after_skipped_code_keep_their_numbers() -> None:
    assert words(list(check_markdown("```\na\nb\n```\nnobody\n"))) == [(5, "nobody")]


def test_docstrings_and_comments() -> None:
    module = '''"""A module.

It tells the caller.
"""

LIMIT = 3
"""What somebody may send."""


def call() -> None:
    """Return whatever the server said."""
    return  # nobody waits
'''
    assert words(list(check_python(module))) == [(3, "tells"), (7, "somebody"), (11, "said"), (12, "nobody")]


def test_messages() -> None:
    """A verb of speech is permitted in a message to people; an identifier is not a message."""
    module = 'raise ValueError(f"{name!r} is said to belong to whoever asks")\nuser = "nobody"\n'
    assert words(list(check_python(module))) == [(1, "whoever")]


def test_code_and_quotations_in_docstrings_are_skipped() -> None:
    module = '''"""Return ``nobody`` or `somebody`, and "told" as a quotation."""  # the user `nobody`\n'''
    assert list(check_python(module)) == []


def test_rules() -> None:
    rules = """# Whoever writes it.
Decl user(Name) descr [doc("What nobody says.")] bound [/string].
prohibited("tool", "said to be for \\"somebody\\" else") :- user("nobody").
"""
    assert words(list(check_mangle(rules))) == [(1, "Whoever"), (2, "nobody"), (2, "says"), (3, "somebody")]


@pytest.mark.parametrize("text", ["there is none", "none of them is", "which is none of these", "if the id is None"])
def test_none_as_a_pronoun_or_a_value_is_permitted(text: str) -> None:
    assert list(check_markdown(text)) == []


def test_none_as_a_negation_is_found() -> None:
    assert words(list(check_markdown("a word that is none"))) == [(1, "is none")]


def test_the_exit_status_and_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean, page = tmp_path / "clean.md", tmp_path / "page.md"
    clean.write_text("A caller.\n")
    page.write_text("\nSomebody.\n")
    assert prose.main([str(clean)]) == 0
    assert prose.main([str(clean), str(page)]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith(f"{page}:2: 'Somebody': ")
    assert "1 words to replace" in shown.err


def test_the_checked_files_exist() -> None:
    found = list(prose.files())
    assert all(path.is_file() for path in found)
    assert {path.suffix for path in found} == {".md", ".mg", ".py"}
