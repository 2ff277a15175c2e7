from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from manglecp.mangle import ParseError
from manglecp.pack.factfiles import FactFile, FileLimits, read_facts
from tests.pack.factfiles.conftest import PROGRAM, Read, Wrong

CALL = {"pred": "calls", "named_args": {"line": 1, "caller": "a", "callee_name": "b"}}
SIMPLE = """\
3
calls 3 2
ready 0 1
kinds 6 1
"a"
"x \\" y"
"b"
"c"
7
-8
/a%2Fb
3
fn:time:parse_rfc3339("2026-01-01T00:00:00Z")
fn:duration:parse("1s")
b"\\xff"
/true
"""
SIMPLE_FACTS = [
    'calls("a","b",7)',
    'calls("x \\" y","c",-8)',
    "ready()",
    'kinds(/a/b,3.0,fn:time:parse_rfc3339("2026-01-01T00:00:00Z"),fn:duration:parse("1s"),b"\\xff",/true)',
]


# --- JSON lines ------------------------------------------------------------------------------------------------------


def test_json_lines(read: Read) -> None:
    state = {"pred": "state", "args": ["a", "/up"], "t": {"at": "2026-01-01T00:00:00Z"}}
    text = f"{json.dumps(CALL)}\r\n\n{json.dumps(state)}"
    assert read("any.jsonl", text) == ['calls("a","b",1)', 'state("a",/up)@[2026-01-01T00:00:00Z]']


def test_errors_of_json_lines(wrong: Wrong) -> None:
    lines = [
        '{"pred": "calls", "args": ["a", "b", 1.5]}',
        json.dumps(CALL),
        "{",
        '{"pred": "ready", "args": [], "args": []}',
        '{"pred": "owner", "args": ["a", "/user/b"]}',
    ]
    assert wrong("a.jsonl", "\n".join(lines)) == [
        ("1:1", "$.args[2]: 1.5 is not a whole number"),
        ("3:1", "not JSON: Input data was truncated"),
        ("4:1", "an object has the key 'args' twice"),
        ("5:1", "$.args[1]: argument team of owner takes /team, not the name '/user/b'"),
    ]
    assert wrong("a.jsonl", json.dumps(CALL), line=20) == [("1:1", "a line of more than 20 characters")]


# --- simplecolumn ----------------------------------------------------------------------------------------------------


def test_simplecolumn(read: Read) -> None:
    assert read("a.sc", SIMPLE) == SIMPLE_FACTS
    assert read("a.sc.gz", gzip.compress(SIMPLE.encode(), mtime=0)) == SIMPLE_FACTS
    assert read("none.sc", "1\nready 0 0\n") == read("none.sc", "0\n") == []


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "1:1", "the file ends 1 lines too early"),
        ("x\n", "1:1", "'x' is not a number of predicates"),
        ("65537\n", "1:1", "'65537' is not a number of predicates"),
        ("1\ncalls three 1\n", "2:1", "'calls three 1' does not announce a predicate"),
        ("1\ncalls 1025 1\n", "2:1", "'calls 1025 1' does not announce a predicate"),
        ("1\ncalls 2 1\n", "2:1", "calls takes 3 arguments, not 2"),
        ("1\ncallz 2 1\n", "2:1", "unknown predicate callz"),
        ("1\nloose 2 1\n", "2:1", "the file ends 1 lines too early"),
        ('1\nloose 2 1\n"a"\n"b"\n"c"\n', "4:1", "more lines than the header announces"),
        ("1\nloose 2 1\nX\n1\n", "3:1", "argument 1: a fact has no variables, found X"),
        ("1\nloose 2 1\n\n1\n", "3:1", "argument 1: a term is needed here"),
        ("1\nloose 2 1\n/%zz\n1\n", "3:1", "argument 1: '/%zz' is not percent-encoded"),
        ("1\nloose 2 1\n/%ff\n1\n", "3:1", "argument 1: '/%ff' is not percent-encoded"),
        ("1\nloose 2 1\n/%20\n1\n", "3:1", "argument 1: '/ ' is not a name"),
        ('1\ncalls 3 1\n"a"\n"b"\n"c"\n', "5:1", "argument line: argument line of calls takes /number"),
        ("1\nloose 2 4000000000\n", "2:1", "more than 20,000,000 facts"),
    ],
)
def test_damaged_simplecolumn(wrong: Wrong, text: str, place: str, message: str) -> None:
    ((found_place, found),) = wrong("a.sc", text)
    assert found.startswith(message)
    assert found_place == place


def test_long_lines_are_refused(wrong: Wrong) -> None:
    text = f'1\nloose 2 1\n"{"a" * 50}"\n1\n'
    assert wrong("a.sc", text, line=40) == [("3:1", "a line of more than 40 characters")]


