"""Case 19: output that is half, too long, noisy, binary or full of newlines. One call may be lost, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from manglecp.toolhost.dispatch.responses import MAX_OUTPUT, LineBuffer
from tests.adversarial._hosted import Hosted, hosting, value
from tests.toolhost.dispatch.hosts import error, pids_of


@pytest.mark.parametrize("what", ["stdout", "stderr"])
def test_noise_is_not_taken_for_an_answer(tmp_path: Path, what: str) -> None:
    async def work(hosted: Hosted) -> None:
        for _ in range(3):
            assert value(await hosted.call("shout", what=what, size=2_000_000)) == what
            assert value(await hosted.call("look", text="next")) == "next"
        assert len(set(pids_of(hosted.pool))) == 1

    hosting(work, tmp_path)


def test_who_finds_the_descriptor_of_the_answers_loses_his_own_call(tmp_path: Path) -> None:
    async def work(hosted: Hosted) -> None:
        kind, code = error(await hosted.call("shout", what="everywhere"))
        assert (kind, code) == ("parse_error", "outcome_unknown")
        assert value(await hosted.call("look", text="next")) == "next"

    hosting(work, tmp_path)


def test_a_mebibyte_is_an_answer_and_more_is_an_error_that_says_so(tmp_path: Path) -> None:
    async def work(hosted: Hosted) -> None:
        assert len(value(await hosted.call("shout", what="much", size=1_000_000))) == 1_000_000
        for size in (MAX_OUTPUT, 50_000_000):
            result = await hosted.call("shout", what="much", size=size)
            assert error(result) == ("parse_error", "oversize")
            assert isinstance(result, dict)
            assert "1048576" in result["detail"]
            assert len(result["detail"]) < 1_000
        assert value(await hosted.call("look", text="next")) == "next"

    hosting(work, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "a\nb",
        "a\r\nb\r",
        "\n" * 1000,
        "\x00\x01\x1b[2J\x7f",
        "\u2028\u2029\u0085\ufeff",
        '"}\n{"ok":true}',
        "\U0001f600é",
    ],
)
def test_what_an_action_says_arrives_as_it_was_said(tmp_path: Path, text: str) -> None:
    async def work(hosted: Hosted) -> None:
        assert value(await hosted.call("look", text=text)) == text
        assert value(await hosted.call("look", text="next")) == "next"

    hosting(work, tmp_path)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_pieces_of_any_size_are_the_same_lines(size: int) -> None:
    stream = b'{"a":1}\r\n\n' + b"x" * 100 + b"\n\xff\xfe\nhalf"
    lines = LineBuffer(100)
    found = [line for start in range(0, len(stream), size) for line in lines.feed(stream[start : start + size])]
    assert found == [b'{"a":1}\r', b"", b"x" * 100, b"\xff\xfe"]
    assert (lines.partial, lines.overflowed) == (b"half", False)
    lines.feed(b"y" * 97)
    assert lines.overflowed
    assert lines.feed(b"\nlater\n") == [], "what follows cannot be told from the tail"
