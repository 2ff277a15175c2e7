from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from manglecp.mangle import ParseError
from manglecp.pack.factfiles import FactFile, read_facts, tables
from tests.pack.factfiles.conftest import PROGRAM, Read, Wrong


def test_columns_are_arguments_in_any_order(read: Read) -> None:
    assert read("calls.csv", "line,caller,callee_name\n7,main,init\n") == ['calls("main","init",7)']


def test_each_cell_is_read_by_its_bound(read: Read) -> None:
    text = "name,float,time,span,data,flag\n/a/b,2,2026-01-01T00:00:00Z,1h,AQI=,true\n/c,-1e3,0,250,,/false\n"
    assert read("kinds.csv", text) == [
        'kinds(/a/b,2.0,fn:time:parse_rfc3339("2026-01-01T00:00:00Z"),fn:duration:parse("1h0m0s"),b"\x01\x02",/true)',
        'kinds(/c,-1000.0,fn:time:parse_rfc3339("1970-01-01T00:00:00Z"),fn:duration:parse("250ms"),b"",/false)',
    ]


def test_where_several_kinds_are_declared_cells_are_literals(read: Read) -> None:
    assert read("mixed.csv", 'value\n42\n"""42"""\n') == ["mixed(42)", 'mixed("42")']
    assert read("nested.csv", 'items,point\n"[1, 2]",{/x : 3}\n') == ["nested([1, 2],{/x : 3})"]


def test_a_temporal_predicate_may_have_time_columns(read: Read) -> None:
    text = "service,level,@start,@end\na,/up,2026-01-01T00:00:00Z,\nb,/up,_,1000\nc,/down,,\n"
    assert read("state.csv", text) == [
        'state("a",/up)@[2026-01-01T00:00:00Z, _]',
        'state("b",/up)@[_, 1970-01-01T00:00:01Z]',
        'state("c",/down)',
    ]
    assert read("state.csv", "@at,service,level\n0,a,/up\n") == ['state("a",/up)@[1970-01-01T00:00:00Z]']


def test_without_names_columns_count_in_order(read: Read) -> None:
    assert read("loose.csv", "whatever,you like\n1,2\n") == ['loose("1","2")']
    assert read("unnamed.csv", "x,y\n1,2\n") == ['unnamed("1",2)']


def test_the_predicate_comes_from_the_name_or_is_given(read: Read) -> None:
    assert read("zoo.bird.csv", "name\nowl\n") == ['zoo.bird("owl")']
    assert read("export-7.csv", "name\nowl\n", "zoo.bird") == ['zoo.bird("owl")']
    assert read("twice.csv", "b,a\n1,2\n") == ['twice("2","1")']
    assert read("twice.csv", "a\n1\n") == ['twice("1")']


def test_quotes_line_ends_and_marks(read: Read) -> None:
    text = '\ufeff\r\ncaller,callee_name,line\r\n"a,""b""","two\nlines",1\r\n\r\n  c ,,2\r\n'
    assert read("calls.csv", text) == ['calls("a,\\"b\\"","two\\nlines",1)', 'calls("  c ","",2)']


def test_only_line_feeds_end_lines(read: Read) -> None:
    assert read("zoo.bird.csv", "name\na\u2028b\x0bc\x85d\n") == ['zoo.bird("a\u2028b\\x0bc\x85d")']


def test_every_error_of_a_file_with_its_cell(wrong: Wrong) -> None:
    text = 'caller,callee_name,line\na,b,1\na,b,one\n"multi\nline","x, y",2.5\na,b\n\na,b,99999999999999999999\n'
    assert wrong("calls.csv", text) == [
        ("3:5", "column line: 'one' is not a whole number"),
        ("5:14", "column line: '2.5' is not a whole number"),
        ("6:1", "2 cells in this row"),
        ("8:5", "column line: '99999999999999999999' does not fit into 64 bits"),
    ]


def test_the_place_is_marked(read: Read) -> None:
    with pytest.raises(ParseError) as refused:
        read("owner.csv", "service,team\nshop,/user/a\n")
    _, line, carets, fix = [*refused.value.render().splitlines(), ""]
    assert line == "  2 | shop,/user/a"
    assert carets == "    |      ^^^^^^^"
    assert fix == ""
    assert (
        refused.value.diagnostics[0].message
        == "column team: argument team of owner takes /team, not the name '/user/a'"
    )