def test_all_errors_of_a_column(wrong: Wrong) -> None:
    found = wrong("a.sc", "1\nloose 2 3\nX\n1\nY\n1\n1\n1\n")
    assert [place for place, _ in found] == ["3:1", "5:1"]


# --- Mangle text -----------------------------------------------------------------------------------------------------


def test_mangle_text(read: Read) -> None:
    text = 'calls("a", "b", fn:plus(1, 1)). state("a", /up)@[2026-01-01, _]. ready().'
    assert read("a.mg", text) == ['calls("a","b",2)', 'state("a",/up)@[2026-01-01T00:00:00Z, _]', "ready()"]


def test_errors_of_mangle_text(wrong: Wrong) -> None:
    text = 'calls("a", "b", 1).\ncalls("a", "b", "c"). calls(1).\nnothing(1).\nready()@[2026-01-01].\nowner("a", /b).'
    assert wrong("a.mg", text) == [
        ("2:1", "argument line of calls takes /number, not the string '\"c\"'"),
        ("2:23", "calls takes 3 arguments, not 1"),
        ("3:1", "unknown predicate nothing"),
        ("4:1", "ready is not temporal"),
        ("5:1", "argument team of owner takes /team, not the name '/b'"),
    ]
    assert wrong("a.mg", "p(X).")[0] == ("1:1", "a fact has no variables, found X")


def test_bounds_need_not_be_compared(read: Read) -> None:
    assert read("a.mg", 'owner("a", /b).', check=False) == ['owner("a",/b)']
    assert read("a.jsonl", '{"pred": "owner", "args": ["a", "/b"]}', check=False) == ['owner("a",/b)']
    assert read("a.sc", '1\nowner 2 1\n"a"\n/b\n', check=False) == ['owner("a",/b)']


# --- files and limits ------------------------------------------------------------------------------------------------


def test_several_files_are_one_list(tmp_path: Path) -> None:
    (tmp_path / "a.mg").write_text("ready().")
    (tmp_path / "loose.csv").write_text("x,y\n1,2\n")
    files = [FactFile(tmp_path / "a.mg"), FactFile(tmp_path / "loose.csv")]
    assert [fact.text for fact in read_facts(files, PROGRAM)] == ["ready()", 'loose("1","2")']
    with pytest.raises(ParseError, match="more than 0 facts"):
        read_facts(files, PROGRAM, limits=FileLimits(facts=1))
    read_facts(files, PROGRAM, limits=FileLimits(facts=2))


def test_the_errors_of_all_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.mg").write_text("p(X).")
    (tmp_path / "loose.csv").write_text("x\n")
    with pytest.raises(ParseError) as refused:
        read_facts([FactFile(tmp_path / "a.mg"), FactFile(tmp_path / "loose.csv")], PROGRAM)
    assert len(refused.value.diagnostics) == 2


def test_other_names_are_no_fact_files(wrong: Wrong) -> None:
    for name in ("facts.txt", "facts", "facts.csv.zst", "facts.gz"):
        ((_, message),) = wrong(name, "")
        assert message.endswith("the name is not that of a fact file")


@pytest.mark.parametrize("name", ["loose.csv", "a.mg", "a.jsonl", "a.sc"])
def test_limits_of_size(wrong: Wrong, read: Read, name: str) -> None:
    texts = {
        "loose.csv": "x,y\n1,2\n3,4\n",
        "a.mg": "loose(1, 2). loose(3, 4).",
        "a.jsonl": '{"pred": "loose", "args": [1, 2]}\n{"pred": "loose", "args": [3, 4]}\n',
        "a.sc": "1\nloose 2 2\n1\n2\n3\n4\n",
    }
    text = texts[name]
    assert len(read(name, text, limits=FileLimits(facts=2, bytes=len(text)))) == 2
    assert wrong(name, text, facts=1)[0][1] == "more than 1 facts"
    assert wrong(name, text, bytes=len(text) - 1)[0][1].endswith(f"more than {len(text) - 1} bytes")


def test_what_unpacks_to_too_much_is_refused(wrong: Wrong) -> None:
    bomb = gzip.compress(b"x,y\n" + b"1,2\n" * 1_000_000, mtime=0)
    ((_, message),) = wrong("loose.csv.gz", bomb, bytes=10_000)
    assert message.endswith("more than 10,000 bytes")


@pytest.mark.parametrize(
    "data",
    [b"", b"plain", gzip.compress(b"x,y\n1,2\n", mtime=0)[:-9], gzip.compress(b"x", mtime=0)[:12] + b"zz" * 9],
    ids=["empty", "plain", "cut", "broken"],
)
def test_damaged_gzip(wrong: Wrong, data: bytes) -> None:
    ((_, message),) = wrong("loose.csv.gz", data)
    assert "not a gzip file, or a damaged one" in message or "the file is empty" in message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_facts([FactFile(tmp_path / "a.mg")], PROGRAM)
