from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.runner import Menu, MenuAction, RunRequest, matches_pattern
from manglecp.runner.log import RunnerError
from manglecp.runner.selection import MAX_ENTRIES, MenuEntry

READ = MenuAction("AID.FILE.READ.v1", tags=frozenset({"tag.file", "tag.meta"}))
NOOP = MenuAction("AID.NOOP.v1", tags=frozenset({"tag.meta"}))
SHELL = MenuAction("AID.SHELL.EXEC.v1", tags=frozenset({"tag.shell"}))


@given(st.permutations([READ, NOOP, SHELL, NOOP]))
def test_the_same_actions_make_the_same_menu(offers: list[MenuAction]) -> None:
    menu = Menu.of(offers)
    assert [(one.sid, one.action) for one in menu.entries] == [("SID0001", READ), ("SID0002", NOOP), ("SID0003", SHELL)]


def test_the_digest_is_that_of_upstream() -> None:
    text = "SID0001=AID.FILE.READ.v1:tag.file,tag.meta|SID0002=AID.NOOP.v1:tag.meta"
    assert Menu.of([NOOP, READ]).digest == hashlib.sha256(text.encode()).hexdigest()
    assert Menu.of([]).digest == hashlib.sha256(b"").hexdigest()


def test_a_filter_does_not_renumber() -> None:
    menu = Menu.of([READ, NOOP, SHELL]).with_tags(["tag.file", "tag.shell"])
    assert [one.sid for one in menu.entries] == ["SID0001", "SID0003"]
    assert menu.get("SID0002") is None


def test_a_pattern_is_an_action_id_or_the_beginning_of_some() -> None:
    patterns = ("AID.FILE.*", "AID.SHELL.EXEC.v1")
    assert [matches_pattern(each.aid, patterns) for each in (READ, NOOP, SHELL)] == [True, False, True]
    assert not matches_pattern("AID.SHELL.EXEC.v10", patterns)
    assert not matches_pattern(READ.aid, ())


def test_a_request_names_tags_and_gets_the_meta_actions_too() -> None:
    menu = RunRequest("goal.x.v1", candidate_tags=("tag.shell",)).menu([MenuAction("AID.A.v1"), NOOP, SHELL])
    assert [one.action for one in menu.entries] == [NOOP, SHELL]


def test_two_actions_of_one_name_are_an_error() -> None:
    with pytest.raises(RunnerError):
        Menu.of([READ, MenuAction(READ.aid)])


def test_no_more_entries_than_can_be_picked() -> None:
    offers = [MenuAction(f"AID.X{n:05}.v1") for n in range(MAX_ENTRIES + 1)]
    assert Menu.of(offers[:-1]).entries[-1].sid == "SID9999"
    with pytest.raises(RunnerError):
        Menu.of(offers)


@pytest.mark.parametrize(
    ("aid", "tag"), [("", "t"), ("AID|X", "t"), ("AID:X", "t"), ("A B", "t"), ("A", "a,b"), ("A", "")]
)
def test_names_cannot_forge_a_digest(aid: str, tag: str) -> None:
    with pytest.raises(RunnerError):
        MenuAction(aid, tags=frozenset({tag}))


def test_a_menu_is_read_as_it_was_written() -> None:
    menu = Menu.of([READ, MenuAction("AID.Y.v1", "why", deterministic=True)])
    assert Menu.read(menu.members()) == menu


def test_a_policy_reads_the_schema_and_the_log_does_not_repeat_it() -> None:
    (entry,) = Menu.of([MenuAction("AID.Y.v1", inputs_schema={"type": "object"})]).entries
    assert entry.describe() == {**entry.members(), "inputs_schema": {"type": "object"}}
    assert "inputs_schema" not in entry.members()


def test_an_offer_is_small() -> None:
    for name, tags in (("x" * 257, 1), ("", 65)):
        with pytest.raises(RunnerError):
            MenuAction("AID.Y.v1", name, frozenset(f"t{n}" for n in range(tags)))


@pytest.mark.parametrize(
    "entries", [[{}], [1], [{"sid": "X", "aid": "A", "name": "", "tags": [], "deterministic": True}]]
)
def test_what_is_no_menu_is_refused(entries: list[Any]) -> None:
    with pytest.raises(RunnerError):
        Menu.read(entries)
    with pytest.raises(RunnerError):
        Menu((MenuEntry("SID0001", READ), MenuEntry("SID0002", READ)))