def test_what_is_no_csv_comes_after_the_errors_before_it(wrong: Wrong) -> None:
    assert wrong("calls.csv", 'caller,callee_name,line\na,b,one\na,b,2\n"a"b,c,1\na,b,three\n') == [
        ("2:5", "column line: 'one' is not a whole number"),
        ("4:1", "not CSV: ',' expected after '\"'"),
    ]


def test_two_errors_in_one_row_are_two_errors(wrong: Wrong) -> None:
    found = wrong("state.csv", "service,level,@start,@end\na,up,10,5\n")
    assert [place for place, _ in found] == ["2:3", "2:6"]
    assert found[1][1] == "column @start: the interval ends before it starts"


def test_errors_are_capped(wrong: Wrong) -> None:
    text = "caller,callee_name,line\n" + "a,b,c\n" * 50
    assert len(wrong("calls.csv", text)) == 20
    assert len(wrong("calls.csv", text, errors=3)) == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("calls.csv", "", "the file is empty"),
        ("calls.csv", "\n\n", "the file is empty"),
        ("calls.csv", "caller,callee,line\n", "calls needs the column 'callee_name'"),
        ("calls.csv", "caller,callee_name,line,extra\n", "calls has no argument 'extra'"),
        ("calls.csv", "line,line,line\n", "two columns are called 'line'"),
        ("calls.csv", "caller,callee_name,line,@at\n", "calls is not temporal, but has the column @at"),
        ("state.csv", "service,level,@start\n", "@start do not make an interval"),
        ("loose.csv", "a\n", "loose takes 2 columns, not 1"),
        ("callz.csv", "a\n", "unknown predicate callz"),
        ("calls.csv", 'caller,callee_name,line\n"a"b,c,1\n', "not CSV: ',' expected after '\"'"),
        ("calls.csv", 'caller,callee_name,line\n"a,c,1\n', "not CSV: unexpected end of data"),
        ("calls.csv", "caller,callee_name,line\na,b\rc,1\n", "not CSV: new-line character seen in unquoted field"),
        ("calls.csv", f"caller,callee_name,line\n{'a' * 200_000},b,1\n", "not CSV: a cell has more than 131,072"),
        ("calls.csv", b"caller\xff", "not UTF-8: byte 0xff"),
    ],
)
def test_files_that_are_refused(wrong: Wrong, name: str, text: str | bytes, message: str) -> None:
    ((_, found),) = wrong(name, text)
    assert found.startswith(message)


def test_bounds_need_not_be_compared(read: Read) -> None:
    assert read("owner.csv", "service,team\nshop,/user/a\n", check=False) == ['owner("shop",/user/a)']


_cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=5)


@given(st.lists(st.tuples(_cells, _cells), max_size=5))
def test_what_csv_writes_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerows([("x", "y"), *rows])
    path: Path = tmp_path_factory.mktemp("t") / "loose.csv"
    path.write_bytes(text.getvalue().encode())
    assert [fact.args for fact in read_facts([FactFile(path)], PROGRAM)] == rows


def test_blocks_do_not_show(read: Read) -> None:
    """More rows than are taken at once, with an error far from the start."""
    rows = [f"f{i % 7},g{i},{i}" for i in range(25_000)]
    text = "\n".join(["caller,callee_name,line", *rows]) + "\n"
    facts = read("calls.csv", text)
    assert len(facts) == 25_000
    assert facts[-1] == 'calls("f2","g24999",24999)'
    with pytest.raises(ParseError, match=r"calls.csv:25002:1: 1 cell in this row"):
        read("calls.csv", text + "x\n")


def test_what_is_remembered_is_bounded(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of keys repeats nothing; forgetting what was read changes nothing."""
    monkeypatch.setattr(tables, "MAX_CACHED", 10)
    rows = [f"f{i},g{i % 3},{i}" for i in range(300)]
    facts = read("calls.csv", "\n".join(["caller,callee_name,line", *rows]))
    assert facts == [f'calls("f{i}","g{i % 3}",{i})' for i in range(300)]
    column: tables.CellCache[int] = tables.CellCache(int)
    assert [column[str(i)] for i in range(300)] == list(range(300))
    assert len(column) <= 11
