"""What holds of every entry, whatever it computes."""

import re
from collections.abc import Iterator, Mapping

import pytest

from manglecp.mangle.builtins import FUNCTIONS, PREDICATES, REDUCERS, Function, Predicate, Reducer

_BASE = {"/any", "/number", "/float64", "/string", "/name", "/time", "/duration", "/bytes", "/true", "/false", "/null"}
_CONSTRUCTORS = {"fn:List": 1, "fn:Option": 1, "fn:Singleton": 1, "fn:Pair": 2, "fn:Map": 2, "fn:Struct": 0}
_TOKEN = re.compile(r"fn:[A-Z][A-Za-z]*|/[a-z0-9]+|[A-Z]|[(,)]| ")


def variables(text: str) -> set[str]:
    """The type variables of a type; fails if the text is not a type of the language."""
    assert "".join(_TOKEN.findall(text)) == text, text
    tokens = iter([token for token in _TOKEN.findall(text) if token != " "] + [""])
    found: set[str] = set()
    assert _type(next(tokens), tokens, found) == "", text
    return found


def _type(token: str, tokens: Iterator[str], found: set[str]) -> str:
    """Reads one type and returns the token behind it."""
    if not token.startswith("fn:"):
        assert token in _BASE or token.isupper(), token
        found |= {token} - _BASE
        return next(tokens)
    assert next(tokens) == "("
    count, ahead = 0, next(tokens)
    while ahead != ")":
        ahead = _type(ahead, tokens, found)
        count += 1
        if ahead == ",":
            ahead = next(tokens)
    assert count >= 1 if token == "fn:Union" else count == _CONSTRUCTORS[token]
    return next(tokens)


def applicable(entries: Mapping[str, Function] | Mapping[str, Reducer]) -> list[Function | Reducer]:
    return list(entries.values())


@pytest.mark.parametrize("entry", applicable(FUNCTIONS) + applicable(REDUCERS), ids=lambda entry: entry.name)
def test_functions_and_reducers_are_well_formed(entry: Function | Reducer) -> None:
    assert re.fullmatch(r"fn:[a-z0-9_]+(:[a-z0-9_]+)?", entry.name)
    known = set().union(*(variables(param) for param in entry.params), variables(entry.rest or "/any"))
    assert variables(entry.result) <= known
    assert entry.doc.endswith(".")
    assert "\n" not in entry.doc
    few = len(entry.params)
    assert entry.accepts(few)
    assert not entry.accepts(few - 1)
    assert entry.accepts(few + 2) == (entry.rest is not None)


@pytest.mark.parametrize("entry", PREDICATES.values(), ids=lambda entry: entry.name)
def test_predicates_are_well_formed(entry: Predicate) -> None:
    assert re.fullmatch(r":[a-z_]+(64)?(:[a-z_]+)?", entry.name)
    assert re.fullmatch(r"[+-]+", entry.modes)
    assert len(entry.modes) == len(entry.params)
    for param in entry.params:
        variables(param)
    assert entry.doc.endswith(".")
    assert "\n" not in entry.doc


@pytest.mark.parametrize("table", [FUNCTIONS, PREDICATES, REDUCERS])
def test_tables_are_keyed_by_name_and_read_only(table: Mapping[str, Function | Predicate | Reducer]) -> None:
    assert all(entry.name == name for name, entry in table.items())
    assert not hasattr(table, "__setitem__")


def test_the_tables_are_complete() -> None:
    assert len(FUNCTIONS) == 76
    assert len(PREDICATES) == 50
    assert len(REDUCERS) == 18
    assert "fn:group_by" not in FUNCTIONS.keys() | REDUCERS.keys()


def test_list_folds_are_functions_and_reducers() -> None:
    assert sorted(FUNCTIONS.keys() & REDUCERS.keys()) == [
        "fn:duration:max",
        "fn:duration:min",
        "fn:duration:sum",
        "fn:float:max",
        "fn:float:min",
        "fn:float:sum",
        "fn:max",
        "fn:min",
        "fn:sum",
        "fn:time:max",
        "fn:time:min",
    ]


@pytest.mark.parametrize(
    ("name", "accepted", "refused"),
    [
        ("fn:plus", [0, 1, 5], []),
        ("fn:minus", [1, 2, 5], [0]),
        ("fn:mod", [2], [0, 1, 3]),
        ("fn:tuple", [1, 2, 9], [0]),
        ("fn:map", [0, 2, 4], [1, 3]),
        ("fn:struct", [0, 2, 4], [1, 3]),
        ("fn:time:now", [0], [1]),
        ("fn:string:replace", [4], [1, 3, 5]),
    ],
)
def test_argument_counts(name: str, accepted: list[int], refused: list[int]) -> None:
    assert all(FUNCTIONS[name].accepts(count) for count in accepted)
    assert not any(FUNCTIONS[name].accepts(count) for count in refused)


@pytest.mark.parametrize(
    ("name", "accepted", "refused"),
    [
        ("fn:count", [0], [1]),
        ("fn:sum", [1], [0, 2]),
        ("fn:collect", [1, 2, 5], [0]),
        ("fn:collect_to_map", [2], [0, 1, 3]),
    ],
)
def test_reducer_argument_counts(name: str, accepted: list[int], refused: list[int]) -> None:
    assert all(REDUCERS[name].accepts(count) for count in accepted)
    assert not any(REDUCERS[name].accepts(count) for count in refused)


def test_only_the_collecting_reducers_skip_failing_rows() -> None:
    skipping = {name for name, reducer in REDUCERS.items() if reducer.skips_failing_rows}
    assert skipping == {"fn:collect", "fn:collect_distinct", "fn:collect_to_map"}
