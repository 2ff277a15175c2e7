from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from manglecp.runner import Menu, MenuAction, Selection, SelectionKind, merge_patch, parse_selection
from manglecp.runner.log import canonical
from manglecp.runner.selection import MAX_SELECTION_LENGTH
from tests.effort import examples

MENU = Menu.of([MenuAction("AID.A.v1"), MenuAction("AID.B.v1")])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=5), parts, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), JSON, max_size=4)
SIDS = st.integers(0, 9999).map("SID{:04}".format)
PIECES = st.sampled_from(
    ["<PICK>", "<SID0001>", "<END>", "<INP>", "</INP>", "<INP64>", "</INP64>", "{}", "e30=", "e30", "<NOOP>",
     "<ASK_SUP>", " ", "\n", "[]",
     '{"a":1}', '{"a":1,"a":2}', "{", "\0", "\ud800", "９", "SID", "[" * 50, "NaN", '{"_x":{}}']
)  # fmt: skip


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.req("IPC-04", "IPC-05", "IPC-06", "IPC-07")
@pytest.mark.parametrize(
    ("raw", "strict", "compatible"),
    [
        ("<ASK_SUP><END>", SelectionKind.ASK_SUP, SelectionKind.ASK_SUP),
        (" \r\n<NOOP><END>\t", SelectionKind.NOOP, SelectionKind.NOOP),
        ("<noop><END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("<NOOP> <END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("", SelectionKind.INVALID, SelectionKind.INVALID),
        ("I pick <PICK><SID0001><END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("<PICK><SID0001><END>", SelectionKind.PICK, SelectionKind.PICK),
        ("<PICK><SID0001>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("<PICK><SID001><END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("<PICK><SID００01><END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("<PICK><SID0001>junk<END>", SelectionKind.INVALID, SelectionKind.PICK),
        ("<PICK><SID0001> <END>", SelectionKind.INVALID, SelectionKind.PICK),
        ("<PICK><SID0001><END><NOOP><END>", SelectionKind.INVALID, SelectionKind.PICK),
        ("<PICK><SID0001><PICK><SID0002><END>", SelectionKind.INVALID, SelectionKind.PICK),
        ('<PICK><SID0001><INP>{"a":1}</INP><END>', SelectionKind.PICK, SelectionKind.PICK),
        ('<PICK><SID0001><INP>{"a":1} x</INP><END>', SelectionKind.INVALID, SelectionKind.PICK),
        ("<PICK><SID0001><INP>{}</INP><INP>{}</INP><END>", SelectionKind.INVALID, SelectionKind.PICK),
        ("<PICK><SID0001><INP>{}</INP><INP64>e30=</INP64><END>", SelectionKind.INVALID, SelectionKind.PICK),
        ("<PICK><SID0001><INP>[]</INP><END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("<PICK><SID0001><INP>{'a':1}</INP><END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ('<PICK><SID0001><INP>{"a":1,"a":2}</INP><END>', SelectionKind.INVALID, SelectionKind.PICK),
        ("<PICK><SID0001><INP>{}</INP64><END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("<PICK><SID0001><INP>{}<END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("<PICK><SID0001><INP><END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("<PICK><SID0001><INP>{}</INP><INP64><END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ('<PICK><SID0001><INP>{"a":"</INP>"}</INP><END>', SelectionKind.PICK, SelectionKind.INVALID),
        ('<PICK><SID0001><INP>{"a":NaN}</INP><END>', SelectionKind.INVALID, SelectionKind.PICK),
        ("<PICK><SID0001><INP>{}</INP><INP64>!</INP64><END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("<PICK><SID0001><INP64>e30=</INP64><END>", SelectionKind.PICK, SelectionKind.PICK),
        ("<PICK><SID0001><INP64>e30</INP64><END>", SelectionKind.INVALID, SelectionKind.PICK),
        ("<PICK><SID0001><INP64>e 3 0=</INP64><END>", SelectionKind.INVALID, SelectionKind.PICK),
        ("<PICK><SID0001><INP64>_-8=</INP64><END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("<PICK><SID0001><INP64>/w==</INP64><END>", SelectionKind.INVALID, SelectionKind.INVALID),
        ("<PICK><SID0001><INP64>é</INP64><END>", SelectionKind.INVALID, SelectionKind.INVALID),
    ],
)  # fmt: skip
def test_the_table_of_the_grammar(raw: str, strict: SelectionKind, compatible: SelectionKind) -> None:
    for selection, kind in ((parse_selection(raw), strict), (parse_selection(raw, compatible=True), compatible)):
        assert (selection.kind, selection.raw) == (kind, raw)
        assert selection.sid == ("SID0001" if kind is SelectionKind.PICK else None)
        assert ("sid" in selection.members()) == (kind is SelectionKind.PICK)
        assert (selection.why != "") == (kind is SelectionKind.INVALID)


@pytest.mark.req("IPC-04", "IPC-06")
@given(SIDS, OBJECTS, st.booleans(), st.booleans())
def test_what_follows_the_grammar_is_read_as_it_was_meant(
    sid: str, patch: dict[str, object], b64: bool, loose: bool
) -> None:
    text = json.dumps(patch, ensure_ascii=False)
    if loose and "</INP>" in text:
        return
    inner = f"<INP64>{encoded(text)}</INP64>" if b64 else f"<INP>{text}</INP>"
    assert parse_selection(f"<PICK><{sid}>{inner}<END>", compatible=loose) == Selection(
        SelectionKind.PICK, f"<PICK><{sid}>{inner}<END>", sid, text
    )


@pytest.mark.req("IPC-06")
def test_a_text_in_the_patch_may_hold_the_closing_tag() -> None:
    selection = parse_selection('<PICK><SID0001><INP>{"a":"</INP><END>"}</INP><END>')
    assert selection.input_patch_json == '{"a":"</INP><END>"}'


@pytest.mark.req("IPC-06")
def test_the_compatible_reading_takes_inp64_first_and_drops_what_follows_the_object() -> None:
    raw = '<PICK><SID0001>a<INP>{"n":1}</INP>b<INP64>' + encoded('{"n":2} more') + "</INP64><END>"
    assert parse_selection(raw, compatible=True).input_patch_json == '{"n":2}'


@pytest.mark.req("IPC-04", "IPC-07")
@examples(400)
@given(st.lists(PIECES, max_size=12).map("".join) | st.text(), st.booleans())
@example("<PICK><SID0001><INP>" + "[" * 20_000 + "</INP><END>", False)
@example("<PICK><SID0001><INP>" + '{"a":' * 10_000 + "</INP><END>", True)
@example('<PICK><SID0001><INP>{"a":' + "9" * 6_000 + "}</INP><END>", True)
@example('<PICK><SID0001><INP>{"a":' + "9" * 6_000 + "}</INP><END>", False)
@example("x" * (MAX_SELECTION_LENGTH + 1), False)
def test_whatever_the_text_there_is_a_selection_that_can_be_written_down(raw: str, compatible: bool) -> None:
    selection = parse_selection(raw, compatible=compatible)
    assert selection.kind in SelectionKind
    assert Selection.read(json.loads(canonical(selection.members()))) == selection
    if parse_selection(raw).kind is not SelectionKind.INVALID and not compatible:
        assert parse_selection(raw, compatible=True).kind is selection.kind
    if selection.input_patch_json is not None and not compatible:
        assert isinstance(merge_patch({}, selection.input_patch_json).inputs, dict)


@pytest.mark.parametrize("piece", ["<INP64>", "<INP>", "<INP64></INP64", "<INP>{}</INP64>", "<END>"])
@pytest.mark.parametrize("compatible", [False, True])
def test_no_text_takes_long_to_read(piece: str, compatible: bool) -> None:
    raw = "<PICK><SID0001>" + piece * ((MAX_SELECTION_LENGTH - 20) // len(piece)) + "<END>"
    began = time.process_time()
    for _ in range(20):
        parse_selection(raw, compatible=compatible)
    assert time.process_time() - began < 10  # if it grew with the square of the length: a minute and more


@pytest.mark.req("IPC-05")
def test_a_pick_outside_the_menu_is_invalid() -> None:
    assert parse_selection("<PICK><SID0002><END>").restricted_to(MENU).kind is SelectionKind.PICK
    beyond = parse_selection("<PICK><SID0003><END>").restricted_to(MENU)
    assert (beyond.kind, beyond.sid, beyond.raw) == (SelectionKind.INVALID, None, "<PICK><SID0003><END>")
    assert parse_selection("<NOOP><END>").restricted_to(Menu.of([])).kind is SelectionKind.NOOP


@pytest.mark.req("IPC-05")
def test_only_a_pick_has_a_sid_and_a_patch() -> None:
    for kind, sid, patch in (
        (SelectionKind.NOOP, "SID0001", None),
        (SelectionKind.PICK, None, None),
        (SelectionKind.NOOP, None, "{}"),
    ):
        with pytest.raises(ValueError, match="PICK"):
            Selection(kind, "", sid, patch)


def test_a_text_that_is_not_unicode_is_kept_as_its_literal() -> None:
    assert parse_selection("<NOOP>\ud800").raw == "'<NOOP>\\ud800'"


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"kind": "PERHAPS", "raw": ""},
        {"kind": "PICK", "raw": ""},
        {"kind": "NOOP", "raw": 5},
        {"kind": "NOOP", "raw": "\ud800"},
        {"kind": "PICK", "raw": "", "sid": 5},
        {"kind": "PICK", "raw": "", "sid": "SID0001", "input_patch_json": {}},
    ],
)
def test_what_is_no_written_selection_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"selection|Kind|SID"):
        Selection.read(members)
