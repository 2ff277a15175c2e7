"""The log as a file: the same bytes again, everything that is wrong, and all or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import BytesIO

import pytest
from hypothesis import given, strategies as st

from manglecp.base.hash_chain import EMPTY
from manglecp.issues import IssueView
from manglecp.issues.integrity import MAX_LINE_BYTES, InvalidLog, audit, export_log, import_log
from manglecp.issues.model import Add, Close, IssueEvent, Update, encode_event
from tests.effort import examples
from tests.issues.conftest import Workbench
from tests.issues.test_transitions import close, link, refused, update
from tests.issues.turns import ready_for


@pytest.fixture
def other() -> Iterator[Workbench]:
    workbench = Workbench(":memory:")
    yield workbench
    workbench.store.close()


@pytest.fixture
def lines(bench: Workbench) -> list[bytes]:
    bench.add("a", "b")
    link(bench, "a", "b")
    update(bench, "b", Update(title="Größe 🌲", note="one\ntwo\ttabs \\"))
    close(bench, "b")
    bench.memory.claim("w1", "a")
    return list(export_log(bench.store))


def everything(view: IssueView) -> list[object]:
    return [view.head(), *view.list(), *(view.show(issue.id) for issue in view.list()), *view.history()]


def test_the_same_state_and_the_same_bytes(bench: Workbench, other: Workbench, lines: list[bytes]) -> None:
    head = import_log(other.store, lines)
    assert head == audit(other.store).head == audit(bench.store).head
    assert audit(other.store).problems == []
    assert list(export_log(other.store)) == lines
    with bench.memory.view() as was, other.memory.view() as now:
        assert everything(was) == everything(now)


def test_the_bytes_do_not_depend_on_the_run(lines: list[bytes]) -> None:
    first = json.loads(lines[0])
    assert list(first) == sorted(first)
    assert lines[0] == json.dumps(first, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def test_an_empty_log(bench: Workbench, other: Workbench) -> None:
    assert import_log(other.store, export_log(bench.store)).seq == 0


def test_evidence_stays_spent(bench: Workbench, other: Workbench) -> None:
    """An imported memory knows which turns have mutated."""
    bench.add("a")
    right = ready_for("issue.update", "a")
    witness = right.judgement.witness_id
    bench.memory.mutate(right, "kim", "a", Update(title="x"))
    import_log(other.store, export_log(bench.store))
    with other.store.read_transaction() as tables:
        assert tables.is_spent(witness, "another turn")


def test_only_into_an_empty_memory(other: Workbench, lines: list[bytes]) -> None:
    """Valid lines are refused as well: a non-empty memory would get changes without an authorisation."""
    import_log(other.store, lines[:3])
    for more in (lines, lines[3:]):
        with pytest.raises(InvalidLog) if more is not lines else refused("memory_not_empty"):
            import_log(other.store, more)
    assert other.events() == 3


def swapped(lines: list[bytes]) -> list[bytes]:
    return [lines[1], lines[0], *lines[2:]]


@pytest.mark.parametrize(
    ("damage", "problems"),
    [
        (lambda lines: [*lines[:1], b"\n", *lines[1:]], [(2, "not JSON")]),
        (lambda lines: [*lines[:-1], lines[-1][:-1]], [(6, "it does not end in a line feed")]),
        (
            lambda lines: [lines[0], b"x" * MAX_LINE_BYTES + b"\n", *lines[1:]],
            [(2, "it has more than 1,048,576 bytes")],
        ),
        (lambda lines: [b'"\xff"\n', *lines], [(1, "not UTF-8")]),
        (lambda lines: [b"[" * 100_000 + b"\n", *lines], [(1, "nested too deeply")]),
        (
            lambda lines: [lines[0].replace(b"{", b'{"seq":1,', 1), *lines[1:]],
            [(1, "an object has the key 'seq'")],
        ),
        (lambda lines: [lines[0].replace(b":", b": "), *lines[1:]], [(1, "not in canonical form")]),
        (
            lambda lines: [lines[0].replace(b"{", b'{"aa":1,', 1), *lines[1:]],
            [(1, "not an event: Object contains")],
        ),
        (
            lambda lines: [lines[0].replace(b"issue.add", b"issue.eat"), *lines[1:]],
            [(1, "not an event: Invalid")],
        ),
        (lambda lines: lines[1:], [(1, "seq does not follow"), (1, "prev_hash does")]),
        (lambda lines: [lines[0], lines[0], *lines[1:]], [(2, "issue a exists already")]),
        (
            lambda lines: [*lines[:3], *lines[4:]],
            [(4, "seq does"), (4, "prev_hash does"), (4, "mutation does")],
        ),
        (lambda lines: [*lines[:4], lines[4].replace(b"kim", b"tim"), lines[5]], [(5, "row_hash is not the hash")]),
        (swapped, [(1, "seq does"), (2, "seq does")]),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    other: Workbench,
    lines: list[bytes],
    damage: Callable[[list[bytes]], list[bytes]],
    problems: list[tuple[int, str]],
) -> None:
    with pytest.raises(InvalidLog) as caught:
        import_log(other.store, damage(lines))
    for line, text in problems:
        assert any(found == line and said.startswith(text) for found, said in caught.value.problems), caught.value
    assert other.events() == 0


def test_all_problems_are_said(other: Workbench, lines: list[bytes]) -> None:
    with pytest.raises(InvalidLog) as caught:
        import_log(other.store, [b"{\n", *lines[:1], b"[]\n"])
    assert [line for line, _ in caught.value.problems] == [1, 3]


def test_up_to_a_number(other: Workbench) -> None:
    with pytest.raises(InvalidLog) as caught:
        import_log(other.store, [b"{\n"] * 1_000)
    assert len(caught.value.problems) == 100


def test_a_log_that_closes_without_evidence(other: Workbench, bench: Workbench) -> None:
    """The chain is sound, the change is not."""
    bench.add("a")
    closed = IssueEvent.after(
        audit(bench.store).head, at="2026-01-31T12:00:00.000Z", actor="kim", issue="a", change=Close()
    ).with_authorisation(None)
    with pytest.raises(InvalidLog, match=r"^line 2: issue\.close needs a mutation and has none$"):
        import_log(other.store, [*export_log(bench.store), encode_event(closed) + b"\n"])


@pytest.mark.parametrize("at", ["now", "2026-01-31T12:00:00Z", "2026-02-31T12:00:00.000Z", "2026-01-31T12:00:00.000z"])
def test_instants(other: Workbench, bench: Workbench, at: str) -> None:
    bench.add("a")
    event = IssueEvent.after(EMPTY, at=at, actor="kim", issue="a", change=Add(title="x")).with_authorisation(None)
    with pytest.raises(InvalidLog, match="line 1: at: it is not an instant in UTC"):
        import_log(other.store, [encode_event(event) + b"\n"])


def test_nothing_of_the_text_is_repeated(other: Workbench, lines: list[bytes]) -> None:
    secret = b"hunter2-hunter2"
    for damaged in (
        lines[0].replace(b'"kim"', b'{"p":"' + secret + b'"}'),
        lines[0].replace(b"issue.add", secret),
        lines[0].replace(b"manglecp.issue_event.v1", secret),
        lines[0].replace(b'"do a"', b'"' + secret + b'\\n"'),
    ):
        with pytest.raises(InvalidLog) as caught:
            import_log(other.store, [damaged])
        assert secret.decode() not in str(caught.value)


@examples(150)
@given(st.data())
def test_no_edit_gets_in(data: st.DataObject) -> None:
    """An edited log is refused as invalid, unless its bytes are the same."""
    bench, other = Workbench(":memory:"), Workbench(":memory:")
    bench.add("a", "b")
    link(bench, "a", "b")
    bench.memory.claim("w1", "b")
    text = b"".join(export_log(bench.store))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    new = data.draw(st.binary(max_size=20) | st.sampled_from([text[start:end], b"\n", b'"', b"null", b"1e999"]))
    edited = text[:start] + new + text[end:]
    try:
        import_log(other.store, BytesIO(edited))
    except InvalidLog:
        assert other.events() == 0
    else:
        assert text.startswith(edited)  # whole lines that are missing at the end
        assert b"".join(export_log(other.store)) == edited
    bench.store.close()
    other.store.close()
