"""``@facts``: what a host gives of a pass, piece by piece. Here without a host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from manglecp import Part, Progress, facts
from manglecp.toolhost.actions import served_function
from manglecp.toolhost.conversion import encode_value

Take = Callable[..., dict[str, Any]]


def taken(function: Callable[..., Any], name: str = "1", **settings: str) -> list[dict[str, Any]]:
    """All pieces of a pass, as they travel."""
    take: Take = served_function(function)
    pieces: list[dict[str, Any]] = []
    while not pieces or not pieces[-1]["over"]:
        text = encode_value(take(name, settings, None))
        assert len(json.dumps({"output_json": text}, ensure_ascii=False).encode()) < 1024 * 1024  # IPC-36
        pieces.append(json.loads(text))
    return pieces


def given(pieces: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The parts, put together again."""
    parts: dict[str, list[Any]] = {}
    for name, begins, rows in (part for piece in pieces for part in piece["parts"]):
        if begins:
            parts[name] = []
        parts[name] += rows
    return parts


def test_the_function_stays_what_it_was() -> None:
    @facts("p")
    def scan() -> Iterator[tuple[str, int]]:
        yield "p", 1

    assert list(scan()) == [("p", 1)]
    (piece,) = taken(scan)
    assert piece["parts"] == [["", True, [["p", 1]]]]
    assert piece["first"] is True


def test_only_the_first_pass_of_a_process_is_the_first() -> None:
    @facts("p")
    def scan() -> Iterator[Part]:
        yield Part("a", [("p", 1)])

    assert [taken(scan, name)[0]["first"] for name in "12"] == [True, False]
    first, second = taken(scan, "3")[0], taken(scan, "4")[0]
    assert first["process"] == second["process"]


@pytest.mark.parametrize("text", ["x" * 1_000, '"' * 1_000, "\\" * 1_000, "\n" * 1_000, "ü" * 1_000, "\x01" * 300])
def test_a_part_that_is_too_large_for_an_answer_comes_in_several(text: str) -> None:
    rows = [("p", number, text) for number in range(1_000)]

    @facts("p")
    def scan() -> Iterator[Part]:
        yield Part("before", [("p", 0)])
        yield Part("large", rows)
        yield Part("gone")

    pieces = taken(scan)
    assert len(pieces) > 1
    assert given(pieces) == {"before": [["p", 0]], "large": [list(row) for row in rows], "gone": []}


def test_a_part_that_comes_twice_is_the_last_one() -> None:
    @facts("p")
    def scan() -> Iterator[Part]:
        yield Part("a", [("p", 1)])
        yield Part("a", [("p", 2)])

    assert given(taken(scan)) == {"a": [["p", 2]]}


def test_facts_one_by_one_are_one_part() -> None:
    @facts("p")
    def scan() -> Iterator[tuple[str, int] | Part]:
        for number in range(1_000):
            yield "p", number
            if number == 500:
                yield Part("a", [("p", -1)])

    parts = given(taken(scan))
    assert parts == {"": [["p", number] for number in range(1_000)], "a": [["p", -1]]}


def test_a_pass_is_not_over_before_its_last_fact_is_given() -> None:
    @facts("p")
    def scan() -> Iterator[tuple[str, int, str]]:
        for number in range(10):
            yield "p", number, "x" * 150_000

    pieces = taken(scan)
    assert len(pieces) > 1
    assert [number for _, number, _ in given(pieces)[""]] == list(range(10))


def test_a_piece_does_not_wait_for_the_next_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("manglecp.toolhost.generator.time", SimpleNamespace(monotonic=lambda: now[0]))

    @facts("p")
    def scan() -> Iterator[tuple[str, int] | Progress]:
        for number in range(4):
            now[0] += 0.2
            yield "p", number
            yield Progress(number, 4)

    pieces = taken(scan)
    assert [[number for _, _, rows in piece["parts"] for _, number in rows] for piece in pieces] == [[0, 1], [2, 3], []]
    assert [piece["progress"] for piece in pieces] == [[0, 4, ""], [2, 4, ""], [3, 4, ""]]


def test_a_pass_that_is_given_up_is_forgotten() -> None:
    @facts("p")
    def scan() -> Iterator[Part]:
        yield Part("a", [("p", "x" * 200_000) for _ in range(10)])

    take: Take = served_function(scan)
    assert not take("1", {}, None)["over"]
    assert len(given(taken(scan, "2"))["a"]) == 10


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (str, "3", "3"),
        (int, "3", 3),
        (float, "3", 3.0),
        (bool, "True", True),
        (bool, "no", False),
        (Path, "/a", Path("/a")),
        (Path | None, "", None),
        (int | None, "3", 3),
        (Any, "3", "3"),
    ],
)
def test_settings_become_what_the_hint_says(hint: Any, text: str, value: object) -> None:
    got = []

    def scan(setting):  # type: ignore[no-untyped-def]
        got.append(setting)
        yield "p", 1

    scan.__annotations__["setting"] = hint
    taken(facts("p")(scan), setting=text)
    assert got == [value]


@pytest.mark.parametrize(("hint", "text"), [(int, "x"), (bool, "perhaps"), (float, "")])
def test_settings_that_are_something_else_are_refused(hint: Any, text: str) -> None:
    def scan(setting):  # type: ignore[no-untyped-def]
        yield "p", setting

    scan.__annotations__["setting"] = hint
    with pytest.raises(ValueError, match="the setting setting is"):
        taken(facts("p")(scan), setting=text)


def test_who_takes_a_cache_takes_none_too() -> None:
    @facts("p")
    def scan(cache: Path) -> Iterator[tuple[str, str]]:
        yield "p", str(cache)

    with pytest.raises(TypeError, match=r"annotate it as Path \| None"):
        taken(scan)


def test_a_text_with_a_backslash_is_a_text_and_half_a_character_is_none() -> None:
    @facts("p")
    def scan(text: str) -> Iterator[tuple[str, str]]:
        yield "p", text

    assert given(taken(scan, text="\\ud83d")) == {"": [["p", "\\ud83d"]]}
    with pytest.raises(ValueError, match="half a character"):
        taken(scan, "2", text="\ud83d")
