"""External predicates of a pack: declared in Python, asked by rules, answered by a host that is locked in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from manglecp import external
from manglecp.mangle import EvalError, External, Float, List, Name, Program, Source, Time, ValueFault
from manglecp.pack import Pack, PackError, SandboxPolicy, read_pack
from manglecp.toolhost.actions import served_function
from manglecp.toolhost.external_hosts import BATCH, serve_externals

DECL = """Decl similar(Text, Count, Id) descr [external(), mode("+", "+", "-")] bound [/string, /number, /string].
Decl kin(A, B) descr [external(), mode("+", "-")] bound [/name, /name].
Decl when(A, B) descr [external(), mode("+", "-")] bound [/time, /float64].
"""
RULES = """
seen("disk full").
seen("out of memory").
hit(T, I) :- seen(T), similar(T, 2, I).
"""
SOURCE = '''
import os, sys, time
from manglecp import external


@external("similar(Text, Count, Id)", mode="++-", deterministic=False, seconds=30)
def similar(text, count):
    """Texts that are alike."""
    return [f"{text} {number}" for number in range(count)]


@external("kin(A, B)", mode="+-", batch=True, seconds=30)
def kin(questions):
    return [[(a + "/child",)] for (a,) in questions]


@external("when(A, B)", mode="+-", seconds=30)
def when(at):
    assert at == "2026-01-31T12:00:00Z", at
    yield (2,)


@external("anything(A, B)", mode="+-", seconds=30)
def anything(a):
    yield (a,)


@external("process(A)", mode="-", seconds=30)
def process():
    yield (os.getpid(),)


@external("slow(A)", mode="+", seconds=1)
def slow(a):
    if a == "slow":
        time.sleep(3_600)
    yield ()


@external("broken(A, B)", mode="+-", seconds=30)
def broken(a):
    if a == "raise":
        raise ValueError("hunter2")
    if a == "die":
        os._exit(3)
    if a == "long":
        return [(1, 2)]
    if a == "write":
        open(os.path.join(os.path.dirname(__file__), "mark"), "w")
    return [({"_type": "none"},)]
'''


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    folder = tmp_path_factory.mktemp("packs") / "work"
    (folder / "rules").mkdir(parents=True)
    (folder / "rules/a.mg").write_text(DECL + RULES)
    (folder / "externals.py").write_text(SOURCE)
    return read_pack(folder)


@pytest.fixture(scope="module")
def served(pack: Pack) -> Iterator[dict[str, External]]:
    with serve_externals(pack) as externals:
        yield dict(externals)


def test_rules_ask_a_host(pack: Pack, served: dict[str, External]) -> None:
    program = Program.load(pack.sources)
    asked = {name: served[name] for name in ("similar", "kin", "when")}
    result = program.base([], externals=asked).evaluate([], now=0)
    assert result.query("hit(T, I)") == [
        'hit("disk full","disk full 0")',
        'hit("disk full","disk full 1")',
        'hit("out of memory","out of memory 0")',
        'hit("out of memory","out of memory 1")',
    ]


def test_values_have_the_form_that_their_declaration_gives(served: dict[str, External]) -> None:
    assert served["kin"].answer([(Name("/a"),), (Name("/b"),)]) == [[(Name("/a/child"),)], [(Name("/b/child"),)]]
    assert served["when"].answer([(Time(1_769_860_800_000_000_000),)]) == [[(Float(2.0),)]]


@pytest.mark.parametrize("value", ["x", 3, 2**60, Float(1.0), Name("/a/b"), List(("a", 1)), Time(5)])
def test_any_value_comes_back_as_it_went(served: dict[str, External], value: object) -> None:
    assert served["anything"].answer([(value,)]) == [[(value,)]]


def test_hosts_are_other_processes_and_stay_warm(pack: Pack) -> None:
    with serve_externals(pack, size=1) as externals:
        pids = {externals["process"].answer([()])[0][0] for _ in range(5)}  # type: ignore[index]
    assert len(pids) == 1


def test_many_questions_are_answered_in_order(served: dict[str, External]) -> None:
    questions = [(f"q{number}", 1) for number in range(2 * BATCH + 1)]
    assert served["similar"].answer(questions) == [[(f"{text} 0",)] for text, _ in questions]
    assert served["similar"].answer([]) == []


def test_several_threads_may_ask(served: dict[str, External]) -> None:
    gate = threading.Barrier(8)

    def ask(number: int) -> object:
        gate.wait(60)
        return served["similar"].answer([(str(number), 1)])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [[[(f"{number} 0",)]] for number in range(8)]


@pytest.mark.parametrize(
    ("value", "about"),
    [
        ("raise", "external predicate broken failed: TOOL_ERROR"),
        ("die", "external predicate broken failed: crash"),
        ("long", "external predicate broken failed: TOOL_ERROR"),
        ("write", "external predicate broken failed: TOOL_ERROR"),
        ("odd", 'external predicate broken got a value without a JSON form: an object with "_type" wraps a value'),
    ],
)
def test_a_failure_is_told_without_what_it_says(pack: Pack, value: str, about: str) -> None:
    with serve_externals(pack, size=1) as externals:
        with pytest.raises(ValueFault) as caught:
            externals["broken"].answer([(value,)])
        assert str(caught.value) == about
        assert externals["similar"].answer([("after", 1)]) == [[("after 0",)]]  # its neighbours go on
    assert not (Path(pack.folder) / "mark").exists()


@pytest.mark.parametrize("profile", ["none", "standard", "spawn"])
def test_a_pack_does_not_open_its_own_lock(tmp_path: Path, profile: str) -> None:
    folder, outside = tmp_path / "work", tmp_path / "secret"
    outside.write_text("hunter2")
    (folder / "rules").mkdir(parents=True)
    (folder / "rules/a.mg").write_text("p(1).")
    (folder / "pack.toml").write_text(f'[sandbox]\nprofile = "{profile}"\n')
    (folder / "externals.py").write_text(
        "from manglecp import external\n"
        '@external("content(Path, Text)", mode="+-", seconds=30)\n'
        "def content(path):\n    return [open(path).read()]\n"
    )
    opened = read_pack(folder)
    assert [f"sandbox.profile: {profile}" in warning.message for warning in opened.warnings] == [True]
    with serve_externals(opened, size=1) as externals, pytest.raises(ValueFault, match="content failed"):
        externals["content"].answer([(str(outside),)])
    if profile == "none":
        with serve_externals(opened, size=1, sandbox=SandboxPolicy(allow_weaker=True)) as externals:
            assert externals["content"].answer([(str(outside),)]) == [[("hunter2",)]]


def test_a_late_answer_is_an_error_and_the_next_one_is_not(pack: Pack) -> None:
    with serve_externals(pack, size=1) as externals:
        with pytest.raises(ValueFault, match="external predicate slow did not answer within 1 s"):
            externals["slow"].answer([("slow",)])
        assert externals["similar"].answer([("a", 1)]) == [[("a 0",)]]


def test_an_evaluation_says_which_predicate_failed(served: dict[str, External]) -> None:
    text = 'Decl broken(A, B) descr [external(), mode("+", "-")] bound [/string, /string].\n'
    program = Program.load([Source("p.mg", text + 'p(X) :- broken("raise", X).\n')])
    with pytest.raises(EvalError, match="external predicate broken failed"):
        program.base([], externals={"broken": served["broken"]}).evaluate([], now=0)


def test_nobody_answers_when_it_is_over(pack: Pack) -> None:
    with serve_externals(pack, size=1) as externals:
        similar = externals["similar"]
    with pytest.raises(ValueFault, match="external predicate similar is no longer served"):
        similar.answer([("a", 1)])


def test_another_file_than_the_pack_describes_is_not_served(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "rules").mkdir(parents=True)
    (folder / "rules/a.mg").write_text(DECL)
    (folder / "externals.py").write_text(SOURCE)
    described = read_pack(folder)
    (folder / "externals.py").write_text(SOURCE + "\n# more\n")
    with pytest.raises(PackError, match="the file has changed"), serve_externals(described):
        pass


@pytest.mark.parametrize(
    ("file", "beside"), [("externals.py", "lookup.py"), ("externals/__init__.py", "externals/lookup.py")]
)
def test_nor_is_what_that_file_imports(tmp_path: Path, file: str, beside: str) -> None:
    dot = "." if "/" in beside else ""
    for name, text in {"rules/a.mg": DECL, file: f"from {dot}lookup import X\n{SOURCE}", beside: "X = 1\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    described = read_pack(tmp_path)
    with serve_externals(described, size=1) as externals:
        assert externals["similar"].answer([("a", 1)]) == [[("a 0",)]]
    (tmp_path / beside).write_text("X = 2\n")
    with pytest.raises(PackError, match="the pack has changed"), serve_externals(described):
        pass


def test_a_pack_without_externals_needs_no_host(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/a.mg").write_text("p(1).")
    with serve_externals(read_pack(tmp_path)) as externals:
        assert externals == {}


@pytest.mark.parametrize("answer", ["ab", b"ab", bytearray(b"ab"), {"a": 1, "b": 2}])
@pytest.mark.parametrize(("signature", "mode"), [("p(X, Y)", "+-"), ("p(X, Y, Z)", "+--"), ("p(X)", "+")])
@pytest.mark.parametrize("batch", [False, True])
def test_a_text_is_no_list_of_rows(answer: object, signature: str, mode: str, batch: bool) -> None:
    @external(signature, mode=mode, batch=batch)
    def p(_question: object) -> object:
        return [answer] if batch else answer

    with pytest.raises(TypeError, match="an answer is a list of rows, not a "):
        served_function(p)([["x"]])


@pytest.mark.parametrize("row", ["ab", b"ab", {"a": 1, "b": 2}])
def test_a_text_is_no_row_of_letters(row: object) -> None:
    @external("p(X, Y, Z)", mode="+--")
    def p(_question: object) -> list[object]:
        return [row]

    with pytest.raises(TypeError, match="a row is a tuple of 2 values"):
        served_function(p)([["x"]])


def test_a_text_is_a_row_of_one() -> None:
    @external("p(X, Y)", mode="+-")
    def p(_question: object) -> list[object]:
        return ["ab", ("cd",), ["e", "f"]]

    assert served_function(p)([["x"]]) == {"rows": [[["ab"], ["cd"], [["e", "f"]]]]}


def test_a_declared_function_stays_what_it_was() -> None:
    @external("twice(X, Y)", mode="+-")
    def twice(x: int) -> list[int]:
        return [2 * x]

    assert twice(3) == [6]
